"""The table of extension points agrees with the files that declare an existing instance."""

from __future__ import annotations

import dataclasses
import re
from importlib import import_module
from pathlib import Path

import pytest

from provisioner.runtime.integrations import Integration

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "provisioner"
PAGE = ROOT / "docs" / "extension-points.md"
ROW = re.compile(r"^\| (an? [^|]+) \| (\d+) \| `([^|]+)` \| ([^|]+) \|$", re.MULTILINE)
FILES_MAX = 2
KINDS = {
    "a BMC vendor",
    "a check",
    "a switch OS",
    "a component kind",
    "a setting",
    "a route with its verb",
    "a stop condition of campaigns",
}


def _read_rows() -> list[tuple[str, int, str, set[str]]]:
    return [
        (kind, int(count), example, set(re.findall(r"`([^`]+)`", files)))
        for kind, count, example, files in ROW.findall(PAGE.read_text(encoding="utf-8"))
    ]


def _find_switch_os(example: str) -> set[str]:
    """Return the folder of an integration, and the file that registers it."""
    folder = f"integrations/{example}/"
    assert (PRODUCT / folder / "system.py").is_file()
    entry = f'{example} = "provisioner.integrations.{example}:INTEGRATION"'
    assert entry in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return {folder, "pyproject.toml"}


def _find_route(example: str) -> set[str]:
    """Return the module that declares a route, and the table that gives it its verb."""
    verbs = "api/route_commands.csv"
    assert re.search(rf"^{example},", (PRODUCT / verbs).read_text(encoding="utf-8"), re.MULTILINE)
    return {verbs} | _find_files(f'"{example}"')


FINDERS = {"a switch OS": _find_switch_os, "a route with its verb": _find_route}


def _find_files(example: str) -> set[str]:
    """Return the modules and data files with a text, without the simulator and its twin."""
    whole = re.compile(rf"(?<!\w){re.escape(example)}(?!\w)")
    return {
        str(path.relative_to(PRODUCT))
        for suffix in ("py", "yaml")
        for path in PRODUCT.rglob(f"*.{suffix}")
        if not {"sim", "twin", "content"} & set(path.relative_to(PRODUCT).parts)
        and (whole.search(path.read_text(encoding="utf-8")) or path.stem == example)
    }


def test_the_table_has_every_kind_of_extension() -> None:
    assert {kind for kind, *_ in _read_rows()} == KINDS


@pytest.mark.parametrize("row", _read_rows(), ids=lambda row: row[0])
def test_an_extension_touches_as_many_files_as_the_page_says(
    row: tuple[str, int, str, set[str]],
) -> None:
    kind, count, example, listed = row
    find_files = FINDERS.get(kind, _find_files)

    assert find_files(example) == listed
    assert len(listed) == count <= FILES_MAX


def test_the_page_has_each_offer_of_an_integration() -> None:
    offers = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    fields = {field.name for field in dataclasses.fields(Integration)}

    assert sorted(offers) == sorted(fields - {"name", "about", "switched_on"})


def test_each_class_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`((?:[a-z_]+\.)+)([A-Z]\w+)`", PAGE.read_text(encoding="utf-8")))

    assert len(named) > 10
    for module, name in named:
        assert hasattr(import_module(f"provisioner.{module.rstrip('.')}"), name), name

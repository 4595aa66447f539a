"""Integrations are found by entry points, imported only where they are on, and may be anybody's."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from provisioner.model.input_error import InputError
from provisioner.runtime.integrations import (
    GROUP,
    Integration,
    build_pdus,
    find_command,
    find_integrations,
    load_reference,
)
from provisioner.settings import Settings

ROOT = Path(__file__).parents[2]
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "rack-lights"
version = "1.0"
[project.entry-points."gpu_provisioner.integrations"]
rack_lights = "rack_lights:INTEGRATION"
[tool.setuptools]
packages = ["rack_lights"]
"""
REGISTRATION = """
from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="rack_lights",
    about="Lights on racks.",
    switched_on=lambda settings, environ: environ.get("RACK_LIGHTS") == "on",
    audit_sinks="rack_lights.offers:open_sinks",
    commands={"lights": "rack_lights.offers:lights"},
)
"""
OFFERS = '''
from contextlib import asynccontextmanager


class Lights:
    name = "lights"


@asynccontextmanager
async def open_sinks(settings, clock):
    yield (Lights(),)
    print("closed")


def lights(rack: str) -> None:
    """Light a rack."""
    print(f"{rack} is lit")
'''
OPENING = """
import asyncio, json, os, sys
from provisioner.runtime.integrations import build_pdus, open_audit_sinks, open_tickets
from provisioner.settings import Settings
import provisioner.cli.serve.serve

async def main():
    chosen = Settings()
    async with open_tickets(chosen, None, os.environ) as tickets:
        async with open_audit_sinks(chosen, None, os.environ) as sinks:
            names = [sink.name for sink in sinks]
            pdus = build_pdus(chosen, None, os.environ)
            inside = ("provisioner.integrations", "rack_lights")
            loaded = sorted(m for m in sys.modules if m.startswith(inside))
            print(json.dumps([tickets, names, dict(pdus), loaded]))
asyncio.run(main())
"""
OURS = sorted(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which pip installed a stranger's wheel."""
    source = tmp_path_factory.mktemp("rack-lights")
    (source / "rack_lights").mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "rack_lights" / "__init__.py").write_text(REGISTRATION)
    (source / "rack_lights" / "offers.py").write_text(OFFERS)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wheels = source / "dist"
    wheel = ["wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w", str(wheels)]
    _run([*pip, *wheel, str(source)])
    target = tmp_path_factory.mktemp("site")
    (built,) = wheels.glob("*.whl")
    _run([*pip, "install", "--no-index", "--no-deps", "--target", str(target), str(built)])
    return target


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """Let a test say which entry points Python's metadata lists."""
    listed: list[EntryPoint] = []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: listed)
    find_integrations.cache_clear()
    yield listed
    find_integrations.cache_clear()


def _run(words: list[str], **environ: str) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=300, env={**os.environ, **environ}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_installed_registers_every_integration_of_the_product() -> None:
    found = find_integrations()

    assert sorted(one.name for one in found) == OURS
    for one in found:
        named = (f.name for f in fields(Integration) if f.name not in ("name", "about"))
        offers = [v for v in (getattr(one, n) for n in named) if isinstance(v, str)]
        offers += one.commands.values()
        assert [load_reference(one, o) for o in offers if o]


def test_a_bare_daemon_imports_no_integration_beyond_its_registration_and_its_routes() -> None:
    tickets, sinks, pdus, loaded = json.loads(_run([sys.executable, "-c", OPENING]))

    assert (tickets, sinks, pdus) == (None, [], {})
    packages = {"provisioner.integrations", *(f"provisioner.integrations.{n}" for n in OURS)}
    # a route is declared with its records and its handler, which read what was kept
    routed = {"optics", "racks", "scim", "webhooks"}
    acting = {
        f"provisioner.integrations.{n}" for n in ("webhooks.webhook_posts", "racks.rack_update")
    }
    assert packages <= set(loaded)
    assert {name.split(".")[2] for name in set(loaded) - packages} == routed
    assert not acting & set(loaded)


@pytest.mark.slow
def test_a_strangers_wheel_is_asked_only_once_it_is_switched_on(installed: Path) -> None:
    path = str(installed)

    off = _run([sys.executable, "-c", OPENING], PYTHONPATH=path)
    on = _run([sys.executable, "-c", OPENING], PYTHONPATH=path, RACK_LIGHTS="on").splitlines()

    _, sinks, _, loaded = json.loads(off)
    assert sinks == []
    assert [m for m in loaded if m.startswith("rack")] == ["rack_lights"]
    assert json.loads(on[0])[1] == ["lights"]
    assert on[1:] == ["closed"]


@pytest.mark.slow
def test_a_strangers_command_is_found_by_its_name_and_stands_in_no_help(installed: Path) -> None:
    program = [sys.executable, "-m", "provisioner"]

    assert _run([*program, "lights", "r7"], PYTHONPATH=str(installed)) == "r7 is lit\n"
    assert "lights" not in _run([*program, "--help"], PYTHONPATH=str(installed))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("no_such_package:INTEGRATION", "cannot be loaded"),
        ("provisioner.integrations.tickets:NOTHING", "cannot be loaded"),
        ("provisioner.integrations.tickets:__name__", "is no Integration of this name"),
        ("provisioner.integrations.tickets:INTEGRATION", "is no Integration of this name"),
    ],
)
def test_a_broken_registration_is_named_with_its_package(
    entries: list[EntryPoint], value: str, problem: str
) -> None:
    entries.append(EntryPoint("lights", value, GROUP))

    with pytest.raises(InputError, match=problem) as refused:
        find_integrations()

    assert refused.value.where == "lights"


def test_two_packages_cannot_register_one_name(entries: list[EntryPoint]) -> None:
    entries.append(EntryPoint("tickets", "provisioner.integrations.tickets:INTEGRATION", GROUP))
    entries.append(EntryPoint("tickets", f"{__name__}:SECOND", GROUP))

    with pytest.raises(InputError, match="two packages"):
        find_integrations()


SECOND = Integration(name="tickets", about="The same name again.", commands={"x": "json:no_such"})


def test_a_command_whose_module_lacks_it_is_refused_by_name(entries: list[EntryPoint]) -> None:
    entries.append(EntryPoint("tickets", f"{__name__}:SECOND", GROUP))

    assert find_command("y") is None
    with pytest.raises(InputError, match="json:no_such"):
        find_command("x")


def test_a_site_does_not_run_without_the_outlets_that_it_configured(
    entries: list[EntryPoint],
) -> None:
    pdu = {"kind": "command", "argv": ["/bin/true"]}
    chosen = Settings.model_validate({"pdus": {"a": pdu}}, strict=False)

    assert entries == []
    with pytest.raises(InputError, match="no installed integration offers outlets"):
        build_pdus(chosen, None, {})  # type: ignore[arg-type]

"""Every package that is installed, here and in the image, is one file of known bytes."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYTHON = ("requirements.lock", "tests/fuzz/requirements.lock", "images/lock/agent.lock",
          "images/lock/builder.lock")  # fmt: skip
LOCK = ROOT / "requirements.lock"
DEBIAN = ("images/lock/debian.lock", "images/lock/debian-build.lock")
PINNED = re.compile(r"[A-Za-z0-9._-]+(\[[a-z0-9,_-]+\])?==[^\s;]+( *;.*)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def requirements(text: str) -> list[str]:
    """Logical lines without comments."""
    joined = text.replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line]


def wrong(text: str) -> list[str]:
    """Lines that would install something whose bytes nobody has seen."""
    bad = []
    for line in requirements(text):
        what, *hashes = re.split(r"\s+(?=--hash=)", line)
        good = PINNED.fullmatch(what.strip()) and hashes
        if not good or not all(HASH.fullmatch(h.strip()) for h in hashes):
            bad.append(line[:80])
    return bad


@pytest.mark.parametrize("lock", PYTHON)
def test_every_python_package_is_pinned_with_its_digests(lock: str):
    text = (ROOT / lock).read_text()

    assert requirements(text)
    assert wrong(text) == []


@pytest.mark.parametrize("lock", DEBIAN)
def test_every_debian_package_is_pinned_with_its_digest(lock: str):
    lines = requirements((ROOT / lock).read_text())

    assert lines
    assert [line for line in lines if not re.search(r"\b[0-9a-f]{64}\b", line)] == []


@pytest.mark.parametrize(
    "line",
    ["aiohttp", "aiohttp>=3", "aiohttp==3.14.5", "aiohttp==3.14.5 --hash=md5:00",
     "-e .", "--index-url https://evil.example/", "x @ https://evil.example/x.whl",
     "git+https://evil.example/x@main", "aiohttp==3.14.5 --hash=sha256:zz"],
)  # fmt: skip
def test_a_line_that_pins_no_bytes_is_noticed(line: str):
    assert wrong(f"# a lock\n{line}\n") == [line]


def test_what_installs_from_a_lock_demands_its_digests():
    said = [(ROOT / name).read_text() for name in (".ci/setup", "Makefile")]
    words = [w for text in said for w in requirements(text) if "pip install" in w and " -r " in w]

    assert words
    assert [w for w in words if "--require-hashes" not in w] == []


def test_every_package_that_the_program_asks_for_is_in_the_lock():
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = {re.split(r"[\[<>=~!; ]", line)[0] for line in asked}
    locked = requirements((ROOT / "requirements.lock").read_text())
    there = {re.split(r"[\[=]", line)[0] for line in locked}

    assert wanted
    assert plain(wanted) <= plain(there)


def plain(names: set[str]) -> set[str]:
    """Names as PyPI compares them (PEP 503)."""
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def test_an_extra_that_a_package_asks_for_is_pinned_with_it_as_pip_wants_it() -> None:
    """pip refuses `pydantic[email]>=2` beside a digest of `pydantic` alone; uv does not."""
    pinned = [Requirement(re.split(r"\s+--hash", r)[0]) for r in requirements(LOCK.read_text())]
    asked: dict[str, set[str]] = {}
    for one in pinned:
        asked.setdefault(canonicalize_name(one.name), {""}).update(one.extras)

    wanted = {
        (canonicalize_name(other.name), extra)
        for name, extras in asked.items()
        for text in requires(name) or ()
        for other in [Requirement(text)]
        for extra in other.extras
        if other.marker is None or any(other.marker.evaluate({"extra": e}) for e in extras)
    }
    assert wanted
    assert {(name, extra) for name, extra in wanted if extra not in asked[name]} == set()

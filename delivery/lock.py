"""The packages that the program needs where it runs, with their digests, out of the one lock.

requirements.lock holds the developers' packages too. The packages of a release are those that the
program's own requirements reach, with its extras, by the metadata of the installed packages.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from delivery.sources import NAME, ROOT, DeliveryError

LOCK = ROOT / "requirements.lock"
EXTRAS = ("postgresql", "traces", "kubernetes")  # a release brings them all
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[a-z0-9,_-]+\])?==([^ ;\\]+)")
DIGEST = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Package:
    """A locked package: its files' SHA-256 digests, and the packages that it requires."""

    name: str
    version: str
    digests: tuple[str, ...]
    requires: tuple[str, ...]


def read_pins(text: str) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Return version and digests by name, of a lock as uv writes it."""
    pins: dict[str, tuple[str, tuple[str, ...]]] = {}
    name = ""
    for line in text.splitlines():
        if pin := PIN.match(line):
            name = canonicalize_name(pin[1])
            pins[name] = (pin[2], ())
        elif name and (digest := DIGEST.search(line)):
            version, digests = pins[name]
            pins[name] = (version, (*digests, digest[1]))
    return pins


def read_packages(lock: Path = LOCK) -> tuple[Package, ...]:
    """Return every package that a release brings, sorted by name.

    Raises DeliveryError where the installed packages are not those of the lock.
    """
    pins = read_pins(lock.read_text(encoding="utf-8"))
    reached = _follow_requirements(read_requirements())
    packages = []
    for name, requires in sorted(reached.items()):
        if name not in pins:
            raise DeliveryError(f"{name} is needed and not in {lock.name}: run make lock")
        version, digests = pins[name]
        installed = importlib.metadata.version(name)
        if installed != version:
            problem = f"{name} {installed} is installed, {lock.name} has {version}"
            raise DeliveryError(f"{problem}: run make setup")
        packages.append(Package(name, version, digests, requires))
    return tuple(packages)


def read_requirements() -> tuple[Requirement, ...]:
    """Return the requirements of the program itself, with its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *(r for extra in EXTRAS for r in extras[extra])]
    return tuple(Requirement(line) for line in listed)


def find_direct(requirements: Iterable[Requirement]) -> tuple[str, ...]:
    """Return the names of the requirements that hold on this platform, sorted."""
    needed = (r for r in requirements if r.marker is None or r.marker.evaluate())
    return tuple(sorted({canonicalize_name(r.name) for r in needed}))


def _follow_requirements(roots: Iterable[Requirement]) -> Mapping[str, tuple[str, ...]]:
    """Return the names that each reached package requires, with the extras asked of it."""
    extras: dict[str, set[str]] = {}
    reached: dict[str, tuple[str, ...]] = {}
    waiting = [r for r in roots if r.marker is None or r.marker.evaluate()]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        asked_before = extras.setdefault(name, set())
        if name in reached and requirement.extras <= asked_before:
            continue
        asked_before |= requirement.extras
        children = [
            child
            for line in importlib.metadata.requires(name) or ()
            if _is_needed(child := Requirement(line), asked_before)
        ]
        reached[name] = find_direct(Requirement(c.name) for c in children)
        waiting += children
    return reached


def _is_needed(requirement: Requirement, extras: Iterable[str]) -> bool:
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))


def write_requirements(packages: Iterable[Package]) -> str:
    """Return the packages as pip reads them with --require-hashes."""
    lines = [f"# The packages of {NAME}: pip install --require-hashes --no-deps -r THIS"]
    for package in packages:
        digests = "".join(f" \\\n    --hash=sha256:{digest}" for digest in package.digests)
        lines.append(f"{package.name}=={package.version}{digests}")
    return "\n".join(lines) + "\n"

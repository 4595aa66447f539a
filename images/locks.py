"""Reads the lock files: what may go into the image, each with its digest.

`*.lock` of Python are what pip takes with --require-hashes. `debian.lock` and `bootloader.lock` are
ours: one line "name version sha256" for each package, or file of a boot loader, that is allowed in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LINE_CHARS_MAX = 400
LINES_MAX = 5000  # a Debian ramdisk has some 450 packages
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")
_SHA256 = re.compile(r"[0-9a-f]{64}|-")


class BadInput(Exception):
    """An input that is not what is pinned; the message names it and what to do."""


@dataclass(frozen=True)
class Requirement:
    """One Python package: exactly one version, and the digests of its files."""

    name: str
    version: str
    hashes: frozenset[str]


@dataclass(frozen=True, order=True)
class Package:
    """One Debian package or file. `sha256` is "-" where no index had it (then never locked)."""

    name: str
    version: str
    sha256: str

    def line(self) -> str:
        """As it stands in a lock file."""
        return f"{self.name} {self.version} {self.sha256}"


def canonical(name: str) -> str:
    """A Python package's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(text: str, source: str) -> dict[str, Requirement]:
    """Python requirements by canonical name. Raises BadInput for a line without pin or hashes."""
    found: dict[str, Requirement] = {}
    for entry in text.replace("\\\n", " ").splitlines():
        line = entry.split(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        pin, hashes = _PIN.match(line), frozenset(_HASH.findall(line))
        if pin is None or not hashes:
            raise BadInput(f"{source}: '{line[:80]}' has no exact version or no sha256")
        requirement = Requirement(canonical(pin[1]), pin[2], hashes)
        if found.setdefault(requirement.name, requirement) != requirement:
            raise BadInput(f"{source}: {requirement.name} stands there twice")
    if not found:
        raise BadInput(f"{source}: it pins nothing")
    return found


def packages(text: str, source: str) -> dict[str, Package]:
    """Debian packages by name. Raises BadInput for a line that is none."""
    found: dict[str, Package] = {}
    for number, line in enumerate(text.splitlines()[: LINES_MAX + 1], start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split()
        if len(fields) != 3 or len(line) > LINE_CHARS_MAX or not _SHA256.fullmatch(fields[2]):
            raise BadInput(f"{source}, line {number}: not 'name version sha256'")
        if number > LINES_MAX or fields[0] in found:
            raise BadInput(f"{source}, line {number}: too long, or {fields[0]} stands there twice")
        found[fields[0]] = Package(*fields)
    return found


def differences(wanted: dict[str, Package], there: dict[str, Package]) -> tuple[str, ...]:
    """What is there against what is locked, one line a package, in order of name."""
    lines = []
    for name in sorted(wanted.keys() | there.keys()):
        old, new = wanted.get(name), there.get(name)
        if old == new:
            continue
        was = f"{old.version} {old.sha256[:12]}" if old else "nothing"
        now = f"{new.version} {new.sha256[:12]}" if new else "nothing"
        lines.append(f"{name}: locked {was}, there is {now}")
    return tuple(lines)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_sha256(folder: Path) -> str:
    """SHA-256 over the names, modes (executable or not) and contents below a folder."""
    found = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not _passing(p)):
        mode = "x" if path.stat().st_mode & 0o100 else "-"
        found.update(f"{path.relative_to(folder)}\0{mode}\0{file_sha256(path)}\n".encode())
    return found.hexdigest()


def _passing(path: Path) -> bool:
    """What tools leave behind, which is no input."""
    return any(p in {"__pycache__", "build"} or p.endswith(".egg-info") for p in path.parts)


def verify(files: Iterable[Path], allowed: dict[str, Requirement]) -> None:
    """Every file's digest is one that a lock has. Raises BadInput for the first that is not."""
    hashes = frozenset[str]().union(*(r.hashes for r in allowed.values()))
    for file in files:
        if file_sha256(file) not in hashes:
            raise BadInput(
                f"{file.name}: its digest is in no lock file. Remove it and build again."
            )

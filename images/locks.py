"""Reads the lock files: the packages and files that may go into the image, with their digests.

Python's `*.lock` files are input of pip's --require-hashes. `debian.lock` and `bootloader.lock` are
our own: one line "name version sha256" for each package or boot loader file that is allowed.
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
    """Raised for an input that differs from its pin; the message names it and a remedy."""


@dataclass(frozen=True)
class Requirement:
    """One Python package: exactly one version, and the digests of its files."""

    name: str
    version: str
    hashes: frozenset[str]


@dataclass(frozen=True, order=True)
class Package:
    """One Debian package or file. `sha256` is "-" if no index has it; then it has no lock."""

    name: str
    version: str
    sha256: str

    def to_line(self) -> str:
        """Return the package's line in a lock file."""
        return f"{self.name} {self.version} {self.sha256}"


def normalize_name(name: str) -> str:
    """Return a Python package's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_requirements(text: str, source: str) -> dict[str, Requirement]:
    """Return Python requirements by canonical name. Raises BadInput for one without pin or hash."""
    pins: dict[str, Requirement] = {}
    for entry in text.replace("\\\n", " ").splitlines():
        line = entry.split(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        pin, hashes = _PIN.match(line), frozenset(_HASH.findall(line))
        if pin is None or not hashes:
            raise BadInput(f"{source}: '{line[:80]}' has no exact version or no sha256")
        requirement = Requirement(normalize_name(pin[1]), pin[2], hashes)
        if pins.setdefault(requirement.name, requirement) != requirement:
            raise BadInput(f"{source}: {requirement.name} is listed twice")
    if not pins:
        raise BadInput(f"{source}: it has no pins")
    return pins


def parse_packages(text: str, source: str) -> dict[str, Package]:
    """Return Debian packages by name. Raises BadInput for a malformed line."""
    parsed: dict[str, Package] = {}
    for number, line in enumerate(text.splitlines()[: LINES_MAX + 1], start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split()
        if len(fields) != 3 or len(line) > LINE_CHARS_MAX or not _SHA256.fullmatch(fields[2]):
            raise BadInput(f"{source}, line {number}: not 'name version sha256'")
        if number > LINES_MAX or fields[0] in parsed:
            raise BadInput(f"{source}, line {number}: too long, or {fields[0]} is listed twice")
        parsed[fields[0]] = Package(*fields)
    return parsed


def find_differences(locked: dict[str, Package], present: dict[str, Package]) -> tuple[str, ...]:
    """Return how the present packages differ from the locked ones, one line each, by name."""
    lines = []
    for name in sorted(locked.keys() | present.keys()):
        old, new = locked.get(name), present.get(name)
        if old == new:
            continue
        was = f"{old.version} {old.sha256[:12]}" if old else "nothing"
        now = f"{new.version} {new.sha256[:12]}" if new else "nothing"
        lines.append(f"{name}: locked {was}, there is {now}")
    return tuple(lines)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_tree(folder: Path) -> str:
    """Return the SHA-256 over names, modes (executable or not) and contents below a folder."""
    sha256 = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not _is_leftover(p)):
        mode = "x" if path.stat().st_mode & 0o100 else "-"
        sha256.update(f"{path.relative_to(folder)}\0{mode}\0{hash_file(path)}\n".encode())
    return sha256.hexdigest()


def _is_leftover(path: Path) -> bool:
    """Return whether a path is a leftover of a tool and so not an input."""
    return any(p in {"__pycache__", "build"} or p.endswith(".egg-info") for p in path.parts)


def verify(files: Iterable[Path], allowed: dict[str, Requirement]) -> None:
    """Raise BadInput for the first file whose digest is in no lock."""
    hashes = frozenset[str]().union(*(r.hashes for r in allowed.values()))
    for file in files:
        if hash_file(file) not in hashes:
            raise BadInput(
                f"{file.name}: its digest is in no lock file. Remove it and build again."
            )


def check_digest(path: Path, locked: dict[str, Package]) -> None:
    """Raise BadInput if a file is in no lock, or differs from it."""
    pin = locked.get(str(path))
    if pin is None or pin.sha256 != hash_file(path):
        raise BadInput(f"{path} is not the file of its lock; review it and correct the lock")

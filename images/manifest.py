"""The manifest of one image: its inputs and built files, and how two of them differ.

`firmware_matrix.yaml` pins its digest as the maintenance image's version: it covers every package
in the image and the files' own digests, but not the time of the build.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from images.locks import BadInput, Package, find_differences, hash_file

NAME = "provisioner-maintenance"
SIZE_MAX_BYTES = 4 << 20  # of a manifest; one has some 100 kB
FileName = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BuiltFile(_Closed):
    """One built file, beside the manifest."""

    name: str
    sha256: str
    size_bytes: int


class Manifest(_Closed):
    """All properties that distinguish one image from another."""

    schema_version: Literal[1] = 1
    name: str = NAME
    profile: str  # "production" | "test"
    agent_version: str  # of ironic-python-agent
    kernel: str  # release, "6.1.0-56-amd64"
    cmdline: str  # the kernel command line of the ISO
    inputs: dict[str, str]  # lock file or element -> SHA-256
    debian: tuple[str, ...]  # "name version sha256"
    python: tuple[str, ...]  # "name==version", in the agent's environment
    files: dict[str, BuiltFile]  # "kernel", "initramfs", "iso"

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON: the image's version in the matrix."""
        return hashlib.sha256(self.to_canonical_json()).hexdigest()

    def to_canonical_json(self) -> bytes:
        """Return the manifest with sorted keys, without blanks, in UTF-8."""
        tree = self.model_dump(mode="json")
        return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()


def read(path: Path) -> Manifest:
    """Return the manifest in a file. Raises BadInput if the file does not hold one."""
    try:
        if path.stat().st_size > SIZE_MAX_BYTES:
            raise BadInput(f"{path}: too large for a manifest")
        return Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise BadInput(f"{path}: not a manifest: {where}: {fault['msg']}") from None


def write(manifest: Manifest, path: Path) -> None:
    """Write the manifest indented for people; the digest uses the canonical form."""
    tree = manifest.model_dump(mode="json")
    path.write_text(json.dumps(tree, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def describe_file(path: Path) -> BuiltFile:
    """Return the manifest's entry for a built file."""
    return BuiltFile(name=path.name, sha256=hash_file(path), size_bytes=path.stat().st_size)


def check_files(manifest: Manifest, folder: Path) -> None:
    """Raise BadInput for the first file that is not beside the manifest, or differs from it."""
    for entry in manifest.files.values():
        path = folder / entry.name
        if not FileName.fullmatch(entry.name) or not path.is_file():
            raise BadInput(f"{entry.name}: the file is not beside the manifest")
        if describe_file(path) != entry:
            raise BadInput(f"{entry.name}: not the file that the manifest describes")


def compare(old: Manifest, new: Manifest) -> tuple[str, ...]:
    """Return how the contents of two images differ; () means the same inputs and packages.

    The built files' own digests are not compared, because packing includes times.
    """
    lines = [
        f"{field}: {getattr(old, field)} and {getattr(new, field)}"
        for field in ("profile", "agent_version", "kernel", "cmdline")
        if getattr(old, field) != getattr(new, field)
    ]
    lines += [
        f"input {name} differs"
        for name in sorted(old.inputs.keys() | new.inputs.keys())
        if old.inputs.get(name) != new.inputs.get(name)
    ]
    lines += find_differences(_packages(old.debian), _packages(new.debian))
    ours, theirs = set(old.python), set(new.python)
    lines += [f"python: only the first has {p}" for p in sorted(ours - theirs)]
    lines += [f"python: only the second has {p}" for p in sorted(theirs - ours)]
    return tuple(lines)


def _packages(lines: tuple[str, ...]) -> dict[str, Package]:
    return {line.split()[0]: Package(*line.split()) for line in lines if len(line.split()) == 3}


def render_pin(manifest: Manifest, evidence: str) -> str:
    """Return the lines for a site's matrix overlay."""
    iso = manifest.files["iso"]
    return (
        "images:\n"
        "  maintenance:\n"
        f"    version: {manifest.digest()}\n"
        f"    artifact: {iso.name}\n"
        f'    sha256: "{iso.sha256}"\n'
        f"    evidence: {evidence}\n"
    )

"""The manifest of one image: what it is made of and what came out, and how two of them differ.

Its digest is what `firmware_matrix.yaml` pins as the maintenance image's version: it covers every
package in the image and the files' own digests. The time of building is not in it.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from images.locks import BadInput, Package, differences, file_sha256

NAME = "provisioner-maintenance"
SIZE_MAX_BYTES = 4 << 20  # of a manifest; one has some 100 kB
FileName = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BuiltFile(_Closed):
    """One file that was built, beside the manifest."""

    name: str
    sha256: str
    size_bytes: int


class Manifest(_Closed):
    """Everything that tells one image from another."""

    schema_version: Literal[1] = 1
    name: str = NAME
    profile: str  # "production" | "test"
    agent_version: str  # of ironic-python-agent
    kernel: str  # release, "6.1.0-56-amd64"
    cmdline: str  # what the ISO boots with
    inputs: dict[str, str]  # lock file or element -> SHA-256
    debian: tuple[str, ...]  # "name version sha256"
    python: tuple[str, ...]  # "name==version", in the agent's environment
    files: dict[str, BuiltFile]  # "kernel", "initramfs", "iso"

    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the image's version in the matrix."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def canonical(self) -> bytes:
        """Sorted keys, no blanks, UTF-8."""
        tree = self.model_dump(mode="json")
        return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()


def read(path: Path) -> Manifest:
    """A manifest from its file. Raises BadInput if it is none."""
    try:
        if path.stat().st_size > SIZE_MAX_BYTES:
            raise BadInput(f"{path}: too large for a manifest")
        return Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise BadInput(f"{path}: no manifest: {where}: {fault['msg']}") from None


def write(manifest: Manifest, path: Path) -> None:
    """Indented for people; the digest is over the canonical form."""
    tree = manifest.model_dump(mode="json")
    path.write_text(json.dumps(tree, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def described(path: Path) -> BuiltFile:
    """The entry of a file that was built."""
    return BuiltFile(name=path.name, sha256=file_sha256(path), size_bytes=path.stat().st_size)


def check_files(manifest: Manifest, folder: Path) -> None:
    """Every file beside the manifest is the one it names. Raises BadInput for the first that is
    not."""
    for entry in manifest.files.values():
        path = folder / entry.name
        if not FileName.fullmatch(entry.name) or not path.is_file():
            raise BadInput(f"{entry.name}: it is not beside the manifest")
        if described(path) != entry:
            raise BadInput(f"{entry.name}: not the file that the manifest describes")


def compare(old: Manifest, new: Manifest) -> tuple[str, ...]:
    """How two images differ in what they are made of; () means: from the same inputs, the same
    packages. The built files' own digests are not compared: packing keeps times."""
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
    lines += differences(_packages(old.debian), _packages(new.debian))
    ours, theirs = set(old.python), set(new.python)
    lines += [f"python: only the first has {p}" for p in sorted(ours - theirs)]
    lines += [f"python: only the second has {p}" for p in sorted(theirs - ours)]
    return tuple(lines)


def _packages(lines: tuple[str, ...]) -> dict[str, Package]:
    return {line.split()[0]: Package(*line.split()) for line in lines if len(line.split()) == 3}


def pin(manifest: Manifest, evidence: str) -> str:
    """The lines for a site's matrix overlay."""
    iso = manifest.files["iso"]
    return (
        "images:\n"
        "  maintenance:\n"
        f"    version: {manifest.digest()}\n"
        f"    artifact: {iso.name}\n"
        f'    sha256: "{iso.sha256}"\n'
        f"    evidence: {evidence}\n"
    )

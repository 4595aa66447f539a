"""Air-gap bundles: one tar archive of firmware, matrix and wheels, with a signed list in front.

Rule: nothing is written before the signature and every byte were checked, and nothing is in the
archive that the list does not name: the archive's own names, links and modes are never followed.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from provisioner.model.agent import MANIFEST, MANIFEST_PAYLOAD, BundleFile, BundleManifest
from provisioner.model.input_error import InputError
from provisioner.planning.certification.attestation import (
    SIZE_MAX,
    NotAnAttestation,
    parse_envelope,
)
from provisioner.store.signing import signed

CHUNK = 1024 * 1024


def list_files(files: Mapping[str, Path]) -> tuple[BundleFile, ...]:
    """Return the list of files to be packed: path in the bundle -> file. Raises InputError."""
    entries = []
    for path, source in sorted(files.items()):
        try:
            with source.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.seek(0, os.SEEK_END)
            entries.append(BundleFile(path=path, size=size, sha256=digest))
        except OSError as error:
            problem = f"it cannot be read ({error.strerror})"
            raise InputError(str(source), "", problem, "Check it.") from None
        except ValidationError:
            remedy = "Use letters, digits and . _ + ~ - only."
            raise InputError(str(source), "", "its name cannot be in a bundle", remedy) from None
    return tuple(entries)


def pack(output: Path, sealed: str, files: Mapping[str, Path]) -> None:
    """Write the archive of a sealed list; it appears whole or not at all. Raises InputError."""
    manifest = read_sealed_manifest(sealed)
    envelope = sealed.encode()
    if len(envelope) > SIZE_MAX:
        raise InputError(str(output), "", "too many files for one bundle", "Make several.")
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with tarfile.open(partial, "x", format=tarfile.GNU_FORMAT) as archive:
            archive.addfile(_member(MANIFEST, len(envelope)), io.BytesIO(envelope))
            for entry in manifest.files:
                with files[entry.path].open("rb") as file:
                    archive.addfile(_member(_named(entry), entry.size), file)
        # a file that changed while it was packed is reported now, while it can still be corrected
        with partial.open("rb") as file:
            _read(file, manifest, None)
        partial.replace(output)
    except OSError as error:
        problem = f"it cannot be written ({error.strerror or error})"
        raise InputError(str(output), "", problem, "Check the directory and its space.") from None
    finally:
        partial.unlink(missing_ok=True)


def read_sealed_manifest(sealed: str) -> BundleManifest:
    """Return the list in an envelope, by whichever key. Raises InputError for another text."""
    return _parse_list(Path("the sealed list"), sealed.encode(), None)


def verify(bundle: Path, keys: Mapping[str, bytes]) -> BundleManifest:
    """Return the bundle's list, if one of the keys signed it and every byte matches it. Raises
    InputError.
    """
    with _opened(bundle) as file:
        manifest = _manifest(bundle, file, keys)
        file.seek(0)
        _read(file, manifest, None)
        return manifest


def unpack(bundle: Path, keys: Mapping[str, bytes], target: Path) -> BundleManifest:
    """Verify it, then write its files into `target`, which must not be there. Raises InputError."""
    if target.exists() or target.is_symlink():
        raise InputError(str(target), "", "it is there already", "Name a new directory.")
    with _opened(bundle) as file:
        manifest = _manifest(bundle, file, keys)
        file.seek(0)
        _read(file, manifest, None)
        file.seek(0)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            making = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            try:
                _read(file, manifest, making)  # checked again: the file may have been exchanged
                making.chmod(0o755)
                making.rename(target)
            finally:
                shutil.rmtree(making, ignore_errors=True)
        except OSError as error:
            problem = f"it cannot be written ({error.strerror or error})"
            raise InputError(str(target), "", problem, "Check its space.") from None
        return manifest


@contextmanager
def _opened(bundle: Path) -> Iterator[IO[bytes]]:
    try:
        with bundle.open("rb") as file:
            yield file
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error})"
        raise InputError(str(bundle), "", problem, "Check the path.") from None


def _manifest(bundle: Path, file: IO[bytes], keys: Mapping[str, bytes]) -> BundleManifest:
    """Return the list, believed only after its signature."""
    archive = _Members(file)
    name, size = archive.next()
    if name != MANIFEST or size > SIZE_MAX:
        raise _bad(bundle, f"it does not begin with {MANIFEST}")
    return _parse_list(bundle, b"".join(archive.read_content(size)), keys)


def _parse_list(place: Path, text: bytes, keys: Mapping[str, bytes] | None) -> BundleManifest:
    """Return the list in an envelope that one of the keys signed; None: any key will do."""
    try:
        envelope = parse_envelope(text.decode())
    except (NotAnAttestation, UnicodeDecodeError) as error:
        raise _bad(place, str(error)) from None
    if envelope.payload_type != MANIFEST_PAYLOAD:
        raise _bad(place, "its signed content is no list of a bundle")
    if keys is not None and not signed(envelope, keys):
        raise _bad(place, f"no key that is trusted signed it (it names key {envelope.key_id!r})")
    try:
        return BundleManifest.model_validate_json(envelope.payload)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]["msg"]
        raise _bad(place, f"its list cannot be: {problem}") from None


def _read(file: IO[bytes], manifest: BundleManifest, into: Path | None) -> None:
    """Hold every byte against the list; write it below `into`, if there is one."""
    archive = _Members(file)
    archive.skip_member(archive.next()[1])  # the list itself: its signature was checked
    for entry in manifest.files:
        name, size = archive.next()
        if (name, size) != (_named(entry), entry.size):
            raise _bad(Path(entry.path), f"in its place is {name[:100]!r} with {size} bytes")
        digest = hashlib.sha256()
        if into is None:
            for chunk in archive.read_content(size):
                digest.update(chunk)
        else:
            path = into / entry.path  # of the signed list, whose names have one folder of ours
            path.parent.mkdir(exist_ok=True)
            with path.open("xb") as out:
                for chunk in archive.read_content(size):
                    digest.update(chunk)
                    out.write(chunk)
        if digest.hexdigest() != entry.sha256:
            raise _bad(Path(entry.path), f"its SHA-256 is {digest.hexdigest()}")
    if not archive.has_ended():
        raise _bad(Path("the archive"), "there is something behind the last file of its list")


class _Members:
    """Regular files of a plain tar archive, one after the other; everything else is refused."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def next(self) -> tuple[str, int]:
        """Name and size of the next member. Raises InputError."""
        try:
            info = tarfile.TarInfo.frombuf(self._file.read(tarfile.BLOCKSIZE), "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError) as error:
            raise _bad(Path("the archive"), f"it is damaged or ends early ({error})") from None
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.size < 0:
            raise _bad(Path(info.name[:100]), "this is no plain file")
        return info.name, info.size

    def read_content(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of the member that `next` returned."""
        remaining = size
        while remaining:
            chunk = self._file.read(min(CHUNK, remaining))
            if not chunk:
                raise _bad(Path("the archive"), "it ends in the middle of a file")
            remaining -= len(chunk)
            yield chunk
        self._file.read(-size % tarfile.BLOCKSIZE)

    def skip_member(self, size: int) -> None:
        for _ in self.read_content(size):
            pass

    def has_ended(self) -> bool:
        """Return whether only the archive's padding is left."""
        while chunk := self._file.read(CHUNK):
            if chunk.strip(b"\0"):
                return False
        return True


def _named(entry: BundleFile) -> str:
    """Return a file's name in the archive, which is safe for any other program that unpacks it."""
    return f"files/{entry.sha256}"


def _member(name: str, size: int) -> tarfile.TarInfo:
    """Return the same header for the same file on every machine: no owner, no time."""
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o644
    return info


def _bad(what: Path, problem: str) -> InputError:
    return InputError(str(what), "", problem, "Do not use it; get the bundle again.")


def find_missing_files(
    pinned: Mapping[str, str], directory: Path, seen: Sequence[BundleFile]
) -> tuple[str, ...]:
    """The files that the matrix pins and the bundle lacks. Raises InputError for a wrong digest."""
    have = {f.path.removeprefix("artifacts/"): f.sha256 for f in seen}
    for name, sha256 in sorted(pinned.items()):
        if sha256 and have.get(name, sha256) != sha256:
            problem = f"its SHA-256 is {have[name]}, the matrix pins {sha256}"
            raise InputError(str(directory / name), "", problem, "Download it again.")
    return tuple(sorted(set(pinned) - set(have)))

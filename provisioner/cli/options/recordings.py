"""Reads recorded BMCs from files."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from pydantic import ValidationError

from provisioner.adapters.redfish.recordings.recording import Recording
from provisioner.model.input_error import InputError

BYTES_MAX = 256 * 1024 * 1024  # unpacked; a DGX H100 is 6 MB
_REMEDY = "Make it with `provisioner record URL --out FILE`."


def read_recording(path: Path) -> Recording:
    """Return the recording in a file, packed by gzip or not. Raises InputError."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            unpacked = gzip.GzipFile(fileobj=file) if packed else file
            raw = unpacked.read(BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        problem = getattr(error, "strerror", None) or str(error) or "cannot be read"
        raise InputError(str(path), "", problem, "Check the path.") from None
    if len(raw) > BYTES_MAX:
        raise InputError(str(path), "", f"larger than {BYTES_MAX} bytes", _REMEDY)
    try:
        return Recording.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"][:3])
        raise InputError(str(path), where, first["msg"][:200], _REMEDY) from None

"""Convert qcow2 images into raw ones with qemu-img, so that an agent only receives raw bytes.

The digest of the file was checked before, so it is the file that a person pinned. It is a foreign
format all the same: `qemu-img info` reads it first, and an image that refers to other files
(backing file, external data), is encrypted or marked corrupt is refused, since qemu-img would open
the files that the image names. Both calls run under limits of memory, CPU time and file size, as
OpenStack does after CVE-2015-5162 and CVE-2024-32498.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

MAGIC = b"QFI\xfb"
SIZE_MAX_BYTES = 1 << 40  # 1 TiB: no image of an operating system is near it
_MEMORY_MAX_BYTES = 2 << 30  # OpenStack gives `info` 1 GiB; a conversion needs buffers beside
_INFO_CPU_S = 30  # OpenStack's own limit
_CONVERT_CPU_S = 3600  # 1 TiB at 300 MB/s; images are a hundred times smaller
_MESSAGE_CHARS = 200
_MISSING = "qemu-img is not installed on this machine (Debian: apt-get install qemu-utils)"


class NotReadable(Exception):
    """The file is not a qcow2 image that can be converted here."""


def is_qcow2(path: Path) -> bool:
    """Return whether the file begins as a qcow2 image does, regardless of its name."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


async def convert_to_raw(source: Path, target: Path) -> int:
    """Convert `source` to a sparse raw file at `target` and return its size in bytes.

    Raises `NotReadable`, with the reason, for an image that is refused or cannot be read.
    """
    size = _check(await _run(["info", "--output=json", "-f", "qcow2"], source, _INFO_CPU_S, 0))
    convert = ["convert", "-f", "qcow2", "-O", "raw"]
    await _run(convert, source, _CONVERT_CPU_S, size, target)
    written = await asyncio.to_thread(_sync, target)
    if written != size:
        raise NotReadable(f"qemu-img wrote {written} bytes instead of {size}")
    return size


def _check(output: bytes) -> int:
    """Return the virtual size in bytes, of an image that stands alone."""
    try:
        image = json.loads(output)
        size = int(image["virtual-size"])
    except (ValueError, KeyError, TypeError):
        raise NotReadable("qemu-img describes it in a way that is not understood") from None
    specific = image.get("format-specific", {}).get("data", {})
    for problem, present in {
        "it needs a backing file": "backing-filename" in image,
        "it keeps its data in another file": "data-file" in specific,
        "it is encrypted": image.get("encrypted") or "encrypt" in specific,
        "it is marked as corrupt": specific.get("corrupt"),
        f"its size of {size} bytes is out of bounds": not 0 < size <= SIZE_MAX_BYTES,
    }.items():
        if present:
            raise NotReadable(problem)
    return size


async def _run(
    arguments: list[str], source: Path, cpu_s: int, written_max: int, *target: Path
) -> bytes:
    program = shutil.which("qemu-img")
    limiter = shutil.which("prlimit")
    if program is None or limiter is None:
        raise NotReadable(_MISSING)
    process = await asyncio.create_subprocess_exec(
        limiter,
        f"--as={_MEMORY_MAX_BYTES}",
        f"--cpu={cpu_s}",
        f"--fsize={written_max}",
        "--core=0",
        program,
        *arguments,
        # absolute, so that no part of a name is taken for a protocol or an option
        *(str(path.resolve()) for path in (source, *target)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "LC_ALL": "C"},
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        message = errors.decode("utf-8", "replace").strip() or f"exit code {process.returncode}"
        raise NotReadable(f"qemu-img: {message.replace(str(source.parent), '')[:_MESSAGE_CHARS]}")
    return output


def _sync(path: Path) -> int:
    """Flush the file to the disk and return its size in bytes."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size

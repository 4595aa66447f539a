"""Quotes the TPM: a signature over a nonce and the PCRs of this boot, with the event log.

The attestation key is a primary key of the endorsement hierarchy: the TPM derives the same key at
every boot from a seed that TPM2_Clear does not change, so that the ramdisk has nothing to keep.
"""

from __future__ import annotations

import base64
import re
import tempfile
from pathlib import Path

from provisioner_hardware_manager.commands import Run, run, shorten
from provisioner_hardware_manager.tpm import DEVICE

LOG = Path("/sys/kernel/security/tpm0/binary_bios_measurements")
LOG_MAX = 1024 * 1024
PCRS = "sha256:0,1,2,3,4,5,6,7,8,9,11,12,14"
# restricted: the TPM signs only its own statements with it, never data that look like one
ATTRIBUTES = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda|restricted|sign"
_NONCE = re.compile(r"[0-9a-f]{64}")


def quote(nonce: str, run: Run = run, *, device: Path = DEVICE, log: Path = LOG) -> dict[str, str]:
    """Return `quote`, `signature`, `key` (PEM) and `event_log` in Base64.

    `result` is "done", "not_done" (a tool refused; the detail has its words) or "unsupported" (no
    TPM).
    """
    if not _NONCE.fullmatch(nonce):
        return {"result": "not_done", "detail": "the nonce is not 64 hexadecimal digits"}
    if not device.exists():
        return {"result": "unsupported", "detail": "there is no TPM 2.0 device"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for line in _list_commands(folder, nonce):
            ran = run(*line, timeout_s=120.0)
            if not ran.ok:
                return {"result": "not_done", "detail": shorten(f"{line[0]}: {ran.error}")}
        try:
            files = {n: (folder / n).read_bytes() for n in ("quote", "signature", "key")}
        except OSError as failure:
            return {"result": "not_done", "detail": shorten(failure)}
    content = {**files, "event_log": _read_log(log)}
    encoded = {n: base64.b64encode(raw).decode() for n, raw in content.items()}
    return {"result": "done", "detail": "", **encoded}


def list_key_commands(folder: Path) -> list[list[str]]:
    """Return the commands that derive the attestation key, and write its public part as PEM."""
    key = str(folder / "key.ctx")
    return [
        ["tpm2_createprimary", "-Q", "-C", "e", "-g", "sha256", "-G", "ecc256:ecdsa-sha256:null",
         "-a", ATTRIBUTES, "-c", key],
        ["tpm2_readpublic", "-Q", "-c", key, "-f", "pem", "-o", str(folder / "key")],
    ]  # fmt: skip


def _list_commands(folder: Path, nonce: str) -> list[list[str]]:
    key = str(folder / "key.ctx")
    return [
        *list_key_commands(folder),
        ["tpm2_quote", "-Q", "-c", key, "-l", PCRS, "-q", nonce, "-f", "plain",
         "-m", str(folder / "quote"), "-s", str(folder / "signature")],
    ]  # fmt: skip


def _read_log(log: Path) -> bytes:
    """Return the event log; nothing where the firmware or the kernel has none."""
    try:
        with log.open("rb") as file:
            return file.read(LOG_MAX)
    except OSError:
        return b""

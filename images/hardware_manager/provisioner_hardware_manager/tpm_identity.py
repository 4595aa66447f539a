"""Reads the certificates of the TPM's endorsement keys (EK), and opens a credential with the TPM.

TPM2_ActivateCredential opens it only in the TPM that has both the endorsement key that it was
encrypted to and the attestation key that it names. Both keys are derived anew: nothing is kept.
"""

from __future__ import annotations

import base64
import binascii
import re
import tempfile
from pathlib import Path

from provisioner_hardware_manager.commands import Run, run, shorten
from provisioner_hardware_manager.tpm import DEVICE
from provisioner_hardware_manager.tpm_quote import list_key_commands

KINDS = ("rsa", "ecc", "rsa3072", "ecc384")
# keys of these templates are used with the empty password, those of the others by a policy alone
HIGH_RANGE = ("rsa3072", "ecc384")
INDICES_MAX = 24
CREDENTIAL_MAX = 4096  # one for an RSA key has 344 bytes
LIMIT_S = 120.0  # a discrete TPM may search a minute for the primes of an RSA key
# TCG EK Credential Profile 2.5, table 1: 0x01C00000 to 0x01C07FFF are the maker's certificates, and
# those of issuers begin at 0x01C00100
_INDEX = re.compile(r"0x0*1c0[0-7][0-9a-f]{3}", re.IGNORECASE)


def read(run: Run = run, *, device: Path = DEVICE) -> dict[str, object]:
    """Return `public` (of the attestation key) and `certificates` (index -> DER), in Base64."""
    if not device.exists():
        return {"result": "unsupported", "detail": "there is no TPM 2.0 device"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        listed = run("tpm2_getcap", "handles-nv-index", timeout_s=LIMIT_S)
        if not listed.ok:
            return _refuse("tpm2_getcap", listed.error)
        area = folder / "public"
        make, _ = list_key_commands(folder)
        for line in (
            make,
            ["tpm2_readpublic", "-Q", "-c", str(folder / "key.ctx"), "-o", str(area)],
        ):
            ran = run(*line, timeout_s=LIMIT_S)
            if not ran.ok:
                return _refuse(line[0], ran.error)
        certificates = {}
        for index in _INDEX.findall(listed.text)[:INDICES_MAX]:
            content = folder / index
            # one that cannot be read is left out: its absence proves nothing in its favour
            if run("tpm2_nvread", index, "-o", str(content), timeout_s=LIMIT_S).ok:
                certificates[index.lower()] = _encode(content)
        return {
            "result": "done",
            "detail": "",
            "public": _encode(area),
            "certificates": certificates,
        }


def activate(
    credential: str, key: str, run: Run = run, *, device: Path = DEVICE
) -> dict[str, object]:
    """Return the `secret` of a credential (both in Base64); `key`: the kind of endorsement key."""
    if key not in KINDS:
        return _refuse("the argument", f"key is none of {', '.join(KINDS)}")
    try:
        content = base64.b64decode(credential, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if not 0 < len(content) <= CREDENTIAL_MAX:
        return _refuse("the argument", "the credential is no Base64 of a credential")
    if not device.exists():
        return {"result": "unsupported", "detail": "there is no TPM 2.0 device"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "credential").write_bytes(content)
        problem = ""
        for line in _list_commands(folder, key):
            ran = run(*line, timeout_s=LIMIT_S)
            if not ran.ok:
                problem = f"{line[0]}: {ran.error}"
                break
        if key not in HIGH_RANGE:
            run("tpm2_flushcontext", str(folder / "session"), timeout_s=LIMIT_S)
        if problem:
            return {"result": "not_done", "detail": shorten(problem)}
        return {"result": "done", "detail": "", "secret": _encode(folder / "secret")}


def _list_commands(folder: Path, key: str) -> list[list[str]]:
    make, _ = list_key_commands(folder)
    session = str(folder / "session")
    create = ["tpm2_createek", "-Q", "-G", key, "-c", str(folder / "ek.ctx")]
    open_it = ["tpm2_activatecredential", "-Q", "-c", str(folder / "key.ctx")]
    open_it += ["-C", str(folder / "ek.ctx"), "-i", str(folder / "credential")]
    open_it += ["-o", str(folder / "secret")]
    if key in HIGH_RANGE:
        return [make, create, open_it]
    return [
        make,
        create,
        ["tpm2_startauthsession", "--policy-session", "-S", session],
        ["tpm2_policysecret", "-Q", "-S", session, "-c", "e"],
        [*open_it, "-P", f"session:{session}"],
    ]


def _encode(path: Path) -> str:
    try:
        return base64.b64encode(path.read_bytes()).decode()
    except OSError:
        return ""


def _refuse(what: str, why: object) -> dict[str, object]:
    return {"result": "not_done", "detail": shorten(f"{what}: {why}")}

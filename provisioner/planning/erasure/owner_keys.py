"""Whether shim's machine owner keys are those of the maintenance image and the site. Pure.

A key in MokList signs boot loaders, kernels and modules that the next tenant's host trusts,
although the firmware's own databases are in order. The maintenance image reads the copy that shim
makes for the system that it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.model.erasure import Result
from provisioner.planning.erasure.disk_answers import step_result, strip_control_characters

KEYS_MAX = 512
TEXT_MAX = 120
SHOWN_MAX = 4  # keys in a sentence
# "Debian Secure Boot CA", which each of Debian's shims shows beside MokList.
# source: the certificate (DER) in shimx64.efi.signed of shim-signed 1.51~1+deb12u1+16.1-2~deb12u1
OF_THE_IMAGE = "079646974bce09b1f04da67bd722d1fb0947ae4c4010bccdbba52d5b23cbf1a2"
_UNBLOCK = "reset them at the console (`mokutil --reset`), or name them in the site's list"


def judge_owner_keys(answer: object, own: Sequence[str]) -> tuple[Result, str]:
    """Return the result and its sentence; `own`: SHA-256 of the site's certificates.

    A switched off verification is worse than a key: shim starts whatever is on the drive.
    """
    result, detail = step_result(answer)
    if result is not Result.DONE or not isinstance(answer, Mapping):
        return result, detail
    keys = answer.get("keys")
    verifies = answer.get("verifies")
    if not isinstance(keys, list) or len(keys) > KEYS_MAX or not isinstance(verifies, bool):
        return Result.NOT_DONE, "the image's list of machine owner keys cannot be read"
    names = {name.casefold() for name in own} | {OF_THE_IMAGE}
    shown = [strip_control_characters(key, TEXT_MAX) for key in keys]
    strange = sorted(key for key in shown if key.casefold() not in names)
    problems = []
    if not verifies:
        off = "shim verifies nothing (MokSBState): switch it on (`mokutil --enable-validation`)"
        problems.append(off)
    if strange:
        listed = ", ".join(key[:32] for key in strange[:SHOWN_MAX])
        more = f" and {len(strange) - SHOWN_MAX} more" if len(strange) > SHOWN_MAX else ""
        problems.append(f"keys that shim trusts beside its own: {listed}{more}; {_UNBLOCK}")
    if problems:
        return Result.NOT_DONE, "; ".join(problems)
    return Result.DONE, f"{len(shown)} keys, all of the image's shim or of this site"

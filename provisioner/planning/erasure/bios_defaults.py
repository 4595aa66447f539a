"""Whether a BIOS has its factory defaults after a reset. Pure.

The request's answer proves nothing: some BIOS take a change and drop it at the boot without a word.
A reset is proved by attributes that it changed, or by the state that an earlier proved one left.
"""

from __future__ import annotations

from provisioner.model.erasure import Result
from provisioner.model.machine.bios_state import BiosState

SHOWN_MAX = 6  # names in a sentence
_UNKNOWN = (
    "no attribute changed: all had their defaults, or the BIOS dropped the reset at the boot; "
    "a pinned setting that differs from its default shows which"
)


def judge_defaults(
    before: BiosState, after: BiosState | None, known: BiosState | None
) -> tuple[Result, str]:
    """Return the verdict and its sentence. `known`: the state after an earlier proved reset."""
    if after is None:
        return Result.NOT_DONE, "the BMC shows no attributes after the boot: the result is unknown"
    if not before.names:
        return Result.NOT_DONE, "the BMC showed no attributes before it: the result is unknown"
    if after.waiting:
        waiting = ", ".join(after.waiting[:SHOWN_MAX])
        return Result.NOT_DONE, f"after the boot these attributes still wait: {waiting}"
    earlier = dict(zip(before.names, before.digests, strict=True))
    now = dict(zip(after.names, after.digests, strict=True))
    changed = [n for n, digest in now.items() if n in earlier and earlier[n] != digest]
    if known is not None and (known.names, known.digests) == (after.names, after.digests):
        return Result.DONE, f"as after the last reset; {_count(changed)}"
    if changed:
        return Result.DONE, f"reset by the BMC and booted; {_count(changed)}"
    return Result.NOT_DONE, _UNKNOWN


def _count(changed: list[str]) -> str:
    listed = ", ".join(changed[:SHOWN_MAX])
    return f"{len(changed)} attributes changed" + (f": {listed}" if listed else "")

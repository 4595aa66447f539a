"""Whether the storage of a BlueField is wiped between two tenants, and the proof of it. Pure.

No document names the method of the card's UEFI, and no block can be read from outside. Two things
show: the orders are no longer there, and the system that was on the storage does not start any
more. So a card is only wiped where its bundle is written afterwards: it would have no system.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from provisioner.model.erasure import Result

_RUNNING = "OsIsRunning"  # BootProgress.OemLastState of a BlueField's BMC


def explain_no_wipe(card: str, offered: Sequence[str], followed: Collection[str]) -> str:
    """Return why a card is not wiped; "": it is. `followed`: cards whose bundle is written."""
    if card not in followed:
        return "its bundle is not written in this stay, and the card would have no system"
    if not offered:
        return "its BMC shows no order to wipe its storage (NIC mode?)"
    return ""


def judge_wipe(
    orders: Sequence[str], waiting: Sequence[str], states: Sequence[str | None], watched_s: float
) -> tuple[Result, str]:
    """Return the result and its sentence.

    `waiting`: orders that are still there after the start. `states`: how far the card had booted,
    each time that it was read in the `watched_s` seconds since.
    """
    names = " and ".join(orders)
    if waiting:
        left = " and ".join(waiting)
        return (
            Result.NOT_DONE,
            f"{left} still waits: the host's power cycle did not restart the card",
        )
    if _RUNNING in states:
        return Result.NOT_DONE, f"{names}: accepted, and the card's former system still starts"
    known = [state for state in states if state]
    if not known:
        return Result.NOT_DONE, f"{names}: carried out, and the card shows no progress of its boot"
    seen = f"for {watched_s:.0f} s the card came to {known[-1]}, and no system started"
    return Result.DONE, f"{names}: carried out by the card's UEFI; {seen}"

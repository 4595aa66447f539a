"""What the daemon did to the hardware against what its ledger says: nothing twice, nothing lost.

Written apart from the executor: it reads the simulator's log of physical events, and the ledger's
rows only by their action and status.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from provisioner.integrations.sim.site.site import Site
from provisioner.model.operation import ActionStatus, LedgerEntry

OPEN = (ActionStatus.INTENDED, ActionStatus.SENT)
# after these the same act may be begun again: it did not happen, or the device said that it failed
AGAIN = (ActionStatus.ABSENT, ActionStatus.FAILED, ActionStatus.UNCLEAR)
CARDS = ("bluefield.bundle", "bluefield.bmc")  # behind the BMC that has the slot's name
IN_BAND = ("supernic.nic", "bluefield.nic", "nic.cx7")  # burned from the host


def repeated(site: Site, node: str, rows: Sequence[LedgerEntry], since: float = 0.0) -> list[str]:
    """Everything that was done oftener than the ledger accounts for, one sentence each.

    `since`: what was before then is left out.
    """
    # test_erasure_crashes judges visits
    rows = [r for r in rows if "visit" not in r.before and r.intended_at >= since]
    machine = site.machines.get(node)
    log = machine.log if machine is not None else site.switches[node].log
    done = _done((e.kind, e.subject, e.detail) for e in log if e.time >= since)
    allowed = _accounted(node, rows)
    found = [
        f"{node}: {what} was done {count} times, the ledger accounts for {allowed[what]}"
        for what, count in sorted(done.items())
        if count > allowed[what]
    ]
    return found + _begun_again(rows)


def _done(events: Iterable[tuple[str, str, str]]) -> Counter[str]:
    """How often each thing was done: pushes by BMC, AC cycles, power-offs, switch reboots."""
    done: Counter[str] = Counter()
    for kind, subject, detail in events:
        if kind == "push":
            done[f"push {subject}"] += 1
        elif kind == "ac":
            done["ac"] += 1
        elif kind == "power" and detail == "ForceOff":
            done["off"] += 1
        elif kind == "reset":
            done["reboot"] += 1
    return done


def _accounted(node: str, rows: Iterable[LedgerEntry]) -> Counter[str]:
    """How often each may have been done: a row allows its act once, unless it was never there."""
    allowed: Counter[str] = Counter()
    for row in rows:
        step: dict[str, Any] = row.before["step"]
        activation = str(step["activation"])
        if step["kind"] == "activate":
            # off is absolute: an AC cycle whose host was off already does not switch it off again
            allowed["off"] += activation in ("ac_cycle", "cold_boot")
            if row.status is not ActionStatus.ABSENT:
                allowed["ac"] += activation == "ac_cycle"
                allowed["reboot"] += activation == "image_reboot"
            continue
        if row.status is ActionStatus.ABSENT and step["component"] not in IN_BAND:
            continue
        for what in _pushed(node, str(step["component"]), row.before.get("slots", ())):
            allowed[f"push {what}"] += 1
    return allowed


def _pushed(node: str, component: str, slots: Sequence[str]) -> list[str]:
    """The subjects under which the simulator logs a push of this component."""
    if component == "switch.os":
        return [f"{node}/switch.os"]
    if component in IN_BAND:
        return [f"{slot}/DPU_NIC" for slot in slots]
    return list(slots) if component in CARDS else ["host"]


def _begun_again(rows: Sequence[LedgerEntry]) -> list[str]:
    """Acts that were begun anew while an earlier try was open, or had succeeded unspoiled."""
    tries: dict[str, list[LedgerEntry]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: r.intended_at):
        tries[row.action].append(row)
    found = []
    for action, mine in tries.items():
        for earlier, later in pairwise(mine):
            if earlier.status in OPEN or (
                earlier.status is ActionStatus.CONFIRMED
                and not _spoiled(rows, earlier, later.intended_at)
            ):
                found.append(f"{action} was begun again after {earlier.status}")
    return found


def _spoiled(rows: Iterable[LedgerEntry], row: LedgerEntry, until: float) -> bool:
    """Whether a reset came between: what was written then is used up, for good or ill."""
    return row.before["step"]["kind"] == "activate" or any(
        r.before["step"]["kind"] == "activate" and row.intended_at < r.intended_at < until
        for r in rows
        if r.status in (ActionStatus.CONFIRMED, ActionStatus.FAILED)
    )

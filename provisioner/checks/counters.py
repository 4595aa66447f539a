"""What counters did between two looks: a load test is judged by what grew, not by what was there.

Rule: a counter that went backwards (reset, wrapped, driver loaded again), is missing in one of the
looks, or belongs to another boot tells nothing; nothing told is `Unreadable`, never zero
(NVSentinel's counter hygiene: a missing counter is no number).
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.checks.check import BEFORE, Command, Unreadable
from provisioner.model.health import Evidence


def earlier(evidence: Mapping[str, Evidence], command: Command) -> Mapping[str, Evidence] | None:
    """The outputs of the look before the load, under their own names; None: this is the first."""
    found = evidence.get(command.name + BEFORE)
    return None if found is None else {command.name: found}


def grown(before: Mapping[str, int], after: Mapping[str, int], what: str) -> dict[str, int]:
    """How much each counter grew. Raises `Unreadable` where that cannot be told."""
    for name in sorted(set(before) ^ set(after)):
        raise Unreadable(f"{what}: {name} is in one of two looks only")
    growth = {name: after[name] - before[name] for name in after}
    for name, delta in growth.items():
        if delta < 0:
            raise Unreadable(f"{what}: {name} went backwards, from {before[name]} to {after[name]}")
    return growth


def per_device(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]], what: str
) -> dict[str, dict[str, int]]:
    """`grown` for every device; a device that is in one look only is `Unreadable`."""
    for device in sorted(set(before) ^ set(after)):
        raise Unreadable(f"{what}: {device} is in one of two looks only")
    return {d: grown(before[d], after[d], f"{what} of {d}") for d in after}

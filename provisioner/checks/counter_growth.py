"""Computes how much counters grew between two readings, so that a load test is judged by growth.

A counter says nothing if it went backwards (reset, wrapped, driver reloaded), is missing in one of
the readings, or belongs to another boot. That is `Unreadable`, never zero (NVSentinel's counter
hygiene: a missing counter is no number).
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.checks.check import BEFORE, Command, Unreadable
from provisioner.model.cohort import Evidence


def find_before_load(
    evidence: Mapping[str, Evidence], command: Command
) -> Mapping[str, Evidence] | None:
    """Return the output from before the load, under the command's own name; None: there is none."""
    earlier_output = evidence.get(command.name + BEFORE)
    return None if earlier_output is None else {command.name: earlier_output}


def compute_growth(
    before: Mapping[str, int], after: Mapping[str, int], subject: str
) -> dict[str, int]:
    """Return the growth of each counter. Raises `Unreadable` where it cannot be computed."""
    for name in sorted(set(before) ^ set(after)):
        raise Unreadable(f"{subject}: {name} is in only one of the two readings")
    growth = {name: after[name] - before[name] for name in after}
    for name, delta in growth.items():
        if delta < 0:
            raise Unreadable(
                f"{subject}: {name} went backwards, from {before[name]} to {after[name]}"
            )
    return growth


def compute_growth_per_device(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]], subject: str
) -> dict[str, dict[str, int]]:
    """Return each device's growth; a device that is in only one reading is `Unreadable`."""
    for device in sorted(set(before) ^ set(after)):
        raise Unreadable(f"{subject}: {device} is in only one of the two readings")
    return {d: compute_growth(before[d], after[d], f"{subject} of {d}") for d in after}

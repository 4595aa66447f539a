"""N10: no queue of a NIC is stuck; its health reporters are well, and their errors do not rise.

The kernel's `devlink health` (mlx5 documentation: reporters tx, rx, fw, fw_fatal). A queue that is
stopped in one look may only be full; one that is stopped in two looks is stuck.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counters import earlier, grown
from provisioner.checks.readers.reading import (
    END,
    documents_of,
    lines_of,
    mapping,
    pci,
    sequence,
    text_of,
    whole,
)
from provisioner.model.health import Evidence, Finding, Gate, Severity

DEVLINK_HEALTH = Command(
    name="devlink_health",
    line="for d in /sys/class/infiniband/*/device; do p=$(basename $(readlink $d));"
    " echo device $p; devlink -j health show pci/$p;"
    " echo device $p; devlink -j health diagnose pci/$p reporter tx; done; " + END,
    limit_s=60.0,
)

_DEVICE = re.compile(r"^(?:device )?(?:pci/)?([0-9a-fA-F:.]{7,16}?):?$")
# with a port's number where it is a port's: "pci/0000:1a:00.0/65535"
_KEY = re.compile(
    r"^(?:pci/)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(/\d{1,5})?$"
)
_REPORTER = re.compile(r"^(?:name|reporter) (\w{1,40})$")
_STATE = re.compile(r"^state (\w{1,20}) (?:#err|error) (\d{1,18}) (?:#recover|recover) (\d{1,18})")
_QUEUES_MAX = 65_536
Seen = tuple[dict[str, tuple[str, int]], set[str], int]  # reporters, stopped queues, documents


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    reporters, stopped, documents = _read(evidence)
    if documents < context.rails:
        yield fault("host", Severity.ISOLATE, "cards that tell", documents, context.rails)
    for part, (state, _) in sorted(reporters.items()):
        if state != "healthy":
            yield fault(part, Severity.POWER_CYCLE, "the card's own health", state, "healthy")
    before = earlier(evidence, DEVLINK_HEALTH)
    if before is None:
        for part in sorted(stopped):
            yield fault(part, Severity.MONITOR, "a queue is stopped", "stopped", "running")
        return
    had, stuck, _ = _read(before)
    for part in sorted(stopped & stuck):
        yield fault(part, Severity.POWER_CYCLE, "a queue is stuck", "stopped twice", "running")
    growth = grown(
        {part: errors for part, (_, errors) in had.items()},
        {part: errors for part, (_, errors) in reporters.items()},
        "devlink",
    )
    for part, new in growth.items():
        if new:
            yield fault(part, Severity.MONITOR, "the card reported errors", new, 0)


def _read(evidence: Mapping[str, Evidence]) -> Seen:
    text = text_of(evidence, DEVLINK_HEALTH, any_exit=True)
    if "{" not in text:
        reporters = _of_text(text)
        return reporters, set(), len({part.partition(" ")[0] for part in reporters})
    reporters, stopped, devices = {}, set(), set()
    for above, document in documents_of(text, "devlink"):
        match = _DEVICE.match(above)
        if above and match is None:
            raise Unreadable(f"devlink: {above[:40]!r} is no card")
        card = pci(match[1]) if match else "card"
        devices.add(card)
        whole_one = mapping(document, "devlink")
        if "health" in whole_one:
            reporters.update(_reporters(whole_one["health"]))
        elif "SQs" in whole_one or "diagnose" in whole_one:
            listed = whole_one.get("SQs", whole_one.get("diagnose"))
            stopped |= _stopped(card, listed)
        else:
            raise Unreadable("devlink: neither health nor queues in it")
    if not devices:
        raise Unreadable("devlink: no document in it")
    return reporters, stopped, len(devices)


def _reporters(value: Any) -> dict[str, tuple[str, int]]:
    """{"pci/0000:1a:00.0": [{"reporter": "tx", "state": "healthy", "error": 0, ...}]}"""
    found: dict[str, tuple[str, int]] = {}
    for card, listed in mapping(value, "health").items():
        match = _KEY.fullmatch(card)
        if match is None:
            raise Unreadable(f"devlink: {card[:40]!r} is no card")
        for entry in sequence(listed, card):
            facts = mapping(entry, card)
            name = facts.get("reporter", facts.get("name"))
            state, errors = facts.get("state"), facts.get("error", facts.get("err"))
            if not isinstance(name, str) or not isinstance(state, str):
                raise Unreadable(f"devlink: {card[:40]} has a reporter without name or state")
            part = f"{pci(match[1])}{match[2] or ''} {name}"
            found[part] = (state, whole(str(errors), f"errors of {name}"))
    if not found:
        raise Unreadable("devlink: no reporter in it")
    return found


def _stopped(card: str, value: Any) -> set[str]:
    """Send queues that are stopped; the list may be below a key of its own."""
    if isinstance(value, dict):
        value = value.get("SQs", value.get("SQ", value))
    listed = sequence(value, "SQs")
    if not listed or len(listed) > _QUEUES_MAX:
        raise Unreadable("devlink: no send queue in it")
    found = set()
    for entry in listed:
        queue = mapping(entry, "SQ")
        number, state = queue.get("sqn"), queue.get("stopped")
        if not isinstance(number, int) or not isinstance(state, bool):
            raise Unreadable("devlink: a send queue without number or state")
        if state:
            found.add(f"{card} queue {number}")
    return found


def _of_text(text: str) -> dict[str, tuple[str, int]]:
    """`devlink health show`: a card, then reporters by name, each with its state."""
    found: dict[str, tuple[str, int]] = {}
    card = name = ""
    for line in lines_of(text):
        bare = line.strip()
        if bare.startswith("pci/") and (match := _DEVICE.match(bare)):
            card, name = pci(match[1]), ""
        elif match := _REPORTER.match(bare):
            name = match[1]
        elif match := _STATE.match(bare):
            if not card or not name:
                raise Unreadable("devlink: a state of nothing")
            found[f"{card} {name}"] = (match[1], int(match[2]))
        elif not bare.startswith(("parameters:", "grace_period")):
            raise Unreadable(f"devlink: cannot read {bare[:60]!r}")
    if not found:
        raise Unreadable("devlink: no reporter in it")
    return found


CHECK = Check("devlink_health", Gate.A, (DEVLINK_HEALTH,), _findings, after_load=True)

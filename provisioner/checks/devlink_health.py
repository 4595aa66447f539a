"""N10: no send queue of a NIC is stuck, its health reporters are healthy, their errors do not grow.

The check reads the kernel's `devlink health` (mlx5 documentation: reporters tx, rx, fw, fw_fatal).
A queue that is stopped in one reading may only be full; a queue that is stopped in both readings
is stuck.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counter_growth import compute_growth, find_before_load
from provisioner.checks.readers.tool_output import (
    END,
    normalize_pci,
    parse_documents,
    parse_whole,
    read_output,
    require_list,
    require_object,
    split_lines,
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
# with the port's number where the reporter belongs to a port: "pci/0000:1a:00.0/65535"
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
        yield fault("host", Severity.ISOLATE, "cards that report health", documents, context.rails)
    for part, (state, _) in sorted(reporters.items()):
        if state != "healthy":
            yield fault(part, Severity.POWER_CYCLE, "the card's own health", state, "healthy")
    before = find_before_load(evidence, DEVLINK_HEALTH)
    if before is None:
        for part in sorted(stopped):
            yield fault(part, Severity.MONITOR, "a queue is stopped", "stopped", "running")
        return
    had, stuck, _ = _read(before)
    for part in sorted(stopped & stuck):
        yield fault(part, Severity.POWER_CYCLE, "a queue is stuck", "stopped twice", "running")
    growth = compute_growth(
        {part: errors for part, (_, errors) in had.items()},
        {part: errors for part, (_, errors) in reporters.items()},
        "devlink",
    )
    for part, new in growth.items():
        if new:
            yield fault(part, Severity.MONITOR, "the card reported errors", new, 0)


def _read(evidence: Mapping[str, Evidence]) -> Seen:
    text = read_output(evidence, DEVLINK_HEALTH, any_exit=True)
    if "{" not in text:
        reporters = _parse_text(text)
        return reporters, set(), len({part.partition(" ")[0] for part in reporters})
    reporters = {}
    stopped = set()
    devices = set()
    for above, document in parse_documents(text, "devlink"):
        match = _DEVICE.match(above)
        if above and match is None:
            raise Unreadable(f"devlink: {above[:40]!r} is no card")
        card = normalize_pci(match[1]) if match else "card"
        devices.add(card)
        whole_one = require_object(document, "devlink")
        if "health" in whole_one:
            reporters.update(_parse_reporters(whole_one["health"]))
        elif "SQs" in whole_one or "diagnose" in whole_one:
            listed = whole_one.get("SQs", whole_one.get("diagnose"))
            stopped |= _find_stopped_queues(card, listed)
        else:
            raise Unreadable("devlink: neither health nor queues in it")
    if not devices:
        raise Unreadable("devlink: no document in it")
    return reporters, stopped, len(devices)


def _parse_reporters(value: Any) -> dict[str, tuple[str, int]]:
    """Parse {"pci/0000:1a:00.0": [{"reporter": "tx", "state": "healthy", "error": 0, ...}]}."""
    reporters: dict[str, tuple[str, int]] = {}
    for card, listed in require_object(value, "health").items():
        match = _KEY.fullmatch(card)
        if match is None:
            raise Unreadable(f"devlink: {card[:40]!r} is no card")
        for entry in require_list(listed, card):
            facts = require_object(entry, card)
            name = facts.get("reporter", facts.get("name"))
            state = facts.get("state")
            errors = facts.get("error", facts.get("err"))
            if not isinstance(name, str) or not isinstance(state, str):
                raise Unreadable(f"devlink: {card[:40]} has a reporter without name or state")
            part = f"{normalize_pci(match[1])}{match[2] or ''} {name}"
            reporters[part] = (state, parse_whole(str(errors), f"errors of {name}"))
    if not reporters:
        raise Unreadable("devlink: no reporter in it")
    return reporters


def _find_stopped_queues(card: str, value: Any) -> set[str]:
    """Return the send queues that are stopped; the list may be nested under a key of its own."""
    if isinstance(value, dict):
        value = value.get("SQs", value.get("SQ", value))
    listed = require_list(value, "SQs")
    if not listed or len(listed) > _QUEUES_MAX:
        raise Unreadable("devlink: no send queue in it")
    stopped = set()
    for entry in listed:
        queue = require_object(entry, "SQ")
        number = queue.get("sqn")
        state = queue.get("stopped")
        if not isinstance(number, int) or not isinstance(state, bool):
            raise Unreadable("devlink: a send queue without number or state")
        if state:
            stopped.add(f"{card} queue {number}")
    return stopped


def _parse_text(text: str) -> dict[str, tuple[str, int]]:
    """Parse `devlink health show`: a card, then reporters by name, each with its state."""
    reporters: dict[str, tuple[str, int]] = {}
    card = name = ""
    for line in split_lines(text):
        bare = line.strip()
        if bare.startswith("pci/") and (match := _DEVICE.match(bare)):
            card = normalize_pci(match[1])
            name = ""
        elif match := _REPORTER.match(bare):
            name = match[1]
        elif match := _STATE.match(bare):
            if not card or not name:
                raise Unreadable("devlink: a state of nothing")
            reporters[f"{card} {name}"] = (match[1], int(match[2]))
        elif not bare.startswith(("parameters:", "grace_period")):
            raise Unreadable(f"devlink: cannot read {bare[:60]!r}")
    if not reporters:
        raise Unreadable("devlink: no reporter in it")
    return reporters


CHECK = Check("devlink_health", Gate.A, (DEVLINK_HEALTH,), _findings, after_load=True)

"""No send queue of a NIC is stuck, its health reporters are healthy, their errors do not grow.

The check reads the kernel's `devlink health` (mlx5 documentation: reporters tx, rx, fw, fw_fatal).
A queue that is stopped in one reading may only be full; a queue that is stopped in both readings
is stuck.

`health show` without a name is the one listing that every iproute2 offers: showing all reporters
of one device came with 6.7, and 5.15 and 6.1 answer "Reporter's name is expected." Linux 5.9 moved
the reporters tx and rx of mlx5 from the device to its port, so the queues are asked for where the
listing has a reporter tx. A card of which no queue was looked at gives no verdict.
source: devlink-health(8) of Ubuntu 22.04 and 24.04; Linux commits b03f13cb67a5 and ac4cd4781eac.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, NotJudged, Unreadable, fault
from provisioner.checks.counter_growth import compute_growth, find_before_load
from provisioner.checks.readers.tool_output import (
    END,
    parse_documents,
    parse_whole,
    read_output,
    require_list,
    require_object,
    split_lines,
)
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.names import normalize_pci

DEVLINK_HEALTH = Command(
    name="devlink_health",
    line="for d in /sys/class/infiniband/*/device; do echo card $(basename $(readlink $d)); done;"
    " devlink -j health show; for r in $(devlink health show | awk"
    """ '/^pci.*:$/{d=$1;sub(/:$/,"",d)} ($1=="reporter"||$1=="name")&&$2=="tx"{print d}');"""
    " do echo device $r; devlink -j health diagnose $r reporter tx; done; " + END,
    limit_s=60.0,
)

_CARD = re.compile(r"^card ([0-9a-fA-F:.]{7,16})$", re.MULTILINE)
_DEVICE = re.compile(r"^(?:device )?(?:pci/)?([0-9a-fA-F:.]{7,16}?)(?:/\d{1,5})?:?$")
_FOREIGN = re.compile(r"^(?!pci/)[a-z][\w-]{0,31}/\S{1,64}$")  # "auxiliary/mlx5_core.sf.2"
# with the port's number where the reporter belongs to a port: "pci/0000:1a:00.0/65535"
_KEY = re.compile(
    r"^(?:pci/)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(/\d{1,5})?$"
)
_REPORTER = re.compile(r"^(?:name|reporter) (\w{1,40})$")
_STATE = re.compile(r"^state (\w{1,20}) (?:#err|error) (\d{1,18}) (?:#recover|recover) (\d{1,18})")
_QUEUES_MAX = 65_536


@dataclass(frozen=True)
class _Reading:
    """One reading: "PCI address reporter" -> (state, errors), and the queues that are stopped."""

    reporters: Mapping[str, tuple[str, int]]
    stopped: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()  # cards whose queues were listed
    cards: frozenset[str] = frozenset()  # the host's RDMA cards; empty where they are not listed

    @property
    def reporting(self) -> frozenset[str]:
        named = {re.split("[ /]", part, maxsplit=1)[0] for part in self.reporters}
        return frozenset(named) | self.asked


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    now = _read(evidence)
    if now.reporting and len(now.reporting) < context.rails:
        detail = "cards that report health"
        yield fault("host", Severity.ISOLATE, detail, len(now.reporting), context.rails)
    for part, (state, _) in sorted(now.reporters.items()):
        if state != "healthy":
            yield fault(part, Severity.POWER_CYCLE, "the card's own health", state, "healthy")
    before = find_before_load(evidence, DEVLINK_HEALTH)
    if before is None:
        for part in sorted(now.stopped):
            yield fault(part, Severity.MONITOR, "a queue is stopped", "stopped", "running")
    else:
        yield from _judge_growth(_read(before), now)
    _require_queues(now, context)


def _judge_growth(before: _Reading, now: _Reading) -> Iterator[Finding]:
    """Yield the queues that are stopped in both readings, and the errors since the first one."""
    for part in sorted(now.stopped & before.stopped):
        yield fault(part, Severity.POWER_CYCLE, "a queue is stuck", "stopped twice", "running")
    growth = compute_growth(
        {part: errors for part, (_, errors) in before.reporters.items()},
        {part: errors for part, (_, errors) in now.reporters.items()},
        "devlink",
    )
    for part, new in growth.items():
        if new:
            yield fault(part, Severity.MONITOR, "the card reported errors", new, 0)


def _require_queues(reading: _Reading, context: CheckContext) -> None:
    """Raise `NotJudged` where the queues of a card that carries a rail were not looked at."""
    expected = set(context.rail_pci) or (reading.cards - set(context.dpu_pci)) or reading.reporting
    missing = sorted(expected - reading.asked)
    if missing or not reading.asked:
        shown = ", ".join(missing[:8]) or "any card"
        raise NotJudged(f"devlink listed no send queue of {shown}")


def _read(evidence: Mapping[str, Evidence]) -> _Reading:
    text = read_output(evidence, DEVLINK_HEALTH, any_exit=True)
    cards = frozenset(normalize_pci(match[1]) for match in _CARD.finditer(text))
    if "{" not in text:
        plain = _CARD.sub("", text)
        if cards and not plain.strip():  # no devlink, or a kernel without it
            return _Reading({}, cards=cards)
        return _Reading(_parse_text(plain), cards=cards)
    reporters: dict[str, tuple[str, int]] = {}
    stopped: set[str] = set()
    asked: set[str] = set()
    for above, document in parse_documents(text, "devlink"):
        match = _DEVICE.match(above)
        if above and match is None and not _CARD.match(above):
            raise Unreadable(f"devlink: {above[:40]!r} is no card")
        whole_one = require_object(document, "devlink")
        if "health" in whole_one:
            reporters.update(_parse_reporters(whole_one["health"]))
        elif "SQs" in whole_one or "diagnose" in whole_one:
            card = normalize_pci(match[1]) if match else "card"
            listed = whole_one.get("SQs", whole_one.get("diagnose"))
            stopped |= _find_stopped_queues(card, listed)
            asked.add(card)
        else:
            raise Unreadable("devlink: neither health nor queues in it")
    return _Reading(reporters, frozenset(stopped), frozenset(asked), cards)


def _parse_reporters(value: Any) -> dict[str, tuple[str, int]]:
    """Parse {"pci/0000:1a:00.0": [{"reporter": "tx", "state": "healthy", "error": 0, ...}]}."""
    reporters: dict[str, tuple[str, int]] = {}
    for card, listed in require_object(value, "health").items():
        if _FOREIGN.match(card):
            continue  # the listing has every device of the kernel
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

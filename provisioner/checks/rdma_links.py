"""N1: every RDMA port is active Ethernet, and each rail has one at full rate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import RDMA_LINKS
from provisioner.checks.reading import lines_of, text_of
from provisioner.checks.thresholds import RAIL_GBIT_S
from provisioner.model.health import Evidence, Finding, Gate, Severity

_LINE = re.compile(
    r"/sys/class/infiniband/([A-Za-z0-9_.-]{1,64})/ports/1/(state|rate|link_layer):(.{1,80})$"
)
_RATE = re.compile(r"(\d{1,4})(?:\.\d+)? Gb/sec")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    ports: dict[str, dict[str, str]] = {}
    for line in lines_of(text_of(evidence, RDMA_LINKS)):
        match = _LINE.match(line.strip())
        if match is None:
            raise Unreadable(f"sysfs: cannot read {line[:80]!r}")
        ports.setdefault(match[1], {})[match[2]] = match[3].strip()
    full = 0
    for name, facts in sorted(ports.items()):
        if set(facts) != {"state", "rate", "link_layer"}:
            raise Unreadable(f"sysfs: {name} does not say its state, rate and link layer")
        rate = _RATE.match(facts["rate"])
        if rate is None:
            raise Unreadable(f"sysfs: {name} has rate {facts['rate'][:40]!r}")
        if facts["state"] != "4: ACTIVE":
            yield fault(name, Severity.ISOLATE, "the port is not up", facts["state"], "4: ACTIVE")
        elif facts["link_layer"] != "Ethernet":
            yield fault(
                name, Severity.CONFIG, "the port's link layer", facts["link_layer"], "Ethernet"
            )
        elif int(rate[1]) >= RAIL_GBIT_S:
            full += 1
    if full < context.rails:
        yield fault("host", Severity.ISOLATE, f"ports at {RAIL_GBIT_S} Gb/s", full, context.rails)


CHECK = Check("rdma_links", Gate.A, (RDMA_LINKS,), _findings, after_load=True)

"""N7: the errors that RDMA ports count do not grow: some not at all, others only slowly.

Limits are NVSentinel's for NICs, on what grew between two looks; before the first load test the
counters are only read, for what stood there before says nothing of now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.rdma_reading import RDMA_COUNTERS, growth, look
from provisioner.checks.thresholds import misses
from provisioner.model.health import Evidence, Finding, Gate, Severity

# counters that may not grow at all
FATAL = (
    "link_downed",
    "excessive_buffer_overrun_errors",
    "local_link_integrity_errors",
    "rnr_nak_retry_err",
)
# counters that may grow slowly: a threshold of each name, with "_per_s" behind it
SLOW = (
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "port_xmit_discards",
    "roce_slow_restart",
    "local_ack_timeout_err",
)
# what every mlx5 port counts: without these nothing was told
_NEEDED = frozenset({"rnr_nak_retry_err", "local_ack_timeout_err", "out_of_sequence"})


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for port, counters in look(evidence, context).ports.items():
        if not set(counters) >= _NEEDED:
            raise Unreadable(f"{port} does not count {', '.join(sorted(_NEEDED - set(counters)))}")
    grew = growth(evidence, context)
    if grew is None:
        return
    for port, deltas in sorted(grew.ports.items()):
        for name in FATAL:
            if deltas.get(name):
                yield fault(port, Severity.ISOLATE, f"{name} grew", deltas[name], 0)
        for name in SLOW:
            rate = deltas.get(name, 0) / grew.seconds
            if missed := misses(context, f"{name}_per_s", rate):
                yield fault(port, Severity.MONITOR, f"{name} grows too fast", *missed)


CHECK = Check(
    "rdma_counters",
    Gate.A,
    (RDMA_COUNTERS,),
    _findings,
    after_load=True,
    thresholds=tuple(f"{name}_per_s" for name in SLOW),
)

"""The error counters of RDMA ports do not grow: some not at all, others only slowly.

The limits are NVSentinel's for NICs, on the growth between two readings. Before the first load test
the counters are only read, because their earlier values do not describe the present.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.rdma_port_counters import RDMA_COUNTERS, read_counters, read_growth
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

# counters that must not grow at all
FATAL = (
    "link_downed",
    "excessive_buffer_overrun_errors",
    "local_link_integrity_errors",
    "rnr_nak_retry_err",
)
# counters that may grow slowly: the threshold is the name with "_per_s" appended
SLOW = (
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "port_xmit_discards",
    "roce_slow_restart",
    "local_ack_timeout_err",
)
# counters that every mlx5 port has: without them the output is not usable
_NEEDED = frozenset({"rnr_nak_retry_err", "local_ack_timeout_err", "out_of_sequence"})


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for port, counters in read_counters(evidence, context).ports.items():
        if not set(counters) >= _NEEDED:
            raise Unreadable(f"{port} does not count {', '.join(sorted(_NEEDED - set(counters)))}")
    grew = read_growth(evidence, context)
    if grew is None:
        return
    for port, deltas in sorted(grew.ports.items()):
        for name in FATAL:
            if deltas.get(name):
                yield fault(port, Severity.ISOLATE, f"{name} grew", deltas[name], 0)
        for name in SLOW:
            rate = deltas.get(name, 0) / grew.seconds
            if missed := check_threshold(context, f"{name}_per_s", rate):
                yield fault(port, Severity.MONITOR, f"{name} grows too fast", *missed)


CHECK = Check(
    "rdma_counters",
    Gate.A,
    (RDMA_COUNTERS,),
    _findings,
    after_load=True,
    thresholds=tuple(f"{name}_per_s" for name in SLOW),
)

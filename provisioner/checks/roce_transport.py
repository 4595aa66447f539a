"""How often RoCE had to retransmit, measured for comparison with the fleet.

The counters are Meta's three (out_of_sequence, local_ack_timeout_err and, in `link_flaps`, flaps)
and related ones. No limit is published for any; only damaged packets (`rx_icrc_encapsulated`) are
always a fault. A missing acknowledgement may be the other side's failure: tests of pairs show
which side it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.rdma_port_counters import RDMA_COUNTERS, read_counters, read_growth
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

WATCHED = (
    "out_of_sequence",
    "local_ack_timeout_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "out_of_buffer",
    "roce_adp_retrans",
    "rx_icrc_encapsulated",
)
_DAMAGED = "rx_icrc_encapsulated"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for port, counters in read_counters(evidence, context).ports.items():
        if not set(counters) >= set(WATCHED[:2]):
            raise Unreadable(f"{port} does not count what RoCE repeats")
    grew = read_growth(evidence, context)
    for port, deltas in sorted(grew.ports.items() if grew else ()):
        if deltas.get(_DAMAGED):
            detail = "packets with a wrong checksum during a load test"
            yield fault(port, Severity.ISOLATE, detail, deltas[_DAMAGED], 0)


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    grew = read_growth(evidence, context)
    return {
        f"{name}_per_s/{port}": deltas[name] / grew.seconds
        for port, deltas in (grew.ports.items() if grew else ())
        for name in WATCHED
        if grew and name in deltas
    }


CHECK = Check(
    "roce_transport", Gate.A, (RDMA_COUNTERS,), _findings, after_load=True, measure=_measure
)

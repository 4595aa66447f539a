"""F1 to F5: judges the tests among nodes: collectives over pairs, rails and groups, RDMA by rail.

The same judges read any such output offline. A floor that nobody publishes is learned; values that
are wrong isolate whatever the bandwidth is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.fabric.fabric import RAIL_MESSAGE_GIB, FabricKind, FabricTest
from provisioner.checks.fabric.nccl_judge import bus_gb_s, judge_run
from provisioner.checks.gdr_loopback import MESSAGE_BYTES
from provisioner.checks.readers.nccl_output import Nccl, read
from provisioner.checks.readers.perftest_output import bandwidths, largest, latencies
from provisioner.checks.readers.reading import text_of
from provisioner.checks.thresholds import misses
from provisioner.model.health import CheckResult, Evidence, Finding, Gate, Severity

_THRESHOLD = {
    FabricKind.NCCL_PAIR: "nccl_pair_gb_s",
    FabricKind.NCCL_RAIL: "nccl_rail_gb_s",
    FabricKind.NCCL_GROUP: "nccl_group_gb_s",
    FabricKind.NCCL_GROUP_ALLTOALL: "nccl_group_alltoall_gb_s",
    FabricKind.RDMA_PAIR: "rdma_pair_gbit_s",
    FabricKind.RDMA_LATENCY: "rdma_latency_us",
}
# as they are shown; `fabric.py` makes the line of a test from its members
_SHOWN = {
    FabricKind.NCCL_PAIR: "mpirun (two nodes) all_reduce_perf -b 8M -e 16G -f 2 -g 1 -c 1",
    FabricKind.NCCL_RAIL: "mpirun (one rail) all_reduce_perf -b 1G -e 1G -f 2 -g 1 -c 1",
    FabricKind.NCCL_GROUP: "mpirun (k nodes) all_reduce_perf -b 8M -e 16G -f 2 -g 1 -c 1",
    FabricKind.NCCL_GROUP_ALLTOALL: "mpirun (k nodes) alltoall_perf -b 8M -e 16G -f 2 -g 1 -c 1",
    FabricKind.RDMA_PAIR: f"ib_write_bw -s {MESSAGE_BYTES} -n 5000 -b -F --report_gbits"
    " --perform_warm_up --use_cuda=GPU -d CARD -x 3 -p PORT ADDRESS",
    FabricKind.RDMA_LATENCY: "ib_read_lat -n 5000 -F -d CARD -x 3 -p PORT ADDRESS",
}
_LIMIT_S = {
    FabricKind.RDMA_PAIR: 120.0,
    FabricKind.RDMA_LATENCY: 120.0,
    FabricKind.NCCL_RAIL: 300.0,
}
Outputs = Mapping[str, Evidence]


def judge_test(
    test: FabricTest, outputs: Mapping[str, Outputs], context: CheckContext
) -> CheckResult:
    """The verdict on a test from its clients' outputs, by node. Findings name `test.part`."""
    check = CHECKS[test.kind]
    found: dict[str, Evidence] = {}
    for node, command in test.clients.items():
        said = outputs.get(node, {}).get(command.name)
        if said is not None:
            found[command.name] = said
    bound = Check(
        name=check.name,
        gate=check.gate,
        commands=tuple(test.clients.values()),
        findings=lambda e, c: _findings(test.kind, e, c, test),
        measure=lambda e, c: _measure(test.kind, e, c, test.part),
    )
    return bound.judge(found, context)


def _findings(
    kind: FabricKind, evidence: Outputs, context: CheckContext, test: FabricTest | None
) -> Iterator[Finding]:
    if kind in (FabricKind.RDMA_PAIR, FabricKind.RDMA_LATENCY):
        yield from _rdma(kind, evidence, context, test.part if test else "fabric")
        return
    run = _run(kind, evidence)
    part = test.part if test else "fabric"
    nodes = len(test.nodes) if test else None
    if nodes is not None and len(run.hosts) != nodes:
        yield fault(part, Severity.CONFIG, "nodes in the collective", len(run.hosts), nodes)
    elif len(run.hosts) < 2 or (kind is FabricKind.NCCL_PAIR and len(run.hosts) != 2):
        yield fault(part, Severity.CONFIG, "nodes in the collective", len(run.hosts), 2)
    each = 1 if kind is FabricKind.NCCL_RAIL else context.gpus
    yield from judge_run(
        run,
        context,
        threshold=_THRESHOLD[kind],
        ranks=test.ranks if test else each * len(run.hosts),
        exit_code=evidence[kind.value].exit_code,
        what="all-to-all" if kind is FabricKind.NCCL_GROUP_ALLTOALL else "all-reduce",
        part=part,
        message_gib=RAIL_MESSAGE_GIB if kind is FabricKind.NCCL_RAIL else None,
    )


def _rdma(
    kind: FabricKind, evidence: Outputs, context: CheckContext, part: str
) -> Iterator[Finding]:
    name, value, size = _THRESHOLD[kind], *_rdma_value(kind, evidence)
    if kind is FabricKind.RDMA_PAIR and size < MESSAGE_BYTES:
        detail = "the message is not the one that the floor is for"
        yield fault(part, Severity.CONFIG, detail, size, MESSAGE_BYTES)
    missed = misses(context, name, value)
    if missed is not None:
        what = "latency is above its limit"
        if kind is FabricKind.RDMA_PAIR:
            what = "bandwidth is below its floor"
        yield fault(part, Severity.ISOLATE, f"the rail's {what}", *missed)


def _rdma_value(kind: FabricKind, evidence: Outputs) -> tuple[float, int]:
    """(figure, message bytes) of one rail between two nodes."""
    text = text_of(evidence, _command(kind))
    if kind is FabricKind.RDMA_LATENCY:
        worst = max(latencies(text), key=lambda row: row.p99_us)
        return worst.p99_us, worst.size
    row = largest(bandwidths(text, evidence[kind.value].source))
    return row.gbit_s, row.size


def _run(kind: FabricKind, evidence: Outputs) -> Nccl:
    run = read(text_of(evidence, _command(kind), any_exit=True))
    if not run.hosts:
        raise Unreadable("nccl-tests: its ranks name no host")
    return run


def _measure(
    kind: FabricKind, evidence: Outputs, _context: CheckContext, part: str = "fabric"
) -> Mapping[str, float]:
    key = f"{_THRESHOLD[kind]}/{part}"
    if kind in (FabricKind.RDMA_PAIR, FabricKind.RDMA_LATENCY):
        return {key: _rdma_value(kind, evidence)[0]}
    return {key: bus_gb_s(_run(kind, evidence))}


def _command(kind: FabricKind) -> Command:
    return Command(name=kind.value, line=_SHOWN[kind], limit_s=_LIMIT_S.get(kind, 900.0))


def _check(kind: FabricKind) -> Check:
    def judged(evidence: Outputs, context: CheckContext) -> Iterator[Finding]:
        return _findings(kind, evidence, context, None)

    return Check(
        kind.value,
        Gate.C,
        (_command(kind),),
        judged,
        load=True,
        measure=lambda e, c: _measure(kind, e, c),
        thresholds=(_THRESHOLD[kind],),
    )


CHECK_PAIR = _check(FabricKind.NCCL_PAIR)
CHECK_RAIL = _check(FabricKind.NCCL_RAIL)
CHECK_GROUP = _check(FabricKind.NCCL_GROUP)
CHECK_ALLTOALL = _check(FabricKind.NCCL_GROUP_ALLTOALL)
CHECK_RDMA = _check(FabricKind.RDMA_PAIR)
CHECK_LATENCY = _check(FabricKind.RDMA_LATENCY)

ALL = (CHECK_PAIR, CHECK_RAIL, CHECK_GROUP, CHECK_ALLTOALL, CHECK_RDMA, CHECK_LATENCY)
CHECKS: Mapping[FabricKind, Check] = {FabricKind(check.name): check for check in ALL}

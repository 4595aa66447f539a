"""Judges the tests among nodes: collectives over pairs, rails and groups, RDMA by rail.

The same judges read such outputs offline. A floor that no source publishes is learned from the
fleet. Wrong values always isolate, at any bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.fabric.fabric_workloads import RAIL_MESSAGE_GIB, FabricKind, FabricTest
from provisioner.checks.fabric.nccl_judge import average_bus_gb_s, judge_run
from provisioner.checks.gdr_loopback import MESSAGE_BYTES
from provisioner.checks.readers.nccl_output import (
    NcclRun,
    read,
    read_bandwidths,
    read_latencies,
    select_largest_message,
)
from provisioner.checks.readers.tool_output import read_output
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import CheckResult, Evidence, Finding, Gate, Severity

_THRESHOLD = {
    FabricKind.NCCL_PAIR: "nccl_pair_gb_s",
    FabricKind.NCCL_RAIL: "nccl_rail_gb_s",
    FabricKind.NCCL_GROUP: "nccl_group_gb_s",
    FabricKind.NCCL_GROUP_ALLTOALL: "nccl_group_alltoall_gb_s",
    FabricKind.RDMA_PAIR: "rdma_pair_gbit_s",
    FabricKind.RDMA_LATENCY: "rdma_latency_us",
}
# command lines for display; `fabric_workloads.py` builds a test's command line from its members
_SHOWN = {
    FabricKind.NCCL_PAIR: "mpirun (two nodes) all_reduce_perf -b 8M -e 16G -f 2 -g 1 -c 1",
    FabricKind.NCCL_RAIL: "mpirun (one rail) all_reduce_perf -b 1G -e 1G -f 2 -g 1 -c 1",
    FabricKind.NCCL_GROUP: "mpirun (k nodes) all_reduce_perf -b 8M -e 16G -f 2 -g 1 -c 1",
    FabricKind.NCCL_GROUP_ALLTOALL: "mpirun (k nodes) alltoall_perf -b 8M -e 16G -f 2 -g 1 -c 1",
    FabricKind.RDMA_PAIR: f"ib_write_bw -s {MESSAGE_BYTES} -n 5000 -b -F --report_gbits"
    " --perform_warm_up --use_cuda=GPU -d CARD -x GID -p PORT ADDRESS",
    FabricKind.RDMA_LATENCY: "ib_read_lat -n 5000 -F -d CARD -x GID -p PORT ADDRESS",
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
    """Return the verdict on a test on its clients' outputs by node; findings name `test.part`."""
    check = CHECKS[test.kind]
    evidence: dict[str, Evidence] = {}
    for node, command in test.clients.items():
        output = outputs.get(node, {}).get(command.name)
        if output is not None:
            evidence[command.name] = output
    bound = Check(
        name=check.name,
        gate=check.gate,
        commands=tuple(test.clients.values()),
        findings=lambda e, c: _findings(test.kind, e, c, test),
        measure=lambda e, c: _measure(test.kind, e, c, test.part),
    )
    return bound.judge(evidence, context)


def _findings(
    kind: FabricKind, evidence: Outputs, context: CheckContext, test: FabricTest | None
) -> Iterator[Finding]:
    if kind in (FabricKind.RDMA_PAIR, FabricKind.RDMA_LATENCY):
        yield from _judge_rdma(kind, evidence, context, test.part if test else "fabric")
        return
    run = _read_run(kind, evidence)
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
        collective="all-to-all" if kind is FabricKind.NCCL_GROUP_ALLTOALL else "all-reduce",
        part=part,
        message_gib=RAIL_MESSAGE_GIB if kind is FabricKind.NCCL_RAIL else None,
    )


def _judge_rdma(
    kind: FabricKind, evidence: Outputs, context: CheckContext, part: str
) -> Iterator[Finding]:
    name = _THRESHOLD[kind]
    value, size = _read_rdma_value(kind, evidence)
    if kind is FabricKind.RDMA_PAIR and size < MESSAGE_BYTES:
        detail = "the message is not the one that the floor is for"
        yield fault(part, Severity.CONFIG, detail, size, MESSAGE_BYTES)
    missed = check_threshold(context, name, value)
    if missed is not None:
        problem = "latency is above its limit"
        if kind is FabricKind.RDMA_PAIR:
            problem = "bandwidth is below its floor"
        yield fault(part, Severity.ISOLATE, f"the rail's {problem}", *missed)


def _read_rdma_value(kind: FabricKind, evidence: Outputs) -> tuple[float, int]:
    """Return (figure, message size in bytes) of one rail between two nodes."""
    text = read_output(evidence, _build_command(kind))
    if kind is FabricKind.RDMA_LATENCY:
        worst = max(read_latencies(text), key=lambda row: row.p99_us)
        return worst.p99_us, worst.size
    row = select_largest_message(read_bandwidths(text, evidence[kind.value].source))
    return row.gbit_s, row.size


def _read_run(kind: FabricKind, evidence: Outputs) -> NcclRun:
    run = read(read_output(evidence, _build_command(kind), any_exit=True))
    if not run.hosts:
        raise Unreadable("nccl-tests: its ranks name no host")
    return run


def _measure(
    kind: FabricKind, evidence: Outputs, _context: CheckContext, part: str = "fabric"
) -> Mapping[str, float]:
    key = f"{_THRESHOLD[kind]}/{part}"
    if kind in (FabricKind.RDMA_PAIR, FabricKind.RDMA_LATENCY):
        return {key: _read_rdma_value(kind, evidence)[0]}
    return {key: average_bus_gb_s(_read_run(kind, evidence))}


def _build_command(kind: FabricKind) -> Command:
    return Command(name=kind.value, line=_SHOWN[kind], limit_s=_LIMIT_S.get(kind, 900.0))


def _build_check(kind: FabricKind) -> Check:
    def judge(evidence: Outputs, context: CheckContext) -> Iterator[Finding]:
        return _findings(kind, evidence, context, None)

    return Check(
        kind.value,
        Gate.C,
        (_build_command(kind),),
        judge,
        load=True,
        measure=lambda e, c: _measure(kind, e, c),
        thresholds=(_THRESHOLD[kind],),
    )


CHECK_PAIR = _build_check(FabricKind.NCCL_PAIR)
CHECK_RAIL = _build_check(FabricKind.NCCL_RAIL)
CHECK_GROUP = _build_check(FabricKind.NCCL_GROUP)
CHECK_ALLTOALL = _build_check(FabricKind.NCCL_GROUP_ALLTOALL)
CHECK_RDMA = _build_check(FabricKind.RDMA_PAIR)
CHECK_LATENCY = _build_check(FabricKind.RDMA_LATENCY)

ALL = (CHECK_PAIR, CHECK_RAIL, CHECK_GROUP, CHECK_ALLTOALL, CHECK_RDMA, CHECK_LATENCY)
CHECKS: Mapping[FabricKind, Check] = {FabricKind(check.name): check for check in ALL}

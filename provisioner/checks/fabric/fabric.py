"""Tests among nodes (gate C) as data: who takes part, what each runs, how the outputs are judged.

Pure: nothing is run here. `servers` are started first and end by themselves when their client is
done; `clients` are what is waited for and judged. All of it in the maintenance VRF.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from provisioner.checks.check import CheckContext, Command
from provisioner.checks.fabric.rail_port import Member, RailPort
from provisioner.checks.gdr_loopback import MESSAGE_BYTES
from provisioner.model.base import Record

PORT = 18515  # perftest's default; each rail has one of its own above it
RAIL_MESSAGE_GIB = 1.0  # of a run on one rail: one GPU at 50 GB/s, some seconds
_NCCL_ENV = "-x NCCL_IB_GID_INDEX=3 -x CUDA_DEVICE_ORDER=PCI_BUS_ID"
_MPI = "mpirun --allow-run-as-root --bind-to none"


class FabricKind(StrEnum):
    """What is measured; also the name of the check that judges it."""

    NCCL_PAIR = "nccl_pair"  # two nodes, all GPUs
    NCCL_RAIL = "nccl_rail"  # two or more nodes, one rail
    NCCL_GROUP = "nccl_group"  # k nodes, all GPUs, all-reduce
    NCCL_GROUP_ALLTOALL = "nccl_group_alltoall"
    RDMA_PAIR = "rdma_pair"  # two nodes, one rail, both ways, out of GPU memory
    RDMA_LATENCY = "rdma_latency"


class FabricTest(Record):
    """One test. The outputs of `clients` are judged by `fabric_checks.judge_test`."""

    kind: FabricKind
    nodes: tuple[str, ...] = Field(min_length=2, max_length=4096)
    rail: int | None = None  # None: all rails
    servers: Mapping[str, Command] = Field(default_factory=dict)  # node -> what serves
    clients: Mapping[str, Command]  # node -> what measures
    ranks: int = 0  # of a collective

    @property
    def part(self) -> str:
        """What a finding of this test names: the nodes, and the rail if it is one."""
        names = " ".join(self.nodes)
        if len(self.nodes) > 2:
            names = f"{len(self.nodes)} nodes {self.nodes[0]}..{self.nodes[-1]}"
        return names if self.rail is None else f"{names} rail{self.rail}"


def nccl_pair(a: Member, b: Member) -> FabricTest:
    """An all-reduce over all GPUs of two nodes."""
    return _collective(FabricKind.NCCL_PAIR, (a, b), "all_reduce")


def nccl_group(members: tuple[Member, ...], *, alltoall: bool = False) -> FabricTest:
    """A collective over all GPUs of k nodes."""
    if alltoall:
        return _collective(FabricKind.NCCL_GROUP_ALLTOALL, members, "alltoall")
    return _collective(FabricKind.NCCL_GROUP, members, "all_reduce")


def nccl_rail(members: tuple[Member, ...], rail: int) -> FabricTest:
    """An all-reduce over one rail: one GPU and one NIC of each node, the network alone.

    The eight rails may run at once. `NCCL_TESTS_SPLIT` would do that in one run, but prints one
    rail's figures only.
    """
    size = f"{RAIL_MESSAGE_GIB:.0f}G"
    contexts = " : ".join(
        f"-np 1 -H {m.address}:1 {_NCCL_ENV} -x CUDA_VISIBLE_DEVICES={port.gpu}"
        f" -x NCCL_IB_HCA=={port.device} all_reduce_perf -b {size} -e {size} -f 2 -g 1 -c 1"
        for m in members
        for port in (m.port(rail),)
    )
    command = Command(name="nccl_rail", line=f"{_MPI} {contexts}", limit_s=300.0)
    return FabricTest(
        kind=FabricKind.NCCL_RAIL,
        nodes=tuple(m.node for m in members),
        rail=rail,
        clients={members[0].node: command},
        ranks=len(members),
    )


def rdma_pair(server: Member, client: Member, rail: int) -> FabricTest:
    """One rail both ways at once, out of and into GPU memory."""
    options = f"-s {MESSAGE_BYTES} -n 5000 -b -F --report_gbits --perform_warm_up"
    return _perftest(FabricKind.RDMA_PAIR, f"ib_write_bw {options}", server, client, rail)


def rdma_latency(server: Member, client: Member, rail: int) -> FabricTest:
    """Latency of one rail, small reads."""
    return _perftest(FabricKind.RDMA_LATENCY, "ib_read_lat -n 5000 -F", server, client, rail)


def _collective(kind: FabricKind, members: tuple[Member, ...], name: str) -> FabricTest:
    gpus = members[0].gpus
    hosts = ",".join(f"{m.address}:{m.gpus}" for m in members)
    line = (
        f"{_MPI} -np {sum(m.gpus for m in members)} --map-by ppr:{gpus}:node -H {hosts}"
        f" {_NCCL_ENV} {name}_perf -b 8M -e 16G -f 2 -g 1 -c 1"
    )
    return FabricTest(
        kind=kind,
        nodes=tuple(m.node for m in members),
        clients={members[0].node: Command(name=kind.value, line=line, limit_s=900.0)},
        ranks=sum(m.gpus for m in members),
    )


def _perftest(kind: FabricKind, test: str, server: Member, client: Member, rail: int) -> FabricTest:
    here, there = server.port(rail), client.port(rail)
    own = {m.node: _side(kind, test, p, rail) for m, p in ((server, here), (client, there))}
    to = here.address or server.address
    asking = own[client.node].model_copy(update={"line": f"{own[client.node].line} {to}"})
    return FabricTest(
        kind=kind,
        nodes=(server.node, client.node),
        rail=rail,
        servers={server.node: own[server.node]},
        clients={client.node: asking},
    )


def _side(kind: FabricKind, test: str, port: RailPort, rail: int) -> Command:
    memory = f" --use_cuda={port.gpu}" if kind is FabricKind.RDMA_PAIR else ""
    line = f"CUDA_DEVICE_ORDER=PCI_BUS_ID timeout 90 {test} -d {port.device} -x 3 -p {PORT + rail}"
    return Command(name=kind.value, line=line + memory, limit_s=120.0)


def context_for(test: FabricTest, context: CheckContext) -> CheckContext:
    """The context of a test among nodes: their common GPU model, profile and thresholds."""
    return context.model_copy(update={"rails": 0 if test.rail is None else 1})

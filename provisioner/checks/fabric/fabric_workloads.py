"""Tests among nodes (gate C) as data: members, the commands of each, and how outputs are judged.

Pure: this module runs nothing. `servers` are started first and end by themselves when their client
has finished; the executor waits for `clients` and judges their outputs. All traffic stays in the
maintenance VRF.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from provisioner.checks.check import Command
from provisioner.checks.fabric.rail_port import Member, RailPort
from provisioner.checks.gdr_loopback import MESSAGE_BYTES
from provisioner.model.base import Record

PORT = 18515  # perftest's default; rail n uses this port plus n
TRAINING_PORT = 18598  # where its ranks meet
# where the role `checks` puts it
TRAINING_PATH = "/usr/local/libexec/provisioner/training_step.py"
RAIL_MESSAGE_GIB = 1.0  # of a run on one rail: one GPU at 50 GB/s takes some seconds
LOGS = "/run/provisioner-fabric.nccl."  # NCCL's own logs, a file for each rank, in memory
_NCCL_ENV = (
    "-x CUDA_DEVICE_ORDER=PCI_BUS_ID -x NCCL_DEBUG=INFO -x NCCL_DEBUG_SUBSYS=INIT,ENV,NET,DESTROY"
)
# of the all-to-all with and without PXN: small messages, many times
PXN_SIZES = "-b 64K -e 4M -f 2 -g 1 -c 1 -n 50"
_MPI = "mpirun --allow-run-as-root --bind-to none"


class FabricKind(StrEnum):
    """The quantity that a test measures; also the name of the check that judges it."""

    NCCL_PAIR = "nccl_pair"  # two nodes, all GPUs
    NCCL_RAIL = "nccl_rail"  # two or more nodes, one rail
    NCCL_GROUP = "nccl_group"  # k nodes, all GPUs, all-reduce
    NCCL_GROUP_ALLTOALL = "nccl_group_alltoall"
    TRAINING = "training_step"  # k nodes, all GPUs
    RDMA_PAIR = "rdma_pair"  # two nodes, one rail, both directions, from GPU memory
    RDMA_LATENCY = "rdma_latency"


class FabricTest(Record):
    """One test among nodes. `fabric_checks.judge_test` judges the outputs of `clients`."""

    kind: FabricKind
    nodes: tuple[str, ...] = Field(min_length=2, max_length=4096)
    rail: int | None = None  # None: all rails
    servers: Mapping[str, Command] = Field(default_factory=dict)  # node -> the serving command
    clients: Mapping[str, Command]  # node -> the measuring command
    ranks: int = 0  # of a collective
    pxn: bool | None = None  # an all-to-all with it on or off on purpose

    @property
    def part(self) -> str:
        """The name of this test in findings: its nodes, and the rail if it uses one rail."""
        names = " ".join(self.nodes)
        if len(self.nodes) > 2:
            names = f"{len(self.nodes)} nodes {self.nodes[0]}..{self.nodes[-1]}"
        return names if self.rail is None else f"{names} rail{self.rail}"


def build_nccl_pair_test(a: Member, b: Member) -> FabricTest:
    """Return an all-reduce over all GPUs of two nodes."""
    return _build_collective_test(FabricKind.NCCL_PAIR, (a, b), "all_reduce")


def build_nccl_group_test(members: tuple[Member, ...], *, alltoall: bool = False) -> FabricTest:
    """Return a collective over all GPUs of several nodes."""
    if alltoall:
        return _build_collective_test(FabricKind.NCCL_GROUP_ALLTOALL, members, "alltoall")
    return _build_collective_test(FabricKind.NCCL_GROUP, members, "all_reduce")


def build_pxn_tests(a: Member, b: Member) -> tuple[FabricTest, FabricTest]:
    """Return small all-to-alls over all GPUs of two nodes: without PXN, then with it."""
    kind = FabricKind.NCCL_GROUP_ALLTOALL
    off = _build_collective_test(kind, (a, b), "alltoall", pxn=False)
    return off, _build_collective_test(kind, (a, b), "alltoall", pxn=True)


def build_nccl_rail_test(members: tuple[Member, ...], rail: int) -> FabricTest:
    """Return an all-reduce over one rail: one GPU and one NIC of each node, only the network.

    The eight rails may run at once. `NCCL_TESTS_SPLIT` would do that in one run, but it prints the
    figures of one rail only.
    """
    size = f"{RAIL_MESSAGE_GIB:.0f}G"
    contexts = " : ".join(
        f"-np 1 -H {m.address}:1 {_NCCL_ENV}{_export_log(f'rail{rail}')}{_export_gid(port.gid)}"
        f" -x CUDA_VISIBLE_DEVICES={port.gpu} -x NCCL_IB_HCA=={port.device}"
        f" all_reduce_perf -b {size} -e {size} -f 2 -g 1 -c 1"
        for m in members
        for port in (m.find_port(rail),)
    )
    command = Command(name="nccl_rail", line=f"{_MPI} {contexts}", limit_s=300.0)
    return FabricTest(
        kind=FabricKind.NCCL_RAIL,
        nodes=tuple(m.node for m in members),
        rail=rail,
        clients={members[0].node: command},
        ranks=len(members),
    )


def build_rdma_pair_test(server: Member, client: Member, rail: int) -> FabricTest:
    """Return a bandwidth test of one rail in both directions at once, from and to GPU memory."""
    options = f"-s {MESSAGE_BYTES} -n 5000 -b -F --report_gbits --perform_warm_up"
    return _build_perftest(FabricKind.RDMA_PAIR, f"ib_write_bw {options}", server, client, rail)


def build_rdma_latency_test(server: Member, client: Member, rail: int) -> FabricTest:
    return _build_perftest(FabricKind.RDMA_LATENCY, "ib_read_lat -n 5000 -F", server, client, rail)


def _build_collective_test(
    kind: FabricKind, members: tuple[Member, ...], name: str, *, pxn: bool | None = None
) -> FabricTest:
    sizes = "-b 8M -e 16G -f 2 -g 1 -c 1" if pxn is None else PXN_SIZES
    switch = "" if pxn is None else f" -x NCCL_PXN_DISABLE={int(not pxn)}"
    log = _export_log(name_log(kind, pxn=pxn))
    words = f"{log}{switch}{_export_gid(*_list_gids(members))} {name}_perf {sizes}"
    return FabricTest(
        kind=kind,
        nodes=tuple(m.node for m in members),
        clients={
            members[0].node: Command(
                name=kind.value, line=_start_on_all(members) + words, limit_s=900.0
            )
        },
        ranks=sum(m.gpus for m in members),
        pxn=pxn,
    )


def _start_on_all(members: tuple[Member, ...]) -> str:
    """Return the words that start one process on each GPU of all members, with NCCL's settings."""
    hosts = ",".join(f"{m.address}:{m.gpus}" for m in members)
    ranks = sum(m.gpus for m in members)
    return f"{_MPI} -np {ranks} --map-by ppr:{members[0].gpus}:node -H {hosts} {_NCCL_ENV}"


def build_training_test(members: tuple[Member, ...]) -> FabricTest:
    """Return the reference training step over all GPUs of several nodes, rank by rank of each."""
    kind = FabricKind.TRAINING
    line = (
        f"{_start_on_all(members)}{_export_log(name_log(kind))}{_export_gid(*_list_gids(members))}"
        f" -x MASTER_ADDR={members[0].address} -x MASTER_PORT={TRAINING_PORT}"
        f" python3 {TRAINING_PATH}"
    )
    return FabricTest(
        kind=kind,
        nodes=tuple(m.node for m in members),
        clients={members[0].node: Command(name=kind.value, line=line, limit_s=600.0)},
        ranks=sum(m.gpus for m in members),
    )


def name_log(kind: FabricKind, *, pxn: bool | None = None) -> str:
    """Return the word in the names of a collective's log files."""
    return kind.value if pxn is None else f"pxn{int(pxn)}"


def _export_log(name: str) -> str:
    """Return the words that have every rank write its log into a file of its own: on the ranks'
    standard output it would be mixed with the table and with other ranks.

    source: NVIDIA, NCCL environment variables, NCCL_DEBUG_FILE.
    """
    return f" -x NCCL_DEBUG_FILE={LOGS}{name}.%h.%p"


def _list_gids(members: tuple[Member, ...]) -> set[int | None]:
    return {port.gid for member in members for port in member.rails}


def _export_gid(*indexes: int | None) -> str:
    """Return the words that give NCCL the GID index that all ports of a process have.

    Without them NCCL finds the index of each port itself, which it does since 2.21.
    source: NVIDIA, NCCL environment variables, NCCL_IB_GID_INDEX.
    """
    if len(indexes) != 1 or indexes[0] is None:
        return ""
    return f" -x NCCL_IB_GID_INDEX={indexes[0]}"


def _build_perftest(
    kind: FabricKind, test: str, server: Member, client: Member, rail: int
) -> FabricTest:
    server_port = server.find_port(rail)
    client_port = client.find_port(rail)
    command_of = {
        m.node: _build_command(kind, test, p, rail)
        for m, p in ((server, server_port), (client, client_port))
    }
    server_address = server_port.address or server.address
    client_command = command_of[client.node].model_copy(
        update={"line": f"{command_of[client.node].line} {server_address}"}
    )
    return FabricTest(
        kind=kind,
        nodes=(server.node, client.node),
        rail=rail,
        servers={server.node: command_of[server.node]},
        clients={client.node: client_command},
    )


def _build_command(kind: FabricKind, test: str, port: RailPort, rail: int) -> Command:
    memory = f" --use_cuda={port.gpu}" if kind is FabricKind.RDMA_PAIR else ""
    gid = "" if port.gid is None else f" -x {port.gid}"
    line = f"CUDA_DEVICE_ORDER=PCI_BUS_ID timeout 90 {test} -d {port.device}{gid} -p {PORT + rail}"
    return Command(name=kind.value, line=line + memory, limit_s=120.0)

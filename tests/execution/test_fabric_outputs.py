"""Outputs of a test between two hosts, rail by rail: good, bad, garbled and hostile ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.checks.check import CheckContext
from provisioner.checks.fabric import fabric_workloads
from provisioner.checks.fabric.rail_port import Member, RailPort
from provisioner.execution.validate.fabric_outputs import (
    find_slowest,
    nccl_rail,
    parse_sections,
    rdma_rail,
)
from provisioner.model.cohort import Evidence
from provisioner.model.fabric_session import FabricRun, RailRun

CONTEXT = CheckContext(gpu_model="H100")
RULE = "-" * 87


def member(name: str) -> Member:
    port = RailPort(rail=3, device="mlx5_3", address="172.0.0.0", gpu=3)
    return Member(node=name, address="10.0.0.1", rails=(port,))


RDMA = fabric_workloads.build_rdma_pair_test(member("a"), member("b"), 3)
NCCL = fabric_workloads.build_nccl_rail_test((member("a"), member("b")), 3)
GOOD = RailRun(rail=3, shown="pass", gbit_s=778.0)


def bandwidth(gbit_s: float, size: int = 8388608) -> str:
    return (
        f"{RULE}\n #bytes  #iterations  BW peak[Gb/sec]  BW average[Gb/sec]  MsgRate[Mpps]\n"
        f" {size}    5000             {gbit_s}             {gbit_s}             0.011594\n{RULE}"
    )


def collective(bus: float = 47.5, wrong: int = 0, hosts: tuple[str, str] = ("a", "b")) -> str:
    cells = f"22000.0 {bus} {bus} {wrong}"
    ranks = "".join(
        f"#  Rank  {n} Group  0 Pid  5{n} on {h} device  0 [0x1b] NVIDIA\n"
        for n, h in enumerate(hosts)
    )
    return (
        f"{ranks}#       size         count      type   redop    root     time   algbw   busbw"
        " #wrong     time   algbw   busbw #wrong\n"
        f"  1073741824  268435456 float sum -1 {cells} {cells}\n"
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n"
        f"# Avg bus bandwidth    : {bus}\n#"
    )


def output(text: str, code: int = 0, rail: int = 3) -> Evidence:
    return Evidence(source="x", exit_code=0, text=f"== rail {rail}\n{text}\n== end {rail} {code}\n")


@pytest.mark.parametrize(
    ("said", "shown", "gbit_s"),
    [
        (output(bandwidth(778.0)), "pass", 778.0),
        (output(bandwidth(500.0)), "fail", 500.0),  # below the floor
        (output(bandwidth(778.0), code=1), "fail", 778.0),  # it ended with an error
        (output(bandwidth(778.0, size=4096)), "fail", 778.0),  # not the message of the floor
        (output("Couldn't connect to 172.0.0.0:18518", code=1), "fail", None),
        (output("", code=124), "timeout", None),
        (output("sh: 1: ib_write_bw: not found", code=127), "not_run", None),
        (output("all is well", code=0), "not_run", None),  # garbage is no pass
        (output(bandwidth(99_999.0)), "not_run", None),  # more than there can be
        (output(bandwidth(778.0), rail=4), "not_run", None),  # another rail's
        (Evidence(source="x", exit_code=0, text=""), "not_run", None),
        (Evidence(source="x", exit_code=None, text=""), "timeout", None),
        (Evidence(source="x", exit_code=124, text=bandwidth(778.0)), "timeout", None),
    ],
)
def test_how_a_rail_ended_is_read_from_what_its_client_said(
    said: Evidence, shown: str, gbit_s: float | None
) -> None:
    found = rdma_rail(RDMA, said, CONTEXT)

    assert (found.shown, found.gbit_s) == (shown, gbit_s)


@pytest.mark.parametrize(
    ("said", "shown", "bus_gb_s"),
    [
        (output(collective()), "pass", 47.5),
        (output(collective(wrong=3), code=1), "wrong_data", 47.5),
        (output("ORTE was unable to start", code=1), "pass", None),  # tells of mpirun
        (output(collective(hosts=("a", "a"))), "pass", None),  # it never left the node
        (output(""), "pass", None),
    ],
)
def test_nccl_adds_wrong_values_and_a_bandwidth_to_what_rdma_showed(
    said: Evidence, shown: str, bus_gb_s: float | None
) -> None:
    found = nccl_rail(GOOD, NCCL, said, CONTEXT)

    assert (found.shown, found.bus_gb_s) == (shown, bus_gb_s)


def test_a_good_collective_redeems_no_rail_that_failed() -> None:
    failed = RailRun(rail=3, shown="fail", gbit_s=100.0)

    assert nccl_rail(failed, NCCL, output(collective()), CONTEXT).shown == "fail"


def test_the_slowest_pass_of_a_rail_is_kept() -> None:
    runs = [
        FabricRun(
            test=f"t{n}",
            kind="pair",
            nodes=("a", "b"),
            round_number=n,
            results=(RailRun(rail=3, shown=shown, bus_gb_s=bus),),
        )
        for n, (shown, bus) in enumerate([("pass", 47.0), ("pass", 46.0), ("fail", 1.0)])
    ]

    assert find_slowest(runs) == {3: 46.0}


def test_a_rail_that_is_told_twice_is_not_believed() -> None:
    twice = output(bandwidth(778.0)).text * 2

    assert parse_sections(twice) == {}


@given(st.text(max_size=400), st.integers(0, 200))
def test_no_garbage_passes(text: str, code: int) -> None:
    found = rdma_rail(RDMA, output(text, code), CONTEXT)

    assert found.shown != "pass"
    assert all(c.isprintable() for c in found.detail)
    assert nccl_rail(GOOD, NCCL, output(text, code), CONTEXT).bus_gb_s is None

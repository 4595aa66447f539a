"""Tests among nodes: what each node runs, and whom the verdict names."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from provisioner.checks.check import CheckContext
from provisioner.checks.fabric.fabric_checks import CHECKS, judge_test
from provisioner.checks.fabric.fabric_workloads import (
    FabricKind,
    FabricTest,
    build_nccl_group_test,
    build_nccl_pair_test,
    build_nccl_rail_test,
    build_rdma_latency_test,
    build_rdma_pair_test,
)
from provisioner.checks.fabric.rail_port import Member, RailPort
from provisioner.model.cohort import Evidence, Severity, Verdict

ROOT = Path(__file__).parents[1] / "golden" / "checks"
CONTEXT = CheckContext.model_validate_json((ROOT / "context.json").read_text())


def member(number: int) -> Member:
    rails = tuple(
        RailPort(
            rail=r, device=f"mlx5_{r + number}", address=f"172.{r}.0.{2 * number}", gpu=r, gid=3
        )
        for r in range(8)
    )
    return Member(node=f"n{number}", address=f"10.0.0.{number}", rails=rails)


A, B, C, D = (member(n) for n in range(1, 5))


def said(test: FabricTest, case: str, code: int = 0) -> dict[str, dict[str, Evidence]]:
    """Outputs of a test's one client, from a recorded case."""
    ((node, command),) = test.clients.items()
    text = (ROOT / test.kind.value / case / f"{command.name}.txt").read_text()
    return {node: {command.name: Evidence(source=command.line, exit_code=code, text=text)}}


def test_a_pair_runs_on_all_gpus_of_both_nodes() -> None:
    test = build_nccl_pair_test(A, B)

    assert list(test.clients) == ["n1"]
    line = test.clients["n1"].line
    assert "-np 16" in line
    assert "-H 10.0.0.1:8,10.0.0.2:8" in line
    assert line.endswith("all_reduce_perf -b 8M -e 16G -f 2 -g 1 -c 1")


def test_a_rail_uses_its_own_card_and_gpu_on_each_node() -> None:
    line = build_nccl_rail_test((A, B), 3).clients["n1"].line

    assert "-x CUDA_VISIBLE_DEVICES=3 -x NCCL_IB_HCA==mlx5_4 all_reduce_perf" in line
    assert "-H 10.0.0.2:1" in line
    assert "NCCL_IB_HCA==mlx5_5" in line


def test_rdma_serves_on_one_node_and_asks_from_the_other_over_the_rail() -> None:
    test = build_rdma_pair_test(A, B, 3)

    assert "-d mlx5_4 -x 3 -p 18518 --use_cuda=3" in test.servers["n1"].line
    assert test.clients["n2"].line.endswith("-d mlx5_5 -x 3 -p 18518 --use_cuda=3 172.3.0.2")
    assert "--use_cuda" not in build_rdma_latency_test(A, B, 3).clients["n2"].line


def test_rails_that_run_at_once_do_not_share_a_port() -> None:
    lines = [build_rdma_pair_test(A, B, r).servers["n1"].line for r in range(8)]

    assert len({line.split(" -p ")[1].split()[0] for line in lines}) == 8


def test_a_rail_that_a_node_does_not_have_is_refused() -> None:
    with pytest.raises(KeyError, match="n1 has no rail 9"):
        build_nccl_rail_test((A, B), 9)


@pytest.mark.parametrize("name", ["mlx5_0; reboot", "$(id)", "", "-x", "a b"])
def test_a_device_name_from_a_host_cannot_become_a_command(name: str) -> None:
    with pytest.raises(ValidationError):
        RailPort(rail=0, device=name, gpu=0)


# test_training_step.py has those of a training step
@pytest.mark.parametrize("kind", [kind for kind in FabricKind if kind is not FabricKind.TRAINING])
def test_a_good_output_passes_and_a_slow_one_names_the_nodes(kind: FabricKind) -> None:
    test = {
        FabricKind.NCCL_PAIR: build_nccl_pair_test(A, B),
        FabricKind.NCCL_RAIL: build_nccl_rail_test((A, B), 3),
        FabricKind.NCCL_GROUP: build_nccl_group_test((A, B, C, D)),
        FabricKind.NCCL_GROUP_ALLTOALL: build_nccl_group_test((A, B, C, D), alltoall=True),
        FabricKind.RDMA_PAIR: build_rdma_pair_test(A, B, 3),
        FabricKind.RDMA_LATENCY: build_rdma_latency_test(A, B, 3),
    }[kind]
    slow = "bad_one_way_slow" if kind is FabricKind.RDMA_PAIR else "bad_slow"

    good = judge_test(test, said(test, "good"), CONTEXT)
    bad = judge_test(test, said(test, slow), CONTEXT)

    assert (good.verdict, good.findings) == (Verdict.PASS, ())
    assert [name.partition("/")[2] for name in good.measured] == [test.part]
    assert bad.verdict is Verdict.FAIL
    assert {(f.part, f.severity) for f in bad.findings} == {(test.part, Severity.ISOLATE)}
    assert "n1" in test.part


def test_fewer_nodes_than_were_asked_for_is_no_pass() -> None:
    test = build_nccl_group_test((A, B, C, D))
    text = (ROOT / "nccl_pair" / "good" / "nccl_pair.txt").read_text()
    outputs = {"n1": {"nccl_group": Evidence(source="x", exit_code=0, text=text)}}

    result = judge_test(test, outputs, CONTEXT)

    assert result.verdict is Verdict.FAIL
    assert result.findings[0].detail == "nodes in the collective"


def test_a_test_that_gave_no_output_is_a_failure_and_not_a_traceback() -> None:
    test = build_nccl_pair_test(A, B)

    assert judge_test(test, {}, CONTEXT).verdict is Verdict.FAIL
    assert judge_test(test, {"n1": {}}, CONTEXT).verdict is Verdict.FAIL


def test_without_a_floor_nothing_is_judged_but_wrong_values_are() -> None:
    unknown = CONTEXT.model_copy(update={"learned": {}, "gpu_model": "a GPU without a floor"})
    test = build_nccl_pair_test(A, B)

    assert judge_test(test, said(test, "good"), unknown).verdict is Verdict.SKIPPED
    wrong = judge_test(test, said(test, "bad_wrong_values", 1), unknown)
    assert wrong.findings[0].severity is Severity.ISOLATE


def test_a_test_is_a_record_that_goes_through_json() -> None:
    test = build_rdma_pair_test(A, B, 3)

    assert FabricTest.model_validate_json(test.model_dump_json()) == test
    assert set(CHECKS) == set(FabricKind) - {FabricKind.TRAINING}


def test_the_index_of_a_gid_is_that_of_the_port() -> None:
    other = B.model_copy(update={"rails": tuple(p.model_copy(update={"gid": 5}) for p in B.rails)})
    infiniband = B.model_copy(
        update={"rails": tuple(p.model_copy(update={"gid": None}) for p in B.rails)}
    )

    assert "-x NCCL_IB_GID_INDEX=3 " in build_nccl_pair_test(A, B).clients["n1"].line
    assert "GID_INDEX" not in build_nccl_pair_test(A, other).clients["n1"].line
    rail = build_nccl_rail_test((A, other), 0).clients["n1"].line
    assert rail.index("NCCL_IB_GID_INDEX=3") < rail.index("NCCL_IB_GID_INDEX=5")
    assert "-d mlx5_5 -x 5 -p" in build_rdma_pair_test(A, other, 3).clients["n2"].line
    assert "-d mlx5_5 -p" in build_rdma_pair_test(A, infiniband, 3).clients["n2"].line

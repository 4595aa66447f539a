"""The training step's judge: true outputs of the workload on CPUs, and generated ones of GPUs with
planted culprits.

The files in tests/golden/training are what `training_step.py` printed here, with PyTorch 2.13.0+cpu
and four ranks over gloo: twice, once with one wrong unit in the last place of rank 2's weights.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from provisioner import checks
from provisioner.checks.check import CheckContext
from provisioner.checks.fabric.fabric_workloads import build_training_test
from provisioner.checks.fabric.rail_port import Member, RailPort
from provisioner.checks.fabric.training_step import (
    Judged,
    judge_training,
    learn_references,
    read_training,
)
from provisioner.checks.threshold_data import Limit
from provisioner.execution.validate.fabric_outputs import judge_collective
from provisioner.integrations.sim.outputs.outputs_training import print_training
from provisioner.model.cohort import Evidence, Sample

ROOT = Path(__file__).parent.parent / "golden/training"
NODES = ("n0", "n1", "n2", "n3")
CONTEXT = CheckContext(gpu_model="H100", profile="hgx-h100-bf3")


def true_output(name: str) -> str:
    return (ROOT / f"{name}.txt").read_text()


def printed(faults: Mapping[str, str] | None = None, nodes: int = 4) -> str:
    """A run of four nodes of two GPUs; `faults`: node -> fault."""
    named = [f"n{i}" for i in range(nodes)]
    return print_training([(n, 2, frozenset({(faults or {}).get(n, "")})) for n in named])


def judged(text: str, context: CheckContext = CONTEXT, nodes: tuple[str, ...] = NODES) -> Judged:
    return judge_training(read_training(text), context, nodes, None)


def said(found: Judged) -> list[tuple[str, str]]:
    return [(f.part, f.detail) for f in (*found.wrong, *found.slow)]


def test_four_true_ranks_computed_the_same_bits_in_two_runs() -> None:
    first, second = (judged(true_output(name)) for name in ("good", "again"))

    assert not first.wrong
    assert not first.unknown
    assert [f.detail for f in first.slow] == ["it ran without GPUs"]  # never a pass for a GPU node
    assert first.measured == second.measured
    assert len(first.measured) == 2


def test_one_wrong_unit_in_the_last_place_names_its_rank_and_step() -> None:
    found = judged(true_output("one_ulp"))

    assert ("n2", "rank 2 computes wrong bits from step 5 on") in said(found)
    assert {f.part for f in found.wrong} == {"n2"}
    assert not found.measured  # it teaches the fleet nothing


def test_the_bits_are_compared_with_what_the_fleet_computed() -> None:
    good = judged(true_output("good")).measured
    taught = [sample(f"m{i}", good) for i in range(3)]
    context = CONTEXT.model_copy(update={"training": learn_references(taught)})
    other = {name: value + 1 for name, value in good.items()}
    wrong = CONTEXT.model_copy(update={"training": other})

    assert not judged(true_output("good"), context).wrong
    assert {f.part for f in judged(true_output("one_ulp"), context).wrong} == {"n2"}
    assert {d for _, d in said(judged(true_output("good"), wrong))} >= {
        "all ranks computed the same bits, which differ from the fleet's",
        "the loss curve differs from the fleet's with the same versions",
    }


@pytest.mark.parametrize(
    ("values", "agreed"),
    [((1, 1, 1), {1}), ((1, 1), set()), ((1, 1, 1, 2), set()), ((1,) * 19 + (2,), {1})],
)
def test_only_what_nearly_all_nodes_computed_is_a_reference(
    values: tuple[int, ...], agreed: set[int]
) -> None:
    taught = [sample(f"m{i}", {"training_alone/ab": float(v)}) for i, v in enumerate(values)]

    assert set(learn_references(taught).values()) == agreed
    unsound = [s.model_copy(update={"sound": False}) for s in taught]
    assert not learn_references(unsound)


def test_a_good_run_on_gpus_passes_and_is_measured() -> None:
    found = judged(printed())

    assert not said(found)
    assert not found.unknown
    assert found.measured["training_step_ms/4 nodes"] == pytest.approx(55, rel=0.01)
    assert 0 < found.measured["training_overlap_percent/4 nodes"] < 100


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("training_slow_gpu", "GPU 0 (rank 4) computes slower than the others"),
        ("training_wrong_ulp", "GPU 1 (rank 5) computes wrong bits from step 5 on"),
        ("training_slow_receiver", "GPU 0 (rank 4) receives slower than the others"),
    ],
)
def test_a_planted_culprit_is_named_and_nobody_else(fault: str, words: str) -> None:
    found = judged(printed({"n2": fault}))

    assert any(words in detail for _, detail in said(found))
    assert {part for part, _ in said(found)} == {"n2"}


def test_a_limit_of_the_profile_counts_before_the_published_one() -> None:
    own = {"training_slow_percent": {"hgx-h100-bf3": Limit(value=20, source="site")}}
    loose = CONTEXT.model_copy(update={"overrides": own})
    step = {"training_step_ms": {"hgx-h100-bf3": Limit(value=50, source="release")}}
    strict = CONTEXT.model_copy(update={"overrides": step})

    assert not said(judged(printed({"n2": "training_slow_gpu"}), loose))
    assert said(judged(printed(), strict)) == [("fabric", "a step takes longer than it should")]


def test_a_node_alone_that_nothing_is_known_of_does_not_pass() -> None:
    found = judged(printed(nodes=1), nodes=("n0",))

    assert "nothing to compare its bits with" in found.unknown[0]


@pytest.mark.parametrize("spoil", ["cut", "mixed", "lost", "twice", "missing", "late", "garbage"])
def test_what_is_not_whole_is_unknown_and_accuses_nobody(spoil: str) -> None:
    lines = printed().splitlines(keepends=True)
    text = {
        "cut": "".join(lines)[:-40],
        "mixed": "".join([*lines[:3], lines[3][:60] + lines[5], *lines[4:]]),
        "lost": "".join(lines[:-1]),
        "twice": "".join([*lines, lines[-1]]),
        "missing": line({"rank": 0, "missing": "PyTorch: No module named 'torch'"}),
        "late": "".join(x for x in lines if '"ended"' not in x),
        "garbage": "TRAINING {} 00000000\nTRAINING\n",
    }[spoil]

    found = judged(text)

    assert found.unknown
    assert not said(found)
    assert not found.measured


def test_ranks_of_different_versions_are_not_compared() -> None:
    lines = printed().splitlines(keepends=True)
    at = next(n for n, x in enumerate(lines) if '"began"' in x and '"rank":3,' in x)
    body = json.loads(lines[at].split(" ", 1)[1].rsplit(" ", 1)[0])
    lines[at] = line({**body, "key": {**body["key"], "nccl": "2.27.1"}})

    found = judged("".join(lines))

    assert not said(found)
    assert "nccl" in found.unknown[0]


def test_a_loss_that_is_no_number_is_wrong_whoever_says_so() -> None:
    text = ""
    for one in printed().splitlines():
        body = json.loads(one.split(" ", 1)[1].rsplit(" ", 1)[0])
        if "curve" in body:
            body["curve"][4] = "7ff8000000000000"
        text += line(body)

    assert ("fabric", "the loss is not a number at a step") in said(judged(text))


@pytest.mark.parametrize(
    ("fault", "shown", "words"),
    [
        ("", "pass", ""),
        ("training_wrong_ulp", "wrong_data", "n2: GPU 1"),
        ("training_slow_gpu", "fail", "n2: GPU 0"),
    ],
)
def test_a_session_takes_the_worst_of_it_for_fault_location(
    fault: str, shown: str, words: str
) -> None:
    members = tuple(
        Member(node=n, address=f"10.0.0.{i}", gpus=2, rails=tuple(
            RailPort(rail=r, device=f"mlx5_{r}", gpu=r) for r in range(2)
        ))
        for i, n in enumerate(NODES)
    )  # fmt: skip
    test = build_training_test(members)
    output = f"== rail 0\n{printed({'n2': fault})}== end 0 0\n"

    run = judge_collective([test], Evidence(source="mpirun", exit_code=0, text=output), CONTEXT)

    assert (run.shown, run.detail.startswith(words)) == (shown, True)
    assert bool(run.training) is (shown != "wrong_data")
    assert "MASTER_ADDR=10.0.0.0" in test.clients["n0"].line


def test_the_check_is_listed_for_gate_c() -> None:
    assert "training_step" in {check.name for check in checks.ALL}


def line(body: Mapping[str, object]) -> str:
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    return f"TRAINING {text} {zlib.crc32(text.encode()):08x}\n"


def sample(node: str, measured: Mapping[str, float]) -> Sample:
    return Sample(
        node=node, rack="", profile="p", versions="v", taken_at=0.0, sound=True, measured=measured
    )

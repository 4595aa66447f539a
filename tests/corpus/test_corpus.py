"""The corpus keeps its form and its size, and the program its targets on it."""

from __future__ import annotations

from collections import Counter

import fabric_score
import pytest
from corpus_entries import HEALTHY, KINDS, Entry, load_entries
from corpus_score import (
    CULPRIT_MIN,
    PRECISION_MIN,
    RECALL_MIN,
    Answer,
    answer,
    count_scores,
    list_misses,
)
from healthy_node import CHECKS, CONTEXT, INVENTORY, read_good_outputs

from provisioner.model.cohort import Verdict

ENTRIES_MIN = 190
HEALTHY_MIN = 50
# Named strictness: both texts call themselves non-fatal and NVSentinel asks for nothing, but the
# first code is in no table of NVIDIA's and NVIDIA's catalogue calls the second's status fatal.
STRICTER_THAN_THE_SOURCE = {"sxid-non-fatal-2", "kernel-harmless-10"}


@pytest.fixture(scope="module")
def answers() -> tuple[Answer, ...]:
    return tuple(answer(entry) for entry in load_entries())


def test_precision_recall_and_culprits_reach_their_targets(answers: tuple[Answer, ...]) -> None:
    every = count_scores(answers)[-1]

    assert every.precision >= PRECISION_MIN
    assert every.recall >= RECALL_MIN
    assert every.culprit >= CULPRIT_MIN


def test_only_the_named_entries_are_answered_otherwise(answers: tuple[Answer, ...]) -> None:
    assert {a.entry.id for a in list_misses(answers)} == STRICTER_THAN_THE_SOURCE


def test_each_entry_has_its_own_name_a_kind_and_a_part_of_the_node() -> None:
    entries = load_entries()

    assert len(entries) >= ENTRIES_MIN
    assert sum(not e.faulty for e in entries) >= HEALTHY_MIN
    assert [i for i, n in Counter(e.id for e in entries).items() if n > 1] == []
    assert {e.kind for e in entries} <= set(KINDS)
    slots = {d.slot for d in INVENTORY.devices}
    named = [e for e in entries if e.part.startswith(("GPU", "NV", "NIC", "DPU"))]
    assert [e.id for e in named if e.part not in slots] == []
    assert [e.id for e in entries if e.part and not e.faulty] == []


def test_the_node_is_healthy_before_an_entry_changes_it() -> None:
    failed = [
        check.name
        for check in CHECKS
        if check.judge(read_good_outputs(check), CONTEXT).verdict is not Verdict.PASS
    ]

    assert failed == []


def test_a_score_counts_wrong_kinds_and_wrong_parts() -> None:
    gpu = Entry(id="a", source="a made case", kind="gpu", part="GPU_SXM_1")
    well = Entry(id="b", source="a made case", kind=HEALTHY)
    wrong = (
        Answer(entry=gpu, kind="gpu", part="GPU_SXM_2"),
        Answer(entry=gpu, kind=HEALTHY),
        Answer(entry=well, kind="nic"),
        Answer(entry=well, kind=HEALTHY),
    )

    scores = {s.kind: s for s in count_scores(wrong)}

    assert (scores["gpu"].precision, scores["gpu"].recall, scores["gpu"].culprit) == (1.0, 0.5, 0.0)
    assert scores["nic"].precision == 0.0
    assert (scores["all"].precision, scores["all"].recall) == (0.5, 0.5)
    assert [a.kind for a in list_misses(wrong)] == ["gpu", HEALTHY, "nic"]


@pytest.mark.parametrize("kind", ["optics", "queues", "nccl", "training"])
def test_no_good_optic_log_or_node_is_accused_and_every_fault_is_named(kind: str) -> None:
    said = fabric_score.judge_all()[kind]
    wrong = [fabric_score.describe(one) for one in said if one[1] != one[2]]

    assert wrong == []
    assert fabric_score.count(kind, said).entries >= 4
    assert len({entry["id"] for entry, _, _ in said}) == len(said)
    assert all(len(entry["source"]) >= 8 for entry, _, _ in said)


@pytest.mark.parametrize("entry", fabric_score.load("optics"), ids=lambda e: str(e["id"]))
def test_an_optic_has_the_state_that_its_source_shows(entry: dict[str, object]) -> None:
    assert fabric_score.state_of(entry) == entry["state"]

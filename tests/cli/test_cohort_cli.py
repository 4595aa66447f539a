"""`provisioner cohort` and `checks select` on a small store."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random

import pytest
from program import run

from provisioner.daemon.data import open_data
from provisioner.model.cohort import Baseline, Sample
from provisioner.model.node import Node, NodeKind
from provisioner.model.times.instant import AT_EDGE

BASELINE = Baseline(
    metric="all_reduce_gb_s", profile="hgx", versions="aaaa", level=400.0, floor=380.0,
    anchor=400.0, nodes=12, racks=3, below=1, learned_at=1.0,
)  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Path:
    rng = Random(3)

    async def fill() -> None:
        async with open_data(tmp_path / "var", 1.0) as data:
            for n in range(12):
                await data.store.nodes.add(Node(id=f"n{n}", kind=NodeKind.HOST, profile="hgx"))
                for versions, level in (("aaaa", 400.0), ("bbbb", 384.0)):
                    slow = 0.8 if n == 7 and versions == "aaaa" else 1.0
                    sample = Sample(
                        node=f"n{n}", rack=f"r{n // 4}", profile="hgx", versions=versions,
                        measured={"all_reduce_gb_s/host": slow * rng.gauss(level, 1)},
                        sound=True, taken_at=float(n),
                    )  # fmt: skip
                    await data.store.cohorts.put_sample(sample)
            await data.store.cohorts.put_baseline(BASELINE)

    asyncio.run(fill())
    return tmp_path


def test_cohorts_learned_floors_and_outliers_are_shown(site: Path) -> None:
    document = json.loads(run(["cohort", "show", "--json"], site).stdout)
    shown = run(["cohort", "show", "--profile", "hgx"], site).stdout

    assert [o["node"] for o in document["outliers"]] == ["n7"]
    assert document["baselines"] == [BASELINE.model_dump(mode="json", context=AT_EDGE)]
    assert {c["versions"] for c in document["cohorts"]} == {"aaaa", "bbbb"}
    assert "12 nodes, 3 racks" in shown


def test_a_change_that_made_nodes_worse_ends_with_one(site: Path) -> None:
    worse = run(["cohort", "compare", "--before", "aaaa", "--after", "bbbb"], site)
    better = run(["cohort", "compare", "--before", "bbbb", "--after", "aaaa", "--json"], site)

    assert (worse.returncode, better.returncode) == (1, 0)
    assert "worse" in worse.stdout
    assert json.loads(better.stdout)[0]["nodes"] == 12


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["cohort", "compare", "--before", "cccc", "--after", "aaaa"], "No version set"),
        (["cohort", "show", "--profile", "other"], "no such profile"),
        (["checks", "select", "--cause", "new", "--gates", "xyz"], "no gates"),
    ],
)
def test_what_is_not_there_is_named(site: Path, words: list[str], reason: str) -> None:
    done = run(words, site)

    assert done.returncode == (4 if reason == "no such profile" else 2)
    assert reason in done.stderr


def test_the_chosen_tests_are_told_with_their_reasons(tmp_path: Path) -> None:
    words = ["checks", "select", "--cause", "repaired", "--part", "nic"]
    document = json.loads(run([*words, "--json"], tmp_path).stdout)
    shown = run([*words, "--budget-s", "60"], tmp_path).stdout

    assert document["fabric"] is True
    assert "gdr_loopback" in document["checks"]
    assert "covers nothing that changed" in document["left_out"]["storage_load"]
    assert "Raise the budget" in shown

"""Collectives over many nodes in sessions: who passes, and who fails only among many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from test_fabric_sessions import blamed, lived

from provisioner.model.outcome import Reason

NODES = [f"su0-n{i:02d}" for i in range(8)]


def inject(fault: str, *names: str) -> Callable[[Any], Awaitable[None]]:
    async def put(place: Any) -> None:
        for name in names:
            place.world.site.machines[name].faults.add(fault)

    return put


def test_nodes_that_pass_in_pairs_are_tested_together_and_their_figures_are_kept(
    tmp_path: Path,
) -> None:
    _, outcomes, _ = lived(tmp_path, 4, fabric_collectives=(2, 4))

    assert sum(o.passed for o in outcomes.values()) == 4
    measured = outcomes["su0-n00"].results[0].measured
    assert measured["nccl_pair_gb_s/2 nodes"] > 370
    assert measured["nccl_group_gb_s/4 nodes"] > 370
    assert measured["nccl_group_alltoall_gb_s/4 nodes"] > 40


def test_a_node_that_is_slow_only_among_many_is_named_and_nobody_else(tmp_path: Path) -> None:
    _, outcomes, _ = lived(
        tmp_path, 8, fabric_collectives=(4,), meanwhile=inject("slow_in_collectives", "su0-n05")
    )

    assert blamed(outcomes) == {"su0-n05": (Reason.CHECK_FAILED, "su0-n05/collectives")}
    assert sum(o.passed for o in outcomes.values()) == 7


@pytest.mark.long
def test_where_no_collective_can_be_run_nobody_passes_and_nobody_is_blamed(tmp_path: Path) -> None:
    fault = inject("orted_missing", *NODES[:4])
    _, outcomes, _ = lived(tmp_path, 4, fabric_collectives=(4,), meanwhile=fault)

    assert {o.blockers[0].reason for o in outcomes.values()} == {Reason.CHECK_SKIPPED}
    assert "could be run" in outcomes["su0-n00"].blockers[0].detail


@pytest.mark.long
def test_a_collective_survives_a_crash_in_its_middle(tmp_path: Path) -> None:
    async def crash(place: Any) -> None:
        await place.open_session(rounds=2)
        await place.world.clock.sleep(5.0)
        await place.stop()
        await place.world.clock.sleep(60.0)
        place.start()

    _, outcomes, journal = lived(tmp_path, 4, fabric_collectives=(4,), meanwhile=crash)

    assert sum(o.passed for o in outcomes.values()) == 4
    assert [r["kind"] for r in journal] == ["fabric_session", "fabric_verdicts"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("training_wrong_ulp", "computes wrong bits"),
        ("training_slow_gpu", "computes slower"),
    ],
)
def test_a_node_that_trains_wrong_or_slowly_is_named_and_nobody_else(
    tmp_path: Path, fault: str, words: str
) -> None:
    _, outcomes, _ = lived(
        tmp_path,
        8,
        fabric_collectives=(4,),
        fabric_training=True,
        meanwhile=inject(fault, "su0-n03"),
    )

    assert blamed(outcomes) == {"su0-n03": (Reason.CHECK_FAILED, "su0-n03/collectives")}
    assert words in outcomes["su0-n03"].blockers[0].detail
    measured = outcomes["su0-n05"].results[0].measured
    assert measured["training_step_ms/4 nodes"] > 0
    assert any(name.startswith("training_alone/") for name in measured)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nccl_sockets", "NCCL fell back to sockets: Failed to open libibverbs"),
        pytest.param("nccl_staged", "without GPUDirect RDMA", marks=pytest.mark.long),
        pytest.param("nccl_rail_unused", "does not use the rail of", marks=pytest.mark.long),
        pytest.param("nccl_no_pxn", "without PXN", marks=pytest.mark.long),
        pytest.param("nvswitch_path_slow", "NVSwitch path", marks=pytest.mark.long),
    ],
)
def test_a_node_whose_nccl_takes_another_way_is_named_by_what_nccl_says(
    tmp_path: Path, fault: str, words: str
) -> None:
    _, outcomes, _ = lived(tmp_path, 6, fabric_collectives=(2,), meanwhile=inject(fault, "su0-n03"))

    assert blamed(outcomes) == {"su0-n03": (Reason.CHECK_FAILED, "su0-n03/collectives")}
    assert words in outcomes["su0-n03"].blockers[0].detail

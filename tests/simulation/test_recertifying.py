"""Every reason to test a node again, through the daemon: what is run, and what stays proved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rig import World
from test_returns import HOST, HOUR_S, lived, state

from provisioner.model.certificate import Certificate
from provisioner.model.cohort import HealthReport
from provisioner.model.node import Node, State
from provisioner.model.outcome import Reason
from provisioner.planning.certification.check_selection import TESTS, Domain


async def proved(world: World) -> tuple[HealthReport, Certificate]:
    node = await state(world, State.CERTIFIED)
    report, held = (
        await world.store.evidence.get_report(HOST),
        await world.store.evidence.get_certificate(node.certificate),
    )
    assert report is not None
    assert held is not None
    return report, held


def again(
    directory: Path, act: Callable[[World], Any], **settings: Any
) -> tuple[Certificate, HealthReport, Certificate]:
    """The first certificate, and the report and certificate after something happened."""

    async def story(world: World) -> tuple[Certificate, HealthReport, Certificate]:
        _, first = await proved(world)
        act(world)
        until = world.clock.now() + 24 * HOUR_S
        while world.clock.now() < until:
            report, held = await proved(world)
            if held.id != first.id:
                return first, report, held
        raise AssertionError("it was not certified again")

    told, wrong = lived(directory, story, wanted=0, **settings)
    assert wrong == []
    return told


def sources(held: Certificate) -> dict[str, str]:
    return {proof.gate.value: proof.certificate for proof in held.gates}


def update_supply(world: World) -> None:
    machine = world.site.machines[HOST]
    machine.firmware["host", "PowerSupply1"].running = "9.9"
    machine.power_cycle(world.clock.now())


@pytest.mark.long
def test_after_an_update_what_it_concerns_is_tested_and_the_rest_stays_proved(
    tmp_path: Path,
) -> None:
    first, report, second = again(tmp_path, update_supply)

    assert report.causes == ("updated",)
    run = {r.check for r in report.results} & set(TESTS)
    assert run == {"gpu_burn"}
    assert Domain.POWER in TESTS["gpu_burn"].domains
    assert sources(first) == {"a": first.id, "b": first.id}
    assert sources(second) == {"a": second.id, "b": first.id}


@pytest.mark.long
def test_periodic_tests_come_with_the_certificates_end_and_keep_their_reason(
    tmp_path: Path,
) -> None:
    first, report, second = again(tmp_path, lambda _: None, certificate_days=0.15)

    assert report.causes == ("periodic",)
    assert second.issued_at >= first.expires_at
    assert sources(second)["a"] == second.id
    assert set(sources(second)) == {"a", "b"}


@pytest.mark.long
def test_a_release_is_refused_by_a_gate_that_is_not_proved(tmp_path: Path) -> None:
    """A site that begins to demand the long burn: its floors are not learned, so none passes."""

    async def story(world: World) -> tuple[str, str, Node]:
        _, first = await proved(world)
        await world.crash()
        world.settings = world.settings.model_copy(update={"certify_gates": "abd"})
        await world.start()
        node = await state(world, State.QUARANTINED)
        rows = await world.store.journal.list(limit=100_000)
        why = [str(r["detail"].get("why", "")) for r in rows if r["node"] == HOST]
        return first.proved, next((w for w in why if "a release demands" in w), ""), node

    (before, why, node), wrong = lived(tmp_path, story, wanted=0, remedies_max=0)

    assert before == "ab"
    assert "a release demands gate d (long burn), and its certificate proves ab" in why
    assert {b.reason for b in node.blockers} == {Reason.CHECK_SKIPPED}
    assert any(b.subject == "nccl_collectives" for b in node.blockers)
    assert wrong == []

"""Sessions of tests among nodes: put where the journey would have brought them, then driven."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from given_events import in_state
from rig import World

from provisioner.checks.check import CheckContext
from provisioner.checks.fabric import fabric_checks
from provisioner.checks.fabric.rail_port import Member
from provisioner.control.context import Context
from provisioner.control.fabric.fabric import FabricSessions
from provisioner.execution.validate.fabric_tests import FabricTests
from provisioner.integrations.sim.site import control as fault_presets
from provisioner.model.cohort import CheckResult, Evidence, Gate, HealthReport, Verdict
from provisioner.model.fabric_session import FabricOutcome, FabricSession
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.places.address_plan import AddressPlan

HOUR_S, Act = 3600.0, Callable[["Place"], Any]


class Place:
    """A site whose hosts wait for gate C, or are certified and idle."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = world.store
        self.sessions: FabricSessions | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def prepare(self, lent: Sequence[str]) -> None:
        await self.world.take_in()
        await self.world.start()
        await self.world.crash()  # nobody drives the nodes: only their rows are there
        for node in await self.store.nodes.list():
            if node.kind is NodeKind.HOST:
                await self._put(node, lent=node.id in lent)

    async def _put(self, node: Node, *, lent: bool) -> None:
        now = self.world.clock.now()
        machine = self.world.site.machines[node.id]
        devices = tuple(
            Device(kind=DeviceKind(d.kind), slot=d.slot, model=d.model, serial=d.serial, pci=d.pci)
            for d in machine.devices.values()
            if d.kind in ("gpu", "nic")
        )
        passed = CheckResult(check="gpus", gate=Gate.A, verdict=Verdict.PASS)
        report = HealthReport(
            node=node.id,
            inventory_digest=f"d-{node.id}",
            started_at=now,
            ended_at=now,
            results=(passed,),
            fabric=True,
        )
        placed = in_state(
            node,
            State.CERTIFIED if lent else State.VALIDATING,
            now,
            placement=Placement.MAINTENANCE,
            vrf="MAINT",
            profile="hgx-h100-bf3",
            certificate=f"c-{node.id}" if lent else "",
        )
        operation = await self.store.operations.open(node.id, "test", now)
        if operation is None:
            (operation,) = [
                o for o in await self.store.operations.list_active() if o.node == node.id
            ]
        operation = await self.store.operations.take(operation.id)
        inventory = Inventory(node=node.id, vendor="x", devices=devices)
        await self.store.operations.record(
            operation, node=placed, inventory=inventory, report=report, now=now
        )

    def start(self) -> None:
        """A daemon's sessions: the first one's, or those of the one after a crash."""
        daemon = self.world.daemon
        assert daemon is not None
        tests = FabricTests(daemon.site, self.store, daemon.parts.matrix)
        settings = self.world.settings
        context = Context(self.store, self.world.clock, settings)
        self.sessions = FabricSessions(context, tests, plan=AddressPlan())
        self._ticking = asyncio.create_task(self.sessions.run())

    async def stop(self) -> None:
        assert self.sessions is not None
        assert self._ticking is not None
        self._ticking.cancel()
        await asyncio.gather(self._ticking, return_exceptions=True)
        await self.sessions.stop()

    async def open_session(self, rounds: int) -> FabricSession:
        """The session, once it has stored so many rounds."""
        while True:
            for session in await self.store.fabric.list_sessions():
                if len({r.round_number for r in session.runs}) >= rounds:
                    return session
            await self.world.clock.sleep(0.5)

    async def change(self, name: str, **changes: object) -> None:
        node = await self.store.nodes.get(name)
        assert node is not None
        await self.store.nodes.save(node.model_copy(update=changes))

    async def outcomes(self) -> dict[str, FabricOutcome]:
        names = [n.id for n in await self.store.nodes.list()]
        found = {n: await self.store.fabric.get_outcome(n) for n in names}
        return {n: o for n, o in found.items() if o is not None}


def lived(
    directory: Path,
    nodes: int,
    *,
    faults: Mapping[str, str] | None = None,
    lent: Sequence[str] = (),
    meanwhile: Act | None = None,
    hours: float = 3.0,
    **settings: Any,
) -> tuple[Place, dict[str, FabricOutcome], list[Any]]:
    """What sessions said in so many hours."""

    async def main() -> tuple[Place, dict[str, FabricOutcome], list[Any]]:
        world = World(directory, nodes=nodes, seed=3, **{"certify_gates": "abc", **settings})
        place = Place(world)
        await place.prepare(lent)
        for subject, fault in (faults or {}).items():
            fault_presets.inject_fault(world.site, fault, subject)
        place.start()
        if meanwhile is not None:
            await meanwhile(place)
        await world.clock.sleep(hours * HOUR_S)
        await place.stop()
        rows = await world.store.journal.list(limit=10_000)
        assert not any(h.serving for h in world.site.hosts.values()), "a server was left behind"
        return place, await place.outcomes(), [r for r in rows if "fabric" in r["kind"]]

    return virtual_time.run(main())


def blamed(outcomes: Mapping[str, FabricOutcome]) -> dict[str, tuple[Reason, str]]:
    return {
        n: (o.blockers[0].reason, o.blockers[0].subject) for n, o in outcomes.items() if o.blockers
    }


def test_a_slow_node_is_named_and_its_partners_pass(tmp_path: Path) -> None:
    _, outcomes, _ = lived(tmp_path, 8, faults={"su0-n03": "slow_among_nodes"})

    assert blamed(outcomes) == {"su0-n03": (Reason.CHECK_FAILED, "su0-n03/fabric")}
    assert sum(o.passed for o in outcomes.values()) == 7


def test_a_bad_leaf_is_named_at_the_leaf_itself_and_at_all_nodes_on_it(tmp_path: Path) -> None:
    _, outcomes, _ = lived(tmp_path, 8, faults={"leaf-su0-r2": "leaf_drops"})

    assert set(blamed(outcomes).values()) == {(Reason.FABRIC, "leaf-su0-r2")}
    assert set(blamed(outcomes)) == {"leaf-su0-r2", *(f"su0-n{i:02d}" for i in range(8))}


def test_one_node_is_tested_with_idle_certified_ones_that_keep_their_certificates(
    tmp_path: Path,
) -> None:
    lent = [f"su0-n{i:02d}" for i in range(1, 5)]
    place, outcomes, journal = lived(tmp_path, 5, lent=lent)

    assert outcomes["su0-n00"].passed
    assert sorted(journal[0]["detail"]["lent"]) == lent

    async def states() -> set[tuple[State, str]]:
        return {(n.state, n.certificate) for n in await place.store.nodes.list() if n.id in lent}

    assert virtual_time.run(states()) == {(State.CERTIFIED, f"c-{n}") for n in lent}


def test_a_rail_is_tested_by_its_card_on_all_planes_and_never_by_one_of_several_cards(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        place = Place(World(tmp_path, nodes=1, seed=3, certify_gates="abc"))
        await place.prepare(())
        daemon = place.world.daemon
        assert daemon is not None
        tests = FabricTests(daemon.site, place.store, daemon.parts.matrix)
        node = await place.store.nodes.get("su0-n00")
        assert node is not None
        first, second = (next(p for p in node.ports if p.rail == rail) for rail in (0, 1))

        async def read(slot: str) -> Member | Blocker:
            more = first.model_copy(update={"switch": "leaf-p1-su0-r0", "nic_slot": slot})
            ports = (*node.ports, more)
            return await tests.read_member(node.model_copy(update={"ports": ports}))

        assert await read(first.nic_slot) == await tests.read_member(node)
        several = await read(second.nic_slot)
        assert isinstance(several, Blocker)
        assert "a rail has several cards" in several.detail

    virtual_time.run(main())


def test_with_too_few_partners_nothing_is_begun(tmp_path: Path) -> None:
    _, outcomes, journal = lived(tmp_path, 3)

    assert (outcomes, journal) == ({}, [])


def test_a_site_that_does_not_demand_gate_c_tests_nobody(tmp_path: Path) -> None:
    _, outcomes, journal = lived(tmp_path, 4, certify_gates="ab")

    assert (outcomes, journal) == ({}, [])


def test_a_crash_loses_no_stored_round_and_repeats_none(tmp_path: Path) -> None:
    seen: list[FabricSession] = []

    async def crash(place: Place) -> None:
        seen.append(await place.open_session(rounds=1))
        await place.world.clock.sleep(20.0)  # in the middle of the second round
        await place.stop()
        await place.world.clock.sleep(300.0)
        place.start()

    _, outcomes, journal = lived(tmp_path, 6, faults={"su0-n02": "cable_lossy"}, meanwhile=crash)

    assert blamed(outcomes) == {"su0-n02": (Reason.CABLING, "su0-n02/rail5")}
    assert [r["kind"] for r in journal] == ["fabric_session", "fabric_verdicts"]
    assert {o.session for o in outcomes.values()} == {seen[0].id}


def test_a_session_is_ended_although_gate_c_is_not_demanded_any_more(tmp_path: Path) -> None:
    async def change_settings(place: Place) -> None:
        await place.open_session(rounds=1)
        await place.stop()
        place.world.settings = place.world.settings.model_copy(update={"certify_gates": "ab"})
        place.start()

    place, outcomes, _ = lived(tmp_path, 4, meanwhile=change_settings)

    assert sum(o.passed for o in outcomes.values()) == 4
    assert virtual_time.run(place.store.fabric.list_sessions()) == ()


@pytest.mark.long
def test_who_leaves_in_the_middle_gets_no_outcome_and_the_others_do(tmp_path: Path) -> None:
    async def leave(place: Place) -> None:
        await place.open_session(rounds=1)
        await place.change("su0-n01", state=State.QUARANTINED, entered_at=place.world.clock.now())

    _, outcomes, _ = lived(tmp_path, 6, meanwhile=leave)

    assert "su0-n01" not in outcomes
    assert sum(o.passed for o in outcomes.values()) == 5
    assert not any("su0-n01" in o.partners for o in outcomes.values() if not o.passed)


@pytest.mark.long
def test_a_lent_node_that_is_allocated_meanwhile_is_tested_to_the_end(tmp_path: Path) -> None:
    lent = [f"su0-n{i:02d}" for i in range(1, 5)]

    async def allocate(place: Place) -> None:
        await place.open_session(rounds=1)
        await place.change("su0-n03", tenant="red")

    _, outcomes, _ = lived(tmp_path, 5, lent=lent, meanwhile=allocate)

    assert outcomes["su0-n00"].passed
    assert outcomes["su0-n03"].passed


@pytest.mark.long
def test_a_session_with_too_few_nodes_left_says_nothing_of_anybody(tmp_path: Path) -> None:
    async def leave(place: Place) -> None:
        await place.open_session(rounds=1)
        for name in ("su0-n01", "su0-n02"):
            await place.change(name, state=State.QUARANTINED, entered_at=place.world.clock.now())

    _, outcomes, journal = lived(tmp_path, 5, meanwhile=leave)

    assert outcomes == {}
    assert [r["kind"] for r in journal] == ["fabric_session", "fabric_verdicts"]


def test_a_host_that_does_not_answer_is_told_apart_from_one_that_fails(tmp_path: Path) -> None:
    _, outcomes, _ = lived(tmp_path, 6, faults={"su0-n04": "inband_unreachable"})

    assert blamed(outcomes) == {"su0-n04": (Reason.UNREACHABLE, "su0-n04/gate C")}
    assert outcomes["su0-n04"].results[0].verdict is Verdict.SKIPPED


def test_a_session_that_takes_too_long_leaves_open_what_is_open(tmp_path: Path) -> None:
    _, outcomes, _ = lived(
        tmp_path, 6, faults={"su0-n02": "cable_lossy"}, fabric_session_limit_s=40.0
    )

    assert outcomes
    assert {o.blockers[0].reason for o in outcomes.values()} == {Reason.CHECK_SKIPPED}


def test_with_nccl_wrong_values_name_the_link_that_bandwidth_shows_to_be_good(
    tmp_path: Path,
) -> None:
    _, outcomes, _ = lived(
        tmp_path, 6, faults={"su0-n03": "corrupts_among_nodes"}, fabric_nccl=True
    )

    assert blamed(outcomes) == {"su0-n03": (Reason.CABLING, "su0-n03/rail2")}
    assert outcomes["su0-n00"].results[0].measured["nccl_rail_gb_s/rail2"] > 40


@pytest.mark.long
def test_what_a_node_passed_by_can_be_judged_again_from_its_evidence(tmp_path: Path) -> None:
    place, outcomes, _ = lived(tmp_path, 4)

    async def text() -> str | None:
        return await place.store.evidence.get_output(outcomes["su0-n00"].results[0].evidence)

    raw = virtual_time.run(text())
    assert raw is not None
    evidence = {n: Evidence.model_validate(e) for n, e in json.loads(raw).items()}
    again = fabric_checks.CHECK_RDMA.judge(evidence, CheckContext(gpu_model="H100"))

    assert again.verdict is Verdict.PASS
    assert again.measured == outcomes["su0-n00"].results[0].measured

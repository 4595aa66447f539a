"""Storage that answers badly, or is another's: a handover stops at a named blocker, and what was
shut stays shut. Both storage systems, by the same story.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import lctl_rig
import pytest
import vms_rig
from test_vast import Clock

from provisioner.execution.tenancy.spaces import TenantSpaces
from provisioner.integrations.sim.storage.lctl import SimulatedMgs
from provisioner.integrations.sim.storage.vms import SimulatedVms
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.storage import Export, FileStorage
from provisioner.model.tenant import Phase, Tenant
from provisioner.settings import Settings
from provisioner.settings.fabric import StorageSystem
from provisioner.store.sql_store import SqlStore, open_store

STORAGE = FileStorage(exports=(Export(name="scratch", path="/scratch"),))
A, B, STRANGER = "172.0.1.0", "172.0.2.0", "9.9.9.9"


class Rig:
    """A tenant's storage on one of the simulated systems, and a database."""

    def __init__(self, store: SqlStore, system: str) -> None:
        self.store = store
        self.vms = SimulatedVms()
        self.mgs = SimulatedMgs()
        self.is_vast = system == "vast"
        clock: Any = Clock()
        settings = Settings(
            storage=StorageSystem(provider=system, address="https://s.test", username="u")
        )
        on_vast, _ = vms_rig.open_simulated(self.vms, clock)
        self.system: Any = on_vast if self.is_vast else lctl_rig.open_simulated(self.mgs, clock)
        self.start: Callable[[], TenantSpaces] = lambda: TenantSpaces(
            self.system, store, clock, settings
        )
        self.spaces = self.start()

    async def add(self, name: str, *, storage: FileStorage = STORAGE) -> None:
        red = Tenant(name=name, vrf="RED", number=1, phase=Phase.READY, file_storage=storage)
        await self.store.tenants.put(red)

    async def bring(self) -> tuple[Blocker, ...]:
        delta = await self.spaces.delta(await self.store.tenants.list())
        return delta.blockers or await self.spaces.bring(delta)

    async def add_node(self, name: str, number: int) -> Node:
        port = Port(
            switch="leaf", interface=f"swp{number}", rail=0, nic_slot="N",
            address=f"172.0.{number}.1/31",
        )  # fmt: skip
        place = {"placement": Placement.CUSTOMER, "vrf": "RED", "tenant": "red"}
        made = Node(id=name, kind=NodeKind.HOST, ports=(port,))
        node = made.model_copy(update={"state": State.RELEASED, **place})
        await self.store.nodes.add(node)
        return node

    def list_readers(self) -> set[str]:
        system: Any = self.vms if self.is_vast else self.mgs
        return {a for a in (A, B, STRANGER) if system.list_readable(a)}

    def make_by_hand(self, name: str) -> None:
        """An empty space that no daemon made."""
        if self.is_vast:
            self.vms._add("tenants", {"name": name, "client_ip_ranges": []})
        else:
            self.mgs.run(f"lctl nodemap_add {name}")


def run(system: str, story: Callable[[Rig], Awaitable[None]]) -> None:
    async def scenario() -> None:
        store = open_store(":memory:")
        rig = Rig(store, system)
        try:
            await story(rig)
        finally:
            await rig.spaces.close()
            await store.close()

    asyncio.run(scenario())


def fail(rig: Rig) -> None:
    rig.vms.refuse = [500] * 40
    rig.mgs.fail = "_range"


def cut(rig: Rig) -> None:
    rig.vms.cut = {"tenants"}
    rig.mgs.cut = 40


def silence(rig: Rig) -> None:
    rig.vms.silent = rig.mgs.silent = True


def take_address(rig: Rig) -> None:
    """Another tenant's space has the address of the node that enters."""
    if rig.is_vast:
        rig.vms._add("tenants", {"name": "blue", "client_ip_ranges": [[B, B]]})
    else:
        rig.mgs.run("lctl nodemap_add blue")
        rig.mgs.run(f"lctl nodemap_add_range --name blue --range {B}@tcp")


def heal(rig: Rig) -> None:
    rig.vms.refuse, rig.vms.cut, rig.vms.silent = [], set(), False
    rig.mgs.fail, rig.mgs.cut, rig.mgs.silent = "", 0, False
    if rig.is_vast and (blue := rig.vms.find("tenants", "blue")) is not None:
        blue["client_ip_ranges"] = []
    elif "blue" in rig.mgs.nodemaps:
        rig.mgs.run(f"lctl nodemap_del_range --name blue --range {B}@tcp")


@pytest.mark.parametrize("system", ["vast", "lustre"])
@pytest.mark.parametrize("trouble", [fail, cut, silence, take_address])
def test_a_handover_stops_at_a_named_blocker_and_nobody_more_is_let_in(
    system: str, trouble: Callable[[Rig], None]
) -> None:
    async def story(rig: Rig) -> None:
        await rig.add("red")
        assert await rig.bring() == ()
        assert await rig.spaces.admit(await rig.add_node("a", 1)) == ()
        entering = await rig.add_node("b", 2)
        trouble(rig)

        refused = await rig.spaces.admit(entering)

        assert refused
        assert all(b.subject.startswith("storage") and b.detail and b.unblock for b in refused)
        heal(rig)
        assert rig.list_readers() == {A}
        assert await rig.spaces.admit(entering) == ()
        assert rig.list_readers() == {A, B}

    run(system, story)


def test_a_full_quota_stops_who_enters_and_nobody_who_serves() -> None:
    """On VAST: of Lustre no limits are offered (docs/storage.md)."""

    async def story(rig: Rig) -> None:
        limited = FileStorage(
            exports=(Export(name="scratch", path="/scratch", quota_bytes=1000),), quota_bytes=5000
        )
        await rig.add("red", storage=limited)
        assert await rig.bring() == ()
        assert await rig.spaces.admit(await rig.add_node("a", 1)) == ()
        rig.vms.files["red", "/scratch"] = 1000

        refused = await rig.spaces.admit(await rig.add_node("b", 2))

        assert {b.reason for b in refused} == {Reason.QUOTA}
        assert all("Raise its quota" in b.unblock for b in refused)
        assert rig.list_readers() == {A}

    run("vast", story)


@pytest.mark.parametrize("system", ["vast", "lustre"])
def test_an_empty_space_that_a_person_made_is_taken_only_on_word(system: str) -> None:
    async def story(rig: Rig) -> None:
        rig.make_by_hand("red")
        await rig.add("red")

        [refused] = await rig.bring()

        assert refused.reason is Reason.DUPLICATE
        assert "adopt: true" in refused.unblock
        assert not (await rig.store.tenants.list())[0].takes_nodes
        [row] = await rig.store.tenants.list()
        word = row.model_copy(update={"file_storage": STORAGE.model_copy(update={"adopt": True})})
        await rig.store.tenants.save(word, new=False, nodes=(), request="change", now=0.0)
        assert await rig.bring() == ()
        assert (await rig.store.tenants.list())[0].takes_nodes
        assert await rig.spaces.admit(await rig.add_node("a", 1)) == ()
        assert rig.list_readers() == {A}

    run(system, story)


@pytest.mark.parametrize("system", ["vast", "lustre"])
def test_a_making_whose_answer_was_lost_is_known_as_ours(system: str) -> None:
    async def story(rig: Rig) -> None:
        rig.vms.lose = rig.mgs.lose = 1
        await rig.add("red")
        await rig.bring()
        row = (await rig.store.tenants.list())[0]
        assert not row.takes_nodes
        assert await rig.bring() == ()
        assert (await rig.store.tenants.list())[0].takes_nodes

    run(system, story)


class Death(BaseException):
    """The daemon ends here."""


def die_at(rig: Rig, moment: int) -> list[str]:
    """End the daemon at a moment of its effects, before or after each; return those that were."""
    passed: list[str] = []

    def wrap(place: Any, name: str) -> None:
        whole = getattr(place, name)

        async def ending(*given: Any, **named: Any) -> Any:
            passed.append(f"before {name}")
            if len(passed) == moment:
                raise Death
            told = await whole(*given, **named)
            passed.append(f"after {name}")
            if len(passed) == moment:
                raise Death
            return told

        setattr(place, name, ending)

    wrap(rig.system, "apply")
    wrap(rig.store.tenants, "save")
    wrap(rig.store.journal, "append")
    return passed


@pytest.mark.parametrize("system", ["vast", "lustre"])
def test_who_dies_at_any_moment_of_a_making_is_succeeded_and_its_space_is_known(
    system: str,
) -> None:
    """Before and after each write to the storage, the row and the journal."""
    deaths: list[str] = []

    def tell(moment: int) -> Callable[[Rig], Awaitable[None]]:
        async def story(rig: Rig) -> None:
            await rig.add("red")
            passed = die_at(rig, moment)
            try:
                assert await rig.bring() == ()
            except Death:
                deaths.append(passed[-1])
            passed += [""] * 60  # nobody dies any more
            rig.spaces = rig.start()
            assert await rig.bring() == ()
            assert (await rig.store.tenants.list())[0].takes_nodes
            assert await rig.spaces.admit(await rig.add_node("a", 1)) == ()
            assert rig.list_readers() == {A}

        return story

    for moment in range(1, 60):
        before = len(deaths)
        run(system, tell(moment))
        if len(deaths) == before:
            break

    assert {"before apply", "after apply", "before save", "after save"} <= set(deaths)
    assert len(deaths) >= 12

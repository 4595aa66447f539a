"""Who leaves is out of every space, whatever the settings and the rows say by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from test_vast import Clock
from vms_rig import open_simulated

from provisioner.adapters.granted.hosts import GrantedSpaces
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.control.watch.storage_watch import StorageWatch
from provisioner.execution.tenancy.spaces import GONE_APART_S, TenantSpaces
from provisioner.integrations.sim.storage.vms import SimulatedVms
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Origin, Placement, State
from provisioner.model.outcome import Reason
from provisioner.model.storage import Export, FileStorage, SpaceAct, SpaceVerb
from provisioner.model.tenant import Phase, Tenant
from provisioner.runtime.permit import CapabilityGate
from provisioner.settings import Settings
from provisioner.settings.fabric import StorageSystem
from provisioner.store.sql_store import SqlStore, open_store

STORAGE = FileStorage(exports=(Export(name="scratch", path="/scratch"),))
SYSTEM = StorageSystem(provider="vast", address="https://vms.test", username="admin")
A, B = "172.0.1.0", "172.0.2.0"


class Rig:
    """Tenant red with two nodes that serve it, on a simulated VMS and a database."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.vms = SimulatedVms()
        self.clock = Clock()
        self.watch: StorageWatch | None = None
        self.spaces = self.build()

    def build(self, **changed: object) -> TenantSpaces:
        system = SYSTEM.model_copy(update=changed)
        spaces, _ = open_simulated(self.vms, self.clock)  # type: ignore[arg-type]
        self.settings = Settings(storage=system)
        return TenantSpaces(spaces, self.store, self.clock, self.settings)  # type: ignore[arg-type]

    async def begin(self) -> None:
        red = Tenant(name="red", vrf="RED", number=1, phase=Phase.READY, file_storage=STORAGE)
        await self.store.tenants.put(red)
        for name, number in (("a", 1), ("b", 2)):
            address = f"172.0.{number}.1/31"
            port = Port(
                switch="leaf", interface=f"swp{number}", rail=0, nic_slot="N", address=address
            )
            made = Node(id=name, kind=NodeKind.HOST, ports=(port,))
            await self.store.nodes.add(
                made.model_copy(
                    update={
                        "state": State.RELEASED,
                        "placement": Placement.CUSTOMER,
                        "vrf": "RED",
                        "tenant": "red",
                    }
                )
            )
        tenants = await self.store.tenants.list()
        assert await self.spaces.bring(await self.spaces.delta(tenants)) == ()
        for name in ("a", "b"):
            assert await self.spaces.admit(await self.node(name)) == ()
        assert self.list_readers() == {A, B}

    async def node(self, name: str) -> Node:
        node = await self.store.nodes.get(name)
        assert node is not None
        return node

    def list_readers(self) -> set[str]:
        return {a for a in (A, B, "9.9.9.9") if self.vms.list_readable(a)}

    def open(self, address: str) -> None:
        """Let an address in, in the tenant and in its policies."""
        tenant = self.vms.find("tenants", "red")
        assert tenant is not None
        tenant["client_ip_ranges"] = [*tenant["client_ip_ranges"], [address, address]]
        for policy in self.vms.rows["viewpolicies"].values():
            if policy.get("tenant_id") == tenant["id"]:
                for name in ("nfs_read_write", "nfs_root_squash"):
                    policy[name] = [*policy[name], address]

    async def count_told(self) -> int:
        rows = await self.store.journal.list()
        return sum(row["kind"] == "space_foreign" for row in rows)

    async def spoil(self, table: str, key: str, name: str) -> None:
        spoiled = text(f"update {table} set body = :body where {key} = :name")
        values = {"body": "{", "name": name}
        await self.store.write(lambda c: c.execute(spoiled, values).rowcount)

    async def look(self) -> None:
        clock: Any = self.clock
        context = Context(store=self.store, clock=clock, settings=self.settings)
        self.watch = self.watch or StorageWatch(context, self.spaces, self.store.alerts)
        await self.watch.look()

    async def list_alerts(self) -> list[str]:
        alerts = await self.store.alerts.list("a")
        return sorted(f"{a.id} {a.target}" for a in alerts if a.active)


def run(story: Callable[[Rig], Awaitable[None]]) -> None:
    async def scenario() -> None:
        store = open_store(":memory:")
        rig = Rig(store)
        try:
            await rig.begin()
            await story(rig)
        finally:
            await rig.spaces.close()
            await store.close()

    asyncio.run(scenario())


def test_who_leaves_is_out_after_the_setting_of_networks_was_changed() -> None:
    async def story(rig: Rig) -> None:
        rig.spaces = rig.build(client_networks=("10.0.0.0/8",))
        await rig.look()
        assert rig.list_readers() == {A, B}  # who serves is not shut out by a setting

        assert await rig.spaces.expel(await rig.node("a")) == ()
        assert rig.list_readers() == {B}

    run(story)


def test_who_leaves_takes_addresses_along_that_no_row_has_any_more() -> None:
    async def story(rig: Rig) -> None:
        for ports in ((), (await rig.node("b")).ports[:0]):
            rig.open("9.9.9.9")
            moved = (await rig.node("a")).model_copy(update={"ports": ports})
            await rig.store.nodes.save(moved)

            assert await rig.spaces.expel(await rig.node("a")) == ()
            assert rig.list_readers() == {B}

    run(story)


def test_a_node_with_a_damaged_row_stays_in_and_it_is_told_once() -> None:
    async def story(rig: Rig) -> None:
        before = await rig.count_told()
        await rig.spoil("nodes", "id", "a")
        for _ in range(3):
            await rig.look()
            assert rig.list_readers() == {A, B}
        assert await rig.count_told() == before + 1

    run(story)


def test_what_a_hand_opens_again_is_closed_and_told_again() -> None:
    async def story(rig: Rig) -> None:
        before = await rig.count_told()
        for count in (1, 2):
            rig.open("9.9.9.9")
            await rig.look()
            assert rig.list_readers() == {A, B}
            assert await rig.count_told() == before + count

    run(story)


def test_a_tenant_of_the_hardware_list_gets_its_space_and_no_node_before() -> None:
    """A list that is read again keeps what was made; one without storage takes it away."""

    async def story(rig: Rig) -> None:
        green = Tenant(name="green", vrf="GREEN", nodes_wanted=1, file_storage=STORAGE)
        await rig.store.tenants.put(green)
        row = next(t for t in await rig.store.tenants.list() if t.name == "green")
        assert not row.takes_nodes
        nothing: Any = None
        keeper = TenantKeeper(
            *(rig.store, rig.clock, [rig.spaces], nothing, nothing),  # type: ignore[arg-type]
            spaces=rig.spaces,
        )
        handles = []
        for listed in (green, green, green.model_copy(update={"file_storage": None})):
            await rig.store.tenants.put(listed)
            await keeper.tick()
            row = next(t for t in await rig.store.tenants.list() if t.name == "green")
            assert row.takes_nodes
            handles.append(row.space_handle)
        assert handles[0]
        assert handles == [handles[0], handles[0], ""]
        assert rig.vms.find("tenants", "green") is None
        assert rig.list_readers() == {A, B}

    run(story)


def test_a_foreign_hand_is_an_alert_until_a_person_clears_it_and_a_notice_to_its_tenant() -> None:
    """A difference that opens nothing is an alert as long as it stands."""

    async def story(rig: Rig) -> None:
        rig.open("9.9.9.9")
        await rig.look()
        await rig.look()
        assert rig.list_readers() == {A, B}
        assert await rig.list_alerts() == ["StorageTrespass storage/red clients"]
        notices = await rig.store.cases.list_notices(tenant="red")
        assert ["9.9.9.9" in n.text for n in notices] == [True]

        tenant = rig.vms.find("tenants", "red")
        assert tenant is not None
        held = tenant["client_ip_ranges"]
        tenant["client_ip_ranges"] = [[A, A]]  # b is shut out
        await rig.look()
        both = ["StorageDiffers storage/red shut", "StorageTrespass storage/red clients"]
        assert await rig.list_alerts() == both
        rig.vms.silent = True
        await rig.look()
        assert await rig.list_alerts() == both  # unread is not over
        rig.vms.silent = False
        tenant["client_ip_ranges"] = held
        await rig.look()
        assert await rig.list_alerts() == both[1:]
        assert len(await rig.store.cases.list_notices(tenant="red")) == 1

    run(story)


def test_who_leaves_a_tenant_with_a_damaged_row_is_taken_out() -> None:
    async def story(rig: Rig) -> None:
        node = await rig.node("a")
        await rig.spoil("tenants", "name", "red")
        assert (await rig.store.tenants.list())[0].is_damaged

        assert await rig.spaces.expel(node) == ()
        assert rig.list_readers() == {B}

    run(story)


@pytest.mark.parametrize("way", ["gone", "missed once", "renamed", "name taken", "half a list"])
def test_a_space_counts_as_gone_by_its_handle_at_two_readings_and_never_by_its_name_at_one(
    way: str,
) -> None:
    """Neither is its handle forgotten nor a node let go that it may serve on."""

    async def story(rig: Rig) -> None:
        red = (await rig.store.tenants.list())[0]
        leaving = red.model_copy(update={"file_storage": None, "phase": Phase.LEAVING})
        now = {"new": False, "nodes": (), "request": "test", "now": 0.0}
        leaving = await rig.store.tenants.save(leaving, **now)
        space = rig.vms.find("tenants", "red")
        assert space is not None
        rows = rig.vms.rows["tenants"]
        match way:
            case "gone":
                del rows[space["id"]]
                rig.vms.rows["views"].clear()
            case "missed once":
                del rows[space["id"]]
                rig.clock.later.append(lambda: rows.update({space["id"]: space}))
            case "renamed" | "name taken":
                space["name"] = "old"
                if way == "name taken":
                    rig.vms._add("tenants", {"name": "red", "client_ip_ranges": []})
            case "half a list":
                rig.vms.cut = {"tenants"}
        began = rig.clock.now()
        expelled = await rig.spaces.expel(await rig.node("a"))
        removed = await rig.spaces.bring(await rig.spaces.delta([leaving]))
        handle = (await rig.store.tenants.list())[0].space_handle
        if way == "gone":
            assert (expelled, removed, handle) == ((), (), "")
            assert rig.clock.now() - began >= GONE_APART_S
        elif way == "missed once":
            assert (expelled, removed, handle) == ((), (), "")
            assert rig.vms.find("tenants", "red") is None  # removed, after it was seen again
        else:
            assert expelled
            assert handle == red.space_handle
            assert A in rig.list_readers()
            words = {"half a list": "ends after"}.get(way, "is called old now")
            assert words in expelled[0].detail
            assert way == "half a list" or words in removed[0].detail

    run(story)


def test_an_adopted_node_holds_up_its_own_tenants_space_and_no_other_of_a_like_name(
    tmp_path: Path,
) -> None:
    """Its tenant is red; the spaces of infrared and red-two are others'."""

    async def ask() -> dict[str, bool]:
        store = open_store(tmp_path / "store.db")
        rig = Rig(store)
        serving = {"state": State.RELEASED, "tenant": "red", "origin": Origin.ADOPTED}
        await store.nodes.add(Node(id="a", kind=NodeKind.HOST, **serving))
        gate = CapabilityGate(store, rig.clock)  # type: ignore[arg-type]
        await gate.open()
        inner, _ = open_simulated(rig.vms, rig.clock)  # type: ignore[arg-type]
        system = SYSTEM.model_copy(update={"prefix": "t-"})
        spaces = GrantedSpaces(inner, gate, system.name_space)
        told = {}
        for tenant in ("red", "infrared", "red-two"):
            act = SpaceAct(verb=SpaceVerb.MAKE, space=system.name_space(tenant))
            refused = await spaces.apply(act)
            told[tenant] = refused is not None and refused.reason is Reason.NOT_GRANTED
        gate.close()  # else every later test of this process has to name its writes
        await store.close()
        return told

    assert asyncio.run(ask()) == {"red": True, "infrared": False, "red-two": False}

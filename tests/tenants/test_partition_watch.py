"""The watch of InfiniBand partitions: members of ours that no row entitles to a customer's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fabrics import tenant
from leaf_rig import Rig
from ufm_standin import Ufm

from provisioner.control.context import Context
from provisioner.control.watch.isolation_violations import IsolationViolations
from provisioner.control.watch.partition_watch import PartitionWatch
from provisioner.control.watch.release_watch import ReleaseWatch
from provisioner.execution.tenancy.partition_tenancy import PartitionTenancy
from provisioner.integrations.ufm.isolation import UfmIsolation, UfmTransport
from provisioner.model.node import Node, Origin, Placement, State
from provisioner.model.tenant import PKEY_MAINTENANCE

A = "su0-n00"
GUID, FOREIGN = "506b4b0300a1b200", "506b4b0300ffff00"
RED, BLUE = tenant("red", 0), tenant("blue", 1)


class Bench:
    """A fenced node with one InfiniBand port, a UFM, and the watch of its partitions."""

    def __init__(self, rig: Rig, ufm: Ufm, partitions: UfmIsolation) -> None:
        self.store, self.ufm, self.submitted = rig.store, ufm, []
        self.book = rig.store.alerts
        tenancy = PartitionTenancy(rig.tenancy, partitions, rig.store)
        context = Context(rig.store, rig.clock, rig.effects.settings)
        back = ReleaseWatch(context, tenancy, self._submit)
        violations = IsolationViolations(rig.store, rig.clock, self.book)
        self.watch = PartitionWatch(context, tenancy, partitions, violations, back.take_back)

    async def _submit(self, operation: str) -> None:
        self.submitted.append(operation)

    async def node(self, **changes: Any) -> Node:
        """Save the node with one port that has a GUID, and these changes to its row."""
        stored = await self.store.nodes.get(A)
        row = {
            "placement": Placement.MAINTENANCE,
            "vrf": "MAINT",
            "fenced_at": 1.0,
            "ports": (stored.ports[0].model_copy(update={"guid": GUID}),),
            **changes,
        }
        return await self.store.nodes.save(stored.model_copy(update=row))

    def put(self, guid: str, pkey: int) -> None:
        """Put a GUID into a partition as a foreign hand does."""
        there = self.ufm.partitions.setdefault(f"{pkey:#x}", {"ip_over_ib": True, "guids": {}})
        there["guids"][guid] = "full"

    def networks(self, guid: str = GUID) -> set[int]:
        return {int(key, 16) for key, p in self.ufm.partitions.items() if guid in p["guids"]}

    async def rows(self) -> list[tuple[str, str]]:
        found = await self.store.journal.list(0, 1000)
        return [(r["kind"], r["node"]) for r in found if r["kind"] in ("trespass", "fence")]


def play(scenario: Callable[[Bench], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        rig = await Rig().open()
        try:
            async with Ufm() as ufm:
                partitions = UfmIsolation(UfmTransport(ufm.address()), default_limited=True)
                for customer in (RED, BLUE):
                    await rig.store.tenants.put(customer)
                try:
                    return await scenario(Bench(rig, ufm, partitions))
                finally:
                    await partitions.close()
        finally:
            await rig.close()

    return asyncio.run(main())


def test_a_guid_of_a_detached_node_is_listed_and_stays():
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.RETIRED, origin=Origin.DETACHED)
        bench.put(GUID, RED.pkey)
        await bench.watch.look()
        return bench.networks(), await bench.rows(), list(bench.watch.listed.values())

    networks, rows, listed = play(scenario)

    assert networks == {RED.pkey}
    assert rows == []
    assert [why.partition(":")[0] for why in listed] == ["detached"]


@pytest.mark.parametrize(
    ("state", "then"),
    [
        (State.CONVERGING, State.QUARANTINED),
        (State.CERTIFIED, State.QUARANTINED),
        (State.QUARANTINED, State.QUARANTINED),
        (State.REPAIRING, State.REPAIRING),
        (State.RETIRED, State.RETIRED),
    ],
)
@pytest.mark.parametrize("pkey", [RED.pkey, 0x55])  # a customer's; one that is no tenant's
def test_a_guid_of_a_node_that_is_not_released_is_fenced_and_reported(state, then, pkey):
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=state)
        bench.put(GUID, pkey)
        await bench.watch.look()
        alerts = [f"{a.id} {a.node}" for a in await bench.book.list(A) if a.active]
        return bench.networks(), await bench.store.nodes.get(A), await bench.rows(), alerts

    networks, node, rows, alerts = play(scenario)

    assert networks == {PKEY_MAINTENANCE}
    assert node.state is then
    assert node.served.startswith("VRF ")  # an erasure is owed
    assert rows == [("trespass", A), ("fence", A)]
    assert alerts == [f"PortTrespass {A}"]


STRANGER = {"placement": Placement.NONE, "vrf": "", "fenced_at": 0.0}


@pytest.mark.parametrize(
    ("state", "fenced"),
    [
        (State.DISCOVERED, False),  # another system moves it still
        (State.INTAKE, True),
        (State.QUARANTINED, True),
        (State.REPAIRING, True),
        (State.RETIRED, False),
    ],
)
@pytest.mark.parametrize("idle", [None, PKEY_MAINTENANCE])
def test_a_guid_that_was_in_no_network_when_its_node_was_quarantined_is_fenced(state, fenced, idle):
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=state, **STRANGER)
        if idle is not None:
            bench.put(GUID, idle)
        await bench.watch.look()
        await bench.watch.look()
        bench.put(GUID, RED.pkey)
        await bench.watch.look()
        return RED.pkey in bench.networks(), await bench.rows(), len(bench.watch.listed)

    rows = [("trespass", A), ("fence", A)]
    assert play(scenario) == ((False, rows, 0) if fenced else (True, [], 1))


@pytest.mark.parametrize(("looks", "fenced"), [(1, False), (2, True)])
@pytest.mark.parametrize("first", [False, True])
def test_one_look_that_misses_a_network_fences_no_guid_that_served_in_it(looks, fenced, first):
    """`first`: it is the first one of a daemon, of a UFM that has just started."""

    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.QUARANTINED, **STRANGER)
        bench.put(GUID, RED.pkey)
        if not first:
            await bench.watch.look()
        del bench.ufm.partitions[f"{RED.pkey:#x}"]["guids"][GUID]
        for _ in range(looks):
            await bench.watch.look()
        bench.put(GUID, RED.pkey)
        await bench.watch.look()
        return RED.pkey in bench.networks(), len(bench.watch.listed)

    assert play(scenario) == ((False, 0) if fenced else (True, 1))


@pytest.mark.parametrize("before", [State.DISCOVERED, State.QUARANTINED])
def test_a_guid_that_served_before_its_node_was_quarantined_is_only_listed(before):
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=before, **STRANGER)
        if before is State.DISCOVERED:
            await bench.watch.look()  # it was idle then
        bench.put(GUID, RED.pkey)
        await bench.watch.look()
        await bench.node(state=State.QUARANTINED, **STRANGER)
        await bench.watch.look()
        return bench.networks(), await bench.rows(), len(bench.watch.listed)

    assert play(scenario) == ({RED.pkey}, [], 1)


@pytest.mark.parametrize(
    "row",
    [
        {"state": State.RELEASED, "placement": Placement.CUSTOMER, "vrf": "RED", "tenant": "red"},
        {"state": State.DRAINING, "placement": Placement.CUSTOMER, "vrf": "RED"},
        {
            "state": State.CERTIFIED,
            "placement": Placement.MIXED,
            "vrf": "",
            "tenant": "red",
            "served": "red",
        },
    ],
)
def test_a_guid_that_a_row_entitles_is_left_alone(row):
    async def scenario(bench: Bench) -> Any:
        await bench.node(**row)
        bench.put(GUID, RED.pkey)
        await bench.watch.look()
        return bench.networks(), await bench.rows()

    assert play(scenario) == ({RED.pkey}, [])


def test_a_released_node_with_a_guid_in_anothers_partition_is_taken_back():
    async def scenario(bench: Bench) -> Any:
        row = {"placement": Placement.CUSTOMER, "vrf": "RED", "tenant": "red", "served": "red"}
        await bench.node(state=State.RELEASED, **row)
        bench.put(GUID, BLUE.pkey)
        await bench.watch.look()
        return bench.networks(), await bench.store.nodes.get(A), len(bench.submitted)

    networks, node, submitted = play(scenario)

    assert (networks, submitted) == ({PKEY_MAINTENANCE}, 1)
    assert (node.state, node.served) == (State.DRAINING, "red, VRF BLUE")


def test_a_release_that_begins_between_two_readings_is_left_alone():
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.CERTIFIED, tenant="red")
        bench.put(GUID, RED.pkey)
        read = bench.watch._partitions.read_members

        async def read_slowly(tenants: Any) -> Any:
            seen = await read(tenants)
            row = {"placement": Placement.MIXED, "vrf": "", "tenant": "red", "served": "red"}
            await bench.node(state=State.CERTIFIED, **row)
            return seen

        bench.watch._partitions.read_members = read_slowly
        await bench.watch.look()
        return bench.networks(), await bench.rows()

    assert play(scenario) == ({RED.pkey}, [])


def test_a_guid_that_no_row_has_is_listed_and_never_moved():
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.CERTIFIED)
        bench.put(FOREIGN, RED.pkey)
        bench.put(FOREIGN, PKEY_MAINTENANCE)
        await bench.watch.look()
        return bench.networks(FOREIGN), await bench.rows(), bench.watch.listed

    networks, rows, listed = play(scenario)

    assert (networks, rows) == ({RED.pkey, PKEY_MAINTENANCE}, [])
    assert list(listed) == [f"{FOREIGN} in RED"]
    assert "no node's row" in listed[f"{FOREIGN} in RED"]


def test_a_node_that_was_never_taken_in_is_listed_and_not_moved():
    async def scenario(bench: Bench) -> Any:
        strange = {"placement": Placement.NONE, "vrf": "", "fenced_at": 0.0}
        await bench.node(state=State.QUARANTINED, **strange)
        bench.put(GUID, RED.pkey)
        await bench.watch.look()
        return bench.networks(), await bench.rows(), list(bench.watch.listed.values())

    networks, rows, (why,) = play(scenario)

    assert (networks, rows) == ({RED.pkey}, [])
    assert "intake --take" in why


def test_a_ufm_that_cannot_be_read_moves_nothing():
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.CERTIFIED)
        bench.put(GUID, RED.pkey)
        bench.ufm.password = "another"  # every request is answered with 401
        await bench.watch.look()
        return bench.networks(), await bench.rows()

    assert play(scenario) == ({RED.pkey}, [])

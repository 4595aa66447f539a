"""A tray that the plan does not name as the daemon does, and a manager that is slow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from proved_domain import LOGIN, make_switches, see
from test_handed_over_partitions import (
    Rig,
    Wire,
    make_node,
    make_partitions,
    owners,
    write_plan,
)

from provisioner.execution.actions.reach import turn
from provisioner.execution.tenancy.memberships import Memberships
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.membership import UnitReading, find_misplaced
from provisioner.integrations.racks.partitions.handed_over import NAME, TURN_S, TrayPartitions
from provisioner.integrations.racks.partitions.nmx_client import NmxClient
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit, RackPlan
from provisioner.integrations.sim.racks.nmx import Nmx
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.node import BmcRef, State
from provisioner.model.outcome import Blocker
from provisioner.ports import Call, Reply, SwitchAddress
from provisioner.runtime import permit
from provisioner.store.sql_store import open_store


@pytest.mark.parametrize(
    ("ours", "planned"),
    [
        ("https://bmc-t0.test", "https://BMC-T0.test:443/"),
        ("https://BMC-t0.test.", "https://bmc-t0.test"),
        ("https://[fd00::5]:443", "https://[FD00:0:0::5]"),
    ],
)
def test_an_address_is_the_trays_in_each_of_its_spellings(
    tmp_path: Path, ours: str, planned: str
) -> None:
    rig = Rig(tmp_path)
    write_plan(tmp_path, {"t0": planned})
    node = make_node("t0", "acme").model_copy(update={"bmcs": (BmcRef(name="host", url=ours),)})
    assert rig.do("admit", node) == []
    assert owners(rig.manager, "t0") == {"acme.d01"}


def say(model: str | None, *gpus: str) -> Inventory:
    devices = tuple(
        Device(kind=DeviceKind.GPU, slot=f"GPU_{n}", model=one) for n, one in enumerate(gpus)
    )
    return Inventory(node="n-t0", vendor="nvidia_openbmc", model=model, devices=devices)


TRAYS_SAY = [say("GB200 NVL"), say(None, "NVIDIA GB300"), say("VR NVL72")]
ELSEWHERE = "https://10.0.0.5"  # of the same BMC, as the plan writes it


@pytest.mark.parametrize("seen", TRAYS_SAY)
def test_a_tray_whose_bmc_the_plan_writes_otherwise_is_held_by_name(
    tmp_path: Path, seen: Inventory
) -> None:
    rig = Rig(tmp_path)
    write_plan(tmp_path, {"t0": ELSEWHERE})
    rig.nodes = [make_node(tray, "blue") for tray in ("t1", "t2", "t3")]
    rig.seen = seen
    node = make_node("t0", "acme")

    (refused,) = rig.do("admit", node)

    assert "no planned tray has its BMC's address https://bmc-t0.test; without" in refused
    assert refused.endswith("without a node: t0")
    assert rig.judge(node) == [("unknown", refused.removeprefix("n-t0: "))]
    assert rig.do("expel", make_node("t0", "acme", State.DRAINING)) == [refused]
    assert rig.do("expel", make_node("t0", "", State.INTAKE)) == []
    assert rig.wire.count == 0
    with rig.plan.open("a") as plan:
        plan.write("outside: [n-t0]\n")  # an NVL4 host
    assert rig.do("admit", node) == []


@pytest.mark.parametrize("seen", [None, say("DGXH100", "NVIDIA H100 80GB HBM3"), say("GH200")])
def test_a_host_that_is_no_tray_by_its_inventory_needs_no_plan(
    tmp_path: Path, seen: Inventory | None
) -> None:
    rig = Rig(tmp_path)
    rig.seen = seen
    assert rig.do("admit", make_node("t9", "acme")) == []


def test_a_tray_that_the_plan_lost_before_any_proof_is_not_free(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.seen = see("t0").model_copy(update={"model": "GB200 NVL"})
    assert rig.do("admit", make_node("t0", "acme")) == []
    write_plan(tmp_path, {"t0": ELSEWHERE})
    (refused,) = rig.do("expel", make_node("t0", "acme", State.DRAINING))
    assert "no planned tray has its BMC's address" in refused
    assert owners(rig.manager, "t0") == {"acme.d01"}


def test_the_store_tells_what_a_host_is(tmp_path: Path) -> None:
    async def ask(seen: Inventory) -> tuple[Blocker, ...]:
        rig = Rig(tmp_path)
        write_plan(tmp_path, {"t0": ELSEWHERE})
        store = open_store(":memory:")
        await store.nodes.add(make_node("t0", "acme"))
        await store.evidence.put_inventory(seen, 1.0)
        beside = Memberships([make_partitions(rig.plan, rig.wire)], store)
        owed = {"beside": ("nvlink_partition",)}
        return await beside.admit(make_node("t0", "acme").model_copy(update=owed))

    assert [one.subject for one in asyncio.run(ask(TRAYS_SAY[0]))] == ["n-t0"]
    assert asyncio.run(ask(say("DGXH100"))) == ()


class Slow(Wire):
    """Each answer comes as late as it may; `mute`: none comes any more once something was sent."""

    def __init__(self, manager: Nmx, *, mute: bool) -> None:
        super().__init__(manager)
        self.mute = mute
        self.time_s = 0.0

    async def pause(self, seconds: float) -> None:
        self.time_s += seconds

    async def request(self, _: SwitchAddress, call: Call) -> Reply:
        self.time_s += call.timeout_s
        self.silent = self.mute and bool(self.manager.log)
        return await super().request(_, call)


@pytest.mark.parametrize("mute", [True, False])
def test_a_mute_or_slow_manager_has_the_turn_for_minutes_and_is_named(
    tmp_path: Path, mute: bool
) -> None:
    """Two and a half hours, when each of 150 questions was waited for."""
    rig = Rig(tmp_path)
    rig.manager.polls = 10_000
    wire = Slow(rig.manager, mute=mute)
    client = NmxClient(wire, SwitchAddress("https://m"), wire.pause, lambda: wire.time_s)
    node = make_node("t0", "acme")

    refused = asyncio.run(
        TrayPartitions(rig.plan, client, wire.pause, make_switches(), LOGIN).admit(
            node, [node], see("t0")
        )
    )

    end = "its operation did not end in time"
    assert [b.detail for b in refused] == [f"{end}: no answer" if mute else end]
    assert wire.time_s < 3 * TURN_S


async def _wait_beside(folder: Path, tray: str) -> bool:
    """Return whether a node is handed over while another tray has the manager's turn."""
    rig = Rig(folder)
    beside = Memberships([make_partitions(rig.plan, rig.wire)], open_store(":memory:"))
    has, end = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with turn(NAME):
            has.set()
            await end.wait()

    holding = asyncio.create_task(hold())
    await has.wait()
    owed = {"beside": ("nvlink_partition",)}
    node = make_node(tray, "acme").model_copy(update=owed)
    task = asyncio.create_task(beside.admit(node))
    done, _ = await asyncio.wait([task], timeout=0.5)
    end.set()
    await asyncio.gather(holding, task)
    return bool(done)


@pytest.mark.parametrize(("tray", "passes"), [("t9", True), ("t0", False)])
def test_a_node_of_no_rack_waits_for_no_turn_of_the_manager(
    tmp_path: Path, tray: str, passes: bool
) -> None:
    assert asyncio.run(_wait_beside(tmp_path, tray)) is passes


def test_a_notice_says_who_waits_for_whom_at_the_manager(tmp_path: Path) -> None:
    async def story() -> list[tuple[str, ...]]:
        rig = Rig(tmp_path)
        at_manager = asyncio.Event()
        go_on = asyncio.Event()
        request = rig.wire.request

        async def wait(address: SwitchAddress, call: Call) -> Reply:
            at_manager.set()
            await go_on.wait()
            return await request(address, call)

        rig.wire.request = wait  # type: ignore[method-assign]
        store = open_store(":memory:")
        nodes = [make_node(tray, "acme") for tray in ("t0", "t1", "t2")]
        for node in nodes:
            await store.nodes.add(node)
            await store.evidence.put_inventory(see(node.id[2:]), 1.0)
        beside = Memberships([make_partitions(rig.plan, rig.wire)], store)
        owed = [n.model_copy(update={"beside": ("nvlink_partition",)}) for n in nodes]

        def read() -> tuple[str, ...]:
            return permit.get_scope().notices.get(f"turn of {NAME}", ())

        asking = []
        for node in owed:  # one after the other comes to the turn
            asking.append(asyncio.create_task(beside.admit(node)))
            for _ in range(500):
                if at_manager.is_set() and (node is owed[0] or node.id in " ".join(read())):
                    break
                await asyncio.sleep(0.01)  # the store answers by a thread
        seen = [read()]
        asking[1].cancel()
        await asyncio.gather(asking[1], return_exceptions=True)
        seen.append(read())
        go_on.set()
        assert await asyncio.gather(asking[0], asking[2]) == [(), ()]
        return [*seen, read()]

    head = f"n-t0 has the turn of {NAME}; waiting for it: "
    assert asyncio.run(story()) == [(f"{head}n-t1, n-t2",), (f"{head}n-t2",), ()]


def plan_serial(folder: Path, serial: str) -> None:
    file = folder / "racks.yaml"
    file.write_text(file.read_text().replace("name: t0,", f"name: t0, serial: {serial},"))


@pytest.mark.parametrize("says", ["1660224000002", None])
def test_another_machine_at_a_planned_address_gets_no_partition_and_leaves_none(
    tmp_path: Path, says: str | None
) -> None:
    """Its BMC's address was given to another tray, whose GPUs are in another slot."""
    rig = Rig(tmp_path)
    plan_serial(tmp_path, "'1660224000001'")
    rig.seen = say("GB200").model_copy(update={"system_serial": says})
    told = f"serial {says}" if says else "no serial"
    other = f"it says {told}, and the plan has 1660224000001"
    refused = [f"n-t0: t0: {other}: another machine may stand at its address"]
    assert rig.do("admit", make_node("t0", "acme")) == refused
    assert rig.do("expel", make_node("t0", "acme", State.DRAINING)) == refused
    assert rig.judge(make_node("t0", "acme"))[0][0] == "unknown"
    assert rig.manager.log == []
    assert rig.wire.count == 0
    rig.seen = see("t0").model_copy(update={"system_serial": "1660224000001"})
    assert rig.do("admit", make_node("t0", "acme")) == []
    rig.seen = None  # nothing was ever read of it
    assert rig.do("expel", make_node("t0", "acme", State.DRAINING))


@pytest.mark.parametrize("kind", [Kind.COMPUTE_TRAY, Kind.NVLINK_SWITCH, Kind.POWER_SHELF])
def test_a_unit_that_says_another_serial_is_not_the_planned_one(kind: Kind) -> None:
    place = None if kind is Kind.POWER_SHELF else 11
    unit = PlannedUnit(name="x0", kind=kind, u=3, serial="S1", slot=place, tray_index=place)
    rack = PlannedRack(name="r01", chassis_serial="C1", units=(unit,))
    plan = RackPlan(racks=(rack,))
    for serial, told in (("S2", "serial S2"), ("", "no serial")):
        readings = {"x0": UnitReading(kind, serial=serial)}
        found = [one.detail for one in find_misplaced(plan, "r01", readings, unit)]
        assert f"it says {told}, and the plan has S1" in found
    readings = {"x0": UnitReading(kind, serial="S1")}
    assert not [o for o in find_misplaced(plan, "r01", readings, unit) if "serial S" in o.detail]

"""NVLink partitions in a handover and a reclaim: by the daemon's own, over the simulated manager.

The manager is `integrations/sim/racks/nmx.py`: NMX Manager's REST API as NVIDIA's manuals of it and
of NetQ NVLink describe it (docs/sources/hardware.md#nvlink-partitions). It refuses a GPU that would
be in two partitions.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from branches import branch, certified_host, restart
from proved_domain import (
    LOGIN,
    SWITCHES,
    keep,
    make_beside,
    make_switches,
    plan_switches,
    prove,
    see,
    serials,
)
from rig import World

from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.integrations.racks.partitions.handed_over import TrayPartitions
from provisioner.integrations.racks.partitions.nmx_client import NmxClient
from provisioner.integrations.racks.partitions.tenant_partitions import (
    DEFAULT,
    Partition,
    read_gpus,
)
from provisioner.integrations.racks.partitions.tray_plan import Tray, plan_tray
from provisioner.integrations.racks.plan import read_plan
from provisioner.integrations.sim.racks.nmx import Nmx
from provisioner.model.inventory import Inventory
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.model.recovery import RowVerdict
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.tenants import Request
from provisioner.ports import Call, Malformed, Reply, SwitchAddress, Unreachable

UUID, SERIAL, TRAYS = "4b47fa0f-7dbc-474b-b521-fc3ffc6dc7df", "C1", 4
SLOTS = {f"t{n}": 11 + n for n in range(TRAYS)}


def url_of(tray: str) -> str:
    return f"https://bmc-{tray}.test"


def write_plan(folder: Path, urls: Mapping[str, str] = {}) -> Path:
    lines = [f"racks:\n  - name: r01\n    chassis_serial: {SERIAL}\n    domain: d01\n    units:\n"]
    for n, (tray, slot) in enumerate(SLOTS.items()):
        place = f"u: {11 + n}, slot: {slot}, tray_index: {n}"
        url = urls.get(tray, url_of(tray))
        lines.append(f'      - {{name: {tray}, kind: compute-tray, {place}, bmc: "{url}"}}\n')
    (folder / "racks.yaml").write_text("".join([*lines, *plan_switches()]))
    keep(folder, {tray: serials(tray) for tray in SLOTS})
    return folder / "racks.yaml"


def make_manager() -> Nmx:
    manager = Nmx()
    for slot in SLOTS.values():
        manager.add_tray(UUID, SERIAL, slot)
    manager.add_default()
    for slot in SWITCHES.values():
        manager.add_switch(SERIAL, slot)
    return manager


def owners(manager: Nmx, tray: str) -> set[str]:
    """The partitions that have a GPU of a tray, "" for none."""
    found = set()
    for gpu in manager.gpus:
        if gpu["LocationInfo"]["SlotID"] == SLOTS[tray]:
            owner = manager.find_owner(manager.place(gpu))
            found.add("" if owner is None else owner["Name"])
    return found


class Wire:
    """The manager's transport, in memory. `dies`: the daemon dies at this request, `after`: once it
    was carried out. `silent`: nothing answers.
    """

    def __init__(self, manager: Nmx, dies: int = 0, *, after: bool = False) -> None:
        self.manager = manager
        self.switches = make_switches()  # beside it
        self.dies = dies
        self.after = after
        self.silent = False
        self.count = 0
        self.methods: list[str] = []

    async def request(self, _: SwitchAddress, call: Call) -> Reply:
        self.count += 1
        self.methods.append(call.method)
        dies = self.count == self.dies
        if dies and not self.after:
            raise asyncio.CancelledError
        if self.silent:
            raise Unreachable("no answer", maybe_executed=False)
        told = self.manager.request(call.method, call.path, call.body)
        if dies:
            raise asyncio.CancelledError
        return Reply(told.status, dict(told.headers), told.encode())


class Time:
    """Seconds that pass by waiting alone."""

    def __init__(self) -> None:
        self.s = 0.0

    async def pause(self, seconds: float) -> None:
        self.s += seconds


def make_partitions(plan: Path, wire: Wire, time: Time | None = None) -> TrayPartitions:
    """As a daemon that has just begun makes them."""
    time = time or Time()
    client = NmxClient(wire, SwitchAddress("https://m"), time.pause, lambda: time.s)
    return TrayPartitions(plan, client, time.pause, wire.switches, LOGIN)


def make_node(tray: str, tenant: str, state: State = State.RELEASED) -> Node:
    bmc = BmcRef(name="host", url=url_of(tray))
    served = tenant if state in (State.RELEASED, State.DRAINING) else ""
    return Node(
        id=f"n-{tray}", kind=NodeKind.HOST, state=state, tenant=tenant, served=served, bmcs=(bmc,)
    )


class Rig:
    """A manager, and what hands trays over through it."""

    def __init__(self, folder: Path, manager: Nmx | None = None) -> None:
        self.manager = manager or make_manager()
        self.plan = write_plan(folder)
        self.wire = Wire(self.manager)
        self.nodes: list[Node] = []
        self.seen: Inventory | None = None

    def do(self, verb: str, node: Node) -> list[str]:
        """Return what refused it."""
        self.nodes = [*(n for n in self.nodes if n.id != node.id), node]
        asked = getattr(make_partitions(self.plan, self.wire), verb)
        blockers = asyncio.run(asked(node, self.nodes, self.find_seen(node)))
        return [f"{b.subject}: {b.detail}" for b in blockers]

    def judge(self, node: Node) -> list[tuple[str, str]]:
        asked = make_partitions(self.plan, self.wire).judge
        rows = asyncio.run(asked(node, self.nodes, self.find_seen(node)))
        return [(str(row.verdict), row.seen) for row in rows]

    def find_seen(self, node: Node) -> Inventory | None:
        return self.seen or (see(node.id[2:]) if node.id[2:] in SLOTS else None)


def test_a_tray_comes_into_its_tenants_partition_and_out_of_every_one(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    first, second = make_node("t0", "acme"), make_node("t1", "acme")
    other = make_node("t2", "blue")

    assert [rig.do("admit", node) for node in (first, second, other)] == [[], [], []]

    seen = [owners(rig.manager, tray) for tray in SLOTS]
    assert seen == [{"acme.d01"}, {"acme.d01"}, {"blue.d01"}, {"Default"}]
    assert [verdict for verdict, _ in rig.judge(first)] == ["pass"]
    sent = list(rig.manager.log)
    assert rig.do("admit", first) == []
    assert rig.manager.log == sent  # it is so already
    leaving = make_node("t0", "acme", State.DRAINING)
    assert rig.do("expel", leaving) == []
    assert [owners(rig.manager, t) for t in ("t0", "t1")] == [{""}, {"acme.d01"}]
    assert rig.do("expel", make_node("t1", "acme", State.DRAINING)) == []
    assert "acme.d01" not in {p["Name"] for p in rig.manager.partitions.values()}
    assert not [line for line in rig.manager.log if line.startswith("violation")]


@pytest.mark.parametrize(
    "node",
    [
        Node(id="n", kind=NodeKind.HOST, state=State.RELEASED, tenant="acme"),
        make_node("t9", "acme"),
        Node(id="s", kind=NodeKind.SWITCH, bmcs=(BmcRef(name="s", url=url_of("t0")),)),
    ],
)
def test_what_is_no_planned_tray_is_left_alone(tmp_path: Path, node: Node) -> None:
    rig = Rig(tmp_path)
    rig.wire.silent = True
    assert (rig.do("admit", node), rig.do("expel", node), rig.judge(node)) == ([], [], [])
    assert rig.wire.count == 0


def test_a_tray_that_served_nobody_is_fenced_without_the_manager(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert rig.do("expel", make_node("t0", "", State.INTAKE)) == []
    assert rig.wire.count == 0


def _cut_default(manager: Nmx, name: str, number: int) -> None:
    """Give t0 to a partition of another name."""
    members = manager.partitions["default"]["Members"]
    own = [m for m in members if m["SlotID"] == SLOTS["t0"]]
    manager.partitions["default"]["Members"] = [m for m in members if m not in own]
    manager._store("x", number, name, own)


def _add_stranger(manager: Nmx) -> None:
    members = manager.partitions["default"]["Members"]
    theirs = [m for m in members if m["SlotID"] == SLOTS["t3"]]
    manager.partitions["default"]["Members"] = [m for m in members if m not in theirs]
    manager._store("y", 9, "acme.d01", theirs)


WRONG = {
    "foreign": (lambda m: _cut_default(m, "theirs", 7), "theirs: it is nobody's of ours"),
    "other domain": (lambda m: _cut_default(m, "blue.d02", 7), "blue.d02: it is nobody's of ours"),
    "stranger": (_add_stranger, "acme.d01: it has GPUs of t3, which serves nobody we know of"),
    "unlisted": (
        lambda m: m.gpus.__delitem__(slice(4)),
        "t0: the manager lists no GPU in its slot",
    ),
    "part": (lambda m: m.gpus.pop(0), "t0: it shows 3 GPUs, and others 4"),
    "no rack": (lambda m: m.gpus.clear(), "t0: the manager lists no GPU of rack r01"),
    "two domains": (
        lambda m: [g.update(DomainUUID="other") for g in m.gpus[:4]],
        "d01: its trays are in 2 NVLink domains",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_cannot_be_told_admits_nobody_and_sends_nothing(tmp_path: Path, fault: str) -> None:
    rig = Rig(tmp_path)
    break_it, told = WRONG[fault]
    break_it(rig.manager)
    node = make_node("t0", "acme")

    (refused, *_) = rig.do("admit", node)

    assert refused.startswith(told)
    assert rig.manager.log == []
    ((verdict, _),) = rig.judge(node)
    assert verdict == RowVerdict.UNKNOWN


def test_a_foreign_partition_that_has_its_gpus_keeps_a_tray_from_being_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    _cut_default(rig.manager, "theirs", 7)
    (refused,) = rig.do("expel", make_node("t0", "acme", State.DRAINING))
    assert refused == "theirs: it is nobody's of ours, and has 4 GPUs of t0"
    assert rig.manager.log == []


@pytest.mark.parametrize("name", ["", None, "x" * 200, "a\nb", ["acme.d01"]])
@pytest.mark.parametrize("number", [7, DEFAULT])
def test_a_partition_whose_name_cannot_be_read_is_not_the_one_of_nobody(
    tmp_path: Path, name: Any, number: int
) -> None:
    rig = Rig(tmp_path)
    _cut_default(rig.manager, name, number)
    refused = rig.do("expel", make_node("t0", "acme", State.DRAINING))
    if number == DEFAULT:  # known by its number, and left
        assert (refused, owners(rig.manager, "t0")) == ([], {""})
    else:
        assert refused == ["partition: it is nobody's of ours, and has 4 GPUs of t0"]


@pytest.mark.parametrize("number", ["7", -1, 1.5, [7], True])
def test_a_gpu_whose_partition_cannot_be_read_is_not_in_none(tmp_path: Path, number: Any) -> None:
    """A partition has its members by ids, so that only the GPU says where it is."""
    rig = Rig(tmp_path)
    members = rig.manager.partitions["default"]["Members"]
    left = [m for m in members if m["SlotID"] != SLOTS["t0"]]
    rig.manager.partitions["default"]["Members"] = left
    rig.manager._store("x", 7, "acme.d01", ["gpu-1"])
    request = rig.manager.request

    def tell(method: str, path: str, body: Any) -> Any:
        told = request(method, path, body)
        if path.endswith("/gpus"):
            told.body[0]["PartitionID"] = number
        return told

    rig.manager.request = tell  # type: ignore[method-assign]
    with pytest.raises(Malformed, match="PartitionID"):
        rig.do("expel", make_node("t0", "acme", State.DRAINING))


def test_one_look_that_shows_a_tray_in_no_partition_is_no_proof(tmp_path: Path) -> None:
    """A manager that starts anew lists neither the tray nor partitions at first."""
    rig = Rig(tmp_path)
    assert rig.do("admit", make_node("t0", "acme")) == []
    request = rig.manager.request
    first: dict[str, list[Any]] = {"gpus": [rig.manager.gpus[4:]], "partitions": [[]]}

    def tell(method: str, path: str, body: Any) -> Any:
        told = request(method, path, body)
        early = first.get(path.rpartition("/")[2]) if method == "GET" else None
        return replace(told, body=early.pop()) if early else told

    rig.manager.request = tell  # type: ignore[method-assign]
    assert rig.do("expel", make_node("t0", "acme", State.DRAINING)) == []
    assert owners(rig.manager, "t0") == {""}


def test_a_manager_that_lists_nothing_as_at_its_start_proves_no_tray_out(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.manager.gpus.clear()
    rig.manager.partitions.clear()
    refused = rig.do("expel", make_node("t0", "acme", State.DRAINING))
    assert refused == ["t0: the manager lists no GPU of rack r01"]


def test_a_dead_tray_leaves_by_the_places_of_its_slot(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.do("admit", make_node("t0", "acme"))
    del rig.manager.gpus[:4]  # it is off, and the manager lists it no more
    assert rig.do("expel", make_node("t0", "acme", State.DRAINING)) == []
    assert all(
        member["SlotID"] != SLOTS["t0"]
        for one in rig.manager.partitions.values()
        for member in one["Members"]
    )


def test_an_ill_partition_and_a_gpu_that_says_another_admit_nobody(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    node = make_node("t0", "acme")
    assert rig.do("admit", node) == []
    (made,) = (p for p in rig.manager.partitions.values() if p["Name"] == "acme.d01")
    made["Health"] = "UNHEALTHY"
    assert rig.do("admit", node) == ["t0: acme.d01 says UNHEALTHY"]
    assert rig.judge(node) == [("fail", "acme.d01 says UNHEALTHY")]


@pytest.mark.parametrize("fault", ["forgets", "cut"])
def test_a_manager_that_restarts_midway_is_believed_by_its_list(tmp_path: Path, fault: str) -> None:
    rig = Rig(tmp_path)
    setattr(rig.manager.faults, fault, True)
    assert rig.do("admit", make_node("t0", "acme")) == []
    assert owners(rig.manager, "t0") == {"acme.d01"}
    assert len(rig.manager.log) == 2


@pytest.mark.parametrize("fault", ["fails", "lies"])
def test_a_change_that_did_not_happen_is_made_at_the_next_try(tmp_path: Path, fault: str) -> None:
    rig = Rig(tmp_path)
    node = make_node("t0", "acme")
    setattr(rig.manager.faults, fault, True)
    (refused,) = rig.do("admit", node)
    assert refused.startswith("set Default: 12 GPUs")
    assert owners(rig.manager, "t0") == {"Default"}
    setattr(rig.manager.faults, fault, False)
    assert rig.do("admit", node) == []


def test_an_operation_that_does_not_end_is_named_and_nothing_is_sent_beside_it(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.manager.polls = 10_000
    rig.manager.request("PUT", "/nmx/v1/partitions/default", {"Members": []})
    sent = list(rig.manager.log)
    (refused,) = rig.do("admit", make_node("t0", "acme"))
    assert refused == "partitions: operation op1 of the manager does not end"
    assert rig.manager.log == sent


@pytest.mark.parametrize(
    "which", ["writes and some looks", pytest.param("all", marks=pytest.mark.long)]
)
def test_a_death_at_any_request_resumes_and_sends_nothing_twice(tmp_path: Path, which: str) -> None:
    """Both ways of a tray that changes hands; at each request, before and after its effect. CI has
    each request that writes, the looks beside it and a seeded fifth of the others.
    """

    def live(dies: int, *, after: bool) -> tuple[list[str], list[set[str]], int, list[str]]:
        rig = Rig(tmp_path)
        deaths = 0
        steps = [
            ("admit", make_node("t1", "acme")),
            ("admit", make_node("t0", "acme")),
            ("expel", make_node("t0", "acme", State.DRAINING)),
            ("admit", make_node("t0", "blue")),
        ]
        rig.wire = Wire(rig.manager, dies, after=after)
        for verb, node in steps:
            try:
                assert rig.do(verb, node) == []
            except asyncio.CancelledError:
                deaths += 1
                assert rig.do(verb, node) == []
        ends = [owners(rig.manager, t) for t in SLOTS]
        return list(rig.manager.log), ends, deaths, rig.wire.methods

    log, end, _, methods = live(0, after=False)
    assert end == [{"blue.d01"}, {"acme.d01"}, {"Default"}, {"Default"}]
    assert len(methods) >= 40
    writes = [at for at, method in enumerate(methods, 1) if method != "GET"]
    assert len(writes) == len(log)
    places = range(1, len(methods) + 1)
    if which != "all":
        beside = {at + step for at in writes for step in (-1, 0, 1)}
        places = sorted(beside | set(random.Random(5).sample(places, len(places) // 5)))
    for dies in places:
        lives = [live(dies, after=after) for after in (False, True)]
        assert [(sent, seen) for sent, seen, *_ in lives] == [(log, end)] * 2
        assert [deaths for _, _, deaths, _ in lives] == [1, 1]


def test_a_change_that_one_look_alone_asks_for_is_not_sent(tmp_path: Path) -> None:
    """The partitions change at each look, as under somebody else's hand."""
    rig = Rig(tmp_path)
    request = rig.manager.request
    numbers = itertools.count()

    def flap(method: str, path: str, body: Any) -> Any:
        if method == "GET" and path.endswith("/partitions"):
            rig.manager.partitions.clear()
            rig.manager.add_default()
            whole = rig.manager.partitions["default"]["Members"]
            rig.manager.partitions["default"]["Members"] = whole[: 12 + next(numbers) % 2]
        return request(method, path, body)

    rig.manager.request = flap  # type: ignore[method-assign]
    assert rig.do("admit", make_node("t0", "acme")) == [
        "t0: its partitions change while they are made"
    ]
    assert rig.manager.log == []


@pytest.mark.parametrize(("number", "told"), [(7, ["ids"]), (8, []), (None, [])])
def test_a_partition_by_ids_counts_where_the_gpus_say_it(
    tmp_path: Path, number: int | None, told: list[str]
) -> None:
    plan = read_plan(write_plan(tmp_path))
    manager = make_manager()
    shown = read_gpus(manager.request("GET", "/nmx/v1/gpus", None).body)
    gpus = [replace(gpu, partition=number) for gpu in shown]
    tray = Tray(plan, plan.racks[0], plan.racks[0].units[0], "acme")
    planned = plan_tray(tray, gpus, [Partition("p", 7, "ids", None)])
    assert [one.subject for one in planned.blockers] == told


# --- the daemon


async def until(world: World, state: State, minutes: int = 600) -> Node:
    node = await host(world)
    for _ in range(minutes):
        node = await host(world)
        if node.state is state:
            return node
        await world.clock.sleep(60.0)
    return node


async def host(world: World) -> Node:
    return next(n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST)


class Death:
    """The daemon's wire to the manager, which stops for ever at one request of each kind."""

    def __init__(self, manager: Nmx, at: Sequence[tuple[str, bool]]) -> None:
        self.manager = manager
        self.left = list(at)
        self.silent = False
        self.died = asyncio.Event()

    async def request(self, _: SwitchAddress, call: Call) -> Reply:
        if self.silent:
            raise Unreachable("no answer", maybe_executed=False)
        now = bool(self.left) and self.left[0][0] == call.method
        after = now and self.left[0][1]
        if now:
            self.left.pop(0)
        told = None
        if not now or after:
            told = self.manager.request(call.method, call.path, call.body)
        if now or told is None:
            self.died.set()
            await asyncio.Event().wait()
        assert told is not None
        return Reply(told.status, dict(told.headers), told.encode())


async def journey(world: World) -> dict[str, Any]:
    manager = make_manager()
    node = await host(world)
    bmc = next(ref.url for ref in node.bmcs if ref.kind == "host")
    plan = write_plan(world.files.overlay.parent, {"t0": bmc})
    await prove(world, node, plan.parent, SLOTS)
    wire = Death(manager, [("PUT", True), ("POST", False), ("POST", True), ("DELETE", True)])
    client = NmxClient(wire, SwitchAddress("https://m"), world.clock.sleep, world.clock.now)
    beside = make_beside(world, plan, client)
    world.fabrics = Fabrics(AddressPlan(), memberships=(beside,))
    await restart(world)
    deaths = 0

    async def mourn() -> None:
        nonlocal deaths
        while True:
            await wire.died.wait()
            wire.died.clear()
            deaths += 1
            await world.crash()
            await world.start()

    mourning = asyncio.create_task(mourn())
    _cut_default(manager, "theirs", 7)
    assert world.daemon is not None
    keeper = world.daemon.keeper
    assert keeper is not None
    made = await keeper.create(Request(name="green", nodes=1))
    assert made.tenant is not None, made.blockers
    await world.clock.sleep(3 * 3600.0)
    kept = await host(world)
    seen: dict[str, Any] = {"kept": (kept.state, kept.placement, list(manager.log))}
    rows = await world.store.journal.list(0, 1_000_000)
    said = [str(r["detail"]) for r in rows if "it is nobody's of ours" in str(r["detail"])]
    seen["kept why"] = f"{kept.note} {kept.blockers} {said[-1:]}"
    manager.partitions.pop("x")
    manager.partitions.pop("default")
    manager.add_default()
    released = await until(world, State.RELEASED)
    proof = await world.store.evidence.get_proof(released.id)
    assert proof is not None, (released, await why(world))
    seen["gate"] = [str(r.verdict) for r in proof.gate if "nvlink" in str(r.check)]
    seen["owners"] = owners(manager, "t0")
    world.fabrics = Fabrics(AddressPlan())  # `racks_nvlink_manager` is unset
    await restart(world)
    await world.daemon.keeper.shrink("green", 0)
    await world.clock.sleep(1800.0)
    unset = await host(world)
    seen["unset"] = (unset.state, unset.placement, owners(manager, "t0"), unset.note)
    whole = plan.read_text()
    plan.write_text(whole.replace(bmc, "https://another.test"))  # while its tenant has it
    world.fabrics = Fabrics(AddressPlan(), memberships=(beside,))
    await restart(world)
    await world.clock.sleep(1800.0)
    lost = await host(world)
    seen["lost"] = (lost.state, lost.placement, owners(manager, "t0"))
    wire.silent = True
    plan.write_text(whole)
    await world.clock.sleep(1800.0)
    stuck = await host(world)
    seen["stuck"] = (stuck.state, stuck.placement, owners(manager, "t0"))
    wire.silent = False
    back = await until(world, State.CERTIFIED)
    seen["back"] = (back.state, back.placement, owners(manager, "t0"))
    seen["deaths"] = deaths
    seen["log"] = list(manager.log)
    seen["violations"] = await world.violations()
    mourning.cancel()
    await world.crash()
    return seen


async def why(world: World) -> list[Any]:
    rows = await world.store.journal.list(0, 1_000_000)
    return [(r["kind"], r["detail"]) for r in rows[-6:]]


def test_the_daemon_hands_a_tray_over_with_its_partition_and_takes_both_back() -> None:
    """A foreign partition keeps it; then four deaths, no setting, no plan, and a silent manager."""
    seen = branch(certified_host, journey)

    assert seen["kept"][0] is not State.RELEASED
    assert "theirs" in seen["kept why"]
    assert seen["kept"][2] == []
    assert seen["gate"] == ["pass"]
    assert seen["owners"] == {"green.d01"}
    assert seen["unset"][:3] == (State.DRAINING, Placement.CUSTOMER, {"green.d01"})
    assert "`racks_nvlink_manager` is not set" in seen["unset"][3]
    assert seen["lost"] == (State.DRAINING, Placement.CUSTOMER, {"green.d01"})
    assert seen["stuck"] == (State.DRAINING, Placement.CUSTOMER, {"green.d01"})
    assert seen["back"] == (State.CERTIFIED, Placement.MAINTENANCE, {""})
    assert seen["deaths"] == 4
    # a release that was cut off is taken back and made anew; no request is sent twice in a row
    pair = ["POST green.d01 4", "DELETE green.d01 0"]
    assert seen["log"] == ["PUT Default 12", *pair, *pair]
    assert seen["violations"] == []

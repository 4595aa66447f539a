"""A tray whose release was cut off before its proof was stored, and whose manager nobody sets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from branches import branch, certified_host, restart
from proved_domain import make_beside, prove, see
from rig import World
from test_handed_over_partitions import (
    SLOTS,
    Death,
    Rig,
    Time,
    host,
    make_manager,
    make_node,
    make_partitions,
    owners,
    until,
    write_plan,
)
from typer.testing import CliRunner

from provisioner.adapters.bounded_http import _guarded
from provisioner.adapters.switch_https import UNACKED_S, SwitchHttps
from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.execution.actions.reach import share_turns
from provisioner.execution.tenancy.memberships import Memberships
from provisioner.integrations.racks.partitions.handed_over import LATE_S
from provisioner.integrations.racks.partitions.nmx_client import VARIABLE, NmxClient
from provisioner.integrations.racks.partitions.tenant_partitions import PartitionAct, Verb
from provisioner.integrations.racks.rack_commands import app
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Blocker
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.tenants import Request
from provisioner.ports import Call, Reply, SwitchAddress, Unreachable
from provisioner.runtime import permit
from provisioner.runtime.integrations import open_memberships
from provisioner.settings import Settings
from provisioner.store.sql_store import open_store


async def journey(world: World) -> dict[str, Any]:
    """The daemon dies when the partition was made; its successor knows no manager."""
    manager = make_manager()
    node = await host(world)
    bmc = next(ref.url for ref in node.bmcs if ref.kind == "host")
    plan = write_plan(world.files.overlay.parent, {"t0": bmc})
    await prove(world, node, plan.parent, SLOTS)
    wire = Death(manager, [("POST", True)])
    client = NmxClient(wire, SwitchAddress("https://m"), world.clock.sleep, world.clock.now)
    beside = make_beside(world, plan, client)
    world.fabrics = Fabrics(AddressPlan(), memberships=(beside,))
    await restart(world)
    assert world.daemon is not None
    keeper = world.daemon.keeper
    assert keeper is not None
    made = await keeper.create(Request(name="green", nodes=1))
    assert made.tenant is not None, made.blockers
    for _ in range(600):
        if wire.died.is_set():
            break
        await world.clock.sleep(60.0)
    for _ in range(2):
        manager.request("GET", "/nmx/v1/operations", None)  # what it took goes on without us
    cut = await host(world)
    seen: dict[str, Any] = {"cut": (cut.state, cut.placement, cut.beside)}
    seen["proof"] = await world.store.evidence.get_proof(cut.id)
    world.fabrics = Fabrics(AddressPlan())
    await restart(world)
    await world.clock.sleep(1800.0)
    held = await host(world)
    seen["held"] = (held.placement, held.beside, owners(manager, "t0"))
    rows = await world.store.journal.list(0, 1_000_000)
    seen["why"] = f"{held.note} {[r['detail'] for r in rows if r['kind'] == 'waits'][-1:]}"
    world.fabrics = Fabrics(AddressPlan(), memberships=(beside,))
    await restart(world)
    again = await until(world, State.RELEASED)
    seen["again"] = (again.placement, owners(manager, "t0"), list(manager.log))
    manager.partitions.clear()  # a foreign hand, and the leading daemon looks
    await world.clock.sleep(300.0)
    seen["drift"] = permit.get_scope().notices[beside.name]
    seen["violations"] = await world.violations()
    await world.crash()
    return seen


def test_a_release_cut_before_its_proof_holds_its_tray_until_the_manager_is_set_again() -> None:
    seen = branch(certified_host, journey)
    assert seen["cut"] == (State.CERTIFIED, Placement.MIXED, ("nvlink_partition",))
    assert seen["proof"] is None
    assert seen["held"] == (Placement.MIXED, ("nvlink_partition",), {"green.d01"})
    assert "`racks_nvlink_manager` is not set" in seen["why"]
    assert "Set `racks_nvlink_manager` again" in seen["why"]
    pair = ["POST green.d01 4", "DELETE green.d01 0"]  # taken back first, and handed over anew
    assert seen["again"] == (Placement.CUSTOMER, {"green.d01"}, ["PUT Default 12", *pair, pair[0]])
    assert "green.d01 is gone" in " ".join(seen["drift"])
    assert seen["violations"] == []


def test_a_membership_that_the_row_does_not_name_is_not_begun() -> None:
    """A tray that was planned after its release began: its row would owe nothing after a death."""

    async def story(world: World) -> tuple[list[str], list[str]]:
        manager = make_manager()
        node = await host(world)
        bmc = next(ref.url for ref in node.bmcs if ref.kind == "host")
        plan = write_plan(world.files.overlay.parent, {"t0": bmc})
        wire = Death(manager, [])
        client = NmxClient(wire, SwitchAddress("https://m"), world.clock.sleep, world.clock.now)
        systems = (make_beside(world, plan, client),)
        asked = await Memberships(systems, world.store).admit(
            node.model_copy(update={"tenant": "green"})
        )
        return [one.detail for one in asked], manager.log

    told, log = branch(certified_host, story)
    assert log == []
    assert told == [
        "nvlink_partition concerns it since its release began, and its row does not say so yet"
    ]


def test_a_person_vouches_for_one_stay_of_a_tray_where_the_manager_is_gone_for_good(
    tmp_path: Path,
) -> None:
    write_plan(tmp_path)
    settings = Settings.model_validate({"racks_folder": str(tmp_path)})
    owed = {"beside": ("nvlink_partition",), "fenced_at": 100.0}
    node = make_node("t0", "acme", State.DRAINING).model_copy(update=owed)

    async def expel(one: Node) -> list[Blocker]:
        async with open_memberships(settings, {}) as systems:
            return list(await Memberships(systems, open_store(":memory:")).expel(one))

    (held,) = asyncio.run(expel(node))
    assert "`racks_nvlink_manager` is not set" in held.detail
    command = held.unblock.partition("`provisioner rack ")[2].partition("`")[0]
    words = [*command.replace("YOU", "amy").replace("REASON", "gone").split(), "--yes"]
    assert asyncio.run(expel(node.model_copy(update={"id": "n-t1"})))
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert asyncio.run(expel(node)) == []
    later = node.model_copy(update={"fenced_at": 200.0})  # handed over once more
    assert asyncio.run(expel(later))
    assert asyncio.run(expel(node.model_copy(update={"beside": ()}))) == []
    word = next((tmp_path / "campaigns").glob("nvlink-partition.*"))
    word.write_text("{")
    assert asyncio.run(expel(node))  # a word that cannot be read is none


# --- a request of a daemon that has the turn no more


@pytest.mark.parametrize("late_s", [1.0, 10.0, 28.0])
@pytest.mark.parametrize("shared", [False, True])
def test_what_a_predecessor_sent_last_and_comes_late_frees_no_tray(
    tmp_path: Path, late_s: float, *, shared: bool
) -> None:
    """The predecessor had it back into its tenant's partition, and died; its request is on its way.
    With peers it may be one of them that dies, long after this daemon began.
    """
    rig = Rig(tmp_path)
    for tray in ("t0", "t1"):
        assert rig.do("admit", make_node(tray, "acme")) == []
    whole = next(p for p in rig.manager.partitions.values() if p["Name"] == "acme.d01")
    late = {"Members": list(whole["Members"])}
    whole["Members"] = [m for m in whole["Members"] if m["SlotID"] != SLOTS["t0"]]
    time = Time()
    beside = make_partitions(rig.plan, rig.wire, time)
    time.s = began = 3600.0 if shared else 0.0
    request = rig.manager.request

    def tell(method: str, path: str, body: Any) -> Any:
        if late and time.s >= began + late_s:
            request("PUT", f"/nmx/v1/partitions/{whole['ID']}", dict(late))
            late.clear()
        return request(method, path, body)

    rig.manager.request = tell  # type: ignore[method-assign]
    leaving = make_node("t0", "acme", State.DRAINING)
    with share_turns(NoPeer()) if shared else nullcontext():
        assert asyncio.run(beside.expel(leaving, rig.nodes, None)) == ()
    assert not late  # it came
    assert [owners(rig.manager, t) for t in ("t0", "t1")] == [{""}, {"acme.d01"}]


class NoPeer:
    """Turns that nobody else wants."""

    async def take(self, name: str) -> None: ...
    async def give_back(self, name: str) -> None: ...


def test_a_request_whose_answer_was_lost_may_still_come_at_the_next_try(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    time = Time()
    beside = make_partitions(rig.plan, rig.wire, time)
    time.s = 3600.0
    kept: list[tuple[str, str, Any]] = []
    send = rig.wire.request

    async def lose(address: SwitchAddress, call: Call) -> Reply:
        if call.method != "GET" and not kept:
            kept.append((call.method, call.path, call.body))
            raise Unreachable("no answer", maybe_executed=True)
        if len(kept) == 1 and time.s >= 3600.0 + 20.0:
            rig.manager.request(*kept[0])
            kept.append(kept[0])
        return await send(address, call)

    rig.wire.request = lose  # type: ignore[method-assign]
    node = make_node("t0", "acme")
    leaving = make_node("t0", "acme", State.DRAINING)
    assert asyncio.run(beside.admit(node, [node], see("t0")))  # it is not so within some looks
    assert asyncio.run(beside.expel(leaving, [leaving], None)) == ()
    assert len(kept) == 2
    assert owners(rig.manager, "t0") == {""}


def test_a_daemon_that_lost_its_lease_sends_nothing_to_the_manager() -> None:
    """Asked as the first byte would leave, by a real request over a real socket."""

    async def story() -> tuple[int, list[str]]:
        heard: list[str] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append((await reader.readline()).decode())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = SwitchHttps()
        client = NmxClient(transport, SwitchAddress(f"http://127.0.0.1:{port}"), asyncio.sleep)
        lost = 0

        def check() -> None:
            nonlocal lost
            lost += 1
            raise Unreachable("the seat is not sure", maybe_executed=False)

        with permit.require_check(check):
            failed = await client.make(PartitionAct(Verb.DELETE, "acme.d01", ident="p1"))
        assert failed is not None
        await transport.close()
        server.close()
        return lost, heard

    lost, heard = asyncio.run(story())
    assert lost
    assert not [line for line in heard if line.startswith("DELETE")]


def test_the_kernel_gives_up_what_a_dead_process_left_unsent() -> None:
    with _guarded(None, UNACKED_S)((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("", 0))) as made:
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
    assert UNACKED_S < LATE_S


def test_the_manager_is_asked_for_only_where_a_setting_names_it() -> None:
    async def opened(environ: Mapping[str, str], **settings: Any) -> int:
        async with open_memberships(Settings.model_validate(settings), environ) as found:
            return len(found)

    manager = "https://netq.example"
    folder = {"racks_folder": "/srv/racks"}
    assert asyncio.run(opened({})) == 0
    assert asyncio.run(opened({}, **folder)) == 1  # it holds what may be in a partition
    assert asyncio.run(opened({VARIABLE: "x"}, **folder, racks_nvlink_manager=manager)) == 1
    with pytest.raises(InputError, match="no password is given"):
        asyncio.run(opened({}, **folder, racks_nvlink_manager=manager))
    with pytest.raises(InputError, match="racks_nvlink_manager"):
        asyncio.run(opened({VARIABLE: "x"}, racks_nvlink_manager=manager))
    with pytest.raises(ValueError, match="racks_nvlink_manager"):
        Settings.model_validate({"racks_nvlink_manager": "http://netq.example"})

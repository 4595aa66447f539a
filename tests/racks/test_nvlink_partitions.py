"""NVLink partitions by tenant: planned, made through the manager over HTTPS, and proved."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner

from provisioner.integrations.racks.partitions import partition_commands
from provisioner.integrations.racks.partitions.nmx_client import NmxClient
from provisioner.integrations.racks.partitions.partition_commands import VARIABLE
from provisioner.integrations.racks.partitions.tenant_partitions import (
    Partition,
    plan_partitions,
    read_gpus,
    read_partitions,
)
from provisioner.integrations.racks.plan import RackPlan
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.sim.hardware.clock import load_certificate, make_certificate
from provisioner.integrations.sim.racks.logins import read_login
from provisioner.integrations.sim.racks.nmx import Nmx
from provisioner.ports import Call, Reply, SwitchAddress

UUID = "4b47fa0f-7dbc-474b-b521-fc3ffc6dc7df"
PASSWORD = "rw-secret"


def make_plan(trays: int = 4) -> RackPlan:
    units: list[dict[str, Any]] = [
        {"name": f"t{n}", "kind": "compute-tray", "u": 11 + n, "slot": 11 + n, "tray_index": n}
        for n in range(trays)
    ]
    rack = {"name": "r01", "chassis_serial": "C1", "domain": "d01", "units": units}
    return RackPlan.model_validate({"racks": [rack]})


def make_manager(trays: int = 4) -> Nmx:
    manager = Nmx()
    for n in range(trays):
        manager.add_tray(UUID, "C1", 11 + n)
    manager.add_default()
    return manager


class Wire:
    """The manager's transport, in memory."""

    def __init__(self, manager: Nmx) -> None:
        self.manager = manager

    async def request(self, _: SwitchAddress, call: Call) -> Reply:
        told = self.manager.request(call.method, call.path, call.body)
        return Reply(told.status, dict(told.headers), told.encode())


def look(manager: Nmx) -> tuple[Any, Any]:
    shown = [manager.request("GET", f"/nmx/v1/{what}", None) for what in ("gpus", "partitions")]
    return read_gpus(shown[0].body), read_partitions(shown[1].body)


def bring(manager: Nmx, tenants: Mapping[str, str | None]) -> str:
    """Make the partitions; return what stopped it."""

    async def no_time(_: float) -> None: ...

    async def run() -> str:
        asked = NmxClient(Wire(manager), SwitchAddress("https://m"), no_time)
        planned = plan_partitions(make_plan(), tenants, *await asked.look())
        for blocker in planned.blockers:
            return f"{blocker.subject}: {blocker.detail}"
        for act in planned.acts:
            if (failed := await asked.make(act)) is not None:
                return f"{failed.subject}: {failed.detail}"
        return ""

    return asyncio.run(run())


def owners(manager: Nmx) -> dict[int, set[str]]:
    """Return by slot the names of the partitions that have a GPU of it, "" for none."""
    found: dict[int, set[str]] = {}
    for gpu in manager.gpus:
        owner = manager.find_owner(manager.place(gpu))
        name = "" if owner is None else owner["Name"]
        found.setdefault(gpu["LocationInfo"]["SlotID"], set()).add(name)
    return found


def test_tenants_get_a_partition_each_and_nobody_shares_one_on_the_way() -> None:
    """Random changes of hands; the manager itself refuses a GPU that is in two."""
    rng = random.Random(7)
    manager = make_manager()
    for _ in range(60):
        tenants = {f"t{n}": rng.choice(["", "acme", "blue", "carrot"]) for n in range(4)}
        assert bring(manager, tenants) == ""
        wanted = {11 + n: {f"{t}.d01" if (t := tenants[f"t{n}"]) else ""} for n in range(4)}
        assert owners(manager) == wanted
        planned = plan_partitions(make_plan(), tenants, *look(manager))
        assert (planned.acts, planned.blockers, planned.wrong) == ((), (), ())
        assert all(one["Members"] for one in manager.partitions.values())
    assert not [line for line in manager.log if line.startswith("violation")]


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda m, _: m.gpus.pop(), "t3: it shows 3 GPUs"),
        (lambda m, _: m.add_tray(UUID, "C1", 11), "two GPUs are in one place"),
        (lambda m, _: [g.update(DomainUUID="other") for g in m.gpus[:4]], "in 2 NVLink domains"),
        (lambda m, _: m.gpus.__delitem__(slice(4)), "t0: the manager lists no GPU in its slot"),
        (lambda _, t: t.update(t2=None), "t2: nobody says whose host it is"),
        (lambda _, t: t.pop("t2"), "t2: nobody says whose host it is"),
        (lambda m, _: m.partitions["default"].update(Members=["g1"]), "not named by their places"),
        (
            lambda m, _: m.partitions["default"].update(Name="theirs", PartitionID=7),
            "theirs: it is nobody's of ours, and has 16 GPUs",
        ),
    ],
)
def test_what_cannot_be_told_changes_nothing(break_it: Any, told: str) -> None:
    manager = make_manager()
    tenants: dict[str, str | None] = {"t0": "acme", "t1": "acme", "t2": "", "t3": "blue"}
    break_it(manager, tenants)
    try:
        said = bring(manager, tenants)
    except Exception as error:
        said = str(error)
    assert told in said
    assert manager.log == []


@pytest.mark.parametrize("fault", ["forgets", "cut"])
def test_a_manager_that_restarts_in_the_middle_is_looked_at_and_asked_nothing_twice(
    fault: str,
) -> None:
    manager = make_manager()
    setattr(manager.faults, fault, True)
    tenants = {"t0": "acme", "t1": "acme", "t2": "", "t3": "blue"}
    assert bring(manager, tenants) == ""
    assert owners(manager) == {11: {"acme.d01"}, 12: {"acme.d01"}, 13: {""}, 14: {"blue.d01"}}
    assert len(manager.log) == len(set(manager.log)) == 3


@pytest.mark.parametrize(("fault", "told"), [("fails", "no room"), ("lies", "does not list it")])
def test_an_operation_that_changed_nothing_stops_it_by_name(fault: str, told: str) -> None:
    manager = make_manager()
    setattr(manager.faults, fault, True)
    said = bring(manager, {"t0": "acme", "t1": "", "t2": "", "t3": ""})
    assert said.startswith("delete Default")
    assert told in said
    assert len(manager.log) == 1


def test_an_empty_partition_of_a_domain_whose_name_ends_like_ours_is_left_alone() -> None:
    theirs = Partition("e", 5, "blue.x.d01", frozenset())
    ours = Partition("f", 6, "blue.d01", frozenset())
    gpus, _ = look(make_manager())
    tenants = dict.fromkeys(("t0", "t1", "t2", "t3"), "")
    acts = plan_partitions(make_plan(), tenants, gpus, [theirs, ours]).acts
    assert [act.ident for act in acts] == ["f"]


def test_a_gpu_that_says_another_partition_and_an_ill_one_are_told() -> None:
    manager = make_manager()
    tenants = {"t0": "acme", "t1": "acme", "t2": "", "t3": "blue"}
    bring(manager, tenants)
    gpus, partitions = look(manager)
    stale = [*gpus[:-1], type(gpus[-1])(gpus[-1].place, "C1", 99)]
    (wrong,) = plan_partitions(make_plan(), tenants, stale, partitions).wrong
    assert "slot 14, GPU 4 says 99" in wrong
    next(iter(manager.partitions.values()))["Health"] = "UNHEALTHY"
    (ill,) = plan_partitions(make_plan(), tenants, *look(manager)).wrong
    assert ill == "acme.d01 says UNHEALTHY"


def test_any_field_that_is_lost_or_of_another_kind_is_refused_or_read_and_never_crashes() -> None:
    manager = make_manager(1)
    gpu = manager.request("GET", "/nmx/v1/gpus", None).body[0]
    partition = next(iter(manager.partitions.values()))
    strange: tuple[Any, ...] = (None, True, -1, 1.5, "x" * 500, [], {}, "")
    for read, whole in ((read_gpus, gpu), (read_partitions, partition)):
        for name, value in itertools.product(whole, strange):
            with suppress(ValueError):
                read([{**whole, name: value}])
        for body in (None, {}, "x", [None], [1]):
            with pytest.raises(ValueError, match=r"."):
                read(body)


@contextmanager
def served(manager: Nmx, folder: Path) -> Iterator[tuple[str, Path]]:
    """Serve the manager over HTTPS with a login; yield its address and its certificate."""
    certificate, key = make_certificate("netq", "127.0.0.1")
    (folder / "ca.pem").write_bytes(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, certificate, key)
    ready, stop, urls = threading.Event(), asyncio.Event(), []
    loop = asyncio.new_event_loop()

    async def answer(request: web.BaseRequest) -> web.Response:
        login = read_login(request.headers)
        if (login.user, login.password) != ("rw-user", PASSWORD):
            return web.Response(status=401)
        body = await request.read()
        told = manager.request(request.method, request.path, json.loads(body) if body else None)
        return web.Response(status=told.status, body=told.encode())

    async def run() -> None:
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        urls.append(f"https://127.0.0.1:{runner.addresses[0][1]}")
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield urls[0], folder / "ca.pem"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


def test_the_command_shows_makes_and_proves_partitions_over_https(tmp_path: Path) -> None:
    manager = make_manager()
    (tmp_path / "r.yaml").write_text(make_plan().model_dump_json())
    tenants = {"t0": "acme", "t1": "acme", "t2": "", "t3": "blue"}
    units = {name: {"tenant": tenant} for name, tenant in tenants.items()}
    (tmp_path / "c.yaml").write_text(json.dumps({"targets": {"compute-tray": {}}, "units": units}))

    def run(*more: str, password: str = PASSWORD) -> Any:
        words = ["partitions", str(tmp_path / "r.yaml"), str(tmp_path / "c.yaml"), "r01"]
        login = ["--manager", url, "--user", "rw-user", "--ca", str(ca), *more]
        return CliRunner().invoke(app, [*words, *login], env={VARIABLE: password})

    with served(manager, tmp_path) as (url, ca):
        shown = run()
        assert shown.exit_code == 1, shown.output
        assert "needs: delete Default\n" in shown.output
        assert "needs: create acme.d01: 8 GPUs" in shown.output
        assert manager.log == []
        assert "credentials refused" in str(run(password="x").exception)
        assert run(password="").exception is not None
        manager.polls = 0
        made = run("--apply", "--yes")
        assert made.exit_code == 0, made.output
        assert "every tray is in its tenant's partition" in run().output
    assert manager.log == ["DELETE Default 0", "POST acme.d01 8", "POST blue.d01 4"]
    assert owners(manager) == {11: {"acme.d01"}, 12: {"acme.d01"}, 13: {""}, 14: {"blue.d01"}}


def test_what_changed_while_a_person_was_asked_is_planned_anew_and_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = make_manager()
    assert bring(manager, {"t0": "acme", "t1": "", "t2": "", "t3": "blue"}) == ""
    (tmp_path / "r.yaml").write_text(make_plan().model_dump_json())
    tenants = {"t0": "acme", "t1": "", "t2": "acme", "t3": "blue"}
    units = {name: {"tenant": tenant} for name, tenant in tenants.items()}
    (tmp_path / "c.yaml").write_text(json.dumps({"targets": {"compute-tray": {}}, "units": units}))

    def think(_: str, *, yes: bool) -> None:
        assert yes
        theirs = {"t0": "acme", "t1": "acme", "t2": "", "t3": "blue"}
        told: list[str] = []
        thread = threading.Thread(target=lambda: told.append(bring(manager, theirs)))
        thread.start()
        thread.join(30)
        assert told == [""]
        manager.log.clear()

    monkeypatch.setattr(partition_commands, "ask_person", think)
    with served(manager, tmp_path) as (url, ca):
        words = ["partitions", str(tmp_path / "r.yaml"), str(tmp_path / "c.yaml"), "r01"]
        login = ["--manager", url, "--user", "rw-user", "--ca", str(ca), "--apply", "--yes"]
        told = CliRunner().invoke(app, [*words, *login], env={VARIABLE: PASSWORD})
    assert told.exit_code == 1
    assert "changed while a person was asked; nothing was sent" in told.output
    assert manager.log == []
    assert owners(manager) == {11: {"acme.d01"}, 12: {"acme.d01"}, 13: {""}, 14: {"blue.d01"}}


def test_who_uses_a_tray_is_read_again_once_a_person_has_agreed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = make_manager()
    (tmp_path / "r.yaml").write_text(make_plan().model_dump_json())

    def write(tenant: str) -> None:
        units = {name: {"tenant": ""} for name in ("t0", "t1", "t2")} | {"t3": {"tenant": tenant}}
        body = {"targets": {"compute-tray": {}}, "units": units}
        (tmp_path / "c.yaml").write_text(json.dumps(body))

    write("blue")
    monkeypatch.setattr(partition_commands, "ask_person", lambda *_, **__: write("carrot"))
    with served(manager, tmp_path) as (url, ca):
        words = ["partitions", str(tmp_path / "r.yaml"), str(tmp_path / "c.yaml"), "r01"]
        login = ["--manager", url, "--user", "rw-user", "--ca", str(ca), "--apply", "--yes"]
        told = CliRunner().invoke(app, [*words, *login], env={VARIABLE: PASSWORD})
    assert told.exit_code == 1
    assert "changed while a person was asked; nothing was sent" in told.output
    assert manager.log == []

"""A daemon dies with operations under way, and the next one has a newer schema.

The rows are written through the store, and carried into a database that the migrations made as far
as each schema: into the tables and columns that it had. What was added since is what the older
version never wrote, so that each migration has to fill it for live rows. The version that goes on
has one migration more than this one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from next_schema import become_next
from sqlalchemy import NullPool

from provisioner.control.context import Context
from provisioner.control.repairs.case_service import CaseService
from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.model.alert import Classification, Signal
from provisioner.model.case import Origin
from provisioner.model.events.node_events import NodeAllocated
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.operation import ActionStatus, Operation, OperationStatus
from provisioner.model.tenant import Tenant
from provisioner.ports import Fenced
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.database.backup import copier
from provisioner.store.database.database import _engine
from provisioner.store.database.postgres import migrate, revisions
from provisioner.store.sql_store import SqlStore, open_store

Rows = Mapping[str, Sequence[tuple[Any, ...]]]
TASK = "/redfish/v1/TaskService/Tasks/7"


async def nothing(_: str) -> None:
    """No operation is driven here."""


async def live(store: SqlStore) -> None:
    """Three nodes: one is updated, one drained after a fault under its tenant, one rests."""
    now = WallClock().now()
    await store.tenants.put(Tenant(name="blue", vrf="BLUE"))
    for name, state, tenant in (
        ("n1", State.CONVERGING, ""),
        ("n2", State.RELEASED, "blue"),
        ("n3", State.CERTIFIED, ""),
    ):
        place = Placement.CUSTOMER if tenant else Placement.MAINTENANCE
        node = Node(id=name, kind=NodeKind.HOST, state=state, tenant=tenant, placement=place)
        await store.nodes.add(node)
    await store.journal.append(NodeAllocated(about="n2", tenant="blue"), now)
    update = await driven(store, "n1", "converging")
    update, sent = await store.operations.intend(update, "push bmc", {"was": "1.0"}, now)
    await store.operations.settle(update, sent, ActionStatus.SENT, task=TASK, now=now)
    drain = await driven(store, "n2", "draining")
    await store.operations.intend(drain, "fence", {}, now)
    rest = await driven(store, "n3", "certified")
    await store.operations.end(rest, OperationStatus.DONE, "nothing to do")
    keeper = AlertKeeper(store.alerts, store, WallClock(), nothing)
    signal = Signal(
        node="n2", id="Xid79", target="GPU_0", source="watch", message="fallen off the bus",
        classifications=(Classification.FATAL_EVENT,), at=now,
    )  # fmt: skip
    await keeper.report("n2", [signal])
    case_service = CaseService(Context(store, WallClock(), Settings()), store.cases, store.alerts)
    faulty = await store.nodes.get("n2")
    assert faulty is not None
    await case_service.open(faulty, Origin.EVENT, "Xid79", "watch")


async def driven(store: SqlStore, node: str, want: str) -> Operation:
    opened = await store.operations.open(node, want, WallClock().now())
    assert opened is not None
    return await store.operations.take(opened.id)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the newest schema, as a daemon left it that died."""
    file = tmp_path_factory.mktemp("live") / "p.db"

    async def main() -> None:
        store = open_store(file)
        await live(store)
        await store.close()

    asyncio.run(main())
    return file


def columns_of(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of every table of ours."""
    listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    names = [name for (name,) in listed if name != "alembic_version"]
    return {n: [c[1] for c in connection.execute(f'PRAGMA table_info("{n}")')] for n in names}


def read_rows(file: Path, columns: Mapping[str, Sequence[str]]) -> Rows:
    """The rows of these tables, by these columns."""
    with sqlite3.connect(file) as connection:
        return {
            table: connection.execute(f'SELECT {_listed(names)} FROM "{table}"').fetchall()
            for table, names in columns.items()
        }


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def carry(source: Path, target: Path) -> tuple[dict[str, list[str]], Rows]:
    """Write all rows into an older schema, as far as it had room; return where, and which."""
    with sqlite3.connect(source) as connection:
        newest = columns_of(connection)
    with sqlite3.connect(target) as connection:
        older = columns_of(connection)
        shared = {t: [c for c in older[t] if c in newest[t]] for t in older if t in newest}
        rows = {t: some for t, some in read_rows(source, shared).items() if some}
        for table, some in rows.items():
            names = shared[table]
            marks = ", ".join("?" * len(names))
            connection.executemany(
                f'INSERT OR REPLACE INTO "{table}" ({_listed(names)}) VALUES ({marks})',
                some,
            )
    return {table: shared[table] for table in rows}, rows


@pytest.mark.parametrize("revision", revisions())
def test_live_rows_of_every_earlier_schema_go_on_under_the_newest(
    tmp_path: Path, written: Path, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "p.db"
    engine = _engine(f"sqlite:///{file}", NullPool)
    migrate(engine, "test", revision=revision)
    engine.dispose()
    columns, rows = carry(written, file)
    file.chmod(0o600)
    assert {"nodes", "operations", "ledger", "journal"} <= rows.keys()
    become_next(monkeypatch, tmp_path)

    async def main() -> None:
        store = open_store(file, copy_first=copier(str(file), tmp_path))
        try:
            assert read_rows(file, columns) == rows, "a migration changed what a daemon had written"
            await check_goes_on(store, rows.keys())
        finally:
            await store.close()

    asyncio.run(main())


async def check_goes_on(store: SqlStore, tables: Any) -> None:
    """The next daemon takes the operations over, and nothing is done twice or lost."""
    now = WallClock().now()
    active = {o.node: o for o in await store.operations.list_active()}
    assert sorted(active) == ["n1", "n2"]
    assert await store.operations.open("n1", "converging", now) is None  # it has one already
    assert [n.id for n in await store.nodes.list()] == ["n1", "n2", "n3"]

    successor = await store.operations.take(active["n1"].id)
    assert successor.epoch == active["n1"].epoch + 1
    with pytest.raises(Fenced):
        await store.operations.intend(active["n1"], "reset bmc", {}, now)
    sent = await store.operations.get_last_entry(successor.id, "push bmc")
    assert sent is not None
    assert (sent.status, sent.task, sent.before) == (ActionStatus.SENT, TASK, {"was": "1.0"})
    successor, done = await store.operations.settle(
        successor, sent, ActionStatus.CONFIRMED, outcome="it runs", now=now
    )
    assert done.status is ActionStatus.CONFIRMED
    fence = await store.operations.get_last_entry(active["n2"].id, "fence")
    assert fence is not None
    assert fence.status is ActionStatus.INTENDED

    node = await store.nodes.get("n1")
    assert node is not None
    moved = node.model_copy(update={"state": State.VALIDATING})
    successor, stored = await store.operations.record(successor, node=moved, now=now)
    assert stored is not None
    assert (await store.nodes.list())[0].state is State.VALIDATING  # and not its cached row
    await store.operations.end(successor, OperationStatus.DONE, "")
    assert await store.operations.open("n1", "validating", now) is not None

    assert (await store.journal.verify()).rows >= 1
    assert [t.vrf for t in await store.tenants.list()] == ["BLUE"]
    if "alerts" in tables:
        assert [a.id for a in await store.alerts.list("n2") if a.active] == ["Xid79"]
    if "cases" in tables:
        case = await store.cases.get_open("n2")
        assert case is not None
        assert case.tenant == "blue"
        assert [n.kind for n in await store.cases.list_notices("blue")] == ["failure"]

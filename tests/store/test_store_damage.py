"""One row that cannot be read: it is named, its node is left alone, and the rest goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from given_events import event_of
from sqlalchemy import text

from provisioner.model.alert import Override
from provisioner.model.campaign import PinScope, ReleasePin
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Reason
from provisioner.model.tenant import Tenant
from provisioner.ports import DamagedRow, StaleWrite
from provisioner.store import SqlStore, open_store
from provisioner.store.database.database import find_damaged
from provisioner.store.repositories.alerts import put_override, read_overrides
from provisioner.store.rows import page_rows

PORT = Port(switch="leaf-0", interface="swp1", rail=0, nic_slot="NIC_0")
NODES = [
    Node(id=f"n{i}", kind=NodeKind.HOST, state=State.RELEASED, tenant="blue", ports=(PORT,))
    for i in range(3)
]


async def damage(store: SqlStore, table: str, body: str, key: str = "n1") -> None:
    column = "id" if table == "nodes" else "node"
    written = text(f"UPDATE {table} SET body = :body WHERE {column} = :key")
    await store.write(lambda c: c.execute(written, {"body": body, "key": key}))


@pytest.mark.parametrize("before", [False, True])
def test_a_damaged_node_is_left_out_and_the_others_are_there(run, before):
    async def scenario(store: SqlStore):
        for node in NODES:
            await store.nodes.add(node)
        if before:
            await store.nodes.list()
        await store.write(lambda c: c.execute(text("UPDATE nodes SET changed = 9 WHERE id = 'n1'")))
        await damage(store, "nodes", "{not json")
        listed = [n.id for n in await store.nodes.list()]
        return (
            listed,
            store.nodes.find_damaged(),
            [n.id for n in await store.nodes.list_set_aside()],
        )

    listed, damaged, stand_ins = run(scenario)

    assert listed == ["n0", "n2"]
    assert stand_ins == ["n1"]
    assert damaged["n1"].subject == "nodes, n1"
    assert "doctor" in damaged["n1"].unblock


def test_what_is_left_of_a_damaged_node_is_shown_and_never_written(run):
    broken = NODES[1].model_dump_json().replace('"attempts":0', '"attempts":"many"')

    async def scenario(store: SqlStore):
        for node in NODES:
            await store.nodes.add(node)
        await damage(store, "nodes", broken)
        node = await store.nodes.get("n1")
        assert node is not None
        with pytest.raises(StaleWrite, match="the row of n1 is damaged"):
            await store.nodes.save(node.model_copy(update={"blockers": ()}))
        narrowed: dict[str, list[str]] = {}
        page = await store.read(
            lambda c: page_rows.nodes_page(c, after="", limit=10, narrowed=narrowed)
        )
        return node, [n.id for n in page]

    node, page = run(scenario)

    assert (node.state, node.tenant, node.ports) == (State.RELEASED, "blue", (PORT,))
    assert [b.reason for b in node.blockers] == [Reason.DAMAGED_ROW]
    assert page == ["n0", "n1", "n2"]


def test_a_list_leaves_a_damaged_row_out_and_names_its_node(run):
    async def scenario(store: SqlStore):
        for node in NODES:
            await store.nodes.add(node)
            said = Override(
                node=node.id, id="x", target="", until=9.0, by="ada", why="known", made_at=1.0
            )
            await store.write(lambda c, said=said: put_override(c, said))
        await damage(store, "overrides", "[]")
        kept = await store.read(lambda c: read_overrides(c, ""))
        return [o.node for o in kept], {n: b.subject for n, b in store.nodes.find_damaged().items()}

    assert run(scenario) == (["n0", "n2"], {"n1": "overrides, n1"})


def test_one_row_of_a_node_that_cannot_be_read_names_itself(run):
    async def scenario(store: SqlStore):
        await store.nodes.add(NODES[1])
        digest = await store.evidence.put_output("what was seen")
        wrong = text("UPDATE evidence SET body = :b")
        await store.write(lambda c: c.execute(wrong, {"b": b"no zlib"}))
        with pytest.raises(DamagedRow) as raised:
            await store.evidence.get_output(digest)
        return raised.value.where == f"evidence, {digest}"

    assert run(scenario)


def test_every_row_is_read_and_the_damaged_ones_are_named(tmp_path: Path) -> None:
    file = tmp_path / "data" / "store.db"

    async def scenario() -> None:
        store = open_store(file)
        for node in NODES:
            await store.nodes.add(node)
        await store.journal.append(event_of("state", "n1", {"to": "released"}), 1.0)
        await store.evidence.put_output("what was seen")
        await damage(store, "nodes", "{}")
        for line in ("UPDATE journal SET detail = 'x'", "UPDATE evidence SET body = x'00'"):
            await store.write(lambda c, line=line: _past_triggers(c, line))
        await store.close()

    asyncio.run(scenario())
    named = [row.where.partition(", ")[0] for row in find_damaged(file)]

    assert named == ["nodes", "journal", "evidence"]


def _past_triggers(connection, line):
    names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'"))
    for name in names.scalars().all():
        connection.execute(text(f"DROP TRIGGER {name}"))
    connection.execute(text(line))


async def spoil(store: SqlStore, table: str, column: str, key: str) -> None:
    written = text(f"UPDATE {table} SET body = '{{' WHERE {column} = :key")
    await store.write(lambda c: c.execute(written, {"key": key}))


def test_a_damaged_tenant_sets_its_nodes_aside_and_keeps_its_network(run):
    async def scenario(store: SqlStore):
        for name, number in (("blue", 1), ("red", None)):
            vrf = name.upper()
            await store.tenants.put(Tenant(name=name, vrf=vrf, number=number, nodes_wanted=3))
        leaving = Node(id="n7", kind=NodeKind.HOST, state=State.DRAINING, served="blue")
        other = Node(id="n8", kind=NodeKind.HOST, state=State.RELEASED, tenant="red")
        for node in (*NODES, leaving, other):
            await store.nodes.add(node)
        before = [n.id for n in await store.nodes.list()]
        await spoil(store, "tenants", "name", "blue")
        tenants = await store.tenants.list()
        aside = {
            n: b.subject for n, b in store.nodes.find_damaged().items()
        }  # before the next read
        listed = [n.id for n in await store.nodes.list()]
        kept = await store.nodes.list()
        assert kept is await store.nodes.list()
        stand_ins = sorted(n.id for n in await store.nodes.list_set_aside())
        return before, tenants, aside, listed, stand_ins

    before, tenants, aside, listed, stand_ins = run(scenario)

    assert before == ["n0", "n1", "n2", "n7", "n8"]
    assert [(t.name, t.vrf, t.number, t.nodes_wanted, t.is_damaged) for t in tenants] == [
        ("blue", "BLUE", 1, 0, True),
        ("red", "RED", None, 3, False),
    ]
    assert aside == dict.fromkeys(("n0", "n1", "n2", "n7"), "tenants, blue")
    assert listed == ["n8"]
    assert stand_ins == ["n0", "n1", "n2", "n7"]


@pytest.mark.parametrize(
    ("scope", "name", "aside", "pins"),
    [
        (PinScope.NODE, "n1", ["n1"], [("node", "n1", "")]),
        (PinScope.RACK, "r1", ["n2"], [("rack", "r1", "")]),
        (PinScope.FLEET, "", [], []),
    ],
)
def test_a_damaged_pin_sets_its_nodes_aside_and_pins_them_to_nothing(run, scope, name, aside, pins):
    async def scenario(store: SqlStore):
        await store.nodes.add(NODES[1])
        await store.nodes.add(NODES[2].model_copy(update={"location": Location(rack="r1")}))
        pin = ReleasePin(scope=scope, name=name, release="r", reason="tried")
        await store.campaigns.put_pin(pin, 1.0)
        await spoil(store, "release_pins", "key", pin.key)
        found = await store.campaigns.list_pins()
        await store.nodes.list()
        return sorted(store.nodes.find_damaged()), [
            (p.scope.value, p.name, p.release) for p in found
        ]

    assert run(scenario) == (aside, pins)

"""While an upgrade rolls through, a daemon of the version before writes beside the new one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from provisioner.model.node import Node, NodeKind

# As a program writes nodes that knows no number of changes.
OLD_INSERT = text(
    "INSERT INTO nodes (id, kind, state, generation, tenant, release, profile, rack, body) "
    "VALUES (:id, :kind, :state, :generation, :tenant, :release, :profile, :rack, :body)"
)
OLD_UPDATE = text(
    "UPDATE nodes SET kind = :kind, state = :state, generation = :generation, tenant = :tenant, "
    "release = :release, profile = :profile, rack = :rack, body = :body "
    "WHERE id = :id AND generation = :generation - 1"
)


def columns(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "kind": str(node.kind),
        "state": str(node.state),
        "generation": node.generation,
        "tenant": node.tenant,
        "release": node.release,
        "profile": node.profile,
        "rack": node.location.rack,
        "body": node.model_dump_json(),
    }


def old_write(statement: Any, node: Node) -> Any:
    def work(connection: Connection) -> int:
        return connection.execute(statement, columns(node)).rowcount

    return work


def test_a_new_daemon_sees_what_an_old_one_writes(run):
    async def scenario(store):
        for name in ("n0", "n1"):
            await store.nodes.add(Node(id=name, kind=NodeKind.HOST))
        first = {n.id: n for n in await store.nodes.list()}
        changed = first["n0"].model_copy(update={"note": "old daemon", "generation": 1})
        written = await store.write(old_write(OLD_UPDATE, changed))
        added = Node(id="n2", kind=NodeKind.HOST)
        inserted = await store.write(old_write(OLD_INSERT, added))
        seen = {n.id: n for n in await store.nodes.list()}
        await store.nodes.save(seen["n0"].model_copy(update={"note": "new daemon"}))
        last = [n.note for n in await store.nodes.list()]
        return written, inserted, [n.note for n in seen.values()], seen["n1"] is first["n1"], last

    written, inserted, notes, kept, last = run(scenario)

    assert (written, inserted) == (1, 1)
    assert notes == ["old daemon", "", ""]
    assert kept
    assert last == ["new daemon", "", ""]


def test_many_nodes_that_an_old_daemon_writes_at_once_are_all_seen(run):
    async def scenario(store):
        for number in range(5):
            await store.nodes.add(Node(id=f"n{number}", kind=NodeKind.HOST))
        await store.nodes.list()

        def work(connection: Connection) -> None:
            for number in range(5):
                body = Node(id=f"n{number}", kind=NodeKind.HOST, note="x").model_dump_json()
                connection.execute(
                    text("UPDATE nodes SET body = :body WHERE id = :id"),
                    {"body": body, "id": f"n{number}"},
                )

        await store.write(work)
        return [n.note for n in await store.nodes.list()]

    assert run(scenario) == ["x"] * 5

"""All nodes are read again only as far as they changed, whoever changed them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Origin
from provisioner.ports.errors import StaleWrite, StoreFailed
from provisioner.store import open_store
from provisioner.store.rows.node_rows import FIRST, Fleet


def node(number: int) -> Node:
    return Node(id=f"n{number}", kind=NodeKind.HOST)


def test_nodes_are_the_same_object_until_one_of_them_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path / "d" / "fleet.db", inline=True)
        for number in (2, 0, 1):
            await store.nodes.add(node(number))
        first = await store.nodes.list()

        assert [n.id for n in first] == ["n0", "n1", "n2"]
        assert await store.nodes.list() is first

        await store.nodes.save(first[1].model_copy(update={"note": "new"}))
        second = await store.nodes.list()

        assert [n.note for n in second] == ["", "new", ""]
        assert second[0] is first[0]
        await store.close()

    asyncio.run(scenario())


def test_what_another_process_wrote_is_seen_at_the_next_look(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "d" / "fleet.db"
        ours, theirs = open_store(file, inline=True), open_store(file, inline=True)
        await ours.nodes.add(node(0))
        assert len(await theirs.nodes.list()) == 1

        await ours.nodes.add(node(1))
        (seen, _) = await theirs.nodes.list()
        await theirs.nodes.save(seen.model_copy(update={"note": "theirs"}))

        assert [n.note for n in await ours.nodes.list()] == ["theirs", ""]
        await ours.close()
        await theirs.close()

    asyncio.run(scenario())


def test_a_refused_write_changes_nothing_that_is_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path / "d" / "fleet.db", inline=True)
        await store.nodes.add(node(0))
        (old,) = await store.nodes.list()
        new = await store.nodes.save(old.model_copy(update={"note": "first"}))
        with pytest.raises(StaleWrite):
            await store.nodes.save(old.model_copy(update={"note": "second"}))

        assert await store.nodes.list() == (new,)
        await store.close()

    asyncio.run(scenario())


def test_named_nodes_are_those_that_there_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path / "d" / "fleet.db", inline=True)
        for number in range(3):
            await store.nodes.add(node(number))

        found = await store.nodes.list_named({"n0", "n2", "absent"})

        assert {name: n.id for name, n in found.items()} == {"n0": "n0", "n2": "n2"}
        assert await store.nodes.list_named(()) == {}
        await store.close()

    asyncio.run(scenario())


class Rows:
    """Rows of nodes whose reading takes turns of the loop: what a fleet has read, by its bound."""

    def __init__(self) -> None:
        self.nodes = [node(0)]
        self.asked: list[int] = []
        self.fails = 0

    async def read(self, _: object, seen: int) -> list[tuple[int, Node]]:
        self.asked.append(seen)
        present = list(self.nodes)
        for _ in range(4):  # others come meanwhile
            await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise StoreFailed("the disk is away")
        return [(number, each) for number, each in enumerate(present) if number > seen]


def test_those_who_ask_during_a_reading_are_answered_together_by_the_next_one() -> None:
    async def scenario() -> None:
        rows, fleet = Rows(), Fleet()
        first = asyncio.create_task(fleet.nodes(rows.read))
        await asyncio.sleep(0)
        rows.nodes.append(node(1))  # the reading under way does not have it
        others = [asyncio.create_task(fleet.nodes(rows.read)) for _ in range(100)]

        assert [len(nodes) for nodes in await asyncio.gather(*others)] == [2] * 100
        assert rows.asked == [FIRST, 0]
        assert (await first)[0].id == "n0"

    asyncio.run(scenario())


def test_a_reading_that_fails_or_is_cancelled_leaves_the_next_one_to_another() -> None:
    async def scenario() -> None:
        rows, fleet = Rows(), Fleet()
        rows.fails = 1
        asking = [asyncio.create_task(fleet.nodes(rows.read)) for _ in range(4)]
        for _ in range(6):  # the first one fails, and the second one reads
            await asyncio.sleep(0)
        asking[1].cancel()
        told = await asyncio.gather(*asking, return_exceptions=True)

        assert [type(each).__name__ for each in told[:2]] == ["StoreFailed", "CancelledError"]
        assert [list(each) for each in told[2:] if isinstance(each, tuple)] == [rows.nodes] * 2

    asyncio.run(scenario())


def test_guarded_nodes_are_those_not_taken_in_also_when_their_row_is_damaged() -> None:
    async def scenario() -> None:
        store = open_store(":memory:", inline=True)
        nodes = [
            await store.nodes.add(node(number).model_copy(update={"origin": origin}))
            for number, origin in enumerate((Origin.TAKEN_IN, Origin.DETACHED, Origin.ADOPTED))
        ]
        assert [n.id for n in await store.nodes.list_guarded()] == ["n1", "n2"]

        await store.nodes.save(nodes[0].model_copy(update={"origin": Origin.ADOPTED}))
        await store.nodes.save(nodes[2].model_copy(update={"origin": Origin.TAKEN_IN}))
        assert [n.id for n in await store.nodes.list_guarded()] == ["n0", "n1"]

        damaged = text("UPDATE nodes SET changed = 99, body = '{' WHERE id = 'n1'")
        await store.write(lambda c: c.execute(damaged))
        assert [n.id for n in await store.nodes.list()] == ["n0", "n2"]
        assert [n.id for n in await store.nodes.list_guarded()] == ["n0", "n1"]
        await store.close()

    asyncio.run(scenario())


def at(*switches: str) -> tuple[Port, ...]:
    return tuple(
        Port(switch=switch, interface="swp1", rail=0, nic_slot="NIC_0") for switch in switches
    )


def test_nodes_are_found_by_the_switches_of_their_ports_as_these_are_now() -> None:
    async def scenario() -> None:
        store = open_store(":memory:", inline=True)
        nodes = [
            await store.nodes.add(node(number).model_copy(update={"ports": at(*switches)}))
            for number, switches in enumerate((("leaf0", "leaf1"), ("leaf1",), ("leaf2",)))
        ]

        async def found(*switches: str) -> list[str]:
            return [n.id for n in await store.nodes.list_cabled(switches)]

        assert await found("leaf1") == ["n0", "n1"]
        assert await found("leaf0", "leaf2", "nowhere") == ["n0", "n2"]

        await store.nodes.save(nodes[0].model_copy(update={"ports": at("leaf2")}))
        assert (await found("leaf0"), await found("leaf1")) == ([], ["n1"])
        assert await found("leaf2") == ["n0", "n2"]

        damaged = text("UPDATE nodes SET changed = 99, body = '{' WHERE id = 'n2'")
        await store.write(lambda c: c.execute(damaged))
        assert await found("leaf2") == ["n0"]
        await store.close()

    asyncio.run(scenario())

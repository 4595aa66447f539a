"""One damaged cell, of any table, costs what is asked of that row: no list, and no other row.

Whoever can damage one cell of the database, or a disk that does, must not take the site's view of
the others from the people who look for the damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from served import WIDE, Served, run
from sqlalchemy import text
from test_api_routes import CLOSED, path_of, with_campaign_and_case

from provisioner.api.fleet_atlas import Atlas, read_changes
from provisioner.store.rows.node_rows import Fleet
from provisioner.store.schema.schema import metadata

VALUES = ("'{'", "''", "x'ff00'", "-1")  # what SQLite takes in any column
# a whole list was lost for these
FEW = (
    "certificates.revoked_at", "campaign_policies.body", "version_sets.body", "nodes.state",
    "nodes.changed",
)  # fmt: skip
ALL = tuple(
    f"{name}.{column.name}"
    for name, listed in metadata.tables.items()
    for column in listed.columns
    if name != "tokens"  # who asks has one
    and not (column.primary_key or column.foreign_keys)  # a constraint keeps these
)
# what is unread here must not look like absent, so that the whole is refused, with its row: a
# withdrawal of who knows what, a difference that nobody has settled, the ledger of time
NAMED = {"/capabilities", "/recovery", "/usage", "/usage/course"}
LISTS = [
    r for r in CLOSED if r.verb == "GET" and r.media == "application/json" and "{" not in r.path
]


async def change(served: Served, words: str, **values: Any) -> None:
    await served.store.write(lambda c: c.execute(text(words), values).rowcount)


async def garble(served: Served, value: str) -> list[str]:
    """Write a row that is nothing but a value into each empty table; return those tables."""
    filled = []

    async def ask(words: str) -> Any:
        return await served.store.read(lambda c: c.execute(text(words)).scalar())

    for listed in metadata.sorted_tables:  # what another one names comes first
        name = listed.name
        if await ask(f"SELECT count(*) FROM {name}"):
            continue
        keys: dict[str, Any] = {c.name: 7 for c in listed.primary_key.columns}
        for key in listed.foreign_keys:
            named = key.column
            keys[key.parent.name] = await ask(f"SELECT min({named.name}) FROM {named.table.name}")
        words = [f":{c.name}" if c.name in keys else value for c in listed.columns]
        names = ", ".join(c.name for c in listed.columns)
        await change(served, f"INSERT INTO {name} ({names}) VALUES ({', '.join(words)})", **keys)
        filled.append(name)
    return filled


@pytest.mark.parametrize("value", VALUES)
def test_rows_of_nothing_else_in_tables_that_were_empty_cost_no_list(value: str) -> None:
    """The tables that the site of `damage` has no row in: it reaches the others."""
    lost: dict[str, str] = {}

    async def scenario(served: Served) -> None:
        await with_campaign_and_case(served)
        before = [r for r in LISTS if (await served.ask("viewer", "GET", path_of(r)))[0] == 200]
        filled = await garble(served, value)
        assert len(filled) > 10
        for route in before:
            status, told = await served.ask("viewer", "GET", path_of(route))
            if status != 200:
                lost[route.path] = f"{status} {told['title']}: {told.get('detail')}"

    run(scenario, **WIDE)
    assert {path for path, told in lost.items() if told.startswith("503")} <= NAMED
    assert [told for told in lost.values() if not told.startswith("503")] == []


def test_a_damaged_record_is_listed_as_one_and_a_damaged_time_is_no_fault_of_ours() -> None:
    async def scenario(served: Served) -> None:
        await change(served, "INSERT INTO stored_images (name, body) VALUES ('a.iso', '{')")
        login = "'n/host', 'n', '{', 0, 0, '{', 0, 0, ''"
        await change(served, f"INSERT INTO credential_standings VALUES ({login})")
        site = "1, 's', '', 0, '', '{', 0"
        await change(served, f"INSERT INTO site_state VALUES ({site})")

        images = (await served.ask("viewer", "GET", "/images"))[1]["items"]
        logins = (await served.ask("viewer", "GET", "/credentials"))[1]["items"]
        status, told = await served.ask("viewer", "GET", "/recovery")

        (image,) = (row for row in images if row["name"] == "a.iso")
        assert "doctor" in image["damaged"]
        assert not image["present"]
        (one,) = (row for row in logins if row["name"] == "n/host")
        assert "damaged" in one["problem"]
        assert status == 503, told

    run(scenario, **WIDE)


async def damage(served: Served, cells: Sequence[str], values: Sequence[str]) -> set[str]:
    """Damage the first row of each table, cell by cell; return the lists that were lost for it."""
    good = [r for r in LISTS if (await served.ask("viewer", "GET", path_of(r)))[0] == 200]
    assert len(good) > 30
    lost = set()
    for cell in cells:
        table, column = cell.split(".")
        first = f"SELECT rowid, {column} FROM {table} ORDER BY rowid LIMIT 1"
        row = await served.store.read(lambda c, ask=first: c.execute(text(ask)).fetchone())
        if row is None:
            continue
        set_it = f"UPDATE {table} SET {column} = "
        for value in values:
            await change(served, f"{set_it}{value} WHERE rowid = {row[0]}")
            for route in good:
                status, told = await served.ask("viewer", "GET", path_of(route))
                if status != 200:
                    lost.add(f"{cell} = {value}: {route.path}, {status} {told['title']}")
            await change(served, f"{set_it}:v WHERE rowid = {row[0]}", v=row[1])
    return lost


def lose(cells: Sequence[str], values: Sequence[str]) -> set[str]:
    lost: set[str] = set()

    async def scenario(served: Served) -> None:
        await with_campaign_and_case(served)
        lost.update(await damage(served, cells, values))

    run(scenario, **WIDE)
    return lost


def test_no_list_is_lost_for_one_damaged_cell() -> None:
    assert lose(FEW, VALUES[:1]) == set()


@pytest.mark.long
@pytest.mark.parametrize("table", sorted({cell.split(".")[0] for cell in ALL}))
def test_no_list_is_lost_for_any_value_in_any_cell(table: str) -> None:
    cells = [cell for cell in ALL if cell.startswith(f"{table}.")]

    assert lose(cells, VALUES) == set()


def test_a_revocation_whose_time_is_damaged_is_still_one() -> None:
    async def scenario(served: Served) -> None:
        id_ = "cert-su0-n01"
        await change(served, "UPDATE certificates SET revoked_at = 'x' WHERE id = :id", id=id_)
        listed = (await served.ask("viewer", "GET", "/certificates"))[1]["items"]
        alone = (await served.ask("viewer", "GET", f"/certificates/{id_}"))[1]

        assert [row["id"] for row in listed if row["revoked_at"]] == [id_]
        assert alone["revoked_at"]
        assert not alone["in_force"]

    run(scenario)


@pytest.mark.parametrize("value", [*VALUES, "9223372036854775807", "1e300", "1.5", "'7x'"])
def test_a_node_whose_number_is_damaged_is_read_and_heals_with_its_next_write(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that number every reader goes on; beside it each other node can still be written."""

    async def scenario(served: Served) -> None:
        nodes, atlas = served.store.nodes, served.store.atlas
        every = {n.id for n in await nodes.list()}
        capacity = await Atlas().count_capacity(served.store)
        hurt, other, *_ = sorted(every)
        await change(served, f"UPDATE nodes SET changed = {value} WHERE id = :id", id=hurt)
        newest = await atlas.get_newest_change()
        raw, seen, _ = await read_changes(served.store, newest, None, 1)
        monkeypatch.setattr(nodes, "_fleet", Fleet())  # of a daemon that has read nothing yet
        assert {n.id for n in await nodes.list()} == every
        assert await Atlas().count_capacity(served.store) == capacity
        for name in (other, hurt):
            node = next(n for n in await nodes.list() if n.id == name)
            await nodes.save(node.model_copy(update={"note": f"written {value}"}))
        told = {n.id: n.note for n in await nodes.list()}
        healed = await atlas.list_changed(seen, 10)

        assert seen == newest
        assert raw
        assert told[other] == told[hurt] == f"written {value}"
        assert healed == [(other, newest + 1), (hurt, newest + 2)]
        assert await atlas.list_changed(newest + 2, 10) == []

    run(scenario)

"""One damaged row of the ledger of time, the evidence log or saved views costs what it says alone.

Whoever can damage one cell of these tables must not stop a daemon, a list, or the other fold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import pytest
from given_events import event_of
from sqlalchemy import text

from provisioner.daemon.watches import FOLDS, fold_journal
from provisioner.model.access import SavedView
from provisioner.model.inventory import Component, Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.ports import DamagedRow
from provisioner.runtime import permit
from provisioner.store import open_store
from provisioner.store.repositories.usage import UsageQuery
from provisioner.store.sql_store import SqlStore

NOW = 1_000.0
ALL = UsageQuery(0.0, NOW + 900.0, by="node")
# what SQLite takes in any column: a text, none, bytes that are no text, a number, half a document
VALUES = ("'x'", "''", "x'ff00'", "-1", "1e300", "'{'")
CELLS = (
    *(f"usage_spans.{c}" for c in ("node", "begins_at", "owner", "cause", "what")),
    *(f"usage_open.{c}" for c in ("node", "begins_at", "owner", "cause", "what", "standing")),
    "usage_place.through",
    *(f"log_entries.{c}" for c in ("node", "leaf")),
    *(f"log_hashes.{c}" for c in ("hash", "level", "place")),
    *(f"log_place.{c}" for c in ("through", "salt")),
    *("version_spans.begins_at", "version_sets.body", "node_versions.versions"),
    *("saved_views.owner", "saved_views.body"),
)
FEW = (
    *("usage_spans.cause", "usage_open.begins_at", "usage_place.through", "log_hashes.hash"),
    *("log_place.salt", "version_sets.body", "saved_views.body"),
)


async def filled() -> SqlStore:
    """Two nodes that were released, and are in quarantine since; two views of one person."""
    store = open_store(":memory:", inline=True)
    released = {"tenant": "red", "certificate": "c1", "proof": "b" * 64}
    for node in ("n1", "n2"):
        await store.nodes.add(Node(id=node, kind=NodeKind.HOST))
        gpu = Component(kind="hgx.gpu", slot="GPU_SXM_1", version="1", source="/redfish/v1")
        seen = Inventory(node=node, vendor="generic", components=(gpu,))
        await store.evidence.put_inventory(seen, NOW)
        await store.journal.append(event_of("released", node, released), NOW)
        for after, to in enumerate(("released", "quarantined")):
            await store.journal.append(event_of("state", node, {"to": to}), NOW + 9.0 * after)
        view = SavedView(name=node, owner="ann", address="#/nodes", at=NOW)
        assert await store.views.put("operators", view)
    while await store.usage.advance() or await store.evidence_log.advance():
        pass
    return store


async def statement(store: SqlStore, words: str) -> None:
    await store.write(lambda c: c.execute(text(words)).rowcount)


async def asked(what: Awaitable[object]) -> object:
    """The answer, or None where the store names the damaged row."""
    try:
        return await what
    except DamagedRow:
        return None


async def read_all(store: SqlStore) -> list[str]:
    """Ask everything that reads these rows, and fold on; the views' names."""
    for by in ("cause", "what", "node"):
        await asked(store.usage.sum_usage(ALL._replace(by=by)))
    await asked(store.usage.list_stays(0.0, ALL.ends_at))
    await asked(store.usage.sum_steps(ALL, (0.0, ALL.ends_at)))
    await asked(store.usage.count_behind())
    await asked(store.usage.advance())
    log = store.evidence_log
    await asked(log.read_state())
    await asked(log.read_root(2))
    await asked(log.prove_growth(1, 2))
    for node in ("n1", "n2"):
        entries = await asked(log.list_entries(node, 2))
        if isinstance(entries, list):
            await asked(log.prove_entries(entries, 2))
    await asked(log.advance())
    return [view.name for view in await store.views.list("operators", "ann")]


@pytest.mark.parametrize(
    ("cells", "values"), [(FEW, VALUES[:1]), pytest.param(CELLS, VALUES, marks=pytest.mark.long)]
)
def test_any_damaged_cell_is_named_or_left_out_and_ends_nothing(
    cells: Sequence[str], values: Sequence[str]
) -> None:
    async def play() -> list[str]:
        store = await filled()
        shown = []
        for number, cell in enumerate(cells):
            table, column = cell.split(".")
            first = f"rowid = (SELECT min(rowid) FROM {table})"
            await statement(store, f"CREATE TABLE kept AS SELECT {column} AS v FROM {table}")
            for value in values:
                # something is to be folded each time
                event = event_of("state", f"n{number % 2 + 1}", {"to": "certified"})
                await store.journal.append(event, NOW + 100.0)
                await statement(store, f"UPDATE {table} SET {column} = {value} WHERE {first}")
                views = await read_all(store)
                if table == "saved_views":
                    shown.append(",".join(views))
                await statement(
                    store,
                    f"UPDATE {table} SET {column} = (SELECT v FROM kept LIMIT 1) WHERE {first}",
                )
            await statement(store, "DROP TABLE kept")
        await store.close()
        return shown

    shown = asyncio.run(play())
    assert shown
    assert all("n2" in names for names in shown)  # whatever stands in the first view's row


def test_a_span_of_no_known_cause_costs_its_own_seconds() -> None:
    async def play() -> tuple[dict[str, float], dict[str, float]]:
        store = await filled()

        async def count() -> dict[str, float]:
            rows = await store.usage.sum_usage(ALL)
            return {node: sum(r.node_s for r in rows if r.node == node) for node in ("n1", "n2")}

        whole = await count()
        await statement(store, "UPDATE usage_spans SET cause = 'x' WHERE node = 'n1'")
        left = await count()
        await store.close()
        return whole, left

    whole, left = asyncio.run(play())
    assert left["n1"] < whole["n1"]
    assert left["n2"] == whole["n2"] == whole["n1"]


class Turns:
    """A clock on which the loop's third wait is its last."""

    def __init__(self, between: list[Awaitable[None]]) -> None:
        self._between = between

    def now(self) -> float:
        return NOW

    async def sleep(self, _seconds: float) -> None:
        if not self._between:
            raise asyncio.CancelledError
        await self._between.pop(0)


def test_a_fold_that_meets_a_damaged_row_stops_alone_says_so_and_goes_on_once_it_is_mended() -> (
    None
):
    async def play() -> tuple[list[int], list[tuple[str, ...]]]:
        store = await filled()
        behind: list[int] = []
        told: list[tuple[str, ...]] = []

        async def look() -> None:
            state = await store.evidence_log.read_state()
            behind.append(state.behind)
            told.append(permit.get_scope().notices[FOLDS])
            await statement(store, "UPDATE usage_place SET through = 1")

        await statement(store, "UPDATE usage_place SET through = 'x'")
        released = {"tenant": "red", "certificate": "c2", "proof": "b" * 64}
        await store.journal.append(event_of("released", "n1", released), NOW + 50.0)
        folds = (store.usage.advance, store.evidence_log.advance)
        try:
            await fold_journal(folds, Turns([look(), look()]))  # type: ignore[arg-type]
        except asyncio.CancelledError:
            await store.close()
        return behind, told

    behind, told = asyncio.run(play())
    assert behind == [0, 0]  # the log went on
    assert "usage_place" in told[0][0]
    assert told[1] == ()


def test_a_log_that_lost_its_place_is_not_begun_anew() -> None:
    """Its entries would be written a second time, under another name and secret."""

    async def play() -> list[str]:
        store = await filled()
        said = []
        for table, fold in (("usage_place", store.usage), ("log_place", store.evidence_log)):
            await statement(store, f"DELETE FROM {table}")
            try:
                await fold.advance()
            except DamagedRow as error:
                said.append(error.where)
        await store.close()
        return said

    assert asyncio.run(play()) == ["usage_place", "log_place"]

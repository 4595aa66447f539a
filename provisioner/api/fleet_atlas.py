"""The whole fleet by column, kept between requests: what the console's map is made of.

A node's place is read once for each of its generations and kept; an answer is kept until the
journal or a node moves on.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterable, Sequence

from provisioner.store.repositories.atlas import FIELDS, Facts
from provisioner.store.sql_store import SqlStore

READ_AT_ONCE = 1024  # bodies; some 30 ms of the store's thread, so that others get their turn
_REASON = FIELDS.index("reason")
_TENANT = FIELDS.index("tenant")


class Atlas:
    """Where every node is and what it is, by generation; and the answers made of it."""

    def __init__(self) -> None:
        self._facts: dict[str, tuple[int, Facts]] = {}
        self._known: dict[Facts, Facts] = {}  # nodes of a rack share one
        self._answers: dict[str, tuple[str, bytes, bytes]] = {}
        self._turn = asyncio.Lock()

    async def build_answer(self, store: SqlStore, tenant: str | None) -> tuple[str, bytes, bytes]:
        """(ETag, JSON, the same packed) of all nodes, or of one tenant's; made once for all."""
        async with self._turn:
            seq = (await store.journal.get_head())[0]
            tag = f'"j{seq}-{await store.atlas.get_mark()}"'
            key = "" if tenant is None else f"t{tenant}"
            kept = self._answers.get(key)
            if kept is not None and kept[0] == tag:
                return kept
            await self._look(store)
            raw = await asyncio.to_thread(format_map, seq, self._rows(tenant))
            made = tag, raw, await asyncio.to_thread(gzip.compress, raw, 5)
            if key not in self._answers and len(self._answers) >= 64:
                self._answers.clear()
            self._answers[key] = made
            return made

    async def _look(self, store: SqlStore) -> None:
        """Read what changed since the last look."""
        now = dict(await store.atlas.list_generations())
        for gone in self._facts.keys() - now.keys():
            del self._facts[gone]
        changed = [n for n, g in now.items() if self._facts.get(n, (-1,))[0] != g]
        for begin in range(0, len(changed), READ_AT_ONCE):
            names = changed[begin : begin + READ_AT_ONCE]
            for name, generation, facts in await store.atlas.list_facts(names):
                self._facts[name] = generation, self._known.setdefault(facts, facts)
        if len(self._known) > 4 * len(self._facts) + 1000:
            self._known = {facts: facts for _, facts in self._facts.values()}

    def _rows(self, tenant: str | None) -> list[tuple[str, Facts]]:
        rows = [(name, facts) for name, (_, facts) in sorted(self._facts.items())]
        return rows if tenant is None else select_tenant(rows, tenant)


def select_tenant(rows: Iterable[tuple[str, Facts]], tenant: str) -> list[tuple[str, Facts]]:
    """Its own only, without what our words say of them."""
    own = [(n, f) for n, f in rows if tenant and f[_TENANT] == (tenant,)]
    return [(n, (*f[:_REASON], (), *f[_REASON + 1 :])) for n, f in own]


def format_map(seq: int, rows: Sequence[tuple[str, Facts]]) -> bytes:
    fields = {}
    for number, name in enumerate(FIELDS):
        places: dict[tuple[str, ...], int] = {}
        index = [places.setdefault(f[number], len(places)) for _, f in rows]
        fields[name] = {"values": list(places), "index": index}
    told = {"seq": seq, "nodes": [name for name, _ in rows], "fields": fields}
    return json.dumps(told, separators=(",", ":")).encode()

"""What the sums of the ledger of time cost for a month of 65,536 nodes; argument: NODES.

Each node has eight GPUs and passes some ten uses in the month; the spans are folded from journal
rows in the journal's order, as a daemon folds and stores them, then summed for all owners, for one
tenant, and by node. Times are CPU seconds of this process. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert

from provisioner.planning.lifecycle.usage import Opened, fold_journal
from provisioner.store.repositories.usage import UsageQuery
from provisioner.store.schema.schema import node_versions, nodes, version_sets
from provisioner.store.schema.usage_tables import usage_open, usage_spans
from provisioner.store.sql_store import open_store

MONTH_S = 30 * 86_400.0
NOW = 1_796_083_200.0
VERSIONS = json.dumps([["hgx.gpu", "96.00", None, None, 8]])
LIFE = ("intake", "converging", "validating", "certified", "released")


def make_rows(name: str, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield a node's events: taken in before the month, repaired and upgraded within it."""
    at, tenant = NOW - 2 * MONTH_S, f"t{rng.randrange(50)}"
    yield {"node": name, "kind": "discovered", "at": at, "detail": {}}
    for repeat in range(2):
        for state in LIFE:
            at += rng.uniform(600.0, 7200.0)
            yield {"node": name, "kind": "state", "at": at, "detail": {"to": state}}
            if state == "certified":
                yield {"node": name, "kind": "allocated", "at": at, "detail": {"tenant": tenant}}
        if repeat == 0:
            at = NOW - rng.uniform(0.2, 1.0) * MONTH_S
            yield {"node": name, "kind": "state", "at": at, "detail": {"to": "draining"}}


def fill(connection: Connection, count: int) -> tuple[float, int]:
    """Fold the rows of the fleet and store them; return the CPU seconds of folding, and spans."""
    rng = random.Random(1)
    opened: dict[str, Opened] = {}
    begun = time.process_time()
    rows = [row for n in range(count) for row in make_rows(f"n{n}", rng)]
    rows.sort(key=lambda row: row["at"])
    made = time.process_time()
    spans = fold_journal(rows, opened)
    folded_s = time.process_time() - made
    names = sorted(opened)
    columns = {"kind": "host", "state": "released", "generation": 0, "tenant": "", "changed": 1}
    columns |= {c.name: "" for c in nodes.columns if c.name not in columns and not c.nullable}
    connection.execute(insert(nodes), [{**columns, "id": name, "body": "{}"} for name in names])
    connection.execute(insert(version_sets).values(digest="d", body=VERSIONS))
    known = {"inventory": 1, "versions": "d", "serials": "", "models": ""}
    connection.execute(insert(node_versions), [{"node": name, **known} for name in names])
    connection.execute(
        insert(usage_spans),
        [{**s._asdict(), **s.use._asdict(), "cause": s.use.cause.value} for s in spans],
    )
    connection.execute(
        insert(usage_open),
        [
            {
                "node": name,
                "begins_at": one.begins_at,
                **one.use._asdict(),
                "cause": one.use.cause.value,
                "standing": one.standing.model_dump_json(),
            }
            for name, one in opened.items()
        ],
    )
    assert begun <= made
    return folded_s, len(spans)


async def measure(count: int) -> dict[str, Any]:
    """Return the costs of a fleet."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "usage.db")
        try:
            folded_s, spans = await store.write(lambda c: fill(c, count))
            report: dict[str, Any] = {"nodes": count, "spans": spans, "fold_s": round(folded_s, 2)}
            month = (NOW - MONTH_S, NOW)
            asked = {
                "month": UsageQuery(*month),
                "month_of_a_tenant": UsageQuery(*month, tenant="t7"),
                "month_by_node": UsageQuery(*month, by="node"),
            }
            for name, query in asked.items():
                begun = time.process_time()
                rows = await store.usage.sum_usage(query)
                report[f"{name}_s"] = round(time.process_time() - begun, 3)
                total = sum(row.node_s for row in rows)
                if not query.tenant:
                    assert abs(total - count * MONTH_S) < 1.0, "it does not sum to the wall"
            return report
        finally:
            await store.close()


if __name__ == "__main__":
    done = asyncio.run(measure(int((sys.argv[1:] or ["65536"])[0])))
    sys.stdout.write(f"{json.dumps(done)}\n")

"""What runs on each node and which parts it has, beside its newest inventory.

The rows are made of the newest inventories. A daemon of the version before adds inventories without
them while it still runs: each is made up for at the node's next look.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision: str | None = "0031"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "version_sets",
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("body", sa.Text),
        sa.PrimaryKeyConstraint("digest", name="pk_version_sets"),
    )
    op.create_table(
        "node_versions",
        sa.Column("node", sa.String, nullable=False),
        sa.Column("inventory", sa.Integer, nullable=False),
        sa.Column("versions", sa.String, nullable=False),
        sa.Column("serials", sa.Text, nullable=False),
        sa.Column("models", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_node_versions"),
        sa.ForeignKeyConstraint(["node"], ["nodes.id"], name="fk_node_versions_node"),
    )
    op.create_index("ix_node_versions_set", "node_versions", ["versions", "node"])
    _fill(op.get_bind())


def _fill(connection: sa.Connection) -> None:
    newest = connection.exec_driver_sql("SELECT max(id) FROM inventories GROUP BY node").scalars()
    read = sa.text("SELECT id, node, body FROM inventories WHERE id = :id")
    kept: set[str] = set()
    for number in list(newest):
        row = connection.execute(read, {"id": number}).one()
        try:
            body = json.loads(row.body)
            versions = _versions(body)
            serials = _serials(body)
            models = _models(body)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # a damaged row: the node's next look makes it anew
        digest = hashlib.sha256(versions.encode()).hexdigest()
        if digest not in kept:
            kept.add(digest)
            connection.execute(
                sa.text("INSERT INTO version_sets (digest, body) VALUES (:digest, :body)"),
                {"digest": digest, "body": versions},
            )
        connection.execute(
            sa.text(
                "INSERT INTO node_versions VALUES (:node, :inventory, :set, :serials, :models)"
            ),
            {
                "node": row.node,
                "inventory": row.id,
                "set": digest,
                "serials": serials,
                "models": models,
            },
        )


def _versions(body: Mapping[str, Any]) -> str:
    counts = Counter(
        (c["kind"], c["version"], c.get("staged"), c.get("pending")) for c in body["components"]
    )
    rows = sorted(([*key, slots] for key, slots in counts.items()), key=json.dumps)
    return json.dumps(rows, separators=(",", ":"))


def _serials(body: Mapping[str, Any]) -> str:
    found = [(body.get("system_serial"), "system")]
    found += [(c.get("serial"), f"{c['kind']} {c['slot']}") for c in body["components"]]
    found += [(d.get("serial"), f"{d['kind']} {d['slot']}") for d in body.get("devices", ())]
    return "\n".join(sorted({f"{s}\t{part}".casefold() for s, part in found if s}))


def _models(body: Mapping[str, Any]) -> str:
    found = [body.get("model"), *(d.get("model") for d in body.get("devices", ()))]
    return "\n".join(sorted({model for model in found if model}))

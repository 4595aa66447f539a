"""Access to the API: tokens, requests, answers kept for replay; what lists of nodes search by."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision: str | None = "0008"
branch_labels: str | None = None
depends_on: str | None = None

SEARCHED = ("tenant", "release", "profile")  # fields of a node's record


def upgrade() -> None:
    _tables()
    for name in (*SEARCHED, "rack"):
        op.add_column("nodes", sa.Column(name, sa.String(), nullable=False, server_default=""))
    connection = op.get_bind()
    written = sa.text(
        "UPDATE nodes SET tenant = :tenant, release = :release, profile = :profile, rack = :rack "
        "WHERE id = :id"
    )
    for node_id, body in connection.execute(sa.text("SELECT id, body FROM nodes")).all():
        node = json.loads(body)
        values = {name: str(node.get(name, "")) for name in SEARCHED}
        values["rack"] = str(node.get("location", {}).get("rack", ""))
        connection.execute(written, {"id": node_id, **values})
    # a page of a tenant's nodes, or of switches, costs the same wherever it begins
    op.create_index("ix_nodes_of_tenant", "nodes", ["tenant", "id"], unique=False)
    op.create_index("ix_nodes_of_kind", "nodes", ["kind", "id"], unique=False)
    # a summary of the fleet reads this index and no row
    summary = ["kind", "state", "release", "tenant"]
    op.create_index("ix_nodes_summary", "nodes", summary, unique=False)


def _tables() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
    )
    op.create_table(
        "requests",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_requests")),
    )
    for name in ("subject", "tenant", "state"):
        op.create_index(op.f(f"ix_requests_{name}"), "requests", [name], unique=False)
    op.create_table(
        "answers",
        sa.Column("caller", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("caller", "key", name=op.f("pk_answers")),
    )
    op.create_index(op.f("ix_answers_asked_at"), "answers", ["asked_at"], unique=False)

"""A tenant has its VRF to itself, and a number, of which VNI, route target and P_Key follow."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision: str | None = "0007"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT name, body FROM tenants")).all()
    op.drop_table("tenants")
    made = op.create_table(
        "tenants",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("vrf", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tenants")),
        sa.UniqueConstraint("number", name=op.f("uq_tenants_number")),
        sa.UniqueConstraint("vrf", name=op.f("uq_tenants_vrf")),
    )
    for name, body in rows:
        vrf = str(json.loads(body)["vrf"])
        connection.execute(
            sa.insert(made).values(name=name, vrf=vrf, number=None, generation=0, body=body)
        )

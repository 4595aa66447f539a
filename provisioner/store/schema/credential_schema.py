"""The table of logins' ages and events; the logins themselves are in `credentials`, sealed."""

from __future__ import annotations

from sqlalchemy import Column, Double, Index, Integer, String, Table, Text

from provisioner.store.schema.schema import metadata

credential_standings = Table(
    "credential_standings",
    metadata,
    Column("name", String, primary_key=True),
    Column("node", String, nullable=False, index=True),
    Column("changed_at", Double, nullable=False),  # 0: before changes were recorded
    Column("due_at", Double, nullable=False),  # 0: no event demands a change
    Column("urgency", Integer, nullable=False),  # of the cause, lower first; 0: none
    Column("shown_to", Text, nullable=False),  # a JSON list of people
    Column("failures", Integer, nullable=False),
    Column("retry_at", Double, nullable=False),
    Column("problem", Text, nullable=False),
    # what is due is read in this order, however much there is of it
    Index("ix_credential_standings_due", "urgency", "due_at", "name"),
    Index("ix_credential_standings_age", "changed_at", "name"),
)

"""The tables of access: tokens, requests through the API, answers kept for replay."""

from __future__ import annotations

from sqlalchemy import Column, Double, Integer, String, Table, Text

from provisioner.store.schema.schema import metadata

tokens = Table(
    "tokens",
    metadata,
    Column("id", String, primary_key=True),
    Column("digest", String, nullable=False, unique=True),
    Column("expires_at", Double, nullable=False),
    Column("body", Text, nullable=False),
)

console_sessions = Table(
    "console_sessions",
    metadata,
    Column("id", String, primary_key=True),
    Column("digest", String, nullable=False, unique=True),
    Column("person", String, nullable=False, index=True),
    Column("token", String, nullable=False, index=True),  # id of the local token; "": a provider's
    Column("made_at", Double, nullable=False),
    Column("used_at", Double, nullable=False),
    Column("ended_at", Double, nullable=False),  # 0: it was not
    Column("body", Text, nullable=False),  # the rest of the record, as it began
)

requests = Table(
    "requests",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("subject", String, nullable=False, index=True),
    Column("tenant", String, nullable=False, index=True),
    Column("state", String, nullable=False, index=True),
    Column("generation", Integer, nullable=False),
    Column("body", Text, nullable=False),
)

answers = Table(
    "answers",
    metadata,
    Column("caller", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("fingerprint", String, nullable=False),  # SHA-256 of the request
    Column("asked_at", Double, nullable=False, index=True),
    Column("status", Integer, nullable=False),  # HTTP; 0: no answer yet
    Column("headers", Text, nullable=False),  # JSON
    Column("body", Text, nullable=False),
)

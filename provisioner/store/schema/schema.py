"""The tables, as SQLAlchemy Core knows them; `migrations/` builds exactly these (a test compares).

A record's JSON (`body`) is the truth of its row; the columns beside it exist to be searched, to be
unique or to be fenced, and are written in the same statement. Times are seconds since the epoch.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    # every constraint has a name, so that a later migration can name it on both dialects
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("generation", Integer, nullable=False),
    Column("tenant", String, nullable=False, server_default=""),
    Column("release", String, nullable=False, server_default=""),
    Column("profile", String, nullable=False, server_default=""),
    Column("rack", String, nullable=False, server_default=""),
    Column("body", Text, nullable=False),
    # above all others at each write: what changed since a look is found without reading the rest
    Column("changed", Integer, nullable=False, server_default="0", index=True),
    Index("ix_nodes_summary", "kind", "state", "release", "tenant"),
    # a page of a tenant's nodes, or of switches, costs the same wherever it begins
    Index("ix_nodes_of_tenant", "tenant", "id"),
    Index("ix_nodes_of_kind", "kind", "id"),
)

operations = Table(
    "operations",
    metadata,
    Column("id", String, primary_key=True),
    Column("node", String, ForeignKey("nodes.id"), nullable=False),
    # counts a node's operations: ids are "node#number", the same in every replay of a seed
    Column("number", Integer, nullable=False),
    Column("want", String, nullable=False),
    Column("status", String, nullable=False, index=True),
    Column("epoch", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("phase", String, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("note", Text, nullable=False),
    UniqueConstraint("node", "number"),
)
# one active operation per node: the mutual exclusion itself; of PostgreSQL: its migration
Index(
    "one_active_operation", operations.c.node, unique=True, sqlite_where=text("status = 'active'")
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("operation", String, ForeignKey("operations.id"), nullable=False),
    Column("node", String, ForeignKey("nodes.id"), nullable=False, index=True),
    Column("action", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("intended_at", Double, nullable=False),
    Column("before", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("settled_at", Double, nullable=False),
    Column("epoch", Integer),  # of the operation at the intent; NULL: an older version wrote it
    Column("settled_epoch", Integer),
    UniqueConstraint("operation", "action", "attempt"),
)

inventories = Table(
    "inventories",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("node", String, ForeignKey("nodes.id"), nullable=False, index=True),
    Column("digest", String, nullable=False),
    Column("body", Text, nullable=False),
    Column("seen_at", Double, nullable=False),
)

# what lists need of each node's newest inventory; nodes with the same versions share a set
version_sets = Table(
    "version_sets", metadata, Column("digest", String, primary_key=True), Column("body", Text)
)

node_versions = Table(
    "node_versions",
    metadata,
    Column("node", String, ForeignKey("nodes.id"), primary_key=True),
    Column("inventory", Integer, nullable=False),
    Column("versions", String, nullable=False),  # digest of its set
    Column("serials", Text, nullable=False),  # lines of serial, tab, part, in small letters
    Column("models", Text, nullable=False),  # a line each
    Index("ix_node_versions_set", "versions", "node"),  # both are read of all nodes at once
)

reports = Table(
    "reports",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("node", String, ForeignKey("nodes.id"), nullable=False, index=True),
    Column("digest", String, nullable=False),
    Column("body", Text, nullable=False),
    Column("ended_at", Double, nullable=False),
)

evidence = Table(
    "evidence",
    metadata,
    Column("digest", String, primary_key=True),
    Column("size", Integer, nullable=False),  # bytes before compression
    Column("body", LargeBinary, nullable=False),  # zlib: raw outputs shrink to a tenth
)

samples = Table(
    "samples",
    metadata,
    Column("node", String, ForeignKey("nodes.id"), primary_key=True),
    Column("versions", String, primary_key=True),  # digest of the set of versions
    Column("profile", String, nullable=False),
    Column("body", Text, nullable=False),
    Column("taken_at", Double, nullable=False),
    Index("ix_samples_cohort", "profile", "versions", "taken_at"),
    Index("ix_samples_newest", "profile", "taken_at"),
)

baselines = Table(
    "baselines",
    metadata,
    Column("profile", String, primary_key=True),
    Column("metric", String, primary_key=True),
    Column("body", Text, nullable=False),
    Column("learned_at", Double, nullable=False),
)

certificates = Table(
    "certificates",
    metadata,
    Column("id", String, primary_key=True),
    Column("node", String, ForeignKey("nodes.id"), nullable=False, index=True),
    Column("body", Text, nullable=False),
    Column("issued_at", Double, nullable=False),
    Column("revoked_at", Double, nullable=True),
    Column("revoked_reason", Text, nullable=False),
)

proofs = Table(
    "proofs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("node", String, ForeignKey("nodes.id"), nullable=False, index=True),
    Column("certificate", String, nullable=False),
    Column("tenant", String, nullable=False),
    Column("body", Text, nullable=False),
    Column("confirmed_at", Double, nullable=False),
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", String, primary_key=True),
    Column("vrf", String, nullable=False, unique=True),
    Column("number", Integer, nullable=True, unique=True),  # None: the site's own
    Column("generation", Integer, nullable=False),
    Column("body", Text, nullable=False),
)

journal = Table(
    "journal",
    metadata,
    # given by us, not by the database: a hole in the numbers is a missing row
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("kind", String, nullable=False),
    Column("node", String, nullable=False, index=True),  # "" for what concerns no node
    Column("detail", Text, nullable=False),
    Column("digest", String, nullable=False),
)

agents = Table(
    "agents",
    metadata,
    Column("node", String, ForeignKey("nodes.id"), primary_key=True),
    Column("body", Text, nullable=False),  # without the token, which is in `credentials`
    Column("seen_at", Double, nullable=False),
)

# the last time that a daemon went by ("last"), and a person's word that the clock is right now
clock_marks = Table(
    "clock_marks",
    metadata,
    Column("name", String, primary_key=True),
    Column("at", Double, nullable=False),
)

matrices = Table(
    "matrices",
    metadata,
    Column("digest", String, primary_key=True),
    Column("body", Text, nullable=False),
    Column("first_used_at", Double, nullable=False),
)

credentials = Table(
    "credentials",
    metadata,
    Column("name", String, primary_key=True),
    Column("key_id", String, nullable=False),  # of the master key that both are encrypted with
    Column("current", LargeBinary, nullable=True),
    Column("pending", LargeBinary, nullable=True),
)

signing_keys = Table(
    "signing_keys",
    metadata,
    Column("key_id", String, primary_key=True),
    Column("master_key_id", String, nullable=False),
    Column("public", LargeBinary, nullable=False),  # Ed25519, 32 bytes
    Column("private", LargeBinary, nullable=True),  # encrypted; None: retired, verifies only
    Column("created_at", Double, nullable=False),
    Column("withdrawn_at", Double, nullable=True),  # from then on nothing it signed is believed
)

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("play", String, nullable=False),
    Column("hosts", Text, nullable=False),  # JSON: node -> digest of its variables
    Column("folder", Text, nullable=False),
    Column("started_at", Double, nullable=False, index=True),
    Column("limit_s", Double, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("ended_at", Double, nullable=False),
    # the data directory that has its folder; "": the only one
    Column("place", String, nullable=False, server_default=""),
)

alerts = Table(
    "alerts",
    metadata,
    Column("node", String, ForeignKey("nodes.id"), primary_key=True),
    Column("id", String, primary_key=True),
    Column("target", String, primary_key=True),
    Column("active", Integer, nullable=False, index=True),
    Column("last_at", Double, nullable=False),
    Column("body", Text, nullable=False),
)

overrides = Table(
    "overrides",
    metadata,
    Column("node", String, ForeignKey("nodes.id"), primary_key=True),
    Column("id", String, primary_key=True),
    Column("target", String, primary_key=True),
    Column("until", Double, nullable=False),
    Column("body", Text, nullable=False),
)

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("id", String, primary_key=True),
    Column("node", String, ForeignKey("nodes.id"), nullable=False),
    Column("bmc", String, nullable=False),
    Column("body", Text, nullable=False),  # with the digest of its secret, never the secret
)

received_events = Table(
    "received_events",
    metadata,
    Column("node", String, ForeignKey("nodes.id"), primary_key=True),
    Column("bmc", String, primary_key=True),
    Column("identities", Text, nullable=False),  # of the newest events, separated by blanks
)

fabric_sessions = Table(
    "fabric_sessions",
    metadata,
    Column("id", String, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("ended_at", Double, nullable=False, index=True),  # 0: under way
    Column("body", Text, nullable=False),
)

fabric_outcomes = Table(
    "fabric_outcomes",
    metadata,
    Column("node", String, ForeignKey("nodes.id"), primary_key=True),  # the newest only
    Column("session", String, nullable=False),
    Column("body", Text, nullable=False),
)


# ------------------------------------------------------------------------------
# The tables of access: tokens, requests through the API, answers kept for replay.


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


# ------------------------------------------------------------------------------
# The tables of campaigns: themselves, their nodes, pins, policies, images, and notices.


campaigns = Table(
    "campaigns",
    metadata,
    Column("id", String, primary_key=True),
    Column("state", String, nullable=False, index=True),
    Column("generation", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("body", Text, nullable=False),
)

campaign_nodes = Table(
    "campaign_nodes",
    metadata,
    Column("campaign", String, ForeignKey("campaigns.id"), primary_key=True),
    Column("node", String, ForeignKey("nodes.id"), primary_key=True),
    Column("state", String, nullable=False),
    Column("body", Text, nullable=False),
)

release_pins = Table(
    "release_pins",
    metadata,
    Column("key", String, primary_key=True),  # "node:su0-n00", "rack:su0-rack0", "fleet:"
    Column("body", Text, nullable=False),
)

campaign_policies = Table(
    "campaign_policies",
    metadata,
    Column("name", String, primary_key=True),
    Column("body", Text, nullable=False),
)

stored_images = Table(
    "stored_images",
    metadata,
    Column("name", String, primary_key=True),
    Column("body", Text, nullable=False),
)

notices = Table(
    "notices",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False, index=True),
    Column("node", String, nullable=False),
    Column("at", Double, nullable=False),
    Column("sent_at", Double, nullable=False, index=True),  # 0: not sent yet
    Column("body", Text, nullable=False),
)


# ------------------------------------------------------------------------------
# The table of repair cases; see `schema.py` for the rules. Notices are `campaign_schema`'s.


cases = Table(
    "cases",
    metadata,
    Column("id", String, primary_key=True),
    Column("node", String, ForeignKey("nodes.id"), nullable=False, index=True),
    Column("generation", Integer, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("closed_at", Double, nullable=False, index=True),  # 0: it is open
    Column("body", Text, nullable=False),
)
# one open case per node, regardless of its opener; of PostgreSQL: its migration
Index("one_open_case", cases.c.node, unique=True, sqlite_where=text("closed_at = 0"))


# ------------------------------------------------------------------------------
# The table of logins' ages and events; the logins themselves are in `credentials`, sealed.


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


# ------------------------------------------------------------------------------
# The table of daemons that share a database; see `seat.py` for what keeps a row true.


executors = Table(
    "executors",
    metadata,
    Column("number", Integer, primary_key=True),  # of its advisory lock
    Column("id", String, nullable=False, unique=True),
    Column("host", String, nullable=False),
    Column("version", String, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("died_at", Double, nullable=False),  # 0: not observed dead
    # JSON: its parts, as digests; "{}": of a version without them
    Column("digests", Text, nullable=False, server_default="{}"),
    # until when daemons that work by something else are allowed beside it; 0: not at all
    Column("change_until", Double, nullable=False, server_default="0"),
    # JSON: which of its devices answer, and how far the database is; "": it stated nothing
    Column("standing", Text, nullable=False, server_default=""),
)


# ------------------------------------------------------------------------------
# The table of the capabilities that people granted over adopted nodes.


grants = Table(
    "grants",
    metadata,
    Column("key", String, primary_key=True),  # "scope:name:capability"
    Column("body", Text, nullable=False),
)


# ------------------------------------------------------------------------------
# The tables of the journal's archived, removed and exported rows; see `schema.py`.


journal_base = Table(
    "journal_base",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1: there is one row, or none
    Column("through", Integer, nullable=False),  # the last row that was archived and pruned
    Column("head", String, nullable=False),  # its digest: the chain goes on from here
    Column("envelope", Text, nullable=False),  # all of it, signed
    # rows up to here may be deleted; not 0 within a prune's transaction only
    Column("pruning", Integer, nullable=False),
)
# rows up to `through` that are still needed, with the digest of the row before each
journal_links = Table(
    "journal_links",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("previous", String, nullable=False),
)
# receivers of the exported journal, and how far each has taken it
audit_exports = Table(
    "audit_exports",
    metadata,
    Column("receiver", String, primary_key=True),
    Column("position", Integer, nullable=False),  # the last row that it has taken
    Column("rejected", Integer, nullable=False),  # rows that it has refused for good
    Column("taken_at", Double, nullable=False),
    Column("failing_since", Double, nullable=False),  # 0: the last try went well
    Column("error", Text, nullable=False),
)


# ------------------------------------------------------------------------------
# Tables by which a database that lost writes is noticed; `high_water.py` keeps them true.


site_state = Table(
    "site_state",
    metadata,
    Column("id", Integer, primary_key=True),  # 1: there is one row
    Column("site", String, nullable=False),  # the database's identity, made with it
    Column("server", String, nullable=False),  # PostgreSQL's identity; "" for a file
    Column("timeline", Integer, nullable=False),
    Column("look_only", Text, nullable=False),  # why nothing is written; "": it is
    Column("surveyed_at", Double, nullable=False),  # when rows and world were compared last; 0
    # restores that were settled; leaves' port descriptions name it
    Column("life", Integer, nullable=False, server_default="0"),
)
marks = Table(
    "marks",
    metadata,
    Column("place", String, primary_key=True),  # of a data directory
    Column("count", Integer, nullable=False),  # transactions of its daemons
    # PostgreSQL's, on which its daemon last found all of its writes
    Column("timeline", Integer, nullable=False, server_default="0"),
    Column("seen_at", Double, nullable=False, server_default="0"),  # its last transaction
)
differences = Table(
    "differences",
    metadata,
    Column("subject", String, primary_key=True),
    Column("settled", String, nullable=False),  # a `Word`; "" while it waits for one
    Column("body", Text, nullable=False),
)


# ------------------------------------------------------------------------------
# The tables of webhooks; see `schema.py` for the rules. Events themselves are the journal's.


webhooks = Table(
    "webhooks",
    metadata,
    Column("name", String, primary_key=True),
    Column("position", Integer, nullable=False),  # number of the last row that was looked at
    Column("delivered", Integer, nullable=False),
    Column("delivered_at", Double, nullable=False),
    Column("body", Text, nullable=False),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("webhook", String, primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("node", String, nullable=False),
    Column("state", String, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_at", Double, nullable=False),
    Column("error", Text, nullable=False),
    Index("ix_webhook_deliveries_order", "webhook", "state", "node", "seq"),
)

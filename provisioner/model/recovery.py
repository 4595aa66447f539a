"""A database that lost writes: how that is noticed, and what differs between rows and world."""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record


class HighWater(Record):
    """What a data directory remembers of the database, outside of it.

    `count` is of this directory's own row in the database, which grows by one with each
    transaction that its daemon commits. `server` and `timeline` are PostgreSQL's.
    """

    site: str  # the database's identity, made with it
    place: str  # the directory's name in the database
    count: int
    journal_rows: int
    journal_head: str
    server: str = ""  # system identifier and number of the database; "" for a file
    timeline: int = 0
    synchronous: bool = False  # whether the last commit waited for a standby


class DatabaseLook(Record):
    """What the database says at a start, beside what a `HighWater` remembers."""

    site: str = ""  # "" if no daemon of this version has opened it yet
    recorded_server: str = ""  # as the daemons wrote it into the database
    recorded_timeline: int = 0
    server: str = ""  # as the server says of itself now
    timeline: int = 0
    count: int | None = None  # of this directory's row; None if there is none
    other_places: int = 0  # rows of other directories
    unconfirmed: tuple[str, ...] = ()  # those that did not find their writes on this timeline yet
    head: str = ""  # the digest of the journal's row that the `HighWater` names; "" if missing
    journal_rows: int = 0
    look_only: str = ""  # why it is looked at only, since an earlier start


class DifferenceKind(StrEnum):
    """How a node's row and the ports of its leaves differ."""

    SERVES = "serves"  # in a customer's network; the row has it outside of any
    OTHER_TENANT = "other_tenant"  # in another customer's network than the row says
    LEFT = "left"  # the row has it at a customer; it is not there any more
    DRAINING = "draining"  # the row drains it; it serves, since then or again
    MIXED = "mixed"  # its ports are in several networks
    UNREAD = "unread"  # a leaf gives no answer
    OUTSIDE = "outside"  # in nobody's network; what happened in between is not known
    STRANGER = "stranger"  # a port in a customer's network that belongs to no node


class Word(StrEnum):
    """What settles a difference."""

    ADOPT = "adopt"  # the world is right
    KEEP = "keep"  # the row is right
    RULE = "rule"  # no person was needed: it is erased before anybody gets it


class Difference(Record):
    """One difference between the rows and the world. `subject`: a node, or "leaf/interface"."""

    subject: str
    kind: DifferenceKind
    row: str  # what the row says
    world: str  # what was read
    vrf: str = ""  # the one network that all ports are in; "" if there is not one
    tenant: str = ""  # whose network that is; "" if no row says
    generation: int = 0  # of the node's row when it was compared
    seen_at: float = 0.0
    settled: Word | None = None
    settled_by: str = ""
    settled_at: float = 0.0

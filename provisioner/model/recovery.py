"""Recovery of a database that lost writes: the signs of it, and the differences to the switches."""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record
from provisioner.model.times.instant import InstantOrNone


class HighWater(Record):
    """The position of the database, as a data directory remembers it outside of the database.

    `count` is of this directory's own row in the database, which grows by one with each transaction
    that its daemon commits. `server` and `timeline` are PostgreSQL's.
    """

    site: str  # the database's identity, made with it
    place: str  # the directory's name in the database
    count: int
    journal_rows: int
    journal_head: str
    server: str = ""  # system identifier and number of the database; "" for a file
    timeline: int = 0
    synchronous: bool = False  # whether the last commit waited for a standby


class DatabasePosition(Record):
    """The position that the database itself reports at a start, to compare with a `HighWater`."""

    site: str = ""  # "" if no daemon of this version has opened it yet
    recorded_server: str = ""  # as the daemons recorded it in the database
    recorded_timeline: int = 0
    server: str = ""  # as the server reports it now
    timeline: int = 0
    count: int | None = None  # of this directory's row; None if there is none
    other_places: int = 0  # rows of other directories
    unconfirmed: tuple[str, ...] = ()  # those that have not found their writes on this timeline yet
    head: str = ""  # digest of the journal row that the `HighWater` names; "" if missing
    journal_rows: int = 0
    look_only: str = ""  # why it has been read-only since an earlier start


class DifferenceKind(StrEnum):
    """The kinds of difference between a node's row and the ports of its leaves."""

    SERVES = "serves"  # in a customer's network; the row has it in none
    OTHER_TENANT = "other_tenant"  # in another customer's network than its row has
    LEFT = "left"  # the row has it at a customer; it is no longer there
    DRAINING = "draining"  # the row drains it; it serves, since then or again
    MIXED = "mixed"  # its ports are in several networks
    UNREAD = "unread"  # a leaf does not answer
    OUTSIDE = "outside"  # in no tenant's network; its recent history is not known
    STRANGER = "stranger"  # a port in a customer's network that belongs to no node in service


class Settlement(StrEnum):
    """The decision that settles a difference."""

    ADOPT = "adopt"  # the switches are right
    KEEP = "keep"  # the row is right
    RULE = "rule"  # no decision was needed: it is erased before it gets a tenant


class Difference(Record):
    """One difference between the rows and the switches.

    `subject`: a node; a port that belongs to no node ("leaf/interface"); or a leaf that was not
    read.
    """

    subject: str
    kind: DifferenceKind
    row: str  # the row's statement
    world: str  # the reading
    leaf: str = ""  # the leaf of the port or reading; "" if it concerns a node
    vrf: str = ""  # the network of all ports; "" if there are several
    tenant: str = ""  # tenant of that network; "" if no row has it
    generation: int = 0  # of the node's row when it was compared
    seen_at: InstantOrNone = 0.0
    settled: Settlement | None = None
    settled_by: str = ""
    settled_at: InstantOrNone = 0.0

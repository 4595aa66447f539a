"""Holds a journal of the code against the model: each entry has to be a step of the model.

A journal says what rows, leaves, certificates, people and faults did, one entry each. The checker
keeps every state of the model that agrees with the journal so far. Between two entries the model
may take any steps that a journal does not show; each of them leaves rows and ports as they are. An
entry without a state that it leads to is named: the code did more there than the model allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from handover_changes import set_at
from handover_duties import DUTIES, Duties, is_by
from handover_faults import ENVIRONMENT, Label
from handover_state import (
    CERTIFIED,
    DRAINING,
    IDLE,
    LEAVING,
    RELEASED,
    Node,
    Size,
    State,
    make_first_state,
)
from handover_traced import TracedHandover

# Steps that a journal always has an entry for
SHOWN = ENVIRONMENT - {"begin release"}
# Entries, and the model's steps that each may be; a row may be written by any of the others
STEPS_OF = {
    "moved": {"apply"},
    "saved": {"finish", "send", "deny"},
    "revoked": {"revoke"},
    "hand": {"hand"},
    "restarted": {"reboot"},
    "crashed": {"crash"},
    "expired": {"expire"},
}
STUTTERING = {"row", "moved", "saved"}  # entries that may leave everything as it is
BOUND = (LEAVING, RELEASED, DRAINING)  # phases in which a row has a tenant


class Row(NamedTuple):
    """A node's row, as the model has it."""

    phase: str
    tenant: int
    owed: int


class Site(NamedTuple):
    """Rows, and the VRF of each node's port at each leaf: in force, and after its next start."""

    rows: tuple[Row, ...]
    operational: tuple[tuple[int, ...], ...]
    startup: tuple[tuple[int, ...], ...]


class Entry(NamedTuple):
    """One entry of a journal; `number` is that of its node or leaf."""

    at: float
    kind: str
    number: int = 0
    detail: tuple[Any, ...] = ()
    by: int | None = None  # the daemon that wrote it, or `NOBODY`: people; None: not recorded

    def __str__(self) -> str:
        """Return the entry as people read it."""
        by = "" if self.by is None else f" by {self.by}"
        return f"{self.kind} {self.number} {self.detail or ''}".rstrip() + f"{by} at {self.at:.1f}"


class Journal(NamedTuple):
    """All entries after a moment at which every node was certified, fenced and at rest.

    With several daemons it also says which of them drives a node, leads, and is there.
    """

    first: Site
    entries: tuple[Entry, ...]
    daemons: int = 1


def change_site(site: Site, entry: Entry) -> Site:
    """Return rows and ports after an entry."""
    match entry:
        case Entry(_, "row", number, row):
            return site._replace(rows=set_at(site.rows, number, Row(*row)))
        case Entry(_, "saved", leaf, vrfs):
            return site._replace(startup=_set_leaf(site.startup, leaf, vrfs))
        case Entry(_, "moved" | "restarted", leaf, vrfs):
            return site._replace(operational=_set_leaf(site.operational, leaf, vrfs))
        case Entry(_, "hand", number, (leaf, vrf, saved)):
            moved = _set_port(site.operational, number, leaf, vrf)
            startup = _set_port(site.startup, number, leaf, vrf) if saved else site.startup
            return site._replace(operational=moved, startup=startup)
    return site


Ports = tuple[tuple[int, ...], ...]


def _set_port(ports: Ports, number: int, leaf: int, vrf: int) -> Ports:
    return set_at(ports, number, set_at(ports[number], leaf, vrf))


def _set_leaf(ports: Ports, leaf: int, vrfs: Iterable[int]) -> Ports:
    return tuple(set_at(mine, leaf, vrf) for mine, vrf in zip(ports, vrfs, strict=True))


class TraceChecker:
    """Follows one journal; `states` are those of the model that agree with it so far."""

    def __init__(self, first: Site, size: Size) -> None:
        assert all(row == Row(CERTIFIED, 0, 0) for row in first.rows), first
        assert not any(any(ports) for ports in (*first.operational, *first.startup)), first
        state = make_first_state(size._replace(faults=0))
        certified = (n._replace(phase=CERTIFIED, certified=True) for n in state.nodes)
        self.states = {state._replace(nodes=tuple(certified))}
        self.site = first
        self.taken: set[str] = set()  # names of the model's steps that entries were
        self.duties = Duties(size)
        self._unknown = size.unknown
        self._handover = TracedHandover(size, fails_always=True)
        self._without_failures = TracedHandover(size)

    def follow(self, entry: Entry) -> bool:
        """Take one entry; return whether the model has a step for it."""
        reached = self._list_reached()
        if entry.kind == "rests":
            self.states = {state for state in reached if self._rests(state)}
            return bool(self.states)
        allowed = self.duties.change(entry)
        if entry.kind in DUTIES:
            self.states = reached if allowed else set()
            return bool(self.states)
        self.site = change_site(self.site, entry)
        after = set()
        for state in reached:
            if self._stutters(state, entry):
                after.add(state)
            for label, then in self._handover.list_steps(state._replace(faults=1)):
                then = then._replace(faults=0)
                allowed = _is_step(label, entry) and self.duties.allow(label, state)
                if allowed and self._fits(then):
                    self.taken.add(label[0])
                    after.add(then)
        self.states = after
        return bool(after)

    def _list_reached(self) -> set[State]:
        """Return all states after steps that a journal does not show."""
        reached = set(self.states)
        left = list(reached)
        while left:
            state = left.pop()
            for label, then in self._handover.list_steps(state):
                hidden = label[0] not in SHOWN and self.duties.allow(label, state)
                if hidden and then not in reached and self._fits(then):
                    reached.add(then)
                    left.append(then)
        return reached

    def _rests(self, state: State) -> bool:
        steps = self._without_failures.list_steps(state)
        return all(label[0] in ENVIRONMENT for label, _ in steps)

    def _stutters(self, state: State, entry: Entry) -> bool:
        match entry.kind:
            case "revoked":
                return not state.nodes[entry.number].certified
            case "crashed" | "expired":
                return all(node.turns[entry.number].kind == IDLE for node in state.nodes)
        return entry.kind in STUTTERING and self._fits(state)

    def _fits(self, state: State) -> bool:
        """Return whether a state has the rows and the ports of the journal."""
        site = self.site
        pairs = zip(state.nodes, site.rows, site.operational, site.startup, strict=True)
        return all(
            node.operational == operational and node.startup == startup and self._is_row(node, row)
            for node, row, operational, startup in pairs
        )

    def _is_row(self, node: Node, row: Row) -> bool:
        """Return whether a row is the node's; it may owe the erasure of more than the model."""
        if node.phase != row.phase or (row.phase in BOUND and node.tenant != row.tenant):
            return False
        return node.owed == row.owed or (node.owed != 0 and row.owed == self._unknown)


def _is_step(label: Label, entry: Entry) -> bool:
    name = label[0]
    if entry.kind == "row":
        return (name == "reclaim" or name not in SHOWN | {"apply"}) and is_by(label, entry)
    if entry.kind not in ("moved", "saved") and label[1] != entry.number:
        return False
    return name in STEPS_OF[entry.kind]


class Verdict(NamedTuple):
    """`refused`: the first entry that is no step of the model, or ""."""

    refused: str
    taken: frozenset[str]
    states_max: int


def check_journal(journal: Journal, tenants: int) -> Verdict:
    """Return whether each entry of a journal is a step of the model."""
    nodes = len(journal.first.rows)
    size = Size(nodes, len(journal.first.startup[0]), tenants, journal.daemons, 1)
    checker = TraceChecker(journal.first, size)
    states_max = 1
    before = "the beginning"
    for position, entry in enumerate(journal.entries):
        if not checker.follow(entry):
            sentence = f"entry {position}, {entry}, is no step of the model after {before}"
            return Verdict(sentence, frozenset(checker.taken), states_max)
        states_max = max(states_max, len(checker.states))
        before = str(entry)
    return Verdict("", frozenset(checker.taken), states_max)

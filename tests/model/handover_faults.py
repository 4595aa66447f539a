"""People, certificates, faults and restored backups in the handover model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from handover_changes import (
    drain_node,
    end_turn,
    enter_vrf,
    list_lost,
    set_at,
    with_daemon,
    with_node,
    write_row,
)
from handover_state import (
    CERTIFIED,
    CONVERGING,
    DRAINING,
    IDLE,
    MAINTENANCE,
    NOBODY,
    RELEASED,
    UP,
    ZOMBIE,
    Size,
    State,
    add_hand,
)

Label = tuple[Any, ...]
Step = tuple[Label, State]
PLANTED = {
    "fence": "a drained node is erased and certified without a fence",
    "row_first": "the first port of a release is moved before the row says so",
    "objections": "a leaf is changed without reading the certificate again",
    "standing": "the handover is recorded without checking the certificate again",
    "reread": "a request to a leaf counts as its own proof; no port is read again",
    "coming": "the proof reads no revision that is on its way",
    "startup": "the proof does not read the configuration of the next start",
    "save": "a leaf's configuration is not saved",
    "await": "a revision is sent while a dead writer's is still on its way",
    "turn": "a switch is written without its turn",
    "lease": "a daemon whose lease has ended still sends requests",
    "takeover": "a node is taken over from a daemon that lives",
    "tokens": "rows are written without epoch and generation",
    "erasure": "a node is certified again without its erasure",
    "refusal": "a release that meets a port elsewhere is given up, and nothing is recorded",
    "note": "a port is fenced before its stay elsewhere is recorded",
    "mark": "a restored backup is not noticed",
    "survey": "restored rows that agree with fenced ports are believed",
    "watch": "nobody reads ports of nodes that are at rest",
    "take_back": "a released node keeps its network when its certificate is revoked",
}
ENVIRONMENT = frozenset(
    ("crash", "expire", "hand", "reboot", "restore", "revoke", "reclaim", "begin release")
)


class Faults:
    """What happens to the site without its daemons. `without`: protections that are left out."""

    def __init__(self, size: Size, without: frozenset[str] = frozenset()) -> None:
        assert without <= PLANTED.keys(), sorted(without - PLANTED.keys())
        self.size = size
        self.without = without
        self._tenants = range(1, size.tenants + 1)

    def _break(self, state: State) -> Iterator[Step]:
        for number, node in enumerate(state.nodes):
            if node.certified and not any(state.unsettled):
                yield ("revoke", number), with_node(state, number, node._replace(certified=False))
            if node.phase == RELEASED and not any(state.unsettled):
                yield ("reclaim", number), with_node(state, number, drain_node(node))
        if not state.faults:
            return
        less = state._replace(faults=state.faults - 1)
        for daemon, status in enumerate(state.daemons):
            if any(node.turns[daemon].kind != IDLE for node in state.nodes):
                yield ("crash", daemon), self._end(less, daemon)
                if status == UP:
                    yield ("expire", daemon), with_daemon(less, daemon, ZOMBIE)
        for leaf in range(self.size.leaves):
            yield ("reboot", leaf), self._reboot(less, leaf)
            for number, vrf in product(range(self.size.nodes), (0, *self._tenants)):
                if state.nodes[number].operational[leaf] != vrf:
                    for saved in (False, True):
                        after = self._move_by_hand(less, number, leaf, vrf, saved=saved)
                        yield ("hand", number, leaf, vrf, saved), after
        yield from self._restore(less)

    def _move_by_hand(
        self, state: State, number: int, leaf: int, vrf: int, *, saved: bool
    ) -> State:
        node = state.nodes[number]
        moved = node._replace(
            operational=set_at(node.operational, leaf, vrf),
            hand=set_at(node.hand, leaf, node.hand[leaf] | add_hand(vrf)),
        )
        if saved:
            moved = moved._replace(startup=set_at(node.startup, leaf, vrf))
        return with_node(state, number, moved)

    def _reboot(self, state: State, leaf: int) -> State:
        """The leaf starts with its startup configuration; what was on its way is lost."""
        nodes = tuple(enter_vrf(n, leaf, n.startup[leaf]) for n in state.nodes)
        return state._replace(nodes=nodes, coming=set_at(state.coming, leaf, ()))

    def _restore(self, state: State) -> Iterator[Step]:
        """All daemons end; each node's row is any that it may have had at some time before."""
        for daemon in range(self.size.daemons):
            state = self._end(state, daemon)
        rows = [(CONVERGING, 0, 0, False), (CERTIFIED, 0, 0, True)]
        rows += [(RELEASED, tenant, tenant, True) for tenant in self._tenants]
        noticed = "mark" not in self.without
        for chosen in product(rows, repeat=self.size.nodes):
            nodes = []
            for number, (phase, tenant, owed, certified) in enumerate(chosen):
                node = state.nodes[number]._replace(
                    phase=phase, tenant=tenant, owed=owed, certified=certified
                )
                nodes.append(node._replace(hand=list_lost(state, number, node)))
            after = state._replace(nodes=tuple(nodes), unsettled=(noticed,) * self.size.nodes)
            yield ("restore", chosen), after

    def _settle(self, state: State, number: int) -> Iterator[Step]:
        """After a restore each row is compared with its ports: a rule settles it, or a person."""
        node = state.nodes[number]
        read = self._read(state, number)
        done = state._replace(unsettled=set_at(state.unsettled, number, False))
        owing = {"owed": self.size.unknown}
        if read == {MAINTENANCE}:
            if "survey" in self.without and node.phase in (CONVERGING, CERTIFIED):
                yield ("settle", number), done
                return
            fenced = write_row(node, NOBODY, phase=CONVERGING, tenant=0, **owing)
            after = with_node(done, number, fenced._replace(certified=False))
            yield ("settle", number), after
            return
        if read == {node.tenant} and node.phase == RELEASED:
            yield ("settle", number), done
            return
        kept = write_row(node, NOBODY, phase=DRAINING, **owing)
        yield ("keep", number), with_node(done, number, kept)
        if len(read) == 1:
            tenant = min(read)
            adopted = write_row(node, NOBODY, phase=RELEASED, tenant=tenant, **owing)
            yield ("adopt", number), with_node(done, number, adopted._replace(certified=True))

    def _end(self, state: State, daemon: int) -> State:
        """A daemon's process is gone with all that it had in memory; it is started again.

        One that is down does nothing; so may one that is up, and nothing waits for it.
        """
        nodes = tuple(end_turn(node, daemon) for node in state.nodes)
        return with_daemon(state._replace(nodes=nodes), daemon, UP)

    def _read(self, state: State, number: int) -> frozenset[int]:
        """Return what a look at all leaves of a node says of its ports."""
        node = state.nodes[number]
        read = set(node.operational)
        if "startup" not in self.without:
            read.update(node.startup)
        if "coming" not in self.without:
            read.update(revision[number] for leaf in state.coming for revision in leaf)
        return frozenset(read)

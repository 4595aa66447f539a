"""The handover model with steps of the code that the model's atoms leave out, for real journals.

Each of them is a finer or a later step of the same protocol: several nodes' ports in one revision,
a lost revision that is sent again, a release that its gate refuses, the filter that is put before
ports of a customer, a fence that a silent leaf interrupts, a release that begins on a reading a
moment old, the watch of leaves of the daemon that leads, which fences a node's ports beside its
driver, and the watch of released nodes, which takes a node back before that one has recorded the
network that its port was in. The search judges them as it does the model's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from handover_actions import Handover
from handover_changes import (
    drain_node,
    end_turn,
    set_at,
    with_node,
    with_turn,
    write_row,
)
from handover_faults import Step
from handover_state import (
    CERTIFIED,
    CONVERGING,
    FENCE,
    IDLE,
    MAINTENANCE,
    PROVED,
    RELEASE,
    RELEASED,
    SENT,
    TODO,
    UP,
    Size,
    State,
    Turn,
)


class TracedHandover(Handover):
    """The next steps of every state, as fine as journals have them; no restored backups.

    A fence that ends without an answer, and a node that a lasting failure sends into quarantine,
    are faults; `fails_always`: their number is not limited.
    """

    def __init__(self, size: Size, *, fails_always: bool = False) -> None:
        super().__init__(size)
        self._fails_always = fails_always

    def _restore(self, _state: State) -> Iterator[Step]:
        return iter(())

    def _steps(self, state: State) -> Iterator[Step]:
        yield from super()._steps(state)
        for number, node in enumerate(state.nodes):
            noted = node.owed == self.size.unknown and self._read(state, number) != {MAINTENANCE}
            for daemon, status in enumerate(state.daemons):
                idle = status == UP and node.turns[daemon].kind == IDLE
                if noted and idle and not self._is_free(state, node):
                    fence = Turn(FENCE, (TODO,) * self.size.leaves)
                    beside = node._replace(turns=set_at(node.turns, daemon, fence))
                    yield ("fence beside", daemon, number), with_node(state, number, beside)

    def _watch(self, state: State, number: int) -> Iterator[Step]:
        yield from super()._watch(state, number)
        node = state.nodes[number]
        if node.phase == RELEASED and self._violations(state, number):
            # the watch of released nodes was faster than that of leaves, which records the stay
            yield ("take back", number), with_node(state, number, drain_node(node))

    def _begin(self, state: State, number: int, daemon: int) -> Iterator[Step]:
        yield from super()._begin(state, number, daemon)
        node = state.nodes[number]
        if self._read(state, number) != {MAINTENANCE}:
            return
        if node.phase == CERTIFIED and (state.faults or self._fails_always):
            aside = write_row(node, daemon, phase=CONVERGING)._replace(certified=False)
            after = with_node(state, number, aside)
            yield ("quarantine", daemon, number), _spend_fault(after)
        if node.phase == CERTIFIED and not node.certified:
            # the certificate was read before it was revoked; each leaf asks for it again
            before = with_node(state, number, node._replace(certified=True))
            for label, after in super()._begin(before, number, daemon):
                late = after.nodes[number]._replace(certified=False)
                yield label, with_node(after, number, late)

    def _go_on(self, state: State, number: int, daemon: int) -> Iterator[Step]:
        yield from super()._go_on(state, number, daemon)
        node = state.nodes[number]
        kind = node.turns[daemon].kind
        if kind == FENCE and (state.faults or self._fails_always):
            ended = with_node(state, number, end_turn(node, daemon))
            yield ("leave off", daemon, number), _spend_fault(ended)
        if kind in (RELEASE, PROVED) and state.daemons[daemon] == UP:
            noted = self._note(state, number, daemon)
            yield ("give up", daemon, number), self._turn_back(noted, number, daemon)

    def _move(self, state: State, number: int, daemon: int) -> Iterator[Step]:
        yield from super()._move(state, number, daemon)
        node = state.nodes[number]
        turn = node.turns[daemon]
        one_by_one = turn.kind == RELEASE and SENT in turn.steps
        for leaf, step in enumerate(turn.steps):
            arrived = not state.coming[leaf]
            lost = turn.kind == RELEASE and node.operational[leaf] != node.tenant
            if step == SENT and arrived and lost:
                again = turn._replace(steps=set_at(turn.steps, leaf, TODO))
                yield ("send again", daemon, number, leaf), with_turn(state, number, daemon, again)
            if step != TODO or one_by_one:
                continue
            if not arrived and self._is_sending(state, daemon, leaf):
                yield from self._join(state, number, daemon, leaf)
            elif arrived and turn.kind == FENCE and not self._in_turn(state, leaf):
                saved = self._saved(state, number, daemon, leaf)
                denied = with_turn(saved, number, daemon, turn)
                if denied != state:
                    yield ("deny", daemon, number, leaf), denied

    def _is_sending(self, state: State, daemon: int, leaf: int) -> bool:
        """Return whether this daemon, while its lease lasts, has this switch's turn."""
        mine = (node.turns[daemon] for node in state.nodes)
        return state.daemons[daemon] == UP and any(t.steps and t.steps[leaf] == SENT for t in mine)

    def _join(self, state: State, number: int, daemon: int, leaf: int) -> Iterator[Step]:
        """Yield the port in the revision that a living daemon sends to this leaf now."""
        node = self._send(state, number, daemon, leaf).nodes[number]
        turn = node.turns[daemon]
        if turn.steps[leaf] != SENT:
            return
        target = node.tenant if turn.kind == RELEASE else MAINTENANCE
        *others, last = state.coming[leaf]
        joined = (*others, set_at(last, number, target))
        after = state._replace(coming=set_at(state.coming, leaf, joined))
        yield ("join", daemon, number, leaf), with_turn(after, number, daemon, turn)


def _spend_fault(state: State) -> State:
    return state._replace(faults=max(0, state.faults - 1))

"""The handover protocol as guarded actions: what daemons, leaves, people and faults can do next.

Each action is one atom of the code, or several of which all but one commute with every other
actor's (taking a switch's turn before, giving it back after). The names in `PLANTED` are the
protections of the code; a model without one of them has to violate the invariant.
"""

from __future__ import annotations

from collections.abc import Iterator

from handover_changes import (
    drain_node,
    end_turn,
    enter_vrf,
    may_record,
    meet_hands,
    set_at,
    take_node,
    with_daemon,
    with_node,
    with_turn,
    write_row,
)
from handover_faults import Faults, Step
from handover_state import (
    CERTIFIED,
    CONVERGING,
    DONE,
    DRAINING,
    ERASED,
    FENCE,
    FENCED,
    IDLE,
    LEAVING,
    MAINTENANCE,
    NO_TURN,
    NOBODY,
    PROVED,
    RELEASE,
    RELEASED,
    SENT,
    TODO,
    UP,
    ZOMBIE,
    Node,
    State,
    Turn,
    keep_hands,
    list_allowed,
    read_port,
)


class Handover(Faults):
    """The next steps of every state."""

    def list_steps(self, state: State) -> Iterator[Step]:
        """Yield every step that is possible, with the state that it leads to."""
        for label, after in self._steps(state):
            yield label, self._end_zombies(self._forget_hands(after))

    def _steps(self, state: State) -> Iterator[Step]:
        yield from self._break(state)
        for leaf, revisions in enumerate(state.coming):
            if revisions:
                yield ("apply", leaf), self._apply(state, leaf)
        for daemon, status in enumerate(state.daemons):
            if status == ZOMBIE:
                yield ("end", daemon), self._end(state, daemon)
        looks_only = any(state.unsettled)
        for number, node in enumerate(state.nodes):
            for daemon, status in enumerate(state.daemons):
                if looks_only:
                    continue
                if node.turns[daemon].kind != IDLE:
                    yield from self._go_on(state, number, daemon)
                elif status == UP and self._is_free(state, node):
                    yield from self._begin(state, number, daemon)
            if UP in state.daemons:
                if state.unsettled[number]:
                    yield from self._settle(state, number)
                if not looks_only:
                    yield from self._watch(state, number)

    # --- leaves

    def _apply(self, state: State, leaf: int) -> State:
        """The oldest revision takes force: it has the VRF of every port of the leaf."""
        first, *others = state.coming[leaf]
        pairs = zip(state.nodes, first, strict=True)
        nodes = tuple(enter_vrf(node, leaf, vrf) for node, vrf in pairs)
        return state._replace(nodes=nodes, coming=set_at(state.coming, leaf, tuple(others)))

    # --- daemons

    def _is_free(self, state: State, node: Node) -> bool:
        """Whether no daemon that lives drives the node: an operation is taken once."""
        if "takeover" in self.without:
            return True
        pairs = zip(state.daemons, node.turns, strict=True)
        return not any(status == UP and turn.kind != IDLE for status, turn in pairs)

    def _begin(self, state: State, number: int, daemon: int) -> Iterator[Step]:
        """A turn: the operation is taken, row and ports are read, one thing is decided."""
        node = state.nodes[number]
        fenced = self._read(state, number) == {MAINTENANCE}
        leaves = (TODO,) * self.size.leaves
        if node.phase in (LEAVING, DRAINING) or (
            node.phase in (CONVERGING, CERTIFIED) and not fenced
        ):
            if node.phase == DRAINING and "fence" in self.without:
                drained = write_row(
                    take_node(node, daemon, NO_TURN), daemon, phase=CONVERGING, tenant=0
                )
                yield ("skip fence", daemon, number), with_node(state, number, drained)
                return
            if self._violations(state, number) and "note" not in self.without:
                node = write_row(node, daemon, owed=self.size.unknown)
            node = meet_hands(node)
            begun = take_node(node, daemon, Turn(FENCE, leaves))
            yield ("begin fence", daemon, number), with_node(state, number, begun)
            return
        if node.phase == CONVERGING and node.owed and "erasure" not in self.without:
            erased = take_node(node, daemon, Turn(ERASED))._replace(soil=0)
            yield ("erase", daemon, number), with_node(state, number, erased)
        elif node.phase == CONVERGING:
            certified = write_row(node, daemon, phase=CERTIFIED, owed=0)._replace(certified=True)
            yield ("certify", daemon, number), with_node(state, number, certified)
        elif node.phase == CERTIFIED and not node.certified:
            again = write_row(node, daemon, phase=CONVERGING)
            yield ("converge", daemon, number), with_node(state, number, again)
        elif node.phase == CERTIFIED:
            for tenant in self._tenants:
                if node.owed not in (0, tenant):
                    continue
                begun = take_node(node, daemon, Turn(RELEASE, leaves))
                if "row_first" not in self.without:
                    begun = write_row(begun, daemon, phase=LEAVING, tenant=tenant, owed=tenant)
                else:
                    begun = begun._replace(tenant=tenant)
                label = ("begin release", daemon, number, tenant)
                yield label, with_node(state, number, begun)

    def _go_on(self, state: State, number: int, daemon: int) -> Iterator[Step]:
        """The next atoms of a turn that has begun; those of a lost lease end before they send."""
        node = state.nodes[number]
        turn = node.turns[daemon]
        may_send = state.daemons[daemon] == UP or "lease" in self.without
        if turn.kind in (FENCE, RELEASE):
            if all(step == DONE for step in turn.steps):
                yield ("prove", daemon, number), self._prove(state, number, daemon)
            elif may_send:
                yield from self._move(state, number, daemon)
        else:
            yield ("record", daemon, number), self._record(state, number, daemon)

    def _move(self, state: State, number: int, daemon: int) -> Iterator[Step]:
        node = state.nodes[number]
        turn = node.turns[daemon]
        one_by_one = turn.kind == RELEASE and SENT in turn.steps
        for leaf, step in enumerate(turn.steps):
            if step == SENT and not state.coming[leaf]:
                yield ("finish", daemon, number, leaf), self._finish(state, number, daemon, leaf)
            if step != TODO or one_by_one or self._in_turn(state, leaf):
                continue
            sent_by_others = len(state.coming[leaf])
            if self._is_in_place(state, number, leaf, turn.kind):
                sent_by_others = 0
            if sent_by_others < (2 if {"await", "turn"} & self.without else 1):
                yield ("send", daemon, number, leaf), self._send(state, number, daemon, leaf)

    def _in_turn(self, state: State, leaf: int) -> bool:
        """Whether a daemon that lives holds this switch's turn: its lease goes with its session."""
        if "turn" in self.without:
            return False
        return any(
            state.daemons[daemon] == UP and turn.steps and turn.steps[leaf] == SENT
            for node in state.nodes
            for daemon, turn in enumerate(node.turns)
        )

    def _send(self, state: State, number: int, daemon: int, leaf: int) -> State:
        """In the switch's turn: objections are read, the port is read, a revision is sent."""
        node = state.nodes[number]
        turn = node.turns[daemon]
        target = node.tenant if turn.kind == RELEASE else MAINTENANCE
        objected = not turn.fresh or not node.certified
        if turn.kind == RELEASE and objected and "objections" not in self.without:
            return self._turn_back(state, number, daemon)
        if self._is_in_place(state, number, leaf, turn.kind):
            return self._saved(state, number, daemon, leaf)
        ports = tuple(n.operational[leaf] for n in state.nodes)
        revision = set_at(ports, number, target)
        coming = set_at(state.coming, leaf, (*state.coming[leaf], revision))
        sent = turn._replace(steps=set_at(turn.steps, leaf, SENT))
        return with_turn(state._replace(coming=coming), number, daemon, sent)

    def _is_in_place(self, state: State, number: int, leaf: int, kind: str) -> bool:
        """Whether a port is where its turn moves it; the next start of the switch is not asked."""
        node = state.nodes[number]
        target = node.tenant if kind == RELEASE else MAINTENANCE
        read = {node.operational[leaf]}
        if "coming" not in self.without:
            read |= {revision[number] for revision in state.coming[leaf]}
        return read == {target}

    def _finish(self, state: State, number: int, daemon: int, leaf: int) -> State:
        """The revision has ended: the port is read again, the configuration is saved."""
        node = state.nodes[number]
        turn = node.turns[daemon]
        target = node.tenant if turn.kind == RELEASE else MAINTENANCE
        if node.operational[leaf] != target and "reread" not in self.without:
            if turn.kind == RELEASE:
                return self._turn_back(self._note(state, number, daemon), number, daemon)
            again = turn._replace(steps=set_at(turn.steps, leaf, TODO))
            return with_turn(state, number, daemon, again)
        return self._saved(state, number, daemon, leaf)

    def _saved(self, state: State, number: int, daemon: int, leaf: int) -> State:
        """Save the whole configuration of a leaf, with every other node's ports in it."""
        if "save" not in self.without:
            nodes = tuple(
                n._replace(startup=set_at(n.startup, leaf, n.operational[leaf]))
                for n in state.nodes
            )
            state = state._replace(nodes=nodes)
        turn = state.nodes[number].turns[daemon]
        done = turn._replace(steps=set_at(turn.steps, leaf, DONE))
        return with_turn(state, number, daemon, done)

    def _turn_back(self, state: State, number: int, daemon: int) -> State:
        """A release is given up: every port goes back."""
        turn = state.nodes[number].turns[daemon]
        back = turn._replace(kind=FENCE, steps=(TODO,) * self.size.leaves)
        return with_turn(state, number, daemon, back)

    def _prove(self, state: State, number: int, daemon: int) -> State:
        """Every leaf is read as a whole; one tree elsewhere, and it is decided anew."""
        node = state.nodes[number]
        turn = node.turns[daemon]
        target = node.tenant if turn.kind == RELEASE else MAINTENANCE
        if "reread" in self.without or self._read(state, number) == {target}:
            proved = PROVED if turn.kind == RELEASE else FENCED
            return with_turn(state, number, daemon, Turn(proved, (), turn.fresh))
        if turn.kind == RELEASE:
            return self._turn_back(self._note(state, number, daemon), number, daemon)
        return with_node(state, number, end_turn(node, daemon))

    def _note(self, state: State, number: int, daemon: int) -> State:
        """A release that is given up records each network that it met its ports in."""
        node = meet_hands(state.nodes[number])
        if self._violations(state, number) and not {"note", "refusal"} & self.without:
            node = write_row(node, daemon, owed=self.size.unknown)
        return with_node(state, number, node)

    def _record(self, state: State, number: int, daemon: int) -> State:
        """The transaction of the turn's outcome: epoch, generation, and for a handover more."""
        node = state.nodes[number]
        turn = node.turns[daemon]
        checked = "tokens" not in self.without
        ended = end_turn(node, daemon)
        if checked and node.holder != daemon:
            return with_node(state, number, ended)  # replaced: another one drives it
        stands = node.certified or "standing" in self.without
        if turn.kind == PROVED and not (stands and (turn.fresh or not checked)):
            return self._turn_back(state, number, daemon)
        if checked and not turn.fresh:
            return with_node(state, number, ended)  # the row is another one: look again
        if turn.kind == PROVED:
            ended = write_row(ended, daemon, phase=RELEASED)
        elif turn.kind == ERASED:
            ended = write_row(ended, daemon, owed=0)
        elif node.phase == LEAVING and node.owed == node.tenant:
            ended = write_row(ended, daemon, phase=CERTIFIED, tenant=0)
        elif node.phase != CERTIFIED or node.owed == self.size.unknown:
            ended = write_row(ended, daemon, phase=CONVERGING, tenant=0)._replace(certified=False)
        else:
            ended = write_row(ended, daemon)
        return with_node(state, number, ended)

    # --- the watch, and a restore

    def _violations(self, state: State, number: int) -> bool:
        return not self._read(state, number) <= list_allowed(state.nodes[number])

    def _watch(self, state: State, number: int) -> Iterator[Step]:
        """A leaf is read between two equal readings of the row; what is found is written first."""
        node = state.nodes[number]
        if "watch" not in self.without:
            noted = node.owed == self.size.unknown and node.phase != RELEASED
            if self._violations(state, number) and not noted and "note" not in self.without:
                owing = meet_hands(write_row(node, NOBODY, owed=self.size.unknown))
                if node.phase == RELEASED:
                    owing = drain_node(owing)
                elif node.phase == CERTIFIED:
                    owing = owing._replace(phase=CONVERGING, certified=False)
                yield ("note", number), with_node(state, number, owing)
            elif node.phase == RELEASED and self._read(state, number) != {node.tenant}:
                yield ("take back", number), with_node(state, number, drain_node(node))
        if node.phase == RELEASED and not node.certified and "take_back" not in self.without:
            yield ("withdraw", number), with_node(state, number, drain_node(node))

    def _end_zombies(self, state: State) -> State:
        """Drop turns of a lost lease that can do nothing more, and daemons without another one."""
        if ZOMBIE not in state.daemons or {"lease", "tokens"} & self.without:
            return state
        for daemon, status in enumerate(state.daemons):
            if status == UP:
                continue
            nodes = tuple(
                node if may_record(node, daemon) else end_turn(node, daemon) for node in state.nodes
            )
            state = state._replace(nodes=nodes)
            if all(node.turns[daemon].kind == IDLE for node in nodes):
                state = with_daemon(state, daemon, UP)
        return state

    def _forget_hands(self, state: State) -> State:
        """Drop the ghost of each foreign hand whose VRF the port has left."""
        if not any(any(node.hand) for node in state.nodes):
            return state
        nodes = []
        for number, node in enumerate(state.nodes):
            hand = tuple(
                mask and keep_hands(mask, read_port(state, number, leaf))
                for leaf, mask in enumerate(node.hand)
            )
            nodes.append(node._replace(hand=hand))
        return state._replace(nodes=tuple(nodes))

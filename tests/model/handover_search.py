"""Exhaustive search of the handover model: breadth first, one state of each symmetric set.

Nodes, leaves, tenants and daemons may be exchanged for each other: of all states that differ by
such an exchange only one is kept. After the search, the steps that need neither a fault nor a
person's wish are walked backwards from the states in which nothing is left to do: a state that is
never reached goes round in circles, and would never come to its rest.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import permutations, product

from handover_actions import Handover
from handover_faults import ENVIRONMENT, Label
from handover_invariant import judge_end, judge_state, judge_step
from handover_state import NOBODY, Node, Size, State, Turn

Exchange = tuple[tuple[int, ...], ...]  # new numbers of nodes, leaves, tenants, daemons
BITS = 24  # of a part's number within a key
MASK = (1 << BITS) - 1


@dataclass
class Outcome:
    """What a search met."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    trace: list[Label] = field(default_factory=list)
    complete: bool = True  # False: `states_max` ended it


class Codes:
    """Small numbers for parts of states, and those of each part's exchanged forms."""

    def __init__(self, size: Size) -> None:
        exchanges = [
            tuple(permutations(range(n)))
            for n in (size.nodes, size.leaves, size.tenants, size.daemons)
        ]
        self.exchanges: list[Exchange] = list(product(*exchanges))
        self.inner = list(dict.fromkeys(e[1:] for e in self.exchanges))
        self.parts: list[object] = []
        self._number: dict[object, int] = {}
        self._node_forms: dict[Node, tuple[int, ...]] = {}
        self._leaf_forms: dict[object, tuple[int, ...]] = {}
        self._rest_forms: dict[object, tuple[int, ...]] = {}
        self._orders = [(e[0], e[1], self.inner.index(e[1:])) for e in self.exchanges]

    def encode(self, state: State) -> int:
        """Return the key of the symmetric set that the state is of."""
        nodes = [self._find_node_forms(node) for node in state.nodes]
        leaves = [self._find_leaf_forms(coming) for coming in state.coming]
        rest = self._find_rest_forms(state)
        least = -1
        for at, (order, leaf_order, inner) in enumerate(self._orders):
            key = rest[at]
            for n in order:
                key = key << BITS | nodes[n][inner]
            for n in leaf_order:
                key = key << BITS | leaves[n][at]
            if least < 0 or key < least:
                least = key
        return least

    def decode(self, key: int, size: Size) -> State:
        """Return the state of a key."""
        parts = []
        for _ in range(size.nodes + size.leaves):
            parts.append(self.parts[key & MASK])
            key >>= BITS
        parts.reverse()
        nodes, coming = tuple(parts[: size.nodes]), tuple(parts[size.nodes :])
        return State(nodes, coming, *self.parts[key])  # type: ignore[arg-type, misc]

    def _intern(self, part: object) -> int:
        number = self._number.get(part)
        if number is None:
            number = self._number[part] = len(self.parts)
            self.parts.append(part)
        return number

    def _find_node_forms(self, node: Node) -> tuple[int, ...]:
        forms = self._node_forms.get(node)
        if forms is None:
            forms = tuple(self._intern(exchange_node(node, *inner)) for inner in self.inner)
            self._node_forms[node] = forms
        return forms

    def _find_leaf_forms(self, coming: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        forms = self._leaf_forms.get(coming)
        if forms is None:
            forms = tuple(
                self._intern(
                    tuple(
                        tuple(_rename(revision[n], tenants) for n in order) for revision in coming
                    )
                )
                for order, _, tenants, _ in self.exchanges
            )
            self._leaf_forms[coming] = forms
        return forms

    def _find_rest_forms(self, state: State) -> tuple[int, ...]:
        rest = (state.daemons, state.unsettled, state.faults)
        forms = self._rest_forms.get(rest)
        if forms is None:
            forms = tuple(
                self._intern(
                    (
                        tuple(state.daemons[n] for n in daemons),
                        tuple(state.unsettled[n] for n in order),
                        state.faults,
                    )
                )
                for order, _, _, daemons in self.exchanges
            )
            self._rest_forms[rest] = forms
        return forms


def exchange_node(
    node: Node, leaves: tuple[int, ...], tenants: tuple[int, ...], daemons: tuple[int, ...]
) -> Node:
    """Return a node as it is with leaves, tenants and daemons in another order."""

    def vrfs(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(_rename(values[n], tenants) for n in leaves)

    def turn(old: Turn) -> Turn:
        return old._replace(steps=tuple(old.steps[n] for n in leaves)) if old.steps else old

    return Node(
        node.phase,
        _rename(node.tenant, tenants),
        _rename(node.owed, tenants),
        node.certified,
        NOBODY if node.holder == NOBODY else daemons.index(node.holder),
        tuple(turn(node.turns[n]) for n in daemons),
        _rename(node.soil, tenants),
        vrfs(node.operational),
        vrfs(node.startup),
        tuple(_rename_mask(node.hand[n], tenants) for n in leaves),
    )


def _rename(vrf: int, tenants: tuple[int, ...]) -> int:
    return tenants[vrf - 1] + 1 if 0 < vrf <= len(tenants) else vrf


def _rename_mask(mask: int, tenants: tuple[int, ...]) -> int:
    bits = (vrf for vrf in range(mask.bit_length()) if mask >> vrf & 1)
    return sum(1 << _rename(vrf, tenants) for vrf in bits)


class Search:
    """One search from the first state on."""

    def __init__(self, handover: Handover, first: State, *, states_max: int = 0) -> None:
        self._handover = handover
        self._codes = Codes(handover.size)
        self._states_max = states_max
        self._first = first
        self._number: dict[int, int] = {}
        self._keys: list[int] = []
        self._parents = array("q")
        self._from = array("q")  # steps that need neither a fault nor a wish, as pairs
        self._to = array("q")
        self._ends: list[int] = []
        self.outcome = Outcome()

    def run(self, say: Callable[[str], None] = lambda _: None) -> Outcome:
        """Search to the end, or to the first violation."""
        outcome = self.outcome
        self._add(self._codes.encode(self._first), -1)
        at = 0
        level_end = 1
        while at < len(self._keys) and not outcome.violations:
            if self._states_max and len(self._keys) >= self._states_max:
                outcome.complete = False
                break
            self._expand(at)
            at += 1
            if at == level_end:
                level_end = len(self._keys)
                outcome.depth += level_end > at
                say(f"depth {outcome.depth}: {level_end} states, {outcome.transitions} transitions")
        outcome.states = len(self._keys)
        if outcome.complete and not outcome.violations:
            self._find_circles()
        return outcome

    def _expand(self, at: int) -> None:
        outcome = self.outcome
        state = self._codes.decode(self._keys[at], self._handover.size)
        progress = False
        for label, after in self._handover.list_steps(state):
            outcome.transitions += 1
            outcome.actions[label[0]] += 1
            wrong = judge_step(label, state, after) or judge_state(after)
            key = self._codes.encode(after)
            number = self._number.get(key)
            if number is None:
                number = self._add(key, at)
            if wrong:
                outcome.violations.append(wrong)
                outcome.trace = [*self._trace(at), label]
                return
            if label[0] not in ENVIRONMENT:
                progress = True
                self._from.append(at)
                self._to.append(number)
        if not progress:
            self._ends.append(at)
            if wrong := judge_end(state):
                outcome.violations.append(wrong)
                outcome.trace = self._trace(at)

    def _add(self, key: int, parent: int) -> int:
        number = self._number[key] = len(self._keys)
        self._keys.append(key)
        self._parents.append(parent)
        return number

    def _trace(self, at: int) -> list[Label]:
        """Return labels that lead to a state, each named in its own state's numbers."""
        path = [at]
        while self._parents[path[-1]] >= 0:
            path.append(self._parents[path[-1]])
        labels = []
        for before, after in zip(path[::-1], path[-2::-1], strict=False):
            state = self._codes.decode(self._keys[before], self._handover.size)
            labels += [
                label
                for label, then in self._handover.list_steps(state)
                if self._codes.encode(then) == self._keys[after]
            ][:1]
        return labels

    def _find_circles(self) -> None:
        """Take away states without a step left, again and again: what stays goes in circles."""
        count = len(self._keys)
        left = array("q", bytes(8 * count))
        first = array("q", bytes(8 * (count + 1)))
        for at in self._from:
            left[at] += 1
        for to in self._to:
            first[to + 1] += 1
        for n in range(count):
            first[n + 1] += first[n]
        into = array("q", bytes(8 * len(self._to)))
        place = array("q", first)
        for at, to in zip(self._from, self._to, strict=True):
            into[place[to]] = at
            place[to] += 1
        rest = list(self._ends)
        done = 0
        while rest:
            to = rest.pop()
            done += 1
            for n in range(first[to], first[to + 1]):
                left[into[n]] -= 1
                if left[into[n]] == 0:
                    rest.append(into[n])
        if done < count:
            at = next(n for n in range(count) if left[n])
            self.outcome.violations.append(f"{count - done} states may never come to their rest")
            self.outcome.trace = self._trace(at)


def list_labels(trace: list[Label]) -> Iterator[str]:
    """Yield the steps of a trace as lines."""
    for label in trace:
        name, *given = label
        yield f"{name} {' '.join(map(str, given))}".rstrip()

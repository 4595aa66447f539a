"""When each watched node is looked at next, so that a round visits those that are due alone.

A fleet of 65,536 nodes has some 180 looks in five seconds: to ask all of them for their turn would
cost more than to begin these.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

STALE_MAX = 1024  # entries that were put off, above one for each name


class DueTimes:
    """The time at which each name is due, in seconds since 1970."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []  # a heap; an entry counts if its time is `_at`'s
        self._due: dict[str, None] = {}  # out of the heap, in its order, until set anew

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def get(self, name: str) -> float:
        """Return when a name is due; never, if it has no time."""
        return self._at.get(name, float("inf"))

    def set(self, name: str, at: float) -> None:
        """Have a name due at this time, and at no other."""
        if self._at.get(name) == at:
            return
        self._at[name] = at
        self._due.pop(name, None)
        heappush(self._order, (at, name))
        if len(self._order) > 2 * len(self._at) + STALE_MAX:
            self._order = [(at, name) for name, at in self._at.items() if name not in self._due]
            heapify(self._order)

    def forget(self, name: str) -> None:
        """Drop a name."""
        self._at.pop(name, None)
        self._due.pop(name, None)

    def list_due(self, until: float) -> list[str]:
        """Return the names that are due by then, the longest overdue first.

        They stay due until they get another time. `until` grows from call to call: of two names
        that became due between two calls the earlier one comes first.
        """
        while self._order and self._order[0][0] <= until:
            at, name = heappop(self._order)
            if self._at.get(name) == at:
                self._due[name] = None
        return list(self._due)


class Turns:
    """When a node is looked at next, and when each of its BMCs was last heard of."""

    def __init__(self, node: str, glances: DueTimes, sweeps: DueTimes, began_at: float) -> None:
        self.node = node
        self._glances = glances
        self._sweeps = sweeps
        self._ended = False
        self.parts_at = began_at
        self.began_at = began_at
        self.pushed_at = float("-inf")  # when an event last brought a sweep, or will
        self.heard: dict[str, float] = {}
        self.asked: dict[str, float] = {}  # when a glance at it was answered
        self.linked: dict[str, tuple[str, ...]] = {}  # BMC -> event records that are links
        self.registries: dict[str, tuple[str, ...]] = {}  # BMC -> those that are to be fetched
        self.metrics: dict[str, dict[str, float]] = {}
        self.lost: dict[str, float] = {}  # part -> when it was first not seen

    @property
    def glance_at(self) -> float:
        """When its BMCs' logs are read."""
        return self._glances.get(self.node)

    @glance_at.setter
    def glance_at(self, at: float) -> None:
        if not self._ended:
            self._glances.set(self.node, at)

    @property
    def sweep_at(self) -> float:
        """When all of its versions are read."""
        return self._sweeps.get(self.node)

    @sweep_at.setter
    def sweep_at(self, at: float) -> None:
        if not self._ended:
            self._sweeps.set(self.node, at)

    def end(self) -> None:
        """Have no more turns; a look that is under way brings none back."""
        self._ended = True
        self._glances.forget(self.node)
        self._sweeps.forget(self.node)

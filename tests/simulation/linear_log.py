"""Records calls of daemons on rows, epochs and ports, with the moments of begin and answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from linear_check import Call
from shared_memory import MemberStore, Server

from provisioner.ports import Fenced, StaleWrite
from provisioner.store.rows import node_rows, operation_rows
from provisioner.store.sql_store import SqlStore

Effect = tuple[tuple[str, ...], str, Any, Any]  # thing, name, given, answer
REFUSED = "refused"
_of_job: list[list[Effect]] = []  # effects of the transaction that runs now; one runs at a time


class CallLog:
    """All calls of one history, in the order of their begin."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._moments = count()

    def begin(self) -> int:
        """Return the moment at which a call begins."""
        return next(self._moments)

    def note(self, begun: int, effect: Effect, caller: str, *, answered: bool = True) -> None:
        """Record a call that was answered just now, or never will be."""
        thing, name, given, answer = effect
        call = Call(thing, name, given, answer, begun, caller=caller)
        if answered:
            call.ended = next(self._moments)
        self.calls.append(call)

    def note_restart(self, leaf: str, startup: dict[str, Any]) -> None:
        """Record that a leaf starts with this configuration."""
        begun = self.begin()
        for interface, entry in startup.get("interface", {}).items():
            vrf = entry.get("ip", {}).get("vrf") or "default"
            self.note(begun, (("port", leaf, interface), "move", vrf, None), leaf)


class LoggedStore(MemberStore):
    """A daemon's store that records its transactions and its readings of nodes."""

    def __init__(self, shared: SqlStore, server: Server, gate: Any, log: CallLog, name: str):
        super().__init__(shared, server, gate)
        self._log = log
        self._name = name
        record_effects()
        stored_get, stored_list = self.nodes.get, self.nodes.list

        async def get(node_id: str) -> Any:
            begun = log.begin()
            node = await stored_get(node_id)
            self._note_reading(begun, [] if node is None else [node])
            return node

        async def list_all() -> Any:
            begun = log.begin()
            nodes = await stored_list()
            self._note_reading(begun, nodes)
            return nodes

        async def save(node: Any) -> Any:  # by the function that records
            return await self.write(lambda c: node_rows.save_node(c, node))

        self.nodes.get = get  # type: ignore[method-assign]
        self.nodes.save = save  # type: ignore[assignment]
        self.nodes.list = list_all  # type: ignore[method-assign]

    async def write(self, work: Any) -> Any:
        """One transaction; of one that fails only the refusal counts."""
        begun = self._log.begin()
        effects: list[Effect] = []
        failed: list[bool] = []

        def noted(connection: Any) -> Any:
            effects.clear()
            failed.clear()
            _of_job.append(effects)
            try:
                return work(connection)
            except BaseException:
                failed.append(True)
                raise
            finally:
                _of_job.pop()

        answered = False
        try:
            told = await super().write(noted)
            answered = True
            return told
        finally:
            counted = [e for e in effects if e[3] == REFUSED] if failed else effects
            for effect in counted:
                self._log.note(begun, effect, self._name, answered=answered or bool(failed))

    def _note_reading(self, begun: int, nodes: Any) -> None:
        for node in nodes:
            self._log.note(begun, (("row", node.id), "read", None, node.generation), self._name)


class LoggedSwitches:
    """The port to switches of one daemon, which records what it moves and reads."""

    def __init__(self, inner: Any, log: CallLog, name: str) -> None:
        self._inner = inner
        self._log = log
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, name: str, *given: Any) -> Any:
        """Return a switch that records."""
        return LoggedSwitch(self._inner.open(name, *given), self._log, name, self._name)


class LoggedSwitch:
    """One switch of one daemon."""

    def __init__(self, inner: Any, log: CallLog, leaf: str, caller: str) -> None:
        self._inner = inner
        self._log = log
        self._leaf = leaf
        self._caller = caller

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def apply_change(self, change: Any) -> Any:
        """Apply moves; what got no answer may happen at any time later."""
        begun = self._log.begin()
        answered = False
        try:
            told = await self._inner.apply_change(change)
            answered = True
            return told
        finally:
            for move in change.moves:
                if not move.denied and not move.stays:
                    thing = ("port", self._leaf, move.interface)
                    effect = (thing, "move", move.vrf, None)
                    self._log.note(begun, effect, self._caller, answered=answered)

    async def read_places(self, interfaces: Any, **more: Any) -> Any:
        """Read ports; each answer has all VRFs that the switch named."""
        begun = self._log.begin()
        places = await self._inner.read_places(interfaces, **more)
        for interface, mine in places.items():
            vrfs = tuple(sorted({place.vrf for place in mine}))
            thing = ("port", self._leaf, interface)
            self._log.note(begun, (thing, "read", None, vrfs), self._caller)
        return places


def record_effects() -> None:
    """Have the functions of rows record what they do within a `LoggedStore`; once is enough."""
    if hasattr(node_rows.save_node, "recorded"):
        return
    node_rows.save_node = _recorded(  # type: ignore[assignment]
        node_rows.save_node, StaleWrite, lambda n: (("row", n.id), "write", n.generation)
    )
    operation_rows.fence = recorded_fence(operation_rows.fence)  # type: ignore[assignment]
    stored_take = operation_rows.take

    def take(connection: Any, operation_id: str) -> Any:
        taken = stored_take(connection, operation_id)
        if _of_job:
            answer = (taken.epoch, taken.version)
            _of_job[-1].append((("epoch", operation_id), "take", None, answer))
        return taken

    operation_rows.take = take


def recorded_fence(fence: Any) -> Any:
    """Return a fence of epochs that records what it lets through, and what it refuses."""
    return _recorded(fence, Fenced, lambda o: (("epoch", o.id), "write", (o.epoch, o.version)))


def _recorded(
    stored: Any, refusal: type[Exception], describe: Callable[[Any], tuple[Any, str, Any]]
) -> Any:
    def call(connection: Any, row: Any) -> Any:
        try:
            told = stored(connection, row)
        except refusal:
            if _of_job:
                _of_job[-1].append((*describe(row), REFUSED))
            raise
        if _of_job:
            _of_job[-1].append((*describe(row), "written"))
        return told

    call.recorded = True  # type: ignore[attr-defined]
    return call

"""What a history leaves behind: the devices' log of writes, and who took, intended and settled."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from linear_check import Call

from provisioner.model.operation import ActionStatus, Operation
from provisioner.store import SqlStore
from provisioner.store.repositories.nodes import SqlOperationRepository
from provisioner.store.rows import operation_rows

# How the outcome of an open intent begins that was found on the device, or not found there.
LOOKED = ("adopted: ", "absent: ", "the device does not show")
# The daemon that runs this context: set by the world, read where a request arrives at a device.
WRITER: ContextVar[str] = ContextVar("writer", default="")


@dataclass(frozen=True)
class Write:
    """One request that a device accepted and that may change it.

    `holder`: whose turn the switch was, as the database had it; `in_turn`: the code that sent it
    was inside a turn of this very switch; `under_way`: revisions of the switch that were being
    applied at that moment.
    """

    at: float
    device: str
    act: str  # "push" | "reset" | "off" | "image" | "revision" | "change" | "account" | "play"
    writer: str
    what: str
    slot: str = ""
    holder: str = ""
    in_turn: bool = False
    under_way: tuple[str, ...] = ()


@dataclass(frozen=True)
class Taken:
    """A daemon became the driver of a node's operation."""

    at: float
    node: str
    writer: str


@dataclass(frozen=True)
class Intent:
    """A ledger row from its intent until it was settled for good (inf: it never was)."""

    at: float
    until: float
    node: str
    action: str
    slots: tuple[str, ...]
    writer: str


@dataclass(frozen=True)
class Settled:
    """An open intent was settled by a look at the device, by this daemon."""

    at: float
    node: str
    action: str
    writer: str
    intended_at: float
    intended_by: str


@dataclass(frozen=True)
class Undriven:
    """An operation that was active had no driver, although a daemon could have driven it."""

    node: str
    operation: str
    from_at: float
    until: float


@dataclass
class Look:
    """The watch of a daemon looked at a switch. `holder`: whose its shard was then, `held_last`:
    whose when the look ended."""

    at: float
    switch: str
    writer: str
    holder: str
    until: float = float("inf")
    held_last: str = ""


@dataclass(frozen=True)
class Entered:
    """A port began to forward in a customer's VRF."""

    at: float
    node: str
    port: str
    vrf: str


@dataclass(frozen=True)
class Certified:
    """A certificate of a node, and when it was in force."""

    node: str
    from_at: float
    until: float


@dataclass
class History:
    """Everything that the checker is given. `ended`: daemon -> when its session was over."""

    writes: list[Write] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    intents: list[Intent] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    undriven: list[Undriven] = field(default_factory=list)
    entered: list[Entered] = field(default_factory=list)
    certified: list[Certified] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    unlooked: dict[str, float] = field(default_factory=dict)  # switch -> the longest such time
    ended: dict[str, float] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)  # on rows, epochs and ports
    violations: Sequence[str] = ()  # by the simulator's own truth


def bmc_act(path: str, body: bytes) -> tuple[str, str]:
    """What a request to a BMC does: its act and its name; "" for what changes nothing."""
    if path.endswith("UpdateService.SimpleUpdate") or "/UpdateService/upload" in path:
        return "push", "push"
    if "Reset" in path and "/Actions/" in path:
        told = json.loads(body or b"{}").get("ResetType", "")
        return ("off" if told in ("ForceOff", "On") else "reset"), told or path
    if "/AccountService/Accounts" in path:
        return "account", path
    return "", ""


def switch_act(method: str, path: str, body: bytes) -> tuple[str, str]:
    """What a request to a switch does: its act and its name."""
    document = json.loads(body or b"{}")
    actions = [k for k in document if k.startswith("@")] if isinstance(document, dict) else []
    if actions:
        return "image", actions[0]
    if method == "POST" and path.endswith("/revision"):
        return "revision", "new revision"
    if "/revision/" in path:
        return "revision", str(document.get("state", path))
    return "change", path


class LoggedOperations(SqlOperationRepository):
    """A daemon's operations, with a trace of the daemon that took, and that intended."""

    def __init__(
        self,
        store: SqlStore,
        history: History,
        author: str,
        now: Callable[[], float],
        intended: Callable[[str], None] = lambda _author: None,
    ):
        """`intended` is told who intends, before anything is sent."""
        super().__init__(store)
        self.history = history
        self.author = author
        self.now = now
        self.intended = intended

    async def take(self, operation_id: str) -> Operation:
        def work(connection: Any) -> Operation:
            taken = operation_rows.take(connection, operation_id)
            self.history.taken.append(Taken(self.now(), taken.node, self.author))
            return taken

        return await self._transactions.write(work)

    async def intend(self, operation: Operation, action: str, before: Any, now: float) -> Any:
        def work(connection: Any) -> Any:
            told = operation_rows.intend(connection, operation, action, before, now)
            slots = tuple(str(s) for s in before.get("slots", ()))
            row = [self.now(), told[1], slots, self.author]
            self.history.intents.append(row)  # type: ignore[arg-type]  (completed at the end)
            self.intended(self.author)
            return told

        return await self._transactions.write(work)

    async def settle(self, operation: Operation, entry: Any, status: Any, **more: Any) -> Any:
        told = await super().settle(operation, entry, status, **more)
        if entry.status is ActionStatus.INTENDED and more.get("outcome", "").startswith(LOOKED):
            key = (entry.operation, entry.action, entry.attempt)
            rows: Any = self.history.intents
            for at, made, _, by in rows:
                if (made.operation, made.action, made.attempt) == key:
                    settled = Settled(self.now(), entry.node, entry.action, self.author, at, by)
                    self.history.settled.append(settled)
        return told

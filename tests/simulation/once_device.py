"""A device that counts what it was asked to do, the drivers of an action, and open intents."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from virtual_time import VirtualClock, run

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import Act, Sent, Snapshot, once
from provisioner.model.node import Node, NodeKind
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import (
    AccountLocked,
    CertificateChanged,
    CertificateUntrusted,
    HostKeyUnknown,
    LoginRefused,
    LookOnly,
    Malformed,
    NotGranted,
    Unreachable,
)
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore, open_store

SETTINGS = Settings()


@dataclass
class Device:
    """Counts what it was asked to do; `lose` says what happens to each request."""

    lose: list[str] = field(default_factory=list)  # "", "request", "answer", "refused", "busy"
    flashes: int = 0
    blind: bool = False
    busy_s: float = 0.0

    async def look(self) -> Snapshot | Blocker:
        return {"flashes": None if self.blind else self.flashes}

    async def send(self) -> Sent | Blocker:
        fate = self.lose.pop(0) if self.lose else ""
        await asyncio.sleep(self.busy_s)
        match fate:
            case "request":
                raise Unreachable("connection refused", maybe_executed=False)
            case "lost on the way":
                raise Unreachable("reset", maybe_executed=True)
            case "answer":
                self.flashes += 1
                raise Unreachable("timeout", maybe_executed=True)
            case "garbled":
                self.flashes += 1
                raise Malformed("an answer that cannot be read")
            case "login":
                raise LoginRefused("401")
            case "locked":
                raise AccountLocked("too many logins", 60.0)
            case "certificate":
                raise CertificateChanged("another key")
            case "untrusted":
                raise CertificateUntrusted("signed by nobody that we trust")
            case "host key":
                raise HostKeyUnknown("nobody pinned one")
            case "look only":
                raise LookOnly("nothing is written to any device")
            case "not granted":
                raise NotGranted("nobody granted it")
            case "busy":
                return Blocker(reason=Reason.BUSY, subject="d", detail="busy", unblock="wait")
            case "refused":
                return Blocker(reason=Reason.REFUSED, subject="d", detail="no", unblock="-")
        self.flashes += 1
        return Sent(task="/task/1")

    def act(self) -> Act:
        def happened(before: Snapshot, now: Snapshot) -> bool | None:
            return None if now["flashes"] is None else now["flashes"] > before["flashes"]

        return Act("flash", {"step": {}}, self.look, self.send, happened)


async def statuses(store: SqlStore) -> list[ActionStatus]:
    return [e.status for e in await store.operations.list_entries("n")]


async def operation(store: SqlStore, clock: VirtualClock | None = None) -> Hold:
    if await store.nodes.get("n") is None:
        await store.nodes.add(Node(id="n", kind=NodeKind.HOST))
    opened = await store.operations.open("n", "test", 0.0)
    active = (await store.operations.list_active())[0] if opened is None else opened
    return Hold(store, clock or VirtualClock(), await store.operations.take(active.id))


def unreachable() -> Blocker:
    return Blocker(reason=Reason.UNREACHABLE, subject="d", detail="silent", unblock="wait")


async def left_open(
    store: SqlStore, device: Device, clock: VirtualClock
) -> tuple[Hold, LedgerEntry]:
    """An intent of a driver that died, and the hold of its successor."""
    hold = await operation(store, clock)
    entry = await hold.record_intent("flash", {"seen": dict(await device.look())})
    return await operation(store), entry


class AheadClock(VirtualClock):
    """The clock of another machine, an hour ahead."""

    def now(self) -> float:
        return super().now() + 3600.0


def followed(
    device: Device, *, later_s: float = 0.0, theirs: VirtualClock | None = None, **changed: object
) -> tuple[LedgerEntry | Blocker, list[ActionStatus], float]:
    """What a successor makes of an open intent, the ledger then, and how long it took."""

    async def main() -> tuple[LedgerEntry | Blocker, list[ActionStatus], float]:
        store, clock = open_store(":memory:", inline=True), VirtualClock()
        successor, entry = await left_open(store, device, theirs or clock)
        await clock.sleep(later_s)
        began = clock.now()
        act = replace(device.act(), **changed)
        result = await once(successor, clock, SETTINGS, act, entry)
        return result, await statuses(store), clock.now() - began

    return run(main())

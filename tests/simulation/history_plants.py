"""Protections of several daemons that can be taken away, so that the judge of histories is judged.

`plant(set_)` takes a setter (`monkeypatch.setattr`, or `setattr` in a process of its own).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from linear_log import record_effects, recorded_fence
from sqlalchemy import update

from provisioner.control.engine import cluster
from provisioner.control.engine.engine_shared import SharedEngine
from provisioner.execution.actions import once
from provisioner.execution.observe import rotation as switch_api
from provisioner.execution.steps import methods_switch_settings as switch_drain
from provisioner.execution.tenancy import leaf
from provisioner.execution.tenancy import vrf_fabric as leaf_config
from provisioner.store.rows import operation_rows
from provisioner.store.schema.schema import operations

Set = Callable[[Any, str, Any], None]


@contextmanager
def ignored(_check: Any) -> Iterator[None]:
    """A permit that asks for no lease."""
    yield


def without_fence(connection: Any, operation: Any) -> Any:
    """`operation_rows.fence` that writes whatever the row has."""
    version = operation.version + 1
    values = {"status": str(operation.status), "phase": operation.phase, "note": operation.note}
    row = update(operations).where(operations.c.id == operation.id)
    connection.execute(row.values(version=version, **values))
    return operation.model_copy(update={"version": version})


class Hasty:
    """A clock whose waits are over at once."""

    def __init__(self, clock: Any) -> None:
        self.now = clock.now

    async def sleep(self, _seconds: float) -> None:
        await asyncio.sleep(0)


async def not_adopting(_engine: Any) -> None:
    """The engine's loops that look for the operations of dead daemons, without looking."""
    await asyncio.Event().wait()


@asynccontextmanager
async def no_turn(_switch: str) -> AsyncIterator[None]:
    """A turn that nobody waits for."""
    yield


def _no_lease(set_: Set) -> None:
    set_(cluster.permit, "require_check", ignored)


def _no_fence(set_: Set) -> None:
    record_effects()  # of the true one, which comes back
    set_(operation_rows, "fence", recorded_fence(without_fence))


def _no_wait(set_: Set) -> None:
    resolve = once._resolve
    set_(once, "_resolve", lambda hold, clock, *given: resolve(hold, Hasty(clock), *given))


def _no_successor(set_: Set) -> None:
    set_(SharedEngine, "_adopt", not_adopting)
    set_(SharedEngine, "_sweep", not_adopting)


def _no_turns(set_: Set) -> None:
    for module in (leaf, leaf_config, switch_api, switch_drain):
        set_(module, "turn", no_turn)


def _no_shard_locks(set_: Set) -> None:
    async def taken(_cluster: Any, shards: Any) -> Any:
        return frozenset(shards)

    set_(cluster.Cluster, "take_shards", taken)


def _blind(set_: Set) -> None:
    send = once._send

    async def blind(hold: Any, clock: Any, settings: Any, act: Any) -> Any:
        await act.send()
        return await send(hold, clock, settings, act)

    set_(once, "_send", blind)


# protection -> what takes it away, and what the judge says then
PLANTS: dict[str, tuple[Callable[[Set], None], tuple[str, ...]]] = {
    "the permit ignores the lease": (_no_lease, ("after its lease had ended",)),
    "no fence of epochs": (_no_fence, ("epoch",)),
    "no wait for the predecessor": (_no_wait, ("had intended it",)),
    "nobody takes over": (_no_successor, ("had no driver from",)),
    "no turn at a switch": (_no_turns, ("outside of any turn",)),
    "duties without the lock of their shard": (_no_shard_locks, ("whose shard was nobody's",)),
    "sent without an intent": (_blind, ("it has 0 open intents",)),
}


def shows(name: str, anomaly: str) -> bool:
    """Return whether this sentence is about the protection that was taken away."""
    return any(sign in anomaly for sign in PLANTS[name][1])

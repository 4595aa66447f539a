"""The log tells what is stored: once, by the daemon that leads, and from its start on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from provisioner.daemon.telling import LINES_PER_LOOK, Teller
from provisioner.model.events.node_events import NodeWaits, StateChanged
from provisioner.model.node import State
from provisioner.model.outcome import Blocker, Reason
from provisioner.store import SqlStore
from provisioner.store.sql_store import open_store


def tell(scenario: Callable[[SqlStore, Teller], Coroutine[Any, Any, None]], leads: bool) -> None:
    async def main() -> None:
        store = open_store(":memory:", inline=True)
        try:
            after, _ = await store.journal.get_head()
            await scenario(store, Teller(store.journal, after, lambda: leads))
        finally:
            await store.close()

    asyncio.run(main())


def quarantined(node: str) -> StateChanged:
    why = Blocker(reason=Reason.POWER, subject=node, detail="it is off", unblock="Switch it on.")
    return StateChanged(
        about=node, from_state=State.INTAKE, to_state=State.QUARANTINED, why="x", blockers=(why,)
    )


def test_each_event_is_told_once_and_a_refusal_with_its_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(store: SqlStore, teller: Teller) -> None:
        await store.journal.append(quarantined("n0"), 1.0)
        await teller.look()
        await teller.look()

    with caplog.at_level(logging.INFO, "provisioner.site"):
        tell(scenario, leads=True)

    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING"]
    assert "event=state node=n0 from=intake to=quarantined" in caplog.text
    assert 'unblock="Switch it on."' in caplog.text


def test_a_daemon_that_does_not_lead_tells_nothing_and_does_not_catch_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(store: SqlStore, teller: Teller) -> None:
        await store.journal.append(quarantined("n0"), 1.0)
        await teller.look()

    with caplog.at_level(logging.INFO, "provisioner.site"):
        tell(scenario, leads=False)

    assert caplog.records == []


def test_a_storm_of_events_stays_readable(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: SqlStore, teller: Teller) -> None:
        for number in range(LINES_PER_LOOK + 40):
            await store.journal.append(NodeWaits(about=f"n{number}", blockers=()), 1.0)
        await teller.look()

    with caplog.at_level(logging.INFO, "provisioner.site"):
        tell(scenario, leads=True)

    assert len(caplog.records) == LINES_PER_LOOK + 1
    assert 'event=omitted lines=40 all="provisioner audit list"' in caplog.text

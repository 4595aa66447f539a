"""Virtual time over a real store with its threads: time stands still until they have answered."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from provisioner.integrations.twin.loop import VirtualLoop
from provisioner.store.database.lanes import Lane, Work
from provisioner.store.database.read_cache import Question
from provisioner.store.sql_store import SqlStore

Result = TypeVar("Result")


class WaitingLoop(VirtualLoop):
    """Virtual time also stands still while the threads of the store are asked."""

    asked = 0

    def _run_once(self) -> None:
        if self.asked:
            asyncio.SelectorEventLoop._run_once(self)  # type: ignore[attr-defined]
        else:
            super()._run_once()


class Asked:
    """A lane whose questions are counted."""

    def __init__(self, lane: Lane, loop: WaitingLoop) -> None:
        self._lane, self._loop = lane, loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lane, name)

    async def run(self, work: Work[Result]) -> Result:
        self._loop.asked += 1
        try:
            return await self._lane.run(work)
        finally:
            self._loop.asked -= 1

    async def recall(self, question: Question) -> Any:
        self._loop.asked += 1
        try:
            return await self._lane.recall(question)
        finally:
            self._loop.asked -= 1


def waited_for(store: SqlStore, loop: WaitingLoop) -> SqlStore:
    """The store; while anything asks it, the loop's time stands still."""
    store.writer, store.reader = Asked(store.writer, loop), Asked(store.reader, loop)
    return store

"""One suite for every way a store runs: in the caller's thread or its own, file or memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from provisioner.store import SqlStore, open_store

T = TypeVar("T")
Scenario = Callable[[SqlStore], Awaitable[T]]


@pytest.fixture(params=["inline memory", "inline file", "threads memory", "threads file"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario[T]], T]:
    """Runs a scenario on a store; a second scenario of one test meets the same file again."""
    how, where = request.param.split()
    path = ":memory:" if where == "memory" else tmp_path / "data" / "store.db"

    def run_scenario(scenario: Scenario[T]) -> T:
        async def main() -> T:
            store = open_store(path, inline=how == "inline")
            try:
                return await scenario(store)
            finally:
                await store.close()

        return asyncio.run(main())

    return run_scenario

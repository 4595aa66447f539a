"""A UFM over HTTPS for worlds under virtual time: it lives in a thread, where time is real.

Whoever asks waits without letting go of the loop, so that no virtual time passes meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ufm_standin import Ufm

from provisioner.integrations.ufm.isolation import UfmIsolation, UfmTransport

Result = TypeVar("Result")
LIMIT_S = 30.0


class Elsewhere:
    """`Isolation` by UFM, carried out in the thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, partitions: UfmIsolation) -> None:
        self._loop, self._partitions = loop, partitions

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    async def delta(self, *given: Any) -> Any:
        return self._wait(self._partitions.delta(*given))

    async def bring(self, *given: Any) -> Any:
        return self._wait(self._partitions.bring(*given))

    async def where(self, *given: Any) -> Any:
        return self._wait(self._partitions.where(*given))

    async def read_members(self, *given: Any) -> Any:
        return self._wait(self._partitions.read_members(*given))

    async def list_partitions(self, *given: Any) -> Any:
        return self._wait(self._partitions.list_partitions(*given))

    async def place(self, *given: Any) -> Any:
        return self._wait(self._partitions.place(*given))

    async def close(self) -> None:
        self._wait(self._partitions.close())


@contextmanager
def ufm_over_https() -> Iterator[tuple[Ufm, Elsewhere]]:
    """A UFM that listens, and the daemon's adapter for it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ufm = Ufm()

    def wait(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(LIMIT_S)

    try:
        wait(ufm.__aenter__())
        partitions = UfmIsolation(UfmTransport(ufm.address()), default_limited=True)
        try:
            yield ufm, Elsewhere(loop, partitions)
        finally:
            wait(partitions.close())
            wait(ufm.__aexit__())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT_S)
        loop.close()

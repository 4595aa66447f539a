"""A TCP proxy between one daemon and the database, whose cable can be pulled and put back."""

from __future__ import annotations

import asyncio
import contextlib

from postgres_server import free_port


class Cable:
    """Bytes pass until `cut`; then they go nowhere, and nobody is told, as with a dead switch."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self.delay_s = 0.0  # of a round trip
        self._whole = asyncio.Event()
        self._whole.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._through, "127.0.0.1", self.port)

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _through(self, there: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = [back]
        try:
            await self._whole.wait()
            reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
            writers.append(writer)
            await asyncio.gather(self._pass(there, writer), self._pass(reader, back))
        except OSError:
            pass  # one side ended: so does the other
        finally:
            self._tasks.discard(task)
            for writer in writers:
                with contextlib.suppress(OSError, RuntimeError):
                    writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.delay_s:
                await asyncio.sleep(self.delay_s / 2)
            await self._whole.wait()
            writer.write(data)
            await writer.drain()
        writer.close()

"""Connections are opened few at once; those that rest are closed: all but one before a write to
that BMC, and what is old.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from devices import Bmc, run

from provisioner.adapters import bounded_http
from provisioner.adapters.bounded_http import CLOSED_MAX, OPENED_MAX, close_resting, open_session


def test_what_rests_is_closed_but_one_at_the_named_host_alone() -> None:
    async def scenario() -> None:
        async with Bmc() as device, Bmc() as other, open_session(per_host=2, keep_alive=True) as s:

            async def read(url: str) -> None:
                async with s.get(f"{url}/redfish", ssl=False) as answer:
                    await answer.read()

            await asyncio.gather(*(read(one.url) for one in (device, device, other, other)))
            assert s.connector is not None
            resting = {key.port: found for key, found in s.connector._conns.items()}
            counts = [len(found) for found in resting.values()]
            assert counts == [2, 2]

            close_resting(s, device.url, keep=1)
            close_resting(s, "https://127.0.0.1:1", keep=0)  # never seen
            assert sorted(len(found) for found in resting.values()) == [1, 2]
            await read(device.url)

    run(scenario())


def test_what_rests_too_long_is_closed_few_in_a_turn_of_the_loop_and_what_is_used_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 3 * CLOSED_MAX

    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as stack:
            devices = [await stack.enter_async_context(Bmc()) for _ in range(count + 1)]
            used = devices.pop()
            session = await stack.enter_async_context(open_session(per_host=2, keep_alive=True))
            assert session.connector is not None

            async def read(url: str) -> None:
                async with session.get(f"{url}/redfish", ssl=False) as answer:
                    await answer.read()

            await asyncio.gather(*(read(one.url) for one in devices))
            connector, loop = session.connector, asyncio.get_running_loop()
            ports = {key.port for key in connector._conns}
            assert len(ports) == count
            left, all_closed = [count], asyncio.Event()

            def look() -> None:  # once in each turn of the loop
                left.append(sum(key.port in ports for key in connector._conns))
                if connector._conns:
                    loop.call_soon(look)
                else:
                    all_closed.set()

            loop.call_soon(look)
            async with asyncio.timeout(60):
                while left[-1]:
                    await read(used.url)
                assert connector._conns, "what was used a moment ago still rests"
                await all_closed.wait()
            assert 0 < max(before - after for before, after in pairwise(left)) <= CLOSED_MAX

    monkeypatch.setattr(bounded_http, "KEEPALIVE_S", 1.0)
    run(scenario())


@contextlib.asynccontextmanager
async def serve_silence() -> AsyncIterator[tuple[str, asyncio.Queue[asyncio.StreamWriter]]]:
    """A service that takes connections and never begins its part of the handshake."""
    taken: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.put_nowait(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"https://127.0.0.1:{port}", taken
    finally:
        server.close()


@pytest.mark.parametrize("patient", [True, False])
def test_few_connections_are_opened_at_once_and_slow_ones_give_their_places_back(
    monkeypatch: pytest.MonkeyPatch, patient: bool
) -> None:
    async def scenario() -> None:
        async with serve_silence() as (url, taken), open_session(per_host=0, keep_alive=True) as s:
            asked = [asyncio.ensure_future(s.get(url, ssl=False)) for _ in range(OPENED_MAX + 2)]
            opened = [await taken.get() for _ in range(OPENED_MAX)]
            if patient:
                await asyncio.sleep(0.2)
                assert taken.empty()
                opened[0].transport.abort()  # its handshake has failed
                opened.append(await taken.get())
                await asyncio.sleep(0.2)
                assert taken.empty()
            else:
                opened += [await taken.get(), await taken.get()]
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            for writer in opened:
                writer.transport.abort()

    monkeypatch.setattr(bounded_http, "OPENING_S", 3600.0 if patient else 0.01)
    run(scenario())

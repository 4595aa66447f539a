"""Packets that a network loses, tears off or drips: the transport ends in its limits, as promised.

Each fault stands between the real transport and a simulated BMC over TLS, on real sockets.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from sockets import Peer, listening, reset, run, served, through, wire

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.ports import BmcAddress, Call, PortError, Unreachable

LIMIT_S = 1.5
GET = Call("GET", "/redfish/v1", timeout_s=LIMIT_S)
POST = Call("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", {}, timeout_s=LIMIT_S)
FOREVER_S = 3600.0
HELLO = 600  # bytes: within a TLS 1.3 server's first flight
WITHIN = 1500  # bytes: the handshake is over, the answer has begun


async def _reset_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reset(writer)


async def _half_open(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """The peer is gone and nobody says so: what is sent is taken, nothing comes back."""
    while await reader.read(65536):
        pass
    await asyncio.sleep(FOREVER_S)


async def _drips_a_handshake(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A slow loris: a TLS record that is announced, and comes byte by byte."""
    for byte in b"\x16\x03\x03\x3f\xff" + b"\x02" * 4096:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


async def _not_tls(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()


def _cut(after: int, *, rst: bool) -> Peer:
    """The wire is cut after so many bytes of the answers, with RST or with FIN."""

    async def answer(there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = after
        while left > 0 and (data := await there.read(left)):
            writer.write(data)
            await writer.drain()
            left -= len(data)
        if rst:
            reset(writer)

    return answer


async def _drips(there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The true answers, one byte at a time after the handshake."""
    sent = 0
    while data := await there.read(65536 if sent < HELLO else 1):
        sent += len(data)
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0.02 if sent > HELLO else 0)


ALONE: dict[str, Peer] = {
    "reset at once": _reset_at_once,
    "half open": _half_open,
    "a handshake byte by byte": _drips_a_handshake,
    "no TLS": _not_tls,
}
BETWEEN: dict[str, Peer] = {
    "TLS cut in the handshake": _cut(HELLO, rst=False),
    "reset in the handshake": _cut(HELLO, rst=True),
    "TLS cut without its end": _cut(WITHIN, rst=False),
    "reset within the answer": _cut(WITHIN, rst=True),
    "an answer byte by byte": _drips,
}


def _ask(url: str, pin: str, call: Call) -> object:
    async def ask(at: str) -> object:
        transport = RedfishTransport()
        began = time.monotonic()
        try:
            await transport.request(BmcAddress(at, pin=pin), call)
        except PortError as error:
            # generous: it says that there is a limit, not how fast this machine is
            assert time.monotonic() - began < 20 * LIMIT_S
            return error
        finally:
            await transport.close()
        return None

    return ask(url)


@pytest.mark.parametrize("call", [GET, POST], ids=["get", "post"])
@pytest.mark.parametrize("name", ALONE)
def test_a_peer_that_breaks_tcp_or_tls_is_unreachable_and_nothing_was_executed(
    name: str, call: Call
) -> None:
    async def scenario() -> object:
        async with listening(ALONE[name]) as url:
            return await _ask(url, "00" * 32, call)

    error = run(scenario())

    assert isinstance(error, Unreachable)
    assert not error.maybe_executed


@pytest.mark.parametrize("name", BETWEEN)
def test_a_wire_that_breaks_leaves_a_read_unreachable(name: str) -> None:
    async def scenario() -> object:
        async with served() as bmcs, listening(wire(bmcs.url, BETWEEN[name])) as url:
            return await _ask(url, (await bmcs.address()).pin, GET)

    error = run(scenario())

    assert isinstance(error, Unreachable)


def test_a_write_whose_answer_is_cut_off_is_sent_once_and_left_in_doubt(tmp_path: Path) -> None:
    """The request passed whole, the wire is cut before its answer: carried out or not?"""
    passed = 0

    async def silent(there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal passed
        passed += 1
        while data := await there.read(65536):
            writer.write(data)
            await writer.drain()
            if bmcs.service.requests > before:
                reset(writer)
                return

    async def scenario() -> object:
        nonlocal bmcs, before
        async with served() as bmcs:
            pin = (await bmcs.address()).pin
            before = bmcs.service.requests
            async with listening(wire(bmcs.url, silent)) as url:
                return await _ask(url, pin, POST)

    bmcs, before = None, 0
    error = run(scenario())

    assert passed == 1
    assert error is None or (isinstance(error, Unreachable) and error.maybe_executed)


def test_a_wire_that_is_whole_again_serves_the_next_request() -> None:
    broken = True

    async def answer(there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if broken:
            reset(writer)
        else:
            await through(there, writer)

    async def scenario() -> int:
        nonlocal broken
        async with served() as bmcs, listening(wire(bmcs.url, answer)) as url:
            transport = RedfishTransport()
            bmc = BmcAddress(url, pin=(await bmcs.address()).pin)
            with pytest.raises(Unreachable):
                await transport.request(bmc, GET)
            broken = False
            status = (await transport.request(bmc, GET)).status
            await transport.close()
            return status

    assert run(scenario()) == 200

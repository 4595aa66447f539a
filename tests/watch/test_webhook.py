"""The webhook over HTTPS: who may push, what is too much, and what it leads to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from provisioner.adapters.bounded_http import Trust
from provisioner.control.watch.alert_keeper import PortReport
from provisioner.daemon.events import (
    BODY_MAX,
    REPLAY_S,
    SIGNATURE,
    SOURCE,
    TIMESTAMP,
    WEBHOOK,
    Sender,
    open_watch,
    sign_request,
)
from provisioner.model.alert import Signal
from provisioner.model.node import Node, NodeKind
from provisioner.planning.watch.pushed_alerts import Source
from provisioner.ports import Secret
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.sql_store import open_store

BEARER, SIGNED = "a bearer token of 32 characters..", "a signing secret of 32 characters"
SENDERS = (
    Sender(Source(name="prom", format="alertmanager"), Secret(BEARER), signed=False),
    Sender(Source(name="netq", format="plain"), Secret(SIGNED), signed=True),
)
FIRING = {
    "alerts": [{"status": "firing", "labels": {"alertname": "X", "node": "n1"}, "annotations": {}}]
}
PLAIN = {
    "alerts": [{"id": "X", "node": "n1"}],
    "ports": [{"node": "n1", "port": "r", "link": "up"}],
}
NOW = 1_790_000_000.0


class HandClock:
    """A clock that a test moves."""

    time = NOW

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Told:
    """Stands where the watcher does, and keeps what it is told."""

    takes_reports = True

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.ports: list[PortReport] = []

    async def report(self, _: str, told: Sequence[Signal]) -> None:
        self.signals += told

    async def count(self, reports: Any) -> None:
        self.ports += reports


class Door:
    """A listener, and how a source knocks."""

    def __init__(self, url: str, trust: Any, session: aiohttp.ClientSession) -> None:
        self._url, self._trust, self._session = url, trust, session
        self.clock, self.told = HandClock(), Told()

    async def push(self, body: Any, **headers: str) -> int:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self._session.post(
            self._url, data=data, headers=headers, ssl=self._trust
        ) as answer:
            await answer.read()
            return answer.status

    async def sign(self, body: Any, *, at: float | None = None, **changes: str) -> int:
        data = json.dumps(body).encode()
        stamp = str(int(self.clock.now() if at is None else at))
        headers = {SOURCE: "netq", TIMESTAMP: stamp,
                   SIGNATURE: sign_request(Secret(SIGNED), "netq", stamp, data)}  # fmt: skip
        return await self.push(data, **{**headers, **changes})


def through(folder: Path, story: Any) -> Any:
    async def main() -> Any:
        store, clock = open_store(":memory:"), HandClock()
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        async with (
            asyncio.timeout(60),
            open_watch(
                "https://127.0.0.1:0", SENDERS, folder, store, clock, None, MasterKey.generate()
            ) as watch,
            aiohttp.ClientSession() as session,
        ):
            base = watch.listener.rpartition("/v1/")[0]
            trust = Trust(folder / "agent-ca.pem").option(base, "", insecure=False)
            door = Door(base + WEBHOOK, trust, session)
            door.clock = clock
            assert watch.attach is not None
            watch.attach(door.told)  # type: ignore[arg-type]
            result = await story(door)
        await store.close()
        return result

    return asyncio.run(main())


def test_a_bearer_token_lets_its_source_in(tmp_path: Path) -> None:
    async def story(door: Door) -> tuple[int, list[str]]:
        status = await door.push(FIRING, Authorization=f"Bearer {BEARER}")
        return status, [s.source for s in door.told.signals]

    assert through(tmp_path, story) == (202, ["webhook/prom"])


def test_a_signed_request_counts_once(tmp_path: Path) -> None:
    async def story(door: Door) -> tuple[int, int, int, int]:
        first = await door.sign(PLAIN)
        again = await door.sign(PLAIN)
        door.clock.time += 1
        later = await door.sign(PLAIN)
        return first, again, later, len(door.told.ports)

    assert through(tmp_path, story) == (202, 401, 202, 2)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer guessed"},
        {"Authorization": f"Bearer {SIGNED}"},  # a signing secret is no bearer token
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer "},
        {SOURCE: "netq", TIMESTAMP: str(int(NOW)), SIGNATURE: "sha256=00"},
        {SOURCE: "nobody", TIMESTAMP: str(int(NOW)), SIGNATURE: "sha256=00"},
        {SOURCE: "netq", TIMESTAMP: "soon", SIGNATURE: "sha256=00"},
    ],
)
def test_nobody_else_is_heard(tmp_path: Path, headers: dict[str, str]) -> None:
    async def story(door: Door) -> tuple[int, int]:
        return await door.push(PLAIN, **headers), len(door.told.signals)

    assert through(tmp_path, story) == (401, 0)


def test_a_signature_is_of_its_time_source_and_body(tmp_path: Path) -> None:
    async def story(door: Door) -> list[int]:
        return [
            await door.sign(PLAIN, at=NOW - REPLAY_S - 1),
            await door.sign(PLAIN, at=NOW + REPLAY_S + 1),
            await door.sign(PLAIN, **{TIMESTAMP: str(int(NOW) + 1)}),
            await door.sign(PLAIN, **{SOURCE: "prom"}),
        ]

    assert through(tmp_path, story) == [401] * 4


def test_what_is_too_large_or_no_json_is_refused(tmp_path: Path) -> None:
    async def story(door: Door) -> list[int]:
        bearer = {"Authorization": f"Bearer {BEARER}"}
        return [
            await door.push(b"{" * 10_000, **bearer),
            await door.push(b"[" * 200_000, **bearer),
            await door.push(b"\xff\xfe", **bearer),
            await door.push(b" " * (BODY_MAX + 1), **bearer),
        ]

    assert through(tmp_path, story) == [400, 400, 400, 413]


def test_a_source_of_many_requests_is_heard(tmp_path: Path) -> None:
    async def story(door: Door) -> set[int]:
        bearer = {"Authorization": f"Bearer {BEARER}"}
        return {await door.push(FIRING, **bearer) for _ in range(60)}

    assert through(tmp_path, story) == {202}


def test_an_address_that_guesses_is_not_heard_for_a_while(tmp_path: Path) -> None:
    async def story(door: Door) -> set[int]:
        return {await door.push(b"{}", Authorization="Bearer x") for _ in range(60)}

    assert through(tmp_path, story) == {401, 429}

"""The process that takes events: a real one, killed, stopped and left alone by its daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from test_event_connections import CASES, DOCUMENT, listening, post, read_answers

from provisioner.adapters.agent.tls import open_authority
from provisioner.daemon import event_supervisor, events_process
from provisioner.daemon.event_connections import (
    FRAME_BODY_MAX,
    OUTSTANDING_MAX,
    Frame,
    FrameKind,
    FrameReader,
)
from provisioner.daemon.event_supervisor import EventSupervisor
from provisioner.daemon.events import open_watch
from provisioner.model.input_error import InputError
from provisioner.runtime.bounded_listener import Limits
from provisioner.settings import Settings
from provisioner.store.database.data_directory import SealedFile
from provisioner.store.repositories.signing_keys import MasterKey

ELSEWHERE = {"another path", "no path of ours"}  # by the daemon itself; the process closes them
LIMITS = Limits(64, 64, 60.0, stranger_s=10.0)
WITHOUT = ("aiohttp", "sqlalchemy", "pydantic", "cryptography", "provisioner.model", "yaml")


class Daemon:
    """The supervisor of a real process, and what it hands over; `gate` holds answers back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = asyncio.Event()
        self.gate.set()
        self.taken: list[bytes] = []
        self.doubted: list[str] = []
        pem = open_authority(folder, SealedFile(folder, MasterKey.generate())).make_server_pem(
            ("127.0.0.1",)
        )
        self.supervisor = EventSupervisor(
            ("127.0.0.1", 0), pem, LIMITS, 16, self.deliver, self.doubted.append
        )

    async def deliver(self, name: str, body: bytes) -> int:
        self.taken.append(body)
        await self.gate.wait()
        return 200 if name == "ours" else 404

    async def post_one(self) -> tuple[list[int], bool]:
        """Post an event; return the answer, and whether the connection was closed after it."""
        trust = ssl.create_default_context(cafile=str(self.folder / "agent-ca.pem"))
        port = self.supervisor.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.write(post())
        try:
            return await read_answers(reader, 1)
        finally:
            writer.close()


@asynccontextmanager
async def supervised(folder: Path) -> AsyncIterator[Daemon]:
    daemon = Daemon(folder)
    await daemon.supervisor.start()
    try:
        yield daemon
    finally:
        daemon.gate.set()
        await daemon.supervisor.stop()


async def until(holds: Any) -> None:
    async with asyncio.timeout(60.0):
        while not holds():  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.02)


def test_it_answers_as_the_daemon_does_but_has_nothing_behind_other_paths(tmp_path: Path) -> None:
    async def main() -> tuple[dict[str, tuple[list[int], bool]], list[Any]]:
        answers = {}
        async with listening(tmp_path, events_process=True) as (connect, feeds):
            for name, (request, statuses, _) in CASES.items():
                reader, writer = await connect()
                writer.write(request)
                answers[name] = await read_answers(reader, len(statuses))
                writer.close()
        return answers, feeds.taken

    answers, taken = asyncio.run(main())

    expected = {name: (statuses, closes) for name, (_, statuses, closes) in CASES.items()}
    expected |= {name: ([404], True) for name in ELSEWHERE}
    assert answers == expected
    assert len([one for one in taken if one is not None]) == sum(
        statuses.count(200) for _, statuses, _ in CASES.values()
    )


def test_one_that_is_killed_is_started_again_and_no_subscription_is_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_supervisor, "AGAIN_FIRST_S", 0.05)

    async def main() -> tuple[list[str], list[int], int]:
        async with supervised(tmp_path) as daemon:
            first = daemon.supervisor.pid
            port = daemon.supervisor.port
            os.kill(first, signal.SIGKILL)
            await until(lambda: daemon.doubted and daemon.supervisor.pid != first)
            await asyncio.sleep(0)
            statuses: list[int] = []
            async with asyncio.timeout(60.0):
                while not statuses:
                    try:
                        statuses, _ = await daemon.post_one()
                    except ConnectionRefusedError:  # not yet
                        await asyncio.sleep(0.05)
            return daemon.doubted, statuses, daemon.supervisor.port - port

    assert asyncio.run(main()) == ([""], [200], 0)


def test_sigterm_ends_it_after_the_answers_under_way(tmp_path: Path) -> None:
    async def main() -> tuple[tuple[list[int], bool], list[bytes]]:
        async with supervised(tmp_path) as daemon:
            daemon.gate.clear()
            posting = asyncio.create_task(daemon.post_one())
            await until(lambda: daemon.taken)
            stopping = asyncio.create_task(daemon.supervisor.stop())
            await asyncio.sleep(0.2)
            daemon.gate.set()
            await stopping
            return await posting, daemon.taken

    assert asyncio.run(main()) == (([200], True), [DOCUMENT])


def test_it_ends_with_its_daemon_even_if_that_one_is_killed(tmp_path: Path) -> None:
    script = f"""
import asyncio, os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_events_process import Daemon

async def main():
    daemon = Daemon(Path({str(tmp_path)!r}))
    await daemon.supervisor.start()
    print(daemon.supervisor.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": f"{root}:{root}/tests/watch"},
    )  # fmt: skip

    assert done.returncode == -signal.SIGKILL, done.stderr
    process = Path(f"/proc/{int(done.stdout)}/stat")

    def is_gone() -> bool:
        try:
            return process.read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    asyncio.run(until(is_gone))


def test_an_event_without_room_is_dropped_and_the_daemon_learns_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events_process, "ROOM_S", 0.05)

    async def main() -> tuple[int, list[Frame]]:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, door = await loop.create_unix_connection(events_process.EventDoor, sock=theirs)
        waiting = [asyncio.create_task(door.deliver("ours", b"{}")) for _ in range(OUTSTANDING_MAX)]
        await asyncio.sleep(0)
        status = await door.deliver("late", b"{}")
        ours.settimeout(5.0)
        frames = list(FrameReader().feed(await asyncio.to_thread(ours.recv, 65536)))
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        transport.close()
        ours.close()
        return status, frames

    status, frames = asyncio.run(main())

    assert status == 503
    assert [f.kind for f in frames] == [FrameKind.EVENT] * OUTSTANDING_MAX + [FrameKind.DROPPED]
    assert frames[-1].name == b"late"


def test_frames_come_in_pieces_and_in_bounds() -> None:
    frames = [Frame(FrameKind.EVENT, 7, 200, b"name", b"body"), Frame(FrameKind.ANSWER, 8)]
    sent = b"".join(frame.encode() for frame in frames)
    reader = FrameReader()

    pieces = [sent[place : place + 1] for place in range(len(sent))]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == frames
    with pytest.raises(ValueError, match="beyond its bounds"):
        list(FrameReader().feed(Frame(FrameKind.EVENT, body=b"x" * (FRAME_BODY_MAX + 1)).encode()))
    with pytest.raises(ValueError, match="not a valid FrameKind"):
        list(FrameReader().feed(b"\x09" + Frame(FrameKind.EVENT).encode()[1:]))
    chance = random.Random(27)
    for size in range(200):
        with contextlib.suppress(ValueError):  # nothing else
            list(FrameReader().feed(chance.randbytes(size)))


def test_it_loads_nothing_of_the_daemon() -> None:
    script = (
        f"import sys, provisioner.daemon.events_process\nprint(sorted({set(WITHOUT)!r} & "
        "set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout == "[]\n"


def test_alert_sources_and_a_taken_address_are_refused(tmp_path: Path) -> None:
    site: Any = type("Site", (), {"plan": None, "settings": Settings(events_process=True)})()

    async def listen(url: str, senders: Any) -> None:
        unused: Any = None
        async with open_watch(
            url, senders, tmp_path, unused, unused, None, MasterKey.generate(), site
        ):
            raise AssertionError(url)

    with pytest.raises(InputError, match="a process of their own"):
        asyncio.run(listen("https://127.0.0.1:0", (object(),)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match="cannot listen there"):
            asyncio.run(listen(f"https://127.0.0.1:{port}", ()))

"""Lines of consoles: clean, bounded, kept by the day, and collected without a locked account."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from serving import HOST, Serving, world

from provisioner.adapters.consoles.console_files import DAY_S, ConsoleFiles
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.upkeep.leaks import OPENBMC_PORT, find_console
from provisioner.control.context import Context
from provisioner.control.watch.console_watch import ConsoleWatch
from provisioner.execution.observe.inband import describe_console, read_console_text
from provisioner.model.outcome import Blocker
from provisioner.planning.watch.log_text import LINE_MAX, LineMeter, LineReader
from provisioner.ports import BmcAddress, Call, LoginRefused, Reply
from provisioner.ports.agents import ConsoleDoor
from provisioner.quirks import UNKNOWN


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"one\r\ntwo\n", ["one", "two"]),
        (b"50%\r100%\r\n", ["50%", "100%"]),
        (b"\x1b[31mred\x1b[0m\n", ["red"]),
        (b"\x1b]0;owned\x07title\n", ["title"]),
        (b"\x1b]52;c;cm0gLXJm\x1b\\paste\n", ["paste"]),
        (b"\x1bP+q544e\x1b\\dcs\n", ["dcs"]),
        ("\u202eevil \x9b2Jc1\n".encode(), ["evil c1"]),
        (b"bell\x07 back\x08space\x00\n", ["bell backspace"]),
        (b"\xff\xfe\n", ["\ufffd\ufffd"]),
        (b"\n\n  \n", []),
        (b"a" * 5000 + b"\n", ["a" * LINE_MAX]),
        (b"no end yet", []),
    ],
)
def test_what_a_host_prints_cannot_reach_the_readers_terminal(raw: bytes, lines: list[str]) -> None:
    assert LineReader().feed(raw) == lines


def test_a_line_in_pieces_is_one_line_and_an_endless_one_is_cut() -> None:
    reader = LineReader()

    assert [reader.feed(piece) for piece in (b"ab", b"c\nd", b"\n")] == [[], ["abc"], ["d"]]
    assert reader.feed(b"x" * 4001) == ["x" * LINE_MAX]


def test_a_flood_is_counted_and_named_in_the_next_minute() -> None:
    meter = LineMeter(3)

    first = meter.admit_lines(list("abcde"), 0.0)
    second = meter.admit_lines(["f"], 61.0)

    assert first == ["a", "b", "c"]
    assert second == ["[2 lines were skipped: more than 3 in a minute]", "f"]


# --- files


def seqs(book: ConsoleFiles, after: int, most: int) -> list[int]:
    return [line.seq for line in asyncio.run(book.list_lines("n0", after, most))]


def test_lines_are_numbered_over_days_and_restarts(tmp_path: Path) -> None:
    asyncio.run(ConsoleFiles(tmp_path, 10**6).append("n0", ["a", "b"], 10.0))
    book = ConsoleFiles(tmp_path, 10**6)
    asyncio.run(book.append("n0", ["c", "d"], DAY_S + 10.0))

    assert seqs(book, -1, 3) == [1, 2, 3]
    assert seqs(book, 0, 10) == [1, 2, 3]
    assert seqs(book, 3, 10) == []
    assert asyncio.run(book.list_lines("other", -1, 5)) == []


def test_lines_are_stored_for_their_days_and_no_longer(tmp_path: Path) -> None:
    book = ConsoleFiles(tmp_path, 10**6)
    for day in range(32):
        asyncio.run(book.append("n0", [f"day {day}"], day * DAY_S + 5.0))

    asyncio.run(book.prune(31 * DAY_S + 5.0 - 30 * DAY_S))

    texts = [line.text for line in asyncio.run(book.list_lines("n0", -1, 99))]
    assert (texts[0], len(texts)) == ("day 1", 31)


def test_a_node_has_its_bound_and_the_oldest_go_first(tmp_path: Path) -> None:
    book = ConsoleFiles(tmp_path, 2000)
    for day in (0, 1):
        for n in range(40):
            asyncio.run(book.append("n0", [f"{day} line {n}"], day * DAY_S + n))

    files = list(tmp_path.rglob("*.jsonl"))

    assert sum(f.stat().st_size for f in files) <= 2000
    assert asyncio.run(book.list_lines("n0", -1, 1))[0].text == "1 line 39"


def test_a_name_is_no_path_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    book = ConsoleFiles(tmp_path, 10**6)
    asyncio.run(book.append("../../etc", ["a"], 1.0))
    (file,) = tmp_path.rglob("*.jsonl")
    with file.open("a") as day:
        day.write('[1, 2.0, "to')

    assert file.is_relative_to(tmp_path / "consoles")
    assert [line.text for line in asyncio.run(book.list_lines("../../etc", -1, 9))] == ["a"]
    assert file.stat().st_mode & 0o077 == 0


# --- doors

NEWER = {"SSH": {"ServiceEnabled": True, "Port": 2200}, "IPMI": {"ServiceEnabled": False}}
SHELL = {"SSH": {"ServiceEnabled": True, "ConsoleEntryCommand": "console com2"}}
BLUEFIELD = {"ServiceEnabled": True, "ConnectTypesSupported": ["IPMI", "SSH"]}
DGX = {"ServiceEnabled": True, "ConnectTypesSupported": ["IPMI"], "MaxConcurrentSessions": 1}
DELL = {"ServiceEnabled": False, "ConnectTypesSupported": [], "MaxConcurrentSessions": 0}


class Tree:
    """A `BmcTransport` over one system and one manager."""

    def __init__(self, system: Any, manager: Any) -> None:
        v1 = "/redfish/v1"
        self.pages = {
            v1: {n: {"@odata.id": f"{v1}/{n}"} for n in ("Systems", "Managers")},
            f"{v1}/Systems": {"Members": [{"@odata.id": f"{v1}/Systems/1"}]},
            f"{v1}/Managers": {"Members": [{"@odata.id": f"{v1}/Managers/1"}]},
            f"{v1}/Systems/1": {"Id": "1", "SerialConsole": system},
            f"{v1}/Managers/1": {"Id": "1", "SerialConsole": manager},
        }

    async def request(self, _: BmcAddress, call: Call) -> Reply:
        page = self.pages.get(call.path)
        return Reply(200 if page else 404, {}, json.dumps(page or {}).encode())


@pytest.mark.parametrize(
    ("system", "manager", "door"),
    [
        (NEWER, None, ConsoleDoor(port=2200)),
        (SHELL, None, ConsoleDoor(port=22, command="console com2")),
        (None, BLUEFIELD, ConsoleDoor(port=OPENBMC_PORT)),  # mockups: a BlueField-3
        (None, DGX, "over IPMI only"),  # mockups: Managers/BMC of a DGX H100
        (None, DELL, "not at all"),  # mockups: a PowerEdge R750
        (None, None, "not at all"),
    ],
)
def test_the_door_is_the_one_that_the_tree_shows(system: Any, manager: Any, door: Any) -> None:
    transport: Any = Tree(system, manager)

    seen = asyncio.run(find_console(Service(transport, BmcAddress("https://bmc"), UNKNOWN)))

    if isinstance(door, ConsoleDoor):
        assert seen == door
    else:
        assert isinstance(seen, Blocker)
        assert seen.detail.endswith(door)


BY_IPMI = {"IPMI": {"ServiceEnabled": True, "Port": 6623}}


@pytest.mark.parametrize(
    ("system", "manager", "port"),
    [
        (BY_IPMI, None, 6623),
        (None, DGX, 623),
        (NEWER, DGX, None),  # SSH comes first
        (None, DGX | {"ServiceEnabled": False}, None),
        (None, DELL, None),
    ],
)
def test_ipmi_is_used_only_where_it_is_allowed_on_and_nothing_else_is_offered(
    system: Any, manager: Any, port: int | None
) -> None:
    service = Service(Tree(system, manager), BmcAddress("https://bmc"), UNKNOWN)

    door = asyncio.run(find_console(service, ipmi=True))

    ipmi = ConsoleDoor(port=port, protocol="ipmi") if port else None
    assert (door == ipmi) if ipmi else getattr(door, "protocol", "") != "ipmi"


# --- collecting


class Printed:
    """`Consoles` that prints the same bytes at each opening, then ends."""

    def __init__(self, text: bytes, *, refuses: bool = False) -> None:
        self.text, self.refuses = text, refuses
        self.opened: list[str] = []

    @asynccontextmanager
    async def open(
        self, name: str, bmc: BmcAddress, door: ConsoleDoor
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.opened.append(name)
        if self.refuses:
            raise LoginRefused("no")

        async def pieces() -> AsyncIterator[bytes]:
            yield self.text

        yield pieces()


def collected(folder: Path, consoles: Printed, seconds: float) -> tuple[list[str], str, str]:
    """Collect the console of one released node for a while."""

    async def main() -> Any:
        serving = Serving(world(folder / "site"))
        await serving.release()
        place = serving.world
        place.site.machines[HOST].bmcs["host"].console_types = ("SSH",)
        await serving.start()
        assert serving.daemon is not None
        node = await serving.node()
        ours = tuple(b.model_copy(update={"rotated": True}) for b in node.bmcs)
        await place.store.nodes.save(node.model_copy(update={"bmcs": ours}))
        effects = serving.daemon.site
        book = ConsoleFiles(folder, 10**6)
        context = Context(place.store, place.clock, place.settings)
        watch = ConsoleWatch(context, effects.reach, serving.daemon.parts.matrix, consoles, book)
        running = asyncio.create_task(watch.run())
        await place.clock.sleep(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        node = await serving.node()
        site = dataclasses.replace(effects, consoles=book)
        lines = [line.text for line in await book.list_lines(HOST, -1, 99)]
        told = await describe_console(site, node)
        text = await read_console_text(site, node)
        await serving.stop()
        await place.store.close()
        return lines, told, text

    result: tuple[list[str], str, str] = virtual_time.run(main())
    return result


def test_a_console_is_collected_without_secrets_and_is_evidence(tmp_path: Path) -> None:
    consoles = Printed(b"booting\r\npassword=hunter22secret\r\nKernel panic\r\n")

    lines, told, text = collected(tmp_path, consoles, 35.0)

    assert lines[0] == "booting"
    assert "hunter22secret" not in "".join(lines)
    assert "Kernel panic" in told
    assert text.count("Kernel panic") == lines.count("Kernel panic")


def test_a_refused_login_is_not_repeated_within_the_hour(tmp_path: Path) -> None:
    consoles = Printed(b"", refuses=True)

    collected(tmp_path, consoles, 3000.0)

    assert consoles.opened == [HOST]

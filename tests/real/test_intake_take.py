"""`provisioner intake --take`: a person's word, node by node, on BMCs that answer over HTTPS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from given_events import in_state
from local_daemon import daemon
from program import alone
from simulated import Served, served

from provisioner.daemon.data import open_data
from provisioner.model.node import Node, State
from provisioner.model.tenant import PortPlacement
from provisioner.planning.release.entitlement import find_foreign_service

HOST, NOW = "su0-n00", 1_700_000_000.0


@pytest.fixture
def site() -> Iterator[Served]:
    with served(nodes=1, speed=600.0) as found:
        yield found


@pytest.fixture
def place(site: Served, tmp_path: Path) -> Path:
    (tmp_path / "expected.json").write_text(json.dumps(site.site.build_expected()))
    return tmp_path


def intake(site: Served, place: Path, *words: str) -> tuple[int, str]:
    """The command's exit code and words; cards show no serial yet, so that their BMCs are named."""
    files = ["--file", str(place / "expected.json"), "--data", str(place / "var")]
    cards = [w for name, url in site.site.urls.items() if "_" in name for w in ("--bmc", url)]
    with daemon(place / "var"):
        done = alone(["intake", *files, *cards, *words], place)
    return done.returncode, done.stdout + done.stderr


def stored(place: Path) -> tuple[Node | None, list[dict[str, Any]]]:
    """The host's row, and the requests in the journal."""

    async def read() -> tuple[Node | None, list[dict[str, Any]]]:
        async with open_data(place / "var", NOW) as opened:
            rows = await opened.store.journal.list(0, 10_000)
            requests = [dict(r["detail"]) for r in rows if r["kind"] == "request"]
            return await opened.store.nodes.get(HOST), requests

    return asyncio.run(read())


def quarantine(place: Path) -> None:
    """The row as the daemon leaves a stranger that it found in a customer's network."""

    async def write() -> None:
        async with open_data(place / "var", NOW) as opened:
            node = await opened.store.nodes.get(HOST)
            assert node is not None
            found = [PortPlacement(switch="leaf-su0-r0", interface="swp1s0", vrf="PROD")]
            why = find_foreign_service(node, found)
            await opened.store.nodes.save(in_state(node, State.QUARANTINED, NOW, blockers=why))

    asyncio.run(write())


def test_a_node_is_given_by_name_and_the_journal_names_the_person(site: Served, place: Path):
    code, text = intake(site, place, "--take", HOST, "--take", HOST, "--yes")

    node, requests = stored(place)
    assert code == 0, text
    assert node is not None
    assert (node.taken, node.state) == (True, State.DISCOVERED)
    assert [(r["request"], bool(r["by"])) for r in requests] == [("take", True)]


def test_a_stranger_in_quarantine_is_tried_again_and_only_once(site: Served, place: Path):
    assert intake(site, place, "--yes")[0] == 0
    quarantine(place)
    waiting, _ = stored(place)

    code, text = intake(site, place, "--take", HOST, "--yes", "--json")
    taken, requests = stored(place)
    again = intake(site, place, "--take", HOST, "--yes")

    assert waiting is not None
    assert f"intake --take {HOST}" in waiting.blockers[0].unblock
    assert code == 0
    assert HOST in json.loads(text.splitlines()[-1])["result"]["known"]
    assert taken is not None
    assert (taken.taken, taken.blockers) == (True, ())
    assert taken.state is not State.QUARANTINED
    assert len(requests) == 1
    assert again[0] == 1
    assert "its ports were given to the provisioner already" in again[1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "there is no terminal to ask on"),
        (("--take", HOST), 2, "there is no terminal to ask on"),
        (("--take", HOST, "--dry-run"), 0, "13 nodes would be taken in, 0 known before"),
        (("--take", "su9-n99", "--yes"), 1, "no node of this name was taken in"),
        (("--take", HOST, "--take", "su9-n99", "--yes"), 1, "no node of this name was taken in"),
        (("--take", "leaf-su0-r0", "--yes"), 1, "it is a switch"),
    ],
)
def test_nothing_is_given_without_the_word_or_by_a_wrong_name(
    site: Served, place: Path, words: tuple[str, ...], code: int, said: str
):
    ended, text = intake(site, place, *words)

    node, requests = stored(place)
    assert (ended, requests) == (code, []), text
    assert said in text
    assert node is None or not node.taken

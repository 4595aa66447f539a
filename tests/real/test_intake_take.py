"""`provisioner intake --take`: a person's word, node by node, on BMCs that answer over HTTPS."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from given_events import in_state
from local_daemon import daemon
from program import alone
from simulated import Served, served

from provisioner.daemon.data import open_data
from provisioner.model.node import BmcRef, Node, State
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
    with daemon(place / "var", reads_ports=True):
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


LEAF = "leaf-su0-r0"


def list_password(place: Path, password: str) -> None:
    """Write this password of the leaf into the list."""
    expected = json.loads((place / "expected.json").read_text())
    (entry,) = [n for n in expected["nodes"] if n["name"] == LEAF]
    entry["password"] = password
    (place / "expected.json").write_text(json.dumps(expected))


def stored_password(place: Path) -> str:
    async def read() -> str:
        async with open_data(place / "var", NOW) as opened:
            login = await opened.vault.current(f"{LEAF}/api")
            assert login is not None
            return login[1].reveal()

    return asyncio.run(read())


def pin(site: Served, place: Path) -> None:
    """Note the leaf's certificate, as the daemon does when it has identified the switch."""
    address = urlsplit(site.url(LEAF))
    found = ssl.get_server_certificate((str(address.hostname), address.port or 443))
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(found)).hexdigest()

    async def write() -> None:
        async with open_data(place / "var", NOW) as opened:
            node = await opened.store.nodes.get(LEAF)
            assert node is not None
            api = BmcRef(name="api", url=site.url(LEAF), kind="switch", pin=digest)
            await opened.store.nodes.save(node.model_copy(update={"bmcs": (api,)}))

    asyncio.run(write())


def test_intake_again_stores_the_password_that_a_switch_was_given(site: Served, place: Path):
    assert intake(site, place, "--yes")[0] == 0
    first = stored_password(place)

    # its certificate is not pinned yet, so it is not asked: that is said, and nothing is stored
    list_password(place, "typed-wrong-1")
    code, text = intake(site, place, "--yes", "--json")
    assert (code, stored_password(place)) == (1, first), text
    assert "whether its stored login works is not known" in text
    pin(site, place)

    # the stored one works: a mistake on the list does not replace it
    list_password(place, "typed-wrong-1")
    code, text = intake(site, place, "--yes", "--json")
    result = json.loads(text.splitlines()[-1])["result"]
    assert (code, result.get("renewed"), stored_password(place)) == (0, None, first)

    # neither works: it is said, and what is stored stays
    site.site.switches[LEAF].password = "Changed-by-hand-1"
    code, text = intake(site, place, "--yes", "--json")
    assert code == 1, text
    assert "it refuses the stored login and the one on the list" in text
    assert stored_password(place) == first
    assert "typed-wrong-1" not in text

    list_password(place, "Changed-by-hand-1")
    code, text = intake(site, place, "--yes", "--json")
    result = json.loads(text.splitlines()[-1])["result"]
    assert (code, result["renewed"]) == (0, [LEAF]), text
    assert stored_password(place) == "Changed-by-hand-1"
    assert "Changed-by-hand-1" not in text


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

"""Verbs that take something away show it, ask, name the person, and refuse what has no way back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaign_fleet import Fleet
from campaign_parts import MATRIX
from program import Done, run

from provisioner.api import console_pages as local_peer
from provisioner.daemon.data import DATABASE, open_data, read_matrix
from provisioner.model.access import ChangeKind
from provisioner.model.case import Case, Origin, Service
from provisioner.model.certificate import Certificate
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.tenant import Phase, Tenant
from provisioner.ports import StaleWrite
from provisioner.store.rows.node_rows import write_node_request
from provisioner.store.sql_store import open_store

NOW = 1_700_000_000.0
SERVING = Node(
    id="n0", kind=NodeKind.HOST, state=State.RELEASED, placement=Placement.CUSTOMER, vrf="RED",
    tenant="red", served="red", profile="hgx-h100-bf3", release="spectrum-x-1.3.0",
    certificate="c0",
)  # fmt: skip
CASE = Case(
    id="n0-c0001", node="n0", tenant="red", origin=Origin.CHECK, reason="it is old",
    service=Service.DRAIN, opened_at=NOW,
)  # fmt: skip
CERTIFICATE = Certificate(
    id="c0", node="n0", release="spectrum-x-1.3.0", profile="hgx-h100-bf3", serials=(),
    versions=(), boot_id="b", location="pod0/su0/n00", ports=(), report_digest="r",
    matrix_digest="m", issued_at=NOW, expires_at=NOW + 9e9,
)  # fmt: skip
RED = Tenant(
    name="red", vrf="RED", number=1, l3vni=4001, nodes_wanted=1, phase=Phase.READY
)  # fmt: skip
PINNED = {
    "releases": {
        "spectrum-x-1.3.0": {
            "profiles": {
                "hgx-h100-bf3": {
                    "pins": {
                        "host.os": {
                            "version": "ubuntu-1", "artifact": "ubuntu-1.raw",
                            "sha256": "0" * 64, "evidence": "the site's own",
                        }
                    }
                }
            }
        }
    }
}  # fmt: skip
ROOT = Path(__file__).parents[2]
VERBS: Mapping[str, Sequence[str]] = {
    "node reclaim": ("n0",),
    "tenant shrink": ("red", "--to", "0"),
    "certificate revoke": ("n0", "--reason", "wrong cable"),
    "case retire": ("n0-c0001", "--why", "too old"),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a data directory `var`, the matrix, and an overlay that pins a system."""

    async def fill() -> None:
        async with open_data(tmp_path / "var", NOW) as opened:
            store = opened.store
            node = await store.nodes.add(SERVING)
            operation = await store.operations.open("n0", "journey", NOW)
            assert operation is not None
            operation = await store.operations.take(operation.id)
            signed = opened.signer.sign(CERTIFICATE)
            operation, _ = await store.operations.record(
                operation, node=node, certificate=signed, now=NOW
            )
            await store.cases.add(CASE, now=NOW)
            await store.tenants.save(RED, new=True, nodes=(), request="create", now=NOW)

    asyncio.run(fill())
    (tmp_path / "os.yaml").write_text(yaml.safe_dump(PINNED))
    return tmp_path


def journal(place: Path) -> list[dict[str, Any]]:
    async def rows() -> list[dict[str, Any]]:
        store = open_store(place / "var" / DATABASE)
        found = [dict(r) for r in await store.journal.list()]
        await store.close()
        return found

    return asyncio.run(rows())


def ask(place: Path, verb: str, *more: str) -> Done:
    pinned = read_matrix([ROOT / "firmware_matrix.yaml", place / "os.yaml"])
    return run([*verb.split(), *VERBS[verb], *more], place, pinned)


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_terminal_or_yes_it_shows_and_does_nothing(place: Path, verb: str):
    before = journal(place)

    asked = ask(place, verb)

    assert asked.returncode == 2
    assert "--yes" in asked.stderr
    assert "--dry-run" in asked.stderr
    assert journal(place) == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_shows_and_does_nothing(place: Path, verb: str):
    before = journal(place)

    shown = ask(place, verb, "--dry-run")

    assert shown.returncode == 0, shown.stderr
    assert "n0" in shown.stdout
    assert journal(place) == before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_on_a_terminal_it_asks(
    place: Path, verb: str, answer: str, code: int, monkeypatch: pytest.MonkeyPatch
):
    before = journal(place)
    monkeypatch.setattr("sys.stdin", Terminal(answer))

    asked = ask(place, verb)

    assert asked.returncode == code, asked.stdout + asked.stderr
    assert "Is that meant?" in asked.stdout
    assert (journal(place) == before) == bool(code)


@pytest.mark.parametrize("verb", VERBS)
def test_the_journal_names_the_person_at_the_socket(
    place: Path, verb: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local_peer, "_name", lambda _user: "ann")  # as the kernel reports it
    before = journal(place)

    assert ask(place, verb, "--yes").returncode == 0

    new = journal(place)[len(before) :]
    assert new
    assert {row["detail"]["by"] for row in new if row["detail"].get("by")} == {"ann"}


@pytest.mark.parametrize("verb", VERBS)
def test_another_person_has_to_approve_what_the_site_wants_approved(place: Path, verb: str):
    kinds = {"node reclaim": "node.reclaim", "tenant shrink": "tenant.shrink",
             "certificate revoke": "certificate.revoke", "case retire": "case.retire"}  # fmt: skip
    policy = [ChangeKind(kinds[verb])]
    pinned = read_matrix([ROOT / "firmware_matrix.yaml", place / "os.yaml"])
    words = [*verb.split(), *VERBS[verb], "--yes"]

    asked = run(words, place, pinned, api_four_eyes=policy)
    own = run(["request", "approve", "r1"], place, pinned, api_four_eyes=policy)

    assert (asked.returncode, own.returncode) == (3, 1)
    assert "waiting" in asked.stdout
    assert "what he asked for himself" in own.stderr
    assert "released" in run(["node", "show", "n0"], place).stdout


@pytest.mark.parametrize(
    "words", [["node", "reclaim", "n0"], ["tenant", "shrink", "red", "--to", "0"]]
)
def test_a_node_that_could_not_come_back_stays_unless_that_is_accepted(
    place: Path, words: list[str]
):
    refused = run([*words, "--yes"], place)
    shown = run([*words, "--dry-run"], place)
    unchanged = json.loads(run(["node", "show", "n0", "--json"], place).stdout)
    taken = run([*words, "--yes", "--accept-no-return"], place)
    node = json.loads(run(["node", "show", "n0", "--json"], place).stdout)

    assert (refused.returncode, shown.returncode) == (1, 1)
    for done in (refused, shown):
        assert "pins no host.os" in done.stdout + done.stderr
    assert "accept_no_return" in refused.stderr
    assert unchanged["state"] == "released"
    assert taken.returncode == 0
    assert node["state"] == "draining"


def test_a_case_that_is_closed_is_not_retired(place: Path):
    run(["case", "close", "n0-c0001", "--why", "wrong"], place)

    assert ask(place, "case retire", "--yes").returncode == 1


def test_a_certificate_is_revoked_once(place: Path):
    first, second = (ask(place, "certificate revoke", "--yes") for _ in range(2))

    assert (first.returncode, second.returncode) == (0, 1)
    assert "revoked already" in second.stderr


def test_what_changed_since_it_was_shown_leaves_no_row_in_the_journal(place: Path):
    async def write() -> None:
        store = open_store(place / "var" / DATABASE)
        node = await store.nodes.get("n0")
        assert node is not None
        await store.nodes.save(node)
        before = await store.journal.list()
        with pytest.raises(StaleWrite):
            await store.write(lambda c: write_node_request(c, node, {"request": "reclaim"}, NOW))
        assert await store.journal.list() == before
        await store.close()

    asyncio.run(write())


def test_a_tenant_without_nodes_is_deleted_only_when_that_is_meant(place: Path):
    async def free() -> None:
        store = open_store(place / "var" / DATABASE)
        node = await store.nodes.get("n0")
        assert node is not None
        await store.nodes.save(node.model_copy(update={"tenant": "", "served": "", "vrf": ""}))
        await store.nodes.add(Node(id="leaf-su0-r0", kind=NodeKind.SWITCH, address="https://127.1"))
        await store.close()

    asyncio.run(free())
    before = journal(place)
    asked = run(["tenant", "delete", "red"], place)
    shown = run(["tenant", "delete", "red", "--dry-run"], place)

    assert asked.returncode == shown.returncode == 1  # its leaf does not answer
    assert journal(place) == before

    meant = run(["tenant", "delete", "red", "--yes"], place)
    assert meant.returncode == 1  # written down, and waits for the leaf
    rows = [r["detail"] for r in journal(place) if r["detail"].get("request") == "delete"]
    assert [bool(row["by"]) for row in rows] == [True]


def test_a_campaign_goes_back_only_when_that_is_meant(tmp_path: Path):
    (tmp_path / "var").mkdir(mode=0o700)

    async def moved() -> None:
        fleet = Fleet(hosts=4, units=1, idle=0, file=str(tmp_path / "var" / DATABASE))
        await fleet.build()
        terms = {"canary": {"size": 1, "soak_s": 60}, "waves": [{}], "tenants": {"notice_s": 0}}
        await fleet.live(await fleet.start("kind=host", **terms), hours=200)
        await fleet.store.close()

    asyncio.run(moved())
    words = ["campaign", "rollback", "c0001"]

    def ask_so(*more: str) -> Done:
        return run([*words, *more], tmp_path, MATRIX, production=False)

    asked, shown = ask_so(), ask_so("--dry-run")
    state = json.loads(run(["campaign", "list", "--json"], tmp_path).stdout)[0]["state"]
    meant = ask_so("--yes")

    assert (asked.returncode, shown.returncode, state) == (2, 0, "done")
    assert "4 nodes of c0001 go back to base" in shown.stdout
    assert meant.returncode == 0, meant.stdout + meant.stderr
    assert any(row["detail"].get("by") for row in journal(tmp_path)[-3:])


class Terminal:
    """A standard input on which a person types."""

    def __init__(self, typed: str) -> None:
        self._lines = typed.splitlines(keepends=True)

    def isatty(self) -> bool:
        return True

    def readline(self, _size: int = -1) -> str:
        return self._lines.pop(0) if self._lines else ""

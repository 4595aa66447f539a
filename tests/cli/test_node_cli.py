"""`provisioner node` on a small store: what it shows, and what a person may ask of a node."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import sqlite3
from pathlib import Path

import pytest
from program import alone, run

from provisioner.daemon.data import open_data
from provisioner.model.erasure import Disk, ErasureRecord, ErasureReport, Holder, Result
from provisioner.model.inventory import Component, Inventory
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.attestation import parse_envelope as unsealed
from provisioner.store.signing import signed

NOW = 1_700_000_000.0
ME = pwd.getpwuid(os.getuid()).pw_name  # of this process: it has no login of its own
BLOCKER = Blocker(
    reason=Reason.CHECK_FAILED,
    subject="hgx.gpu/GPU_SXM_5",
    detail="it says [/bold] [red]nonsense",
    unblock="Replace the part.",
)
NODES = (
    Node(
        id="n0",
        kind=NodeKind.HOST,
        state=State.RELEASED,
        placement=Placement.CUSTOMER,
        vrf="RED",
        tenant="red",
        profile="hgx",
    ),
    Node(
        id="n1",
        kind=NodeKind.HOST,
        state=State.QUARANTINED,
        placement=Placement.MAINTENANCE,
        vrf="MAINT",
        profile="hgx",
        attempts=2,
        blockers=(BLOCKER,),
    ),
    Node(id="n2", kind=NodeKind.HOST, state=State.QUARANTINED, blockers=(BLOCKER,)),
    Node(
        id="n3",
        kind=NodeKind.HOST,
        state=State.CONVERGING,
        placement=Placement.MAINTENANCE,
        profile="hgx",
        blockers=(BLOCKER.model_copy(update={"reason": Reason.OUR_BUG}),),
    ),
    Node(id="leaf", kind=NodeKind.SWITCH, state=State.RELEASED),
)
INVENTORY = Inventory(
    node="n1",
    vendor="unknown",
    components=(Component(kind="host.bmc", slot="host", version="[b]1.0", source="/redfish/v1"),),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a few nodes, as a stopped daemon left it."""
    directory = tmp_path / "data"

    async def fill() -> None:
        async with open_data(directory, NOW) as opened:
            for node in NODES:
                await opened.store.nodes.add(node)
            operation = await opened.store.operations.open("n1", "journey", NOW)
            assert operation is not None
            operation = await opened.store.operations.take(operation.id)
            await opened.store.operations.record(operation, inventory=INVENTORY, now=NOW)

    asyncio.run(fill())
    return directory


class Person:
    """Types commands, and reads what comes."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def types(self, words: str) -> tuple[int, str]:
        """Exit code, and what was said on either stream."""
        done = run(["node", *words.split(), "--data", "data"], self._data.parent)
        return done.returncode, done.stdout + done.stderr

    def sees(self, name: str) -> Node:
        """The node as it is stored now."""
        code, text = self.types(f"show {name} --json")
        assert code == 0
        fields = set(Node.model_fields)
        return Node.model_validate({k: v for k, v in json.loads(text).items() if k in fields})


@pytest.fixture
def person(data: Path) -> Person:
    return Person(data)


def test_the_list_shows_state_place_and_blocker_of_every_node(person: Person) -> None:
    code, text = person.types("list")

    assert code == 0
    for word in ("n0", "released", "RED", "n1", "quarantined", "check_failed", "GPU_SXM_5"):
        assert word in text


def test_the_list_for_machines_is_the_nodes_themselves(person: Person) -> None:
    code, text = person.types("list --json")

    assert code == 0
    found = {n["id"]: n["state"] for n in json.loads(text)}
    assert found == {n.id: n.state.value for n in NODES}


def test_one_node_is_shown_with_its_remedy_and_with_what_a_device_said_as_it_said_it(
    person: Person,
) -> None:
    code, text = person.types("show n1")

    assert code == 0
    assert "it says [/bold] [red]nonsense" in text
    assert "unblock: Replace the part." in text
    assert "[b]1.0" in person.types("parts n1")[1]


def test_an_inventory_is_shown_as_it_was_read(person: Person) -> None:
    code, text = person.types("inventory n1 -o json")

    assert code == 0
    assert json.loads(text)["components"][0]["version"] == "[b]1.0"


def test_a_fenced_node_that_is_retried_converges_again(person: Person) -> None:
    code, text = person.types("retry n1")
    assert (code, "state: converging" in text) == (0, True)

    node = person.sees("n1")
    assert (node.state, node.blockers, node.attempts) == (State.CONVERGING, (), 0)


def test_a_node_that_was_never_identified_is_retried_as_a_stranger(person: Person) -> None:
    assert "state: discovered" in person.types("retry n2")[1]


def test_a_node_that_a_bug_of_ours_parked_goes_on_where_it_was(person: Person) -> None:
    assert "state: converging" in person.types("retry n3")[1]
    assert person.sees("n3").blockers == ()


def test_a_released_node_that_is_reclaimed_drains_and_is_nobodys(person: Person) -> None:
    code, text = person.types("reclaim n0 --yes --accept-no-return")
    assert (code, "state: draining" in text) == (0, True)

    node = person.sees("n0")
    assert (node.tenant, node.placement) == ("", Placement.CUSTOMER)


def test_every_request_is_in_the_journal(person: Person, data: Path) -> None:
    person.types("retry n1")
    person.types("reclaim n0 --yes --accept-no-return")

    async def rows() -> list[tuple[str, object]]:
        async with open_data(data, NOW) as opened:
            return [
                (row["node"], row["detail"])
                for row in await opened.store.journal.list()
                if row["kind"] == "request"
            ]

    (retried, reclaimed) = asyncio.run(rows())
    assert retried == ("n1", {"request": "retry", "by": ME, "id": 1, "approved": ""})
    assert reclaimed == ("n0", {"request": "reclaim", "by": ME, "id": 2, "approved": ""})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("show n9", "no such node"),
        ("retry n9", "no such node"),
        ("retry n0", "it is released, not quarantined"),
        ("reclaim n1", "it is quarantined, not released"),
    ],
)
def test_what_cannot_be_asked_changes_nothing(person: Person, words: str, told: str) -> None:
    before = person.types("list --json")

    code, text = person.types(words)

    assert code == (4 if "n9" in words else 1)
    assert told in text
    assert person.types("list --json") == before


def test_a_damaged_database_is_told_and_left_as_it_is(person: Person, data: Path) -> None:
    file = data / "provisioner.db"
    for name in ("provisioner.db-wal", "provisioner.db-shm"):
        (data / name).unlink(missing_ok=True)
    file.write_bytes(b"not a database" * 1000)

    code, text = person.types("list --offline")

    assert (code, text.count("\n")) == (2, 1)
    assert "provisioner.db" in text
    assert file.read_bytes() == b"not a database" * 1000


def test_a_directory_is_read_without_a_daemon_and_without_its_master_key(data: Path) -> None:
    (data / "master.key").unlink()
    before = {file.name: file.read_bytes() for file in data.iterdir() if file.is_file()}

    listed = run(["node", "list", "--data", "data", "--offline", "--json"], data.parent)
    shown = run(["explain", "n1", "--data", "data", "--offline"], data.parent)
    sealed = run(["certificate", "revocations", "--data", "data", "--offline"], data.parent)

    assert [n["id"] for n in json.loads(listed.stdout)] == sorted(n.id for n in NODES)
    assert "Replace the part." in shown.stdout
    assert (sealed.returncode, "no such signing key" in sealed.stderr) == (4, True)
    after = {file.name: file.read_bytes() for file in data.iterdir() if file.is_file()}
    assert {n: b for n, b in after.items() if not n.endswith(("-wal", "-shm"))} == before


def test_a_database_of_before_the_first_version_is_refused_and_kept(data: Path) -> None:
    with sqlite3.connect(data / "provisioner.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")

    done = run(["node", "list", "--data", "data", "--offline"], data.parent)

    assert done.returncode == 2
    assert "is older than all schemas" in done.stderr


def test_nothing_is_changed_without_a_daemon(data: Path) -> None:
    done = alone(["node", "retry", "n1", "--data", "data"], data.parent)

    assert done.returncode == 1
    assert "provisioner serve" in done.stderr


@pytest.fixture
def erased(data: Path) -> ErasureReport:
    """A report of the released node, as the daemon stores it."""
    disk = Disk(name="/dev/nvme0n1", serial="S1", size_bytes=10)
    record = ErasureRecord(holder=Holder.DISK, device=disk.name, serial="S1", result=Result.DONE)
    report = ErasureReport(
        node="n0",
        tenant="red",
        fenced_at=1.0,
        started_at=2.0,
        ended_at=3.0,
        before=(disk,),
        after=(disk,),
        records=(record,),
    )

    async def store() -> None:
        async with open_data(data, NOW) as opened:
            digest = await opened.store.evidence.put_output(report.model_dump_json())
            node = await opened.store.nodes.get("n0")
            assert node is not None
            await opened.store.nodes.save(node.model_copy(update={"erasure": digest}))

    asyncio.run(store())
    return report


def test_an_erasure_is_told_for_people_with_its_verdict(
    person: Person, erased: ErasureReport
) -> None:
    code, text = person.types("erasure n0")

    assert code == 0
    assert text.startswith("NOT SANITIZED: node n0")  # its memory has no record
    assert "S1" in text
    assert "host_memory: it has no record" in text


def test_an_erasure_is_given_away_signed(person: Person, data: Path, erased: ErasureReport) -> None:
    code, text = person.types("erasure n0 --json")

    async def key() -> tuple[str, bytes]:
        async with open_data(data, NOW) as opened:
            return opened.signer.key_id, opened.signer.public_key

    envelope = unsealed(json.dumps(json.loads(text)["envelope"]))
    name, public = asyncio.run(key())
    document = json.loads(envelope.payload)
    assert code == 0
    assert envelope.payload_type == "application/vnd.provisioner.erasure+json"
    assert signed(envelope, {name: public})
    assert not signed(envelope, {name: bytes(32)})
    assert ErasureReport.model_validate(document["report"]) == erased
    assert document["sanitized"] is False


def test_a_node_that_was_never_erased_has_no_report(person: Person) -> None:
    code, text = person.types("erasure n1")

    assert code == 4
    assert "no such erasure report" in text


def test_a_node_taken_back_for_repair_keeps_its_tenant(person: Person) -> None:
    assert person.types("reclaim n0 --for-repair --yes --accept-no-return")[0] == 0

    node = person.sees("n0")
    assert (node.state, node.tenant, node.served) == (State.DRAINING, "red", "")


def test_watch_counts_the_fleet_and_names_who_is_under_way(person: Person) -> None:
    _, shown = person.types("watch --once")
    _, text = person.types("watch --once --json")
    told = json.loads(text)

    assert "2 of 5" in shown
    assert told["nodes"] == 5
    assert [n["node"] for n in told["under_way"]] == ["n3"]

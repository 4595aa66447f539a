"""`provisioner log`: entries from the journal, a tenant's export, verified offline; forks found."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from given_events import event_of
from local_daemon import daemon
from program import Done, alone
from pymerkle import InvalidProof, verify_inclusion
from pymerkle.core import _inclusion_path_layout
from pymerkle.proof import InclusionProof
from sqlalchemy import text
from standing_witness import Witness, serve

from provisioner.access.tokens import new_token
from provisioner.daemon.data import open_data
from provisioner.model.access import Role
from provisioner.model.node import Node, NodeKind
from provisioner.model.tenant import Tenant
from provisioner.planning.certification.evidence_log import encode_entry, hash_leaf
from provisioner.store.repositories import evidence_log as rows
from provisioner.store.rows import request_rows
from provisioner.store.sql_store import SqlStore, open_store

NOW = time.time() - 10_000.0
PROOF = "b" * 64
FENCED = {
    "confirmed": True,
    "placements": [{"switch": "leaf0", "interface": "swp1", "vrf": "maintenance"}],
}
LIFE = (
    ("released", {"tenant": "red", "certificate": "c1", "proof": PROOF}),
    ("attention", {"blockers": []}),
    ("fence", FENCED),
    ("sanitized", {"report": "d" * 64, "problems": []}),
    ("released", {"tenant": "blue", "certificate": "c2", "proof": PROOF}),
)


async def fill(store: SqlStore) -> None:
    """Two nodes that serve red, and blue after it."""
    for after, (kind, detail) in enumerate(LIFE):
        for node in ("n1", "n2"):
            await store.journal.append(event_of(kind, node, detail), NOW + after)


async def fold(store: SqlStore) -> None:
    while await store.evidence_log.advance():
        pass


def test_a_damaged_certificate_stops_neither_the_log_nor_the_daemon() -> None:
    async def play() -> list[str]:
        store = open_store(":memory:")
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        spoiled = text(
            "insert into certificates (id, node, body, issued_at, revoked_reason)"
            " values ('c1', 'n1', '{', 0, '')"
        )
        await store.write(lambda c: c.execute(spoiled).rowcount)
        for kind, detail in (("certified", {"certificate": "c1"}), LIFE[0]):
            await store.journal.append(event_of(kind, "n1", detail), NOW)
        await fold(store)
        entries = await store.evidence_log.list_entries("n1", 2)
        await store.close()
        return [f"{e.kind} {e.evidence}" for _, e in entries]

    assert asyncio.run(play()) == ["certified ", f"entered {PROOF}"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the data directory `var`, and the token of the tenant red."""
    folder = tmp_path_factory.mktemp("log")
    token, record = new_token("portal", Role.TENANT, "red", 1.0, time.time())

    async def make() -> None:
        async with open_data(folder / "var", NOW) as opened:
            for tenant in ("red", "blue"):
                await opened.store.tenants.put(Tenant(name=tenant, vrf=tenant.upper()))
            await fill(opened.store)
            await opened.store.write(partial(request_rows.add_token, token=record, now=NOW))
            await fold(opened.store)

    asyncio.run(make())
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text(token, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def url(place: Path) -> Iterator[str]:
    with daemon(place / "var", api_serve=True) as served:
        (place / "keys.pem").write_text(alone(["certificate", "keys", "--pem"], place).stdout)
        yield served


def test_a_tenant_verifies_its_own_time_offline_and_sees_no_other(place: Path, url: str) -> None:
    def ask(*words: str) -> Done:
        ca = str(place / "var" / "agent-ca.pem")
        return alone([*words, "--server", url, "--ca", ca, "--token-file", "token"], place)

    assert ask("log", "head", "--out", "known.txt").returncode == 0
    size = int((place / "known.txt").read_text().splitlines()[1])
    written = ask("log", "export", "n1", "--since", str(size), "--out", "n1.json")
    assert written.returncode == 0, written.stderr + written.stdout
    verify = ["log", "verify", "n1.json", "--key", "keys.pem", "--known", "known.txt"]
    told = json.loads(alone([*verify, "--json"], place).stdout)
    exported = json.loads((place / "n1.json").read_text())
    for proven in exported["entries"]:
        verify_by_pymerkle(proven, exported["checkpoint"])
    exported["entries"][0]["entry"]["at"] = "2020-01-01T00:00:00.000000Z"
    (place / "n1.json").write_text(json.dumps(exported))
    changed = alone(verify, place)

    with pytest.raises(InvalidProof):
        verify_by_pymerkle(exported["entries"][0], exported["checkpoint"])
    assert size == 8  # four events of each node's five
    assert told["valid"]
    assert any("in the network of red from" in line for line in told["proved"])
    assert any("the log only grew" in line for line in told["proved"])
    kinds = [e["entry"]["kind"] for e in exported["entries"]]
    assert kinds == ["entered", "left"]  # and not that blue has it now
    assert "is not in the log" in changed.stdout
    assert changed.returncode == 1
    assert ask("log", "export", "n9").returncode == 4


def verify_by_pymerkle(proven: dict[str, Any], checkpoint: str) -> None:
    """Another implementation follows the path of an entry, as the file has it."""
    _, size, root = checkpoint.splitlines()[:3]
    leaf = json.dumps(proven["entry"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    hashed = hashlib.sha256(b"\x00" + leaf.encode()).digest()
    at = proven["index"] + 1
    rule, _ = _inclusion_path_layout(at, int(size))
    path = [hashed, *map(bytes.fromhex, proven["path"])]
    proof = InclusionProof("sha256", True, int(size), at, rule, path)
    verify_inclusion(hashed, base64.b64decode(root), proof, index=at, size=int(size))


def test_the_staff_export_all_of_a_node_and_learn_of_a_log_that_went_back(
    place: Path, url: str
) -> None:
    shown = json.loads(alone(["log", "export", "n2", "-o", "json"], place).stdout)
    ahead = alone(["log", "head", "--since", "99"], place)
    head = json.loads(alone(["log", "head", "--since", "3", "--json"], place).stdout)

    entries = shown["bundle"]["entries"] if "bundle" in shown else shown["entries"]
    assert [e["entry"]["kind"] for e in entries] == ["entered", "left", "erased", "entered"]
    assert "fewer than the 99 you know" in ahead.stderr
    assert head["since"]["path"]
    assert head["verifier_key"].count("+") >= 2


def test_a_crash_while_entries_are_written_leaves_none_out_and_writes_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with open_data(tmp_path / "var", NOW) as opened:
            store = opened.store
            await fill(store)
            monkeypatch.setattr(rows, "ROWS_MAX", 3)
            turns, more = 0, True
            while more:
                with monkeypatch.context() as dying:  # after the entries, before their hashes
                    dying.setattr(rows, "_read_edge", raises)
                    if turns < 2:
                        with pytest.raises(MemoryError):
                            await store.evidence_log.advance()
                more = await store.evidence_log.advance()
                turns += 1
            state = await store.evidence_log.read_state()
            roots = [await store.evidence_log.read_root(size) for size in range(state.size + 1)]
            found = [
                await store.evidence_log.list_entries(node, state.size) for node in ("n1", "n2")
            ]

            assert (state.size, state.behind, turns > 2) == (8, 0, True)
            assert sorted(index for each in found for index, _ in each) == list(range(8))
            assert len(set(roots)) == 9
            assert roots[1] == hash_leaf(encode_entry(found[0][0][1]))
            proven = await store.evidence_log.prove_entries(found[0], state.size)
            assert all(len(one.path) == 3 for one in proven)

    asyncio.run(play())


def raises(*_: object) -> None:
    raise MemoryError


@pytest.fixture
def witnessed(place: Path, url: str) -> Iterator[Witness]:
    """A witness that knows this log, and `policy.txt` that asks for it."""
    witness = Witness()
    witness.trust(json.loads(alone(["log", "head", "--json"], place).stdout)["verifier_key"])
    with serve(witness) as prefix:
        line = f"witness w1 {witness.verifier_key} {prefix}\nquorum w1\n"
        (place / "policy.txt").write_text(line)
        yield witness


def test_a_witness_cosigns_the_head_and_its_growth_and_a_tenant_asks_for_that(
    place: Path, witnessed: Witness
) -> None:
    ask = ["log", "witness", "--policy", "policy.txt"]
    looked = alone([*ask, "--dry-run"], place)
    asked_so_far = dict(witnessed.seen)
    first = alone([*ask, "--out", "witnessed.txt"], place)
    again = json.loads(alone([*ask, "--json"], place).stdout)
    alone(["log", "export", "n2", "--since", "8", "--out", "n2.json"], place)
    verify = ["log", "verify", "n2.json", "--key", "keys.pem", "--policy", "policy.txt"]
    told = alone([*verify, "--known", "witnessed.txt"], place)
    alone(["log", "head", "--out", "bare.txt"], place)
    bare = alone([*verify, "--known", "bare.txt"], place)

    assert "/w1/add-checkpoint" in looked.stdout
    assert asked_so_far == {}
    assert first.returncode == 0, first.stderr + first.stdout
    assert again["quorum"]
    assert again["problems"] == {}
    assert "were witnessed by w1: the policy's quorum" in " ".join(told.stdout.split())
    assert told.returncode == 0
    assert "witnessed by nobody: NOT the policy's quorum" in " ".join(bare.stdout.split())
    assert bare.returncode == 1
    assert alone(verify, place).returncode == 2  # a policy without a checkpoint to judge


def test_a_witness_that_knows_more_or_another_log_is_told_and_nothing_is_written(
    place: Path, witnessed: Witness
) -> None:
    ask = ["log", "witness", "--policy", "policy.txt", "--out", "never.txt"]
    (origin,) = witnessed.logs
    witnessed.seen[origin] = (99, b"\0" * 32)
    restored = alone(ask, place)
    witnessed.seen[origin] = (8, b"\0" * 32)
    forked = alone(ask, place)
    witnessed.logs[origin] = b"\1" + b"\2" * 32
    other_key = alone(ask, place)
    witnessed.logs.clear()
    unknown = alone(ask, place)

    for done, words in (
        (restored, "it cosigned 99 entries, and the log has 8"),
        (forked, "it saw another log under this name"),
        (other_key, "it trusts another key"),
        (unknown, "it does not know this log"),
    ):
        assert words in " ".join(done.stdout.split())
        assert done.returncode == 1
    assert not (place / "never.txt").exists()


def test_a_slow_witness_holds_up_no_other(place: Path, witnessed: Witness) -> None:
    asked = threading.Event()

    class Slow(Witness):
        def add(self, body: str) -> tuple[int, str]:
            assert asked.wait(15)  # until the one behind it was asked
            return super().add(body)

    class Behind(Witness):
        def add(self, body: str) -> tuple[int, str]:
            asked.set()
            return super().add(body)

    slow, behind = Slow(), Behind()
    for one in (slow, behind):
        one.logs = witnessed.logs
    with serve(slow) as first, serve(behind) as second:
        lines = f"witness a {slow.verifier_key} {first}\nwitness b {behind.verifier_key} {second}"
        (place / "policy.txt").write_text(f"{lines}\ngroup both all a b\nquorum both\n")
        told = alone(["log", "witness", "--policy", "policy.txt", "--json"], place)

    assert json.loads(told.stdout)["cosigned"] == ["a", "b"], told.stdout

"""`provisioner usage`: sums of the journal, a tenant's own view, a signed statement, bills."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from given_events import event_of
from local_daemon import daemon
from program import Done, alone
from sqlalchemy import select, update

from provisioner.access.tokens import new_token
from provisioner.daemon.data import open_data
from provisioner.model.access import Role
from provisioner.model.inventory import Component, Inventory
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.tenant import Tenant
from provisioner.store.repositories import usage as ledger
from provisioner.store.repositories.usage import UsageQuery
from provisioner.store.rows import evidence_rows, request_rows
from provisioner.store.schema.schema import version_sets
from provisioner.store.schema.usage_tables import usage_open, version_spans
from provisioner.store.sql_store import SqlStore, open_store

NOW = time.time() - 10_000.0
HOUR = 3600.0
# without a begin the commands take this month, which may have begun after it
SINCE = ["--begins-at", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - HOUR))]
LIFE = (
    (0.0, "discovered", {}),
    (100.0, "state", {"to": "converging", "release": "r1"}),
    (400.0, "state", {"to": "certified"}),
    (500.0, "allocated", {"tenant": "red"}),
    (600.0, "state", {"to": "released"}),
    (600.0, "released", {"tenant": "red"}),
    (600.0 + HOUR, "state", {"to": "draining"}),
    (700.0 + HOUR, "state", {"to": "quarantined", "blockers": [{"subject": "GPU_SXM_1"}]}),
)


async def fill(store: SqlStore) -> None:
    """Two nodes with the same life, one of them with two GPUs, and one that is another tenant's."""
    for name in ("n1", "n2", "n3"):
        known = {"placement": Placement.MAINTENANCE, "state": State.QUARANTINED}
        await store.nodes.add(Node(id=name, kind=NodeKind.HOST, entered_at=NOW, **known))
        for after, kind, detail in LIFE:
            told = {**detail, "tenant": "blue"} if "tenant" in detail and name == "n3" else detail
            await store.journal.append(event_of(kind, name, told), NOW + after)
    gpus = [
        Component(kind="hgx.gpu", slot=f"GPU_SXM_{n}", version="96.00", source="/redfish/v1")
        for n in (1, 2)
    ]
    operation = await store.operations.open("n1", "journey", NOW)
    assert operation is not None
    operation = await store.operations.take(operation.id)
    seen = Inventory(node="n1", vendor="generic", components=tuple(gpus))
    await store.operations.record(operation, inventory=seen, now=NOW)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the data directory `var`, and the token of a tenant."""
    folder = tmp_path_factory.mktemp("usage")
    token, record = new_token("portal", Role.TENANT, "red", 1.0, time.time())

    async def make() -> None:
        async with open_data(folder / "var", NOW) as opened:
            for tenant in ("red", "blue"):
                await opened.store.tenants.put(Tenant(name=tenant, vrf=tenant.upper()))
            await fill(opened.store)
            await opened.store.write(partial(request_rows.add_token, token=record, now=NOW))
            while await opened.store.usage.advance():
                pass

    asyncio.run(make())
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text(token, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def url(place: Path) -> Iterator[str]:
    with daemon(place / "var", api_serve=True) as served:
        yield served


def test_sums_are_by_owner_and_cause_and_gpus_are_counted(place: Path, url: str) -> None:
    words = ["usage", "show", *SINCE]
    told = json.loads(alone([*words, "--tenant", "red", "--json"], place).stdout)
    by_node = json.loads(alone([*words, "--by", "node", "--json"], place).stdout)
    shown = alone([*words, "--by", "what"], place).stdout

    rows = {r["cause"]: r for r in told["items"]}
    assert told["behind"] == 0
    assert {c: round(r["node_s"]) for c, r in rows.items()} == {"serving": 7200, "draining": 200}
    assert round(rows["serving"]["gpu_s"]) == 7200  # n1 has two GPUs, n2 was never read
    assert [a["share"] for a in told["availability"]] == [1.0]
    of_n3 = {r["owner"]: r["cause"] for r in by_node["items"] if r["node"] == "n3"}
    assert "blue" in of_n3
    assert "GPU_SXM_1" in shown
    assert "red: 100.00000% of the time that counts was served" in shown


def test_a_tenant_sees_its_own_and_verifies_its_statement_offline(place: Path, url: str) -> None:
    def ask(*words: str) -> Done:
        ca = str(place / "var" / "agent-ca.pem")
        return alone([*words, "--server", url, "--ca", ca, "--token-file", "token"], place)

    (place / "keys.pem").write_text(alone(["certificate", "keys", "--pem"], place).stdout)
    own = json.loads(ask("usage", "show", *SINCE, "--by", "node", "--json").stdout)
    foreign = ask("usage", "show", "--tenant", "blue")
    other = ask("usage", "statement", "blue")
    bill = ask("usage", "focus", "--price", "1", "--currency", "EUR", "--provider", "x")
    signed = ask("usage", "statement", "red", *SINCE, "--out", "red.json")
    assert signed.returncode == 0, signed.stderr + signed.stdout
    verified = alone(["usage", "verify", "red.json", "--key", "keys.pem"], place)
    sealed = json.loads((place / "red.json").read_text())
    text = json.dumps({**sealed, "payload": sealed["payload"][:-8] + "AAAAAAAA"})
    (place / "changed.json").write_text(text)
    changed = alone(["usage", "verify", "changed.json", "--key", "keys.pem"], place)

    assert {r["owner"] for r in own["items"]} == {"red"}
    assert {r["node"] for r in own["items"]} == {"n1", "n2"}
    assert (foreign.returncode, other.returncode) == (4, 4)
    assert bill.returncode == 1
    assert "good; red" in verified.stdout
    assert changed.returncode == 1


def test_charges_are_exported_and_an_empty_time_is_refused(place: Path, url: str) -> None:
    price = ["--price", "2.5", "--currency", "EUR", "--provider", "Example"]
    table = alone(["usage", "focus", *price, *SINCE], place).stdout.splitlines()
    ahead = alone(["usage", "show", "--begins-at", "2999-01-01T00:00:00Z"], place)

    assert table[0].startswith("BilledCost,BillingAccountId,")
    assert len(table) >= 4
    assert "Begin before its end" in ahead.stderr


def test_the_course_sums_to_what_the_ledger_has_and_months_have_their_own_charges(
    place: Path, url: str
) -> None:
    begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - 5 * HOUR))
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW + 9000.0))
    told = ["--begins-at", begin, "--ends-at", end]
    course = json.loads(alone(["usage", "course", *told, "--steps", "9", "--json"], place).stdout)
    whole = json.loads(alone(["usage", "show", *told, "--json"], place).stdout)
    shown = alone(["usage", "course", *told, "--steps", "9", "--tenant", "red"], place).stdout
    price = ["--price", "2.5", "--currency", "EUR", "--provider", "Example"]
    years = ["usage", "focus", *price, "--begins-at", "2020-01-01T00:00:00Z"]
    refused = alone(years, place)

    drawn = sum(sum(line["nodes"]) for line in course["lines"]) * 9000.0 / 9
    assert drawn == pytest.approx(sum(r["node_s"] for r in whole["items"]), rel=1e-3)
    assert len(course["times"]) == 9
    assert "serving" in shown
    assert "free" not in shown
    assert "Ask for fewer months" in refused.stderr


def test_a_crash_while_folding_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with open_data(tmp_path / "var", NOW) as opened:
            store = opened.store
            await fill(store)
            monkeypatch.setattr(ledger, "ROWS_MAX", 5)
            query = UsageQuery(NOW - HOUR, NOW + 9000.0, by="node")
            turns = 0
            more = True
            while more:
                with monkeypatch.context() as dying:  # after the spans, before the place moves
                    dying.setattr(ledger, "_write_open", raises)
                    with pytest.raises(MemoryError):
                        await store.usage.advance()
                more = await store.usage.advance()
                turns += 1
            rows = await store.usage.sum_usage(query)

            assert turns > 3
            assert not await store.usage.advance()
            for name in ("n1", "n2", "n3"):
                assert sum(r.node_s for r in rows if r.node == name) == pytest.approx(9000.0)

    asyncio.run(play())


def raises(*_: object) -> None:
    raise MemoryError


def test_times_at_risk_end_with_faults_and_are_cut_where_the_versions_changed(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with open_data(tmp_path / "var", NOW) as opened:
            store = opened.store
            await fill(store)
            while await store.usage.advance():
                pass
            gpu = Component(kind="hgx.gpu", slot="GPU_SXM_1", version="97.00", source="/redfish/v1")
            seen = Inventory(node="n1", vendor="generic", components=(gpu,))
            await store.evidence.put_inventory(seen, NOW + 1000.0)
            stays = await store.usage.list_stays(NOW, NOW + 9000.0)
            late = await store.usage.list_stays(NOW + 2000.0, NOW + 9000.0)
            _, sets = await store.evidence.list_versions()

        assert {s.versions for s in late if s.node == "n1"} == {
            [s.versions for s in stays if s.node == "n1"][-1]
        }
        mine = [(s.begins_at - NOW, s.ends_at - NOW, s.failed) for s in stays if s.node == "n1"]
        assert [end for _, end, _ in mine] == [500.0, 1000.0, 600.0 + HOUR]
        assert not any(s.failed for s in stays)  # it was drained first, and is a fault only then
        versions = [s.versions for s in stays if s.node == "n1"]
        assert versions[0] == versions[1] != versions[2]
        assert set(versions) <= set(sets)  # also of the set that no node runs any more
        assert {s.versions for s in stays if s.node == "n2"} == {""}

    asyncio.run(play())


def test_sets_of_versions_are_forgotten_once_nobody_looks_back_at_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A BMC that tells now this and now that must not fill the database."""
    monkeypatch.setattr(evidence_rows, "SPANS_MAX", 20)

    def seen(version: str) -> Inventory:
        gpu = Component(kind="hgx.gpu", slot="GPU_SXM_1", version=version, source="/redfish/v1")
        return Inventory(node="n1", vendor="generic", components=(gpu,))

    async def play() -> tuple[list[float], int, int]:
        store = open_store(":memory:", inline=True)
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        await store.evidence.put_inventory(seen("of the same moment"), NOW)
        for number in range(60):
            await store.evidence.put_inventory(seen(f"v{number}"), NOW + number)
        rows = select(version_spans.c.begins_at).order_by(version_spans.c.begins_at)
        kept = await store.read(lambda c: list(c.scalars(rows)))
        later = NOW + 800 * 86_400.0
        for name, entered_at in (("gone", NOW + 9.0), ("just gone", later)):
            old = Node(id=name, kind=NodeKind.HOST, state=State.RETIRED, entered_at=entered_at)
            await store.nodes.add(old)
            its = seen("of a retired one").model_copy(update={"node": name})
            await store.evidence.put_inventory(its, NOW)
        for number in range(2):
            await store.evidence.put_inventory(seen(f"w{number}"), later + number)
        retired = select(version_spans.c.node).where(version_spans.c.node != "n1")
        assert await store.read(lambda c: list(c.scalars(retired))) == ["just gone"]
        rows = rows.where(version_spans.c.node == "n1")
        left = await store.read(lambda c: len(list(c.scalars(rows))))
        sets = select(version_sets.c.digest)
        known = await store.read(lambda c: len(list(c.scalars(sets))))
        await store.close()
        return kept, left, known

    kept, left, known = asyncio.run(play())
    assert (len(kept), kept[0]) == (20, NOW + 40)
    assert left == 3  # the set at the oldest time that is kept, and two after it
    assert known <= left + 2  # and the one that the retired nodes were last seen with


def test_a_damaged_standing_stops_nobodys_count_and_its_node_is_counted_on(tmp_path: Path) -> None:
    async def play() -> None:
        async with open_data(tmp_path / "var", NOW) as opened:
            store = opened.store
            await fill(store)
            while await store.usage.advance():
                pass
            spoil = update(usage_open).where(usage_open.c.node == "n1").values(standing="{")
            await store.write(lambda c: c.execute(spoil).rowcount)
            for node in ("n1", "n2"):
                certified = event_of("state", node, {"to": "certified"})
                await store.journal.append(certified, NOW + 5000.0)
            assert not await store.usage.advance()
            rows = await store.usage.sum_usage(UsageQuery(NOW, NOW + 9000.0, by="node"))

        n1, n2 = ({r.cause: r.node_s for r in rows if r.node == name} for name in ("n1", "n2"))
        assert n1 == n2  # it was in quarantine as its columns say, and is free since then

    asyncio.run(play())

"""`provisioner case` on a data directory: report, list, show, put off, work, close, report."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from program import run

from provisioner.daemon.data import DATABASE
from provisioner.model.case import Case, Origin, Service, Stage, Ticket
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.times.instant import format_instant, parse_instant
from provisioner.store.sql_store import open_store

PORT = Port(switch="leaf", interface="swp1", rail=0, nic_slot="NIC_0")
SERVING = Node(
    id="n1", kind=NodeKind.HOST, state=State.RELEASED, placement=Placement.CUSTOMER, tenant="blue",
    location=Location(rack="r1"), ports=(PORT,),
)  # fmt: skip
BROKEN = Node(id="n2", kind=NodeKind.HOST, state=State.REPAIRING, location=Location(rack="r2"))
WAITING = Case(
    id="n2-c0001", node="n2", origin=Origin.CHECK, reason="bad \x1b[31m", service=Service.CUT_OFF,
    stage=Stage.HARDWARE, ticket=Ticket(work="Replace it.", opened_at=1.0), opened_at=1.0,
)  # fmt: skip


def in_hours(hours: float) -> str:
    return format_instant(time.time() + hours * 3600)


def shown(data: Path, case: str) -> dict[str, Any]:
    """All of a case, as the staff sees it."""
    return dict(json.loads(run(["case", "show", case, "--json"], data).stdout)["case"])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def fill() -> None:
        (tmp_path / "var").mkdir(mode=0o700)
        store = open_store(tmp_path / "var" / DATABASE)
        for node in (SERVING, BROKEN):
            await store.nodes.add(node)
        await store.cases.add(WAITING, now=1.0)
        await store.close()

    asyncio.run(fill())
    return tmp_path


def test_a_reported_fault_tells_the_tenant_at_once_and_opens_one_case_only(data: Path) -> None:
    run(["case", "open", "n1", "--reason", "jobs hang", "--tenant"], data)
    case = shown(data, "n1-c0001")
    again = run(["case", "open", "n1", "--reason", "jobs hang"], data)
    (notice,) = json.loads(run(["notice", "list", "--json"], data).stdout)

    assert again.returncode == 0
    assert (case["id"], case["service"], case["tenant"]) == ("n1-c0001", "drain", "blue")
    assert (notice["kind"], notice["case"]) == ("failure", "n1-c0001")
    assert notice["effective_at"] == case["drain_at"] > case["opened_at"]
    joined = shown(data, "n1-c0001")
    assert (joined["id"], joined["drain_at"]) == (case["id"], case["drain_at"])


def test_a_worse_report_joins_the_open_case_and_cuts_the_node_off(data: Path) -> None:
    run(["case", "open", "n1", "--reason", "a link flaps"], data)
    worse = ["case", "open", "n1", "--reason", "smoke", "--service", "cut_off", "--json"]

    joined = run(worse, data)

    assert joined.returncode == 0, joined.stderr
    case = shown(data, "n1-c0001")
    assert (case["id"], case["service"]) == ("n1-c0001", "cut_off")
    assert [r["reason"] for r in case["reports"]] == ["smoke"]
    notices = json.loads(run(["notice", "list", "--json"], data).stdout)
    assert len(notices) == 2


def test_a_tenant_puts_off_agrees_and_hears_of_retirement(data: Path) -> None:
    run(["case", "open", "n1", "--reason", "jobs hang", "--tenant"], data)
    late = run(["case", "defer", "n1-c0001", "--until", in_hours(400)], data)
    good = run(["case", "defer", "n1-c0001", "--until", in_hours(300)], data)
    gone = run(["case", "retire", "n1-c0001", "--why", "too old", "--days", "20", "--yes"], data)
    run(["case", "accept", "n1-c0001"], data)
    told = json.loads(run(["notice", "list", "--json"], data).stdout)

    assert (late.returncode, good.returncode, gone.returncode) == (1, 0, 0)
    assert shown(data, "n1-c0001")["drain_at"] <= max(n["effective_at"] for n in told)
    assert sorted({n["kind"] for n in told}) == ["failure", "retirement"]


def test_planned_work_is_no_fault_and_has_its_own_words_and_times(data: Path) -> None:
    planned = ["case", "open", "n1", "--reason", "PDU work", "--maintenance"]
    opened = run([*planned, "--begins-at", in_hours(72), "--ends-at", in_hours(76)], data)
    case = shown(data, "n1-c0001")
    (notice,) = json.loads(run(["notice", "list", "--json"], data).stdout)
    listed = run(["notice", "list"], data)
    by_tenant = run([*planned, "--tenant"], data)

    assert opened.returncode == 0, opened.stderr
    assert (case["origin"], case["service"]) == ("maintenance", "drain")
    assert parse_instant(case["drain_at"]) - parse_instant(case["opened_at"]) == pytest.approx(
        72 * 3600, abs=120
    )
    assert parse_instant(case["work_ends_at"]) - parse_instant(case["drain_at"]) == pytest.approx(
        4 * 3600, abs=60
    )
    assert (notice["kind"], notice["channels"]) == ("maintenance", 0)
    assert notice["effective_at"] == case["drain_at"]
    assert "fault" not in notice["text"]
    assert notice["text"].startswith("Planned maintenance of node n1: PDU work. It is taken back")
    assert "UTC" in notice["text"]
    assert "recorded" in listed.stdout
    assert by_tenant.returncode == 2


def test_people_say_what_they_did_and_only_where_they_were_asked(data: Path) -> None:
    run(["case", "returned", "n2-c0001", "--work", "new GPU"], data)
    twice = run(["case", "returned", "n2-c0001", "--work", "new GPU"], data)

    case = shown(data, "n2-c0001")
    assert case["stage"] == "returning"
    assert case["ticket"]["closed_at"]
    assert twice.returncode == 1


def test_a_rack_is_given_back_with_a_case_for_each_host(data: Path) -> None:
    words = ["--reason", "water below", "--yes", "--json"]
    told = json.loads(run(["case", "open-rack", "r1", *words], data).stdout)
    nowhere = run(["case", "open-rack", "r9", *words], data)

    assert told["result"]["cases"] == {"n1": "n1-c0001"}
    assert nowhere.returncode == 4


def test_cases_are_shown_without_a_devices_terminal_codes_and_reported(data: Path) -> None:
    listed = run(["case", "list"], data)
    told = run(["case", "show", "n2-c0001"], data)
    closed = run(["case", "close", "n2-c0001", "--why", "nothing found"], data)
    report = json.loads(run(["case", "report", "--days", "36000", "--json"], data).stdout)

    assert "n2-c0001" in listed.stdout
    assert "Replace it." in told.stdout
    assert "\x1b" not in listed.stdout + told.stdout
    assert closed.returncode == 0
    assert report["endings"] == {"no_fault": 1}

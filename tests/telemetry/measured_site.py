"""A store with nodes in all kinds of states, and its metrics as a scraper reads them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from provisioner.daemon.telemetry import open_telemetry, served_metrics
from provisioner.model.alert import Alert, Classification
from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignRow,
    CampaignState,
    NodeProgress,
    Progress,
)
from provisioner.model.case import Case, Origin, Service
from provisioner.model.certificate import Certificate
from provisioner.model.credential import RotationCause
from provisioner.model.events.fleet_events import describe_change
from provisioner.model.inventory import Activation
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Plan, Step, StepKind
from provisioner.ports import Call, Reply, Unreachable
from provisioner.ports.telemetry import Telemetry
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.rows import evidence_rows
from provisioner.store.sql_store import SqlStore, open_store

NOW = 1_700_000_000.0
HOUR_S, DAY_S = 3600.0, 86400.0
BLOCKER = Blocker(reason=Reason.CHECK_FAILED, subject="gpu", detail="7 of 8", unblock="Reseat.")
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


class StillClock:
    """Time stands."""

    def now(self) -> float:
        return NOW

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def node(number: int, state: State, hours: float, **more: object) -> Node:
    given = {"id": f"n{number:02d}", "kind": NodeKind.HOST, "state": state}
    return Node.model_validate(given | {"entered_at": NOW - hours * HOUR_S} | more)


def certificate(name: str, days: float) -> Certificate:
    return Certificate(
        id=f"cert-{name}",
        node=name,
        release="r",
        profile="p",
        serials=(),
        versions=(),
        boot_id="b",
        location="l",
        ports=(),
        report_digest="0" * 64,
        matrix_digest="0" * 64,
        issued_at=NOW - 10 * DAY_S,
        expires_at=NOW + days * DAY_S,
        key_id="k",
        signature="00",
    )


async def fill(store: SqlStore, late: int = 3) -> None:
    """Hosts and a leaf; `late` of them are longer in validation than its limit of 6 hours."""
    rows = [
        node(0, State.RELEASED, 50, certificate="cert-n00"),
        node(1, State.RELEASED, 60, certificate="cert-n01"),
        node(2, State.CERTIFIED, 1, certificate="cert-n02"),
        node(3, State.QUARANTINED, 2, blockers=(BLOCKER,)),
        node(4, State.QUARANTINED, 3, blockers=(BLOCKER,)),
        Node(id="leaf", kind=NodeKind.SWITCH, state=State.RELEASED, entered_at=NOW - HOUR_S),
        *(node(10 + i, State.VALIDATING, 7 + i) for i in range(late)),
    ]
    for row in rows:
        await store.nodes.add(row)
    for name, days in (("n00", -0.1), ("n01", 0.5), ("n02", 20.0)):
        await store.write(
            partial(evidence_rows.put_certificate, certificate=certificate(name, days))
        )
    await store.operations.open("n10", "journey", NOW)
    alert = Alert(
        node="n00",
        id="FanFailed",
        target="FAN_1",
        classifications=(Classification.HARDWARE,),
        source="watch",
        since=NOW,
        last_at=NOW,
    )
    await store.alerts.put([alert], [], NOW)
    case = Case(
        id="n03-0001",
        node="n03",
        origin=Origin.CHECK,
        reason="a GPU is gone",
        service=Service.CUT_OFF,
        opened_at=NOW,
    )
    await store.cases.add(case, now=NOW)
    await _campaign(store)
    await _logins(store)
    await store.audit_exports.set_receivers(["otlp", "syslog"])
    await store.audit_exports.record_failure("syslog", "no answer", NOW - 60.0)


async def _logins(store: SqlStore) -> None:
    book = store.credential_standings
    await book.enroll({"n00/host": "n00"}, NOW - 20 * DAY_S)
    await book.enroll({"n01/host": "n01"}, NOW - DAY_S)
    await book.enroll({"n02/host": "n02"}, 0.0)
    await book.demand(RotationCause.REQUESTED, NOW, names=["n01/host"])
    await book.record_failure("n00/host", "no answer", NOW + HOUR_S)


async def _campaign(store: SqlStore) -> None:
    book = store.campaigns
    made = Campaign(id="c0001", release="r2", select="all", created_at=NOW)
    campaign = await book.add(made, "a person", NOW)
    progress = {"n00": Progress.FAILED, "n01": Progress.DONE, "n02": Progress.PENDING}
    rows = [
        CampaignRow(
            campaign="c0001",
            progress=NodeProgress(node=name, state=state, finished_at=NOW),
            facts=CampaignNode(name=name),
        )
        for name, state in progress.items()
    ]
    started = campaign.model_copy(update={"state": CampaignState.STOPPED})
    await book.save(started, describe_change(started, ""), NOW, rows)
    other = await book.add(made.model_copy(update={"id": "c0002"}), "a person", NOW)
    still = other.model_copy(update={"state": CampaignState.STARTED, "still_since": NOW - HOUR_S})
    await book.save(still, describe_change(still, ""), NOW)


def step(component: str = "host.bmc") -> Step:
    return Step(
        kind=StepKind.UPDATE,
        component=component,
        slots=("host",),
        from_version="1",
        to_version="2",
        method="redfish_push",
        activation=Activation.BMC_RESET,
        disruption=Disruption.BMC,
        duration_s=300,
        expected=(),
        reason="2 is pinned",
    )


def work(told: Telemetry) -> None:
    """Two steps, of which one fails, a plan, and exchanges with three BMCs."""
    with told.step("n10#1", "n10", step()):
        pass
    with told.step("n11#1", "n11", step("nothing.of.ours")) as problems:
        problems.append(BLOCKER)
    with told.plan() as made:
        made.append(Plan(node="n10", release="r", profile="p"))
    dell = Reply(200, {}, b'{"Vendor": "Dell", "Oem": {"Dell": {}}}')
    told.request("https://10.0.0.1", Call("GET", "/redfish/v1"), 0.2, dell)
    told.request(
        "https://10.0.0.1", Call("PATCH", "/redfish/v1/Systems/1"), 0.3, Reply(503, {}, b"")
    )
    told.request(
        "https://10.0.0.2",
        Call("GET", "/redfish/v1"),
        9.0,
        Unreachable("silent", maybe_executed=False),
    )
    told.request(
        "https://10.0.0.3", Call("GET", "/redfish/v1/"), 0.1, Reply(200, {}, b"\xff{nonsense")
    )


def parsed(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Samples by name and labels, as Prometheus' own parser reads them."""
    return {
        (s.name, frozenset(s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


@contextmanager
def site(tmp_path: Path, late: int = 3, **settings: object) -> Iterator[str]:
    """The URL of the metrics of a filled store, served from a thread until the end."""
    chosen = Settings.model_validate({"metrics_port": 0} | settings)
    ready, over = threading.Event(), threading.Event()
    found: list[str] = []

    async def serve() -> None:
        clock, store = StillClock(), open_store(":memory:")
        try:
            await fill(store, late)
            queues = {"operations": (3.0, 512.0), "writes": (0.0, 0.0)}
            async with (
                open_telemetry(chosen, clock) as measured,
                served_metrics(
                    measured, tmp_path, store, lambda: queues, MasterKey.generate()
                ) as url,
            ):
                work(measured.telemetry)
                found.append(url)
                ready.set()
                await asyncio.to_thread(over.wait, 120)
        finally:
            ready.set()
            await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        assert found, "it could not be served"
        yield found[0]
    finally:
        over.set()
        thread.join()


def scraped(url: str, **headers: str) -> tuple[int, str]:
    """(status, text) of one scrape, whoever's certificate it has."""

    async def ask() -> tuple[int, str]:
        async with ClientSession() as session, session.get(url, headers=headers, ssl=False) as got:
            return got.status, await got.text()

    return asyncio.run(ask())

"""The home page's route: groups of work that waits for people, capacity, and the bulk retry."""

from __future__ import annotations

from typing import Any

from served import NOW, Served, certificate, node, run

from provisioner.api.fleet_atlas import build_capacity
from provisioner.model.alert import Alert, Override
from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignRow,
    CampaignState,
    NodeProgress,
)
from provisioner.model.case import Case, Origin, PartClass, Service, Stage, Suspect, Ticket
from provisioner.model.events.fleet_events import describe_change
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Tenant
from provisioner.planning.lifecycle.next_step import Party, find_party
from provisioner.store.repositories.atlas import MarkKind
from provisioner.store.rows import evidence_rows
from provisioner.store.rows.home_rows import Place
from provisioner.store.rows.node_rows import DAY_S, name_time_left

RESEAT = "Reseat it."


async def show(served: Served) -> dict[str, Any]:
    status, home = await served.ask("viewer", "GET", "/home")
    assert status == 200, home
    return home


def blocked(number: int, state: State, unblock: str) -> Any:
    blocker = Blocker(
        reason=Reason.CHECK_FAILED, subject="gpu", detail="one is missing", unblock=unblock
    )
    return node(number, state=state, blockers=(blocker,))


def test_blocked_nodes_are_grouped_by_reason_and_remedy():
    async def scenario(served: Served) -> None:
        for number, state in ((7, State.QUARANTINED), (8, State.CONVERGING), (9, State.RETIRED)):
            await served.store.nodes.add(blocked(number, state, RESEAT))
        await served.store.nodes.add(blocked(10, State.QUARANTINED, "Replace the cable."))

        groups = (await show(served))["blocked"]

        assert [(g["unblock"], g["nodes"], g["retryable"], g["example"]) for g in groups] == [
            (RESEAT, 3, 2, "su0-n05"),
            ("Replace the cable.", 1, 1, "su0-n10"),
        ]

    run(scenario)


def test_a_bulk_retry_takes_its_group_out_of_quarantine_and_no_other_node():
    async def scenario(served: Served) -> None:
        await served.store.nodes.add(blocked(7, State.QUARANTINED, RESEAT))
        await served.store.nodes.add(blocked(8, State.CONVERGING, RESEAT))
        await served.store.nodes.add(blocked(10, State.QUARANTINED, "Replace the cable."))
        body = {"reason": "check_failed", "unblock": RESEAT}

        dry = await served.ask("operator", "POST", "/blocked/retry?dry_run=true", body)
        status, done = await served.ask("operator", "POST", "/blocked/retry", body)
        again, refusal = await served.ask("operator", "POST", "/blocked/retry", body)
        states = {n.id: n.state for n in await served.store.nodes.list()}

        assert "2 nodes leave quarantine" in str(dry[1])
        assert (status, done["result"]) == (200, {"retried": 2, "changed_meanwhile": 0})
        assert states["su0-n05"] == states["su0-n07"] == State.CONVERGING
        assert states["su0-n10"] == State.QUARANTINED
        assert again == 409
        assert refusal["unblock"]

    run(scenario)


def test_alerts_are_counted_unless_a_person_suspended_them():
    async def scenario(served: Served) -> None:
        over = Override(
            node="su0-n03", id="FanFailed", target="*", by="ada", why="ordered", made_at=NOW,
            until=NOW + 60,
        )  # fmt: skip
        event = RequestCarriedOut(about="su0-n03", request="alert.override", by="ada")
        await served.store.alerts.put_override(over, event, NOW)
        still = Alert(
            node="su0-n01", id="LinkDown", target="p0", source="watch", since=NOW, last_at=NOW,
            cleared_at=NOW,
        )  # fmt: skip
        await served.store.alerts.put([still], [], NOW)

        alerts = (await show(served))["alerts"]

        assert [(a["id"], a["alerts"], a["example"]) for a in alerts] == [
            ("FanFailed", 1, "su0-n01")
        ]

    run(scenario)


def test_certificates_of_serving_nodes_that_end_within_a_week_are_listed():
    async def scenario(served: Served) -> None:
        late = node(4).model_copy(update={"id": "su0-n20", "certificate": "cert-late"})
        await served.store.nodes.add(late)
        lasting = certificate(late).model_copy(update={"expires_at": NOW + 30 * 86400.0})
        await served.store.write(lambda c: evidence_rows.put_certificate(c, lasting))
        listed = (await show(served))["certificates"]

        assert {row["node"] for row in listed} == {f"su0-n{n:02d}" for n in (1, 2, 3, 4, 6)}
        assert {row["left_s"] for row in listed} == {1000.0}

    run(scenario)


def test_stopped_campaigns_and_short_tenants_are_listed():
    async def scenario(served: Served) -> None:
        book = served.store.campaigns
        draft = Campaign(id="c0001", release="spectrum-x-2.1.2", select="all")
        added = await book.add(draft, "ada", NOW)
        stopped = added.model_copy(update={"state": CampaignState.STOPPED, "reason": "2 failed"})
        await book.save(stopped, describe_change(stopped, ""), NOW)
        await served.store.tenants.put(Tenant(name="green", vrf="GREEN", nodes_wanted=4))

        home = await show(served)

        assert [(c["campaign"], c["reason"]) for c in home["campaigns"]] == [("c0001", "2 failed")]
        assert home["tenants"] == [{"tenant": "green", "nodes": 0, "wanted": 4}]

    run(scenario)


def test_capacity_counts_hosts_once_for_each_unit_and_each_rail():
    async def scenario(served: Served) -> None:
        capacity = (await show(served))["capacity"]

        counts = {"hosts": 6, "certified": 5, "free": 2}
        assert {k: capacity[k] for k in counts} == counts
        assert capacity["units"] == [{"place": "pod 0, unit 0", **counts}]
        assert capacity["rails"] == [{"place": "0", **counts}]

    run(scenario)


def test_a_host_is_counted_once_on_a_rail_that_it_has_two_cables_of():
    counts = {Place("host", "certified", False, (0, 3), (-1, 0)): 5}

    capacity = build_capacity(counts)

    assert [(r.place, r.free) for r in capacity.rails] == [("0", 5)]
    assert [(u.place, u.free) for u in capacity.units] == [("pod 0, unit 3", 5)]


def case(stage: Stage, **more: Any) -> Case:
    base = {
        "id": "n-c1",
        "node": "n",
        "origin": Origin.CHECK,
        "reason": "it fell",
        "opened_at": 1.0,
    }
    return Case(**{**base, "service": Service.DRAIN, "stage": stage, **more})


def test_a_case_waits_for_the_party_whose_turn_it_is():
    sure = Suspect(part="GPU_1", kind=PartClass.GPU, confidence=0.8, rule="r", why="w")
    unsure = sure.model_copy(update={"confidence": 0.2})
    ticket = Ticket(id="T1", work="Replace GPU_1.")
    cases = {
        Party.TECHNICIAN: case(Stage.HARDWARE, suspects=(sure,), ticket=ticket),
        Party.PERSON: case(Stage.HARDWARE, suspects=(unsure,), ticket=ticket),
        Party.TENANT: case(Stage.OPENED, drain_at=100.0),
        None: case(Stage.MEASURING, suspects=(sure,), ticket=ticket),
    }

    assert {party: find_party(c, 50.0, 0.4) for party, c in cases.items()} == {p: p for p in cases}
    assert find_party(cases[Party.TENANT], 200.0, 0.4) is None  # the notice has run out
    assert (
        find_party(cases[Party.TECHNICIAN], 50.0, 1.1) is Party.PERSON
    )  # a site that wants more confidence


def test_the_map_gives_the_nodes_that_changed_since_a_look_and_no_others():
    async def scenario(served: Served) -> None:
        _, before = await served.ask("viewer", "GET", "/fleet/map")
        _, none = await served.ask("viewer", "GET", f"/fleet/map?since={before['change']}")
        row = await served.store.nodes.get("su0-n03")
        assert row is not None
        await served.store.nodes.save(row.model_copy(update={"note": "looked at"}))
        _, some = await served.ask("viewer", "GET", f"/fleet/map?since={before['change']}")
        _, of_red = await served.ask("red", "GET", f"/fleet/map?since={before['change']}")

        assert len(before["nodes"]) == 7
        assert (none["nodes"], none["change"]) == ([], before["change"])
        assert some["nodes"] == ["su0-n03"]
        assert some["change"] > before["change"]
        assert of_red["nodes"] == []

    run(scenario)


def test_the_map_is_coloured_by_certificates_alerts_and_waves():
    async def scenario(served: Served) -> None:
        late = node(4).model_copy(update={"id": "su0-n20", "certificate": "cert-late"})
        await served.store.nodes.add(late)
        lasting = certificate(late).model_copy(update={"expires_at": NOW + 60 * DAY_S})
        await served.store.write(lambda c: evidence_rows.put_certificate(c, lasting))
        raised = [
            Alert(node="su0-n01", id=name, target="p0", source="watch", since=NOW, last_at=NOW)
            for name in ("LinkDown", "FanFailed")
        ]
        cleared = Alert(
            node="su0-n02", id="LinkDown", target="p0", source="watch", since=NOW, last_at=NOW,
            cleared_at=NOW,
        )  # fmt: skip
        await served.store.alerts.put([*raised, cleared], [], NOW)
        for number, state in ((1, CampaignState.STARTED), (2, CampaignState.DONE)):
            campaign = Campaign(id=f"c000{number}", release="r", select="all", state=state)
            saved = await served.store.campaigns.add(campaign, "ada", NOW)
            rows = [
                CampaignRow(
                    campaign=saved.id,
                    progress=NodeProgress(node=name, wave=wave),
                    facts=CampaignNode(name=name),
                )
                for name, wave in (("su0-n01", 0), ("su0-n02", 1))
            ]
            await served.store.campaigns.put_rows(saved, rows, NOW)

        marks = {}
        for kind in MarkKind:
            status, answer = await served.ask("viewer", "GET", f"/fleet/marks?by={kind}")
            assert status == 200
            marks[kind] = {
                name: answer["values"][place]
                for name, place in zip(answer["nodes"], answer["index"], strict=True)
            }
        refused, _ = await served.ask("red", "GET", "/fleet/marks?by=alert")

        assert marks[MarkKind.CERTIFICATE] == {
            **{f"su0-n{n:02d}": "within a day" for n in range(1, 7)},
            "su0-n20": "later",
        }
        assert marks[MarkKind.ALERT] == {"su0-n01": "FanFailed", "su0-n03": "FanFailed"}
        assert marks[MarkKind.WAVE] == {"su0-n01": "c0001 canaries", "su0-n02": "c0001 wave 1"}
        assert refused == 403

    run(scenario)


def test_a_certificates_time_is_named_by_the_span_that_it_is_within():
    spans = {-1.0: "expired", 60.0: "within a day", 8 * DAY_S: "within 30 days", 1e9: "later"}

    assert {left_s: name_time_left(left_s) for left_s in spans} == spans

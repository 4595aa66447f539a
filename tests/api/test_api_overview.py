"""The series behind the pictures: work, the last hour and days, a node's life, waves."""

from __future__ import annotations

from given_events import event_of
from served import NOW, RELEASE, Served, run

from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignRow,
    CampaignState,
    NodeProgress,
    Progress,
)
from provisioner.model.case import Case, Origin, Service, Stage
from provisioner.model.node import State
from provisioner.planning.lifecycle.timeline import (
    DAY_S,
    Move,
    count_days,
    measure_stays,
    start_of_day,
)


def test_earlier_days_are_those_of_now_without_the_moves_since() -> None:
    moves = {(0, "validating", "certified"): 2, (1, "converging", "validating"): 3}

    days = count_days(NOW, 3, {"certified": 5, "validating": 1}, moves, {"opened": {1: 4}})

    assert [d.states for d in days] == [
        {"certified": 3, "converging": 3},
        {"certified": 3, "validating": 3},
        {"certified": 5, "validating": 1},
    ]
    assert [d.opened for d in days] == [0, 4, 0]
    assert days[-1].begins_at == start_of_day(NOW)


def test_a_typical_stay_is_the_median_of_whole_stays_only() -> None:
    moves = [Move(float(n), f"n{n}", "intake", "converging") for n in range(4)]
    moves += [Move(100.0 * (n + 1) + n, f"n{n}", "converging", "validating") for n in range(3)]

    assert measure_stays(moves) == {"converging": 200.0}


async def move(served: Served, node: str, before: str, after: str, at: float) -> None:
    detail = {"from": before, "to": after, "why": "it was time"}
    await served.store.journal.append(event_of("state", node, detail), at)


def test_the_overview_has_work_the_last_hour_and_the_days() -> None:
    async def scenario(served: Served) -> None:
        stored = await served.store.nodes.get("su0-n06")
        assert stored is not None
        way = stored.model_copy(update={"state": State.CONVERGING, "entered_at": NOW - 60})
        await served.store.nodes.save(way)
        await move(served, "su0-n06", "intake", "converging", NOW - 60)
        opened = Case(
            id="su0-n05-c0001", node="su0-n05", origin=Origin.CHECK, reason="it hangs",
            service=Service.DRAIN, stage=Stage.DIAGNOSIS, opened_at=NOW - 30,
        )  # fmt: skip
        await served.store.cases.add(opened, now=NOW)

        status, told = await served.ask("viewer", "GET", "/overview?days=3")
        of_red, _ = await served.ask("red", "GET", "/overview")
        _, hours = await served.ask("viewer", "GET", "/overview?days=1&by=hour")

        assert (status, of_red) == (200, 403)
        assert told["work"]["states"] == {"converging": 1}
        assert [n["node"] for n in told["work"]["nodes"]] == ["su0-n06"]
        assert len(told["days"]) == 3
        assert told["days"][-1]["states"]["converging"] == 1
        assert told["days"][-1]["opened"] == 1
        assert told["hour"]["counts"]["state"] >= 1
        assert (len(hours["days"]), sum(d["opened"] for d in hours["days"])) == (24, 1)
        assert hours["days"][-1]["states"] == told["days"][-1]["states"]
        assert told["hour"]["items"][0]["kind"] in ("state", "case_opened")

    run(scenario)


def test_a_nodes_life_has_its_states_cases_alerts_and_certificates() -> None:
    async def scenario(served: Served) -> None:
        await move(served, "su0-n01", "validating", "certified", NOW - 45)
        await move(served, "su0-n01", "certified", "released", NOW - 40)

        status, told = await served.ask("viewer", "GET", "/nodes/su0-n01/timeline")
        _, new = await served.ask("viewer", "GET", "/nodes/su0-n04/timeline")
        lanes = {span["lane"] for span in told["spans"]}
        states = [s for s in told["spans"] if s["lane"] == "state"]

        assert status == 200
        assert {"state", "alert", "certificate"} <= lanes
        assert [s["what"] for s in states][-2:] == ["certified", "released"]
        assert states[-2]["ends_at"] == states[-1]["begins_at"]
        assert states[-1]["ends_at"] is None
        assert [s["ends_at"] for s in new["spans"] if s["lane"] == "state"] in ([], [None])

    run(scenario)


def test_waves_are_shown_against_the_forecast_of_their_start() -> None:
    async def scenario(served: Served) -> None:
        campaign = Campaign(
            id="c0001", release=RELEASE, select="all", baseline=RELEASE, created_by="ada",
            created_at=NOW - DAY_S, state=CampaignState.STARTED, started_at=NOW - 3600,
        )  # fmt: skip
        made = await served.store.campaigns.add(campaign, "ada", NOW)
        rows = []
        for number in (1, 2, 3, 4):
            progress = NodeProgress(node=f"su0-n0{number}", admitted_at=NOW - 3000)
            if number < 3:
                progress = progress.model_copy(
                    update={"state": Progress.DONE, "finished_at": NOW - 100 * number}
                )
            name = f"su0-n0{number}"
            facts = CampaignNode(name=name, profile="p", minutes=30, steps=1)
            rows.append(CampaignRow(campaign="c0001", progress=progress, facts=facts))
        await served.store.campaigns.put_rows(made, rows, NOW)

        status, told = await served.ask("viewer", "GET", "/campaigns/c0001/course")
        _, overview = await served.ask("viewer", "GET", "/overview")
        missing, _ = await served.ask("viewer", "GET", "/campaigns/c0009/course")

        assert (status, missing) == (200, 404)
        assert sum(w["nodes"] for w in told["waves"]) == 4
        assert sum(w["done"] for w in told["waves"]) == 2
        assert [p["done"] for p in told["curve"]] == [1, 2]
        (running,) = overview["work"]["campaigns"]
        assert (running["done"], running["total"]) == (2, 4)
        assert running["ends_at"] == told["ends_at"]
        assert told["ends_at"] is not None

    run(scenario)

"""Campaigns through the API: one node put off, left out, tried again; the report; a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from served import NOW, PROFILE, RELEASE, Served, run

from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignRow,
    CampaignState,
    NodeProgress,
    Progress,
)
from provisioner.model.events.fleet_events import describe_change
from provisioner.model.node import NodeKind
from provisioner.model.times.instant import format_instant
from provisioner.ports.store import RehearsalFailed
from provisioner.store.sql_store import SqlStore

BODY = {"release": "spectrum-x-2.1.2", "select": "kind=host"}
DAY_S = 86400.0


async def drafted(served: Served) -> None:
    """A draft with rows of three nodes: red's, blue's, and one that failed."""
    await served.ask("operator", "POST", "/campaigns", BODY)
    book = served.store.campaigns
    campaign = await book.get("c0001")
    assert campaign is not None
    rows = [
        CampaignRow(
            campaign="c0001",
            progress=NodeProgress(node=name, state=state),
            facts=CampaignNode(name=name, kind=NodeKind.HOST, profile=PROFILE),
        )
        for name, state in (
            ("su0-n01", Progress.PENDING),
            ("su0-n03", Progress.PENDING),
            ("su0-n05", Progress.FAILED),
        )
    ]
    await book.save(campaign, describe_change(campaign, "test"), NOW, rows)


def test_a_tenant_puts_its_own_node_off_and_sees_no_other():
    async def scenario(served: Served) -> None:
        await drafted(served)
        body = {"until": format_instant(NOW + DAY_S)}
        path = "/campaigns/c0001/nodes/su0-n01/defer"
        assert (await served.ask("blue", "POST", path, body))[0] == 404
        assert (await served.ask("viewer", "POST", path, body))[0] == 403
        # a node of its own that the campaign has not
        assert (await served.ask("red", "POST", path.replace("n01", "n02"), body))[0] == 404
        far = await served.ask("red", "POST", path, {"until": format_instant(NOW + 30 * DAY_S)})
        assert far[0] == 409
        status, told = await served.ask("red", "POST", path, body)
        assert (status, told["result"]["progress"]) == (200, "deferred"), told
        rows = {r.node: r.progress for r in await served.store.campaigns.list_rows("c0001")}
        assert rows["su0-n01"].deferred_until == NOW + DAY_S
        for word in ("skip", "again"):
            other = path.replace("defer", word)
            assert (await served.ask("red", "POST", other, {}))[0] == 403

    run(scenario)


def test_a_node_is_left_out_or_tried_again_and_the_report_says_so():
    async def scenario(served: Served) -> None:
        await drafted(served)
        nodes = "/campaigns/c0001/nodes"
        answer = await served.client.get("/v1/campaigns/c0001", headers=served.key("operator"))
        tag = answer.headers["ETag"]
        left = await served.ask(
            "operator", "POST", f"{nodes}/su0-n03/skip", {"reason": "on loan"}, If_Match=tag
        )
        assert (left[0], left[1]["result"]["progress"]) == (200, "skipped")
        stale = await served.ask("operator", "POST", f"{nodes}/su0-n05/again", If_Match=tag)
        assert stale[0] == 412
        assert (await served.ask("operator", "POST", f"{nodes}/su0-n05/again"))[0] == 200
        assert (await served.ask("operator", "POST", f"{nodes}/su0-n04/again"))[0] == 404
        status, told = await served.ask("viewer", "GET", "/campaigns/c0001/report")
        assert (status, told["states"]) == (200, {"pending": 2, "skipped": 1})
        assert [(n["node"], n["reason"]) for n in told["left"]] == [("su0-n03", "on loan")]
        metric = {"metric": "nccl"}
        no = await served.ask("operator", "POST", "/campaigns/c0001/accept", metric)
        assert no[0] == 409  # it has not begun: nothing got worse

    run(scenario)


class Twin:
    """Stands where the simulator's process stands."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def rehearse(
        self, store: SqlStore, campaign: Campaign, rows: Sequence[CampaignRow], hosts: int
    ) -> Mapping[str, Any]:
        self.asked.append((campaign.id, hosts))
        if hosts > 4:
            raise RehearsalFailed("it did not end within 1800 s")
        return {"report": {"state": "done"}, "violations": []}


def test_a_rehearsal_is_an_operation_whose_result_is_the_report():
    async def scenario(served: Served) -> None:
        await drafted(served)
        path, body = "/campaigns/c0001/rehearse", {"nodes": 2}
        without = await served.ask("operator", "POST", path, body)
        assert "no simulator" in without[1]["blockers"][0]["detail"]
        twin = Twin()
        object.__setattr__(served.parts, "rehearsals", twin)
        status, told = await served.ask("operator", "POST", path, body)
        assert (status, told["result"]["report"]) == (200, {"state": "done"})
        assert twin.asked == [("c0001", 2)]
        long = await served.ask("operator", "POST", path, {"nodes": 8})
        assert "did not end" in long[1]["blockers"][0]["detail"]
        assert (await served.ask("operator", "POST", path, {"nodes": 65}))[0] == 400

    run(scenario)


def test_what_a_way_back_means_is_shown_before_it_begins():
    async def scenario(served: Served) -> None:
        await drafted(served)
        path = "/campaigns/c0001/rollback"
        status, told = await served.ask("viewer", "GET", path)
        assert status == 200
        assert told["refused"]  # a draft has moved nothing
        book = served.store.campaigns
        campaign = await book.get("c0001")
        assert campaign is not None
        stopped = {"state": CampaignState.STOPPED, "started_at": NOW, "baseline": RELEASE}
        changed = campaign.model_copy(update=stopped)
        await book.save(changed, describe_change(changed, "test"), NOW)
        status, told = await served.ask("viewer", "GET", path)
        kept = await book.get("c0001")
        assert kept is not None

        assert (status, told["baseline"]) == (200, RELEASE)
        # nothing is read of this host's GPUs: no way back is known
        assert [b["subject"] for b in told["refused"]] == ["su0-n05"]
        assert kept.state is CampaignState.STOPPED
        assert (await served.ask("viewer", "GET", "/campaigns/c0009/rollback"))[0] == 404
        assert (await served.ask("red", "GET", path))[0] == 403

    run(scenario)


def test_a_named_campaign_is_made_once_and_its_name_stands_for_no_other():
    async def scenario(served: Served) -> None:
        named = {**BODY, "name": "winter-firmware"}
        for _ in range(2):
            status, made = await served.ask("operator", "POST", "/campaigns", named)
            assert (status, made["result"]["campaign"]) == (200, "winter-firmware"), made
        assert (await served.ask("viewer", "GET", "/campaigns"))[1]["total"] == 1
        other = {**named, "select": "rack=su0-rack0"}
        status, refused = await served.ask("operator", "POST", "/campaigns", other)
        assert (status, refused["blockers"][0]["reason"]) == (409, "duplicate")
        for bad in ("c0007", "draft", "Winter", "a b", "-x"):
            body = {**BODY, "name": bad}
            assert (await served.ask("operator", "POST", "/campaigns", body))[0] == 409, bad
        _, numbered = await served.ask("operator", "POST", "/campaigns", BODY)
        assert numbered["result"]["campaign"] == "c0002"

    run(scenario)


def test_the_dry_run_of_a_pause_a_resumption_and_an_abort_counts_the_nodes():
    async def scenario(served: Served) -> None:
        await drafted(served)
        book = served.store.campaigns

        async def read(word: str, state: CampaignState) -> dict[str, Any]:
            campaign = await book.get("c0001")
            assert campaign is not None
            moved = campaign.model_copy(update={"state": state})
            await book.save(moved, describe_change(moved, "test"), NOW)
            path = f"/campaigns/c0001/{word}?dry_run=true"
            body = None if word == "resume" else {"reason": "lunch"}
            status, shown = await served.ask("operator", "POST", path, body)
            assert status == 200
            after = await book.get("c0001")
            assert after is not None
            assert after.state is state  # nothing was changed
            return shown

        dry = await read("abort", CampaignState.DRAFT)
        assert dry["result"]["lines"] == ["It has touched no node. It cannot be started any more."]
        dry = await read("pause", CampaignState.STARTED)
        assert dry["result"]["lines"] == [
            "0 nodes under way: each is finished.",
            "2 nodes not begun: none begins until it is resumed.",
        ]
        dry = await read("abort", CampaignState.STARTED)
        assert dry["result"]["lines"][1] == "2 nodes not begun: they stay as they are, for good."
        dry = await read("resume", CampaignState.STOPPED)
        assert dry["result"]["lines"] == [
            "2 nodes may begin, within its limits and windows.",
            "1 node failed so far: no reason to stop it again.",
        ]
        refused = await read("pause", CampaignState.STOPPED)
        assert refused["blockers"][0]["detail"] == "it is stopped: pause is not possible"

    run(scenario)

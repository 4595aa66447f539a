"""A change that is only tried: every route answers what it would do, and writes nothing."""

from __future__ import annotations

from served import Served, run
from test_api_routes import CLOSED, WIDE, path_of, with_campaign_and_case

from provisioner.model.access import Role
from provisioner.store.rows import page_rows

CHANGES = [r for r in CLOSED if r.recorded]


def test_a_dry_run_of_any_change_writes_nothing() -> None:
    async def scenario(served: Served) -> None:
        await with_campaign_and_case(served)
        before = await served.store.read(page_rows.journal_head)
        nodes = await served.store.nodes.list()
        answered = 0
        for route in CHANGES:
            who = "operator" if Role.OPERATOR in route.roles else "approver"
            body = dict(route.example or {}) if route.body else None
            path = path_of(route) + "?dry_run=true"
            status, told = await served.ask(who, route.verb, path, body)

            assert status in (200, 404, 409, 400), (route.name, status, told)
            if status == 200:
                answered += 1
                assert told["state"] == "dry_run", route.name
            assert await served.store.read(page_rows.journal_head) == before, route.name
        assert await served.store.nodes.list() == nodes
        assert answered > 25

    run(scenario, **WIDE)


def test_a_reclaim_is_forecast_in_sentences_with_what_is_in_its_way() -> None:
    async def scenario(served: Served) -> None:
        path = "/nodes/su0-n01/reclaim?dry_run=true"
        _, told = await served.ask("operator", "POST", path, {})
        _, agreed = await served.ask("operator", "POST", path, {"accept_no_return": True})

        assert "su0-n01 serves red" in told["result"]["lines"][0]
        assert [b["reason"] for b in told["blockers"]] == ["missing_artifact"]
        assert agreed["blockers"] == []

    run(scenario)


def test_what_changed_since_it_was_tried_is_refused() -> None:
    async def scenario(served: Served) -> None:
        body = {"accept_no_return": True}
        url = "/v1/nodes/su0-n01/reclaim"
        shown = await served.client.post(
            url + "?dry_run=true", json=body, headers=served.key("operator")
        )
        node = await served.store.nodes.get("su0-n01")
        assert node is not None
        await served.store.nodes.save(node.model_copy(update={"note": "somebody was faster"}))
        headers = {"If_Match": shown.headers["ETag"]}
        status, told = await served.ask("operator", "POST", url[3:], body, **headers)

        assert (status, told["type"]) == (412, "urn:provisioner:problem:changed")

    run(scenario)

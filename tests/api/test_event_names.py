"""Rows of the journal that earlier versions wrote have their present names, whoever reads them."""

from __future__ import annotations

import json

import pytest
from given_events import event_of
from served import NOW, Served, run
from test_api_answers import lines_of

from provisioner.model.events.event import FORMER_NAMES

OWN = "su0-n03"  # of tenant blue


async def written(served: Served, former: str) -> None:
    """One row of the tenant's node as an earlier version wrote it, beside one of today."""
    await served.store.journal.append(event_of(former, OWN, {"why": "x"}), NOW)
    await served.store.journal.append(event_of("state", OWN, {"to": "released"}), NOW)


@pytest.mark.parametrize("former", sorted(FORMER_NAMES))
@pytest.mark.parametrize("caller", ["viewer", "blue"], ids=["staff", "its tenant"])
def test_former_names_are_shown_and_found_by_the_present_ones(caller: str, former: str) -> None:
    present = FORMER_NAMES[former].value

    async def scenario(served: Served) -> None:
        await written(served, former)
        _, everything = await served.ask(caller, "GET", f"/events?node={OWN}&limit=500")
        _, named = await served.ask(caller, "GET", f"/events?node={OWN}&kind={present}")
        kinds = [e["kind"] for e in everything["items"]]

        assert kinds[-2:] == [present, "state"]
        assert former not in kinds
        assert [(e["kind"], e["node"]) for e in named["items"]] == [(present, OWN)]

    run(scenario)


@pytest.mark.parametrize("caller", ["viewer", "blue"], ids=["staff", "its tenant"])
def test_a_stream_has_the_present_names_of_former_rows(caller: str) -> None:
    async def scenario(served: Served) -> None:
        await written(served, "agent refused")
        path = f"/v1/events/stream?after=0&node={OWN}&kind=agent_refused"
        async with served.client.get(path, headers=served.key(caller)) as answer:
            lines = await lines_of(answer, 6)
        event = json.loads(lines[5].removeprefix("data: "))

        assert lines[4] == "event: agent_refused"
        assert (event["kind"], event["node"]) == ("agent_refused", OWN)

    run(scenario)


def test_another_tenants_rows_are_not_shown_by_any_name() -> None:
    async def scenario(served: Served) -> None:
        await written(served, "agent refused")
        for query in ("", "&kind=agent_refused", "&kind=agent%20refused"):
            _, page = await served.ask("red", "GET", f"/events?limit=500{query}")
            assert OWN not in {e["node"] for e in page["items"]}

    run(scenario)


def test_the_newest_rows_come_first_on_request_page_by_page() -> None:
    async def scenario(served: Served) -> None:
        await written(served, "agent refused")
        _, forth = await served.ask("viewer", "GET", "/events?limit=500")
        numbers, cursor = [], ""
        while True:
            query = f"/events?limit=2&newest=true&cursor={cursor}"
            _, page = await served.ask("viewer", "GET", query)
            numbers += [row["seq"] for row in page["items"]]
            cursor = page["next"]
            if not cursor:
                break

        assert numbers == [row["seq"] for row in reversed(forth["items"])]
        assert len(numbers) > 2

    run(scenario)

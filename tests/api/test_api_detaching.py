"""Nodes in service that are given back through the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from served import NOW, Served, run

from provisioner.model.case import Case, Service
from provisioner.model.case import Origin as CaseOrigin
from provisioner.model.node import Node, Origin, State
from provisioner.runtime import permit

PATH = "/nodes/su0-n01/detach"
WHY = {"reason": "back to Ironic"}


@pytest.fixture(autouse=True)
def names() -> Iterator[None]:
    """This process's writes need no name after a test."""
    yield
    permit.require_names(required=False)


async def read(served: Served, name: str = "su0-n01") -> Node:
    node = await served.store.nodes.get(name)
    assert node is not None
    return node


def test_a_serving_node_is_given_back_and_later_said_to_be_gone():
    async def scenario(served: Served) -> None:
        _, shown = await served.ask("operator", "POST", f"{PATH}?dry_run=true", WHY)
        lines = " ".join(shown["result"]["lines"])
        assert "Its certificate cert-su0-n01 is revoked." in lines
        assert "Its ports stay in RED, listed as detached" in lines
        assert (await read(served)).state is State.RELEASED

        status, done = await served.ask("operator", "POST", PATH, WHY)

        assert (status, done["state"], done["kind"]) == (200, "done", "node.detach")
        node = await read(served)
        assert (node.state, node.origin, node.vrf) == (State.RETIRED, Origin.DETACHED, "RED")
        assert await served.store.evidence.is_revoked("cert-su0-n01")
        assert await served.store.operations.list_active() == ()
        rows = [r for r in await served.store.journal.list(0, 1000) if r["node"] == "su0-n01"]
        facts = {r["kind"]: r["detail"] for r in rows}
        assert (facts["state"]["from"], facts["state"]["to"]) == ("released", "retired")
        assert facts["request"]["why"] == "back to Ironic"
        _, view = await served.ask("viewer", "GET", "/nodes/su0-n01")
        assert (view["origin"], view["state"]) == ("detached", "retired")
        _, explained = await served.ask("viewer", "GET", "/nodes/su0-n01/explanation")
        assert "another system has it" in " ".join(explained["next"])
        assert "erased" not in " ".join(explained["what"])

        status, twice = await served.ask("operator", "POST", PATH, WHY)
        assert (status, twice["blockers"][0]["detail"]) == (409, "it is detached already")
        gone = {"reason": "sold", "gone": True}
        assert (await served.ask("operator", "POST", PATH, gone))[0] == 200
        assert (await read(served)).origin is Origin.TAKEN_IN

    run(scenario)


async def _operate(served: Served) -> None:
    await served.store.operations.open("su0-n01", "bmc time", NOW)


async def _open_case(served: Served) -> None:
    case = Case(
        id="su0-n01-c0001",
        node="su0-n01",
        origin=CaseOrigin.OPERATOR,
        reason="it is slow",
        service=Service.KEEP,
        opened_at=NOW,
    )
    await served.store.cases.add(case, now=NOW)


@pytest.mark.parametrize(
    ("prepare", "body", "path", "detail"),
    [
        (_operate, WHY, PATH, "an operation of it is under way: bmc time"),
        (_open_case, WHY, PATH, "repair case su0-n01-c0001 is open"),
        (None, WHY, "/nodes/su0-n04/detach", "it is certified, not in service"),
        (None, {**WHY, "gone": True}, PATH, "it is not detached"),
        (None, WHY, "/nodes/leaf-su0-r0/detach", "hosts are cabled to it: su0-n01"),
    ],
)
def test_a_detachment_is_refused_with_the_reason(
    prepare: Any, body: dict[str, Any], path: str, detail: str
):
    async def scenario(served: Served) -> None:
        if prepare is not None:
            await prepare(served)
        status, refused = await served.ask("operator", "POST", path, body)
        assert status == 409
        assert refused["blockers"][0]["detail"].startswith(detail)
        node = await read(served, path.split("/")[2])
        assert node.origin is Origin.TAKEN_IN

    run(scenario)


def test_a_second_person_approves_where_the_site_wants_it_and_no_tenant_asks():
    async def scenario(served: Served) -> None:
        assert (await served.ask("red", "POST", PATH, WHY))[0] == 403
        status, asked = await served.ask("operator", "POST", PATH, WHY)
        assert (status, asked["state"]) == (202, "waiting")
        assert (await read(served)).origin is Origin.TAKEN_IN
        path = f"/requests/{asked['id']}/approve"
        assert (await served.ask("approver", "POST", path, {}))[1]["state"] == "done"
        assert (await read(served)).origin is Origin.DETACHED

    run(scenario, api_four_eyes=("node.detach",))

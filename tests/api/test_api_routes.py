"""Every route of the table, as each role: who may, who may not, and what a foreign tenant sees."""

from __future__ import annotations

import json
import re

import pytest
from api_document import read_document
from served import WIDE, Served, run

from provisioner.api import openapi, table
from provisioner.api.route import PREFIX, Route
from provisioner.model.access import Role

# what stands in the variable parts of a path: things of the tenant red
RED = {
    "action": "3f2a9c01de45",
    "node": "su0-n01",
    "switch": "leaf-su0-r0",
    "tenant": "red",
    "certificate": "cert-su0-n01",
    "campaign": "c0001",
    "case": "su0-n01-c0001",
    "rack": "su0-rack1",
    "release": "spectrum-x-1.3.0",
    "newer": "spectrum-x-1.3.0",
    "operation": "su0-n01:1",
    "request": "r1",
    "token": "00000000",
    "session": "00000000",
    "webhook": "red",
    "pin": "node:su0-n01",
    "policy_name": "bmc-firmware",
    "view_name": "mine",
    "matrix_file": "0",
    "image_name": "site.qcow2",
    "file": "docs.js",
    "bmc": "host",
    "key": "laptop",
}
# words that stand only in what belongs to red
OF_RED = ("su0-n01", "su0-n02", "cert-su0-n01", "RED", '"r1"', '"red"')
# of what this site has none
NOT_THERE = {
    "/nodes/{node}/actions/{action}": 404,
    "/operations/{operation}": 404,
    "/nodes/{node}/erasure": 404,
    "/nodes/{node}/proof": 404,
    "/storage": 404,
    "/tenants/{tenant}/storage": 404,
    "/usage/focus": 400,  # it wants a price
    "/tenants/{tenant}/usage-statement": 404,
    "/log": 404,  # this site signs nothing
    "/nodes/{node}/log": 404,
    "/views/{view_name}": 404,
    "/webhooks/{webhook}": 404,
    "/webhooks/{webhook}/dead": 404,
    "/pins/{pin}": 404,
    "/tenants/{tenant}/keys/{key}": 404,
    "/tenants/{tenant}/user-data": 404,
    "/images/{image_name}": 404,
    "/agents/authority": 404,
    "/watch": 404,
    "/fabric/partitions": 404,
    "/nodes/{node}/observation": 404,
    "/revocations": 404,
    "/nodes/{node}/plan/requests": 409,
    "/racks": 409,  # this site has no plan of racks
    "/racks/{rack}": 409,
    "/nodes/{node}/power": 409,
    "/nodes/{node}/attestation": 404,
    "/nodes/{node}/logs": 409,
    "/nodes/{node}/metrics": 409,
    "/nodes/{node}/links": 409,
    "/nodes/{node}/ports": 409,
}
# what a person changes of oneself
OWN = {"begin_session", "end_session", "save_view", "delete_view"}
# what this site has no object of, so that the handler refuses first
ABSENT = {
    "defer_campaign_node": 404,
    "skip_campaign_node": 404,
    "again_campaign_node": 404,
    "replace_pin": 400,
    "merge_pin": 404,
    "remove_tenant_key": 404,
    "remove_user_data": 404,
    "request_credential": 409,
    "reveal_credential": 404,
}
OPEN = [r for r in table.ALL if not r.roles]
CLOSED = [r for r in table.ALL if r.roles]


def path_of(route: Route, **other: str) -> str:
    path = route.path
    for word, value in {**RED, **other}.items():
        path = path.replace("{" + word + "}", value)
    return path


async def with_campaign_and_case(served: Served) -> None:
    """The things of RED that are made by asking."""
    draft = {"release": "spectrum-x-2.1.2", "select": "kind=host"}
    made = await served.ask("operator", "POST", "/campaigns", draft)
    assert (made[0], made[1]["result"]["campaign"]) == (200, "c0001"), made
    assert (await served.ask("operator", "PUT", "/policies/bmc-firmware", {}))[0] == 200
    fault = {"reason": "GPU 5 fell off the bus"}
    opened = await served.ask("red", "POST", "/nodes/su0-n01/cases", fault)
    assert opened[0] == 200, opened
    RED["case"] = opened[1]["result"]["case"]


def test_a_foreign_tenant_sees_and_touches_nothing_of_another_on_any_route():
    async def scenario(served: Served) -> None:
        made = await served.ask("red", "POST", "/nodes/su0-n02/reclaim", {"for_repair": False})
        assert made[0] == 202
        await with_campaign_and_case(served)
        before = await served.store.nodes.list()
        for route in CLOSED:
            if route.media == "text/event-stream":
                continue  # `test_a_stream_tells_a_tenant_of_its_own_nodes_only`
            body = dict(route.example or {}) if route.body else None
            answer = await served.client.request(
                route.verb, PREFIX + path_of(route), headers=served.key("blue"), json=body
            )
            text = await answer.text()

            if route.name in OWN:  # of the caller alone, under its own name
                assert answer.status == 200, (route.name, text)
            elif "{" in route.path or Role.TENANT not in route.roles:
                assert answer.status in (403, 404), (route.name, answer.status, text)
            else:
                assert answer.status == NOT_THERE.get(route.path, 200), (route.name, text)
            assert {word for word in OF_RED if word in text} == set(), route.name
        assert await served.store.nodes.list() == before

    run(scenario)


@pytest.mark.parametrize("who", ["viewer", "operator", "approver", "red"])
def test_a_role_that_a_route_does_not_name_is_refused(who: str):
    async def scenario(served: Served) -> None:
        role = Role.TENANT if who == "red" else Role(who)
        for route in (r for r in CLOSED if role not in r.roles):
            body = dict(route.example or {}) if route.body else None
            status, told = await served.ask(who, route.verb, path_of(route), body)

            assert (status, told["type"]) == (403, "urn:provisioner:problem:role"), route.name
            assert told["unblock"]

    run(scenario)


def test_a_role_for_another_part_of_the_site_changes_nothing_on_any_route():
    async def scenario(served: Served) -> None:
        await with_campaign_and_case(served)
        body = {"id": "FanFailed", "why": "replaced"}
        waiting = await served.ask("operator", "POST", "/nodes/su0-n01/alerts/clear", body)
        path = {"request": waiting[1]["id"]}
        before = await served.store.nodes.list(), await served.store.journal.get_head()
        for route in (r for r in CLOSED if r.changes and r.name not in OWN):
            role = Role.OPERATOR if Role.OPERATOR in route.roles else Role.APPROVER
            who = f"{role.value}-elsewhere"
            body = dict(route.example or {}) if route.body else None
            for query in ("", "?dry_run=true") if route.recorded else ("",):
                asked = path_of(route, **path) + query
                status, told = await served.ask(who, route.verb, asked, body)

                assert status == ABSENT.get(route.name, 403), (route.name, query, told)
                if status == 403:
                    assert told["type"] == "urn:provisioner:problem:scope", route.name
                    assert "rack su9-*" in told["detail"], told
                    assert "docs/access.md#scopes" in told["unblock"], told
        assert (await served.store.nodes.list(), await served.store.journal.get_head()) == before

    run(scenario, api_four_eyes=["alert.clear"], **WIDE)


def test_nobody_is_let_in_without_a_good_token():
    async def scenario(served: Served) -> None:
        for bad in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Bearer prv_" + "a" * 43},
                    {"Authorization": "Basic " + served.tokens["viewer"]}):  # fmt: skip
            for route in CLOSED:
                answer = await served.client.request(
                    route.verb, PREFIX + path_of(route), headers=bad
                )
                assert answer.status == 401, route.name
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        for route in OPEN:
            answer = await served.client.get(PREFIX + path_of(route))
            assert answer.status == 200, route.name

    run(scenario, **WIDE)


def test_a_reader_sees_every_kind_of_thing():
    async def scenario(served: Served) -> None:
        await with_campaign_and_case(served)
        for route in (r for r in CLOSED if r.verb == "GET" and r.media == "application/json"):
            status, told = await served.ask("viewer", "GET", path_of(route))

            assert status == NOT_THERE.get(route.path, 200), (route.name, told)

    run(scenario)


def test_a_tenant_sees_its_own_without_our_words():
    async def scenario(served: Served) -> None:
        status, told = await served.ask("red", "GET", "/nodes")
        assert (status, [n["id"] for n in told["items"]]) == (200, ["su0-n01", "su0-n02"])
        assert all((n["bmcs"], n["note"], n["blockers"]) == ([], "", []) for n in told["items"])
        everything = 'tenant=blue or tenant=""'
        _, told = await served.ask("red", "GET", f"/nodes?where={everything}")
        assert told["items"] == []
        _, told = await served.ask("red", "GET", "/tenants")
        assert [t["name"] for t in told["items"]] == ["red"]
        _, told = await served.ask("red", "GET", "/alerts")
        assert [a["node"] for a in told["items"]] == ["su0-n01"]
        _, told = await served.ask("red", "GET", "/events")
        assert {(e["node"], json.dumps(e["detail"])) for e in told["items"]} == {
            ("su0-n01", "{}"),
            ("su0-n02", "{}"),
        }

    run(scenario)


def test_the_table_and_the_document_are_the_same():
    told = openapi.build_document(table.ALL)
    documented = {(p, v.upper()) for p, verbs in told["paths"].items() for v in verbs}

    assert documented == {(PREFIX + r.path, r.verb) for r in table.ALL}
    assert len({r.name for r in table.ALL}) == len(table.ALL)
    assert all(r.example is not None for r in table.ALL if r.body is not None)
    assert read_document() == told
    names = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(told)))
    assert names <= set(told["components"]["schemas"])

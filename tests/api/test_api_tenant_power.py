"""A tenant reads and switches the power of the nodes that are released to it, and of no other."""

from __future__ import annotations

from typing import Any

from given_events import in_state
from served import NOW, Served, run

from provisioner.model.node import Node, State
from provisioner.model.operation import OperationStatus

OWN = "/nodes/su0-n01/power"
FOREIGN = "/nodes/su0-n03/power"
MISSING = "/nodes/su0-n99/power"
EVERY_ACT = ("on", "off", "cycle")


async def read_node(served: Served, name: str = "su0-n01") -> Node:
    node = await served.store.nodes.get(name)
    assert node is not None
    return node


async def list_requests(served: Served) -> list[Any]:
    rows = await served.store.journal.list()
    return [r["detail"] for r in rows if r["kind"] == "request"]


def test_by_default_a_tenant_switches_nothing_and_the_refusal_names_the_setting():
    async def scenario(served: Served) -> None:
        for action in EVERY_ACT:
            status, refused = await served.ask("red", "POST", OWN, {"action": action})
            assert (status, refused["type"]) == (403, "urn:provisioner:problem:policy")
            assert "api_tenant_power" in refused["unblock"]
        assert await served.store.operations.list_active() == ()
        assert await list_requests(served) == []

    run(scenario)


def test_a_tenant_switches_its_own_node_and_the_journal_has_its_name():
    async def scenario(served: Served) -> None:
        status, asked = await served.ask("red", "POST", OWN, {"action": "off"})
        assert (status, asked["state"], asked["kind"]) == (202, "running", "node.power")
        (operation,) = await served.store.operations.list_active()
        assert (operation.node, operation.want) == ("su0-n01", "power off for its tenant")
        (row,) = await list_requests(served)
        assert (row["request"], row["by"]) == ("power off for its tenant", "red@example")
        status, refused = await served.ask("red", "POST", OWN, {"action": "off"})
        assert (status, refused["blockers"][0]["unblock"]) == (409, "Wait for its end.")
        _, listed = await served.ask("red", "GET", "/requests")
        assert {r["subject"] for r in listed["items"]} == {"su0-n01"}
        _, listed = await served.ask("blue", "GET", "/requests")
        assert listed["items"] == []

    run(scenario, api_tenant_power=("on", "off"))


def test_an_act_that_the_site_does_not_leave_to_tenants_is_refused():
    async def scenario(served: Served) -> None:
        status, refused = await served.ask("red", "POST", OWN, {"action": "cycle"})
        assert status == 403
        assert "It lets them ask for: on, off" in refused["unblock"]
        assert (await served.ask("red", "POST", f"{OWN}?dry_run=true", {"action": "off"}))[0] == 200
        assert await served.store.operations.list_active() == ()

    run(scenario, api_tenant_power=("on", "off"))


def test_nodes_of_others_are_answered_like_missing_ones():
    async def scenario(served: Served) -> None:
        for verb, body in (("GET", None), ("POST", {"action": "on"})):
            missing = await served.ask("red", verb, MISSING, body)
            assert missing[0] == 404
            for path in (FOREIGN, "/nodes/su0-n04/power", "/nodes/leaf-su0-r0/power"):
                assert await served.ask("red", verb, path, body) == missing
        assert await served.store.operations.list_active() == ()

    run(scenario, api_tenant_power=EVERY_ACT)


def test_a_node_that_is_not_released_is_neither_read_nor_switched():
    async def scenario(served: Served) -> None:
        await served.store.nodes.save(in_state(await read_node(served), State.DRAINING, NOW))
        status, refused = await served.ask("red", "GET", OWN)
        assert (status, refused["title"]) == (409, "It is not released to you now")
        status, refused = await served.ask("red", "POST", OWN, {"action": "on"})
        assert (status, refused["blockers"][0]["detail"]) == (409, "it is not released to you now")
        assert await served.store.operations.list_active() == ()

    run(scenario, api_tenant_power=EVERY_ACT)


def test_work_of_people_holds_a_node_and_a_report_with_notice_does_not():
    async def scenario(served: Served) -> None:
        fault = {"reason": "jobs hang"}
        assert (await served.ask("red", "POST", "/nodes/su0-n01/cases", fault))[0] == 200
        assert (await served.ask("red", "POST", OWN, {"action": "cycle"}))[0] == 202
        work = {"reason": "a fan is replaced", "maintenance": True, "service": "keep"}
        opened = await served.ask("operator", "POST", "/nodes/su0-n02/cases", work)
        assert opened[0] == 200
        path = "/nodes/su0-n02/power"
        status, refused = await served.ask("red", "POST", path, {"action": "on"})
        assert (status, "case su0-n02-c0001 holds it" in refused["detail"]) == (409, True)
        assert refused["unblock"]
        (operation,) = await served.store.operations.list_active()
        assert operation.node == "su0-n01"

    run(scenario, api_tenant_power=EVERY_ACT)


def test_a_request_that_waited_is_not_carried_out_on_the_next_tenants_node():
    async def scenario(served: Served) -> None:
        status, asked = await served.ask("red", "POST", OWN, {"action": "off"})
        assert (status, asked["state"]) == (202, "waiting")
        other = {"tenant": "blue", "served": "blue", "vrf": "BLUE"}
        node = await read_node(served)
        await served.store.nodes.save(node.model_copy(update=other))
        path = f"/requests/{asked['id']}/approve"
        status, refused = await served.ask("approver", "POST", path, {})
        assert (status, refused["blockers"][0]["detail"]) == (409, "it is not yours any more")
        assert await served.store.operations.list_active() == ()

    run(scenario, api_tenant_power=EVERY_ACT, api_four_eyes=("node.power",))


def test_a_tenant_follows_its_request_without_the_text_of_the_staff():
    async def scenario(served: Served) -> None:
        _, asked = await served.ask("red", "POST", OWN, {"action": "cycle"})
        path = f"/operations/{asked['id']}"
        (operation,) = await served.store.operations.list_active()
        operation = await served.store.operations.take(operation.id)
        phase = "power cycle: tried again, unreachable: https://10.0.0.1"
        operation, _ = await served.store.operations.record(
            operation.model_copy(update={"phase": phase}), now=NOW
        )
        status, going = await served.ask("red", "GET", path)
        assert (status, going["state"], going["phase"]) == (200, "running", "")
        assert (await served.ask("viewer", "GET", path))[1]["phase"] == phase
        note = "unreachable: https://10.0.0.1"
        await served.store.operations.end(operation, OperationStatus.PARKED, note, NOW + 5)
        _, ended = await served.ask("red", "GET", path)
        assert (ended["state"], "10.0.0.1" in str(ended)) == ("failed", False)
        assert "operators of the site" in ended["note"]
        _, listed = await served.ask("red", "GET", "/requests")
        assert [r["note"] for r in listed["items"]] == [ended["note"]]
        assert (await served.ask("operator", "GET", path))[1]["note"] == note

    run(scenario, api_tenant_power=EVERY_ACT)


def test_a_tenant_that_gives_a_node_back_sees_its_state_and_no_remark():
    async def scenario(served: Served) -> None:
        body = {"for_repair": False}
        _, asked = await served.ask("red", "POST", "/nodes/su0-n01/reclaim", body)
        node = await read_node(served)
        remark = {"note": "the BMC https://10.0.0.1 is slow"}
        await served.store.nodes.save(node.model_copy(update=remark))
        path = f"/operations/{asked['id']}"
        assert (await served.ask("red", "GET", path))[1]["note"] == "draining"
        assert "is slow" in (await served.ask("viewer", "GET", path))[1]["note"]

    run(scenario)

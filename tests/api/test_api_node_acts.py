"""Power requests and tags of a node through the API."""

from __future__ import annotations

from served import NOW, Served, run

from provisioner.model.access import RequestState
from provisioner.model.node import BmcRef, Placement
from provisioner.model.operation import OperationStatus
from provisioner.model.times.instant import format_instant

POWER = "/nodes/su0-n05/power"
TAGS = "/nodes/su0-n05/tags"


def test_a_power_request_is_an_operation_of_the_node_and_shows_its_progress():
    async def scenario(served: Served) -> None:
        status, asked = await served.ask("operator", "POST", POWER, {"action": "cycle"})
        assert (status, asked["state"], asked["kind"]) == (202, "running", "node.power")
        own = asked["result"]["operation"]
        assert own == "su0-n05:1"
        path = f"/operations/{asked['id']}"
        operation = await served.store.operations.take("su0-n05#1")
        assert operation.want == "power cycle"
        phased = operation.model_copy(update={"phase": "power cycle: waits for the BMC"})
        phased, _ = await served.store.operations.record(phased, now=1.0)
        _, going = await served.ask("viewer", "GET", path)
        assert (going["state"], going["phase"]) == ("running", "power cycle: waits for the BMC")
        await served.store.operations.end(
            phased, OperationStatus.PARKED, "unreachable: it is off", NOW + 5
        )
        _, ended = await served.ask("viewer", "GET", path)
        assert (ended["state"], ended["note"]) == ("failed", "unreachable: it is off")
        assert ended["ended_at"] == format_instant(NOW + 5)
        row = await served.store.requests.get(1)
        assert row is not None
        assert row.state is RequestState.FAILED  # for good, and no more counted as under way

    run(scenario)


def test_a_request_whose_operation_ended_before_it_was_written_down_has_ended():
    async def scenario(served: Served) -> None:
        _, asked = await served.ask("operator", "POST", POWER, {"action": "cycle"})
        operation = await served.store.operations.take("su0-n05#1")
        row = await served.store.requests.get(1)
        assert row is not None
        await served.store.operations.end(operation, OperationStatus.DONE, "it is on")
        assert (await served.store.requests.get(1)) == row  # nobody named a time
        ended = await served.store.requests.save(row, "op", NOW + 5)
        assert (ended.state, ended.ended_at, ended.note) == ("done", NOW + 5, "it is on")
        _, told = await served.ask("viewer", "GET", f"/operations/{asked['id']}")
        assert (told["state"], told["note"]) == ("done", "it is on")

    run(scenario)


def test_only_one_thing_is_done_to_a_node_at_a_time():
    async def scenario(served: Served) -> None:
        assert (await served.ask("operator", "POST", POWER, {"action": "off"}))[0] == 202
        status, refused = await served.ask("operator", "POST", POWER, {"action": "on"})
        assert (status, refused["blockers"][0]["unblock"]) == (409, "Wait for its end.")

    run(scenario)


def test_a_tenants_node_is_refused_and_by_default_no_tenant_may_ask():
    async def scenario(served: Served) -> None:
        serving = "/nodes/su0-n01/power"
        status, refused = await served.ask("operator", "POST", serving, {"action": "off"})
        assert (status, refused["blockers"][0]["detail"]) == (409, "it serves red")
        assert "Reclaim it first" in refused["blockers"][0]["unblock"]
        assert (await served.ask("red", "POST", serving, {"action": "off"}))[0] == 403
        assert await served.store.operations.list_active() == ()

    run(scenario)


def test_a_dry_run_says_the_effect_and_opens_nothing():
    async def scenario(served: Served) -> None:
        path = "/nodes/su0-n04/power?dry_run=true"
        _, shown = await served.ask("operator", "POST", path, {"action": "off"})
        assert shown["result"]["lines"] == [
            "su0-n04 is switched off at once, without a shutdown of its system.",
            "While it is off it cannot be released, and it is quarantined in the end.",
        ]
        assert await served.store.operations.list_active() == ()

    run(scenario)


def test_another_person_approves_a_power_request_where_the_site_wants_it():
    async def scenario(served: Served) -> None:
        status, asked = await served.ask("operator", "POST", POWER, {"action": "off"})
        assert (status, asked["state"]) == (202, "waiting")
        assert await served.store.operations.list_active() == ()
        path = f"/requests/{asked['id']}/approve"
        assert (await served.ask("approver", "POST", path, {}))[1]["state"] == "running"
        assert len(await served.store.operations.list_active()) == 1

    run(scenario, api_four_eyes=("node.power",))


def test_tags_are_replaced_merged_and_searched():
    async def scenario(served: Served) -> None:
        put = {"tags": ["team:vision", "loan", "loan"]}
        status, done = await served.ask("operator", "PUT", TAGS, put)
        assert (status, done["result"]) == (200, {"tags": ["loan", "team:vision"]})
        patch = {"tags": {"loan": None, "burn-in": True, "absent": False}}
        merged = await served.ask("operator", "PATCH", TAGS, patch)
        assert merged[1]["result"] == {"tags": ["burn-in", "team:vision"]}
        assert (await served.ask("viewer", "GET", TAGS))[1] == {"tags": ["burn-in", "team:vision"]}
        _, page = await served.ask("viewer", "GET", "/nodes?where=tag=team:*")
        assert [(n["id"], n["tags"]) for n in page["items"]] == [
            ("su0-n05", ["burn-in", "team:vision"])
        ]
        assert (await served.ask("operator", "PUT", TAGS, {}))[1]["result"] == {"tags": []}
        assert (await served.ask("viewer", "GET", "/nodes?where=tag=*:*"))[1]["items"] == []

    run(scenario)


def test_a_merge_patch_has_its_own_media_type_which_only_patch_takes():
    async def scenario(served: Served) -> None:
        kind = {"Content-Type": "application/merge-patch+json", **served.key("operator")}
        for verb, status in (("PATCH", 200), ("PUT", 415)):
            answer = await served.client.request(
                verb, "/v1" + TAGS, headers=kind, data=b'{"tags": {"loan": true}}'
            )
            assert answer.status == status, verb

    run(scenario)


def test_tags_of_other_forms_and_too_many_are_refused_and_a_tenant_sees_none():
    async def scenario(served: Served) -> None:
        for bad in (["Loan"], ["a b"], [""], ["-x"], ["ü"], ["x" * 64]):
            assert (await served.ask("operator", "PUT", TAGS, {"tags": bad}))[0] == 400, bad
        many = [f"t{n}" for n in range(32)]
        assert (await served.ask("operator", "PUT", TAGS, {"tags": many}))[0] == 200
        status, refused = await served.ask("operator", "PATCH", TAGS, {"tags": {"more": True}})
        assert (status, "33 tags" in refused["blockers"][0]["detail"]) == (409, True)
        red = "/nodes/su0-n01/tags"
        assert (await served.ask("operator", "PUT", red, {"tags": ["late-payer"]}))[0] == 200
        assert (await served.ask("red", "GET", "/nodes/su0-n01"))[1]["tags"] == []
        assert (await served.ask("red", "GET", red))[0] == 403
        _, found = await served.ask("red", "GET", "/nodes?where=tag=late*")
        assert found["items"] == []

    run(scenario)


def test_a_request_to_reset_gpus_is_an_operation_and_says_its_effect_before():
    async def scenario(served: Served) -> None:
        path = "/nodes/su0-n05/gpu-reset"
        _, shown = await served.ask("operator", "POST", f"{path}?dry_run=true", {"tenant": True})
        assert shown["blockers"][0]["detail"] == "it serves no tenant"
        row = await served.store.nodes.get("su0-n05")
        assert row is not None
        network = {"placement": Placement.MAINTENANCE, "bmcs": (BmcRef(name="host", url="x"),)}
        await served.store.nodes.save(row.model_copy(update=network))
        _, shown = await served.ask("operator", "POST", f"{path}?dry_run=true", {})
        assert "together" in shown["result"]["lines"][0]
        assert await served.store.operations.list_active() == ()
        assert (await served.ask("red", "POST", "/nodes/su0-n01/gpu-reset", {}))[0] == 403
        status, asked = await served.ask("operator", "POST", path, {})
        assert (status, asked["state"], asked["kind"]) == (202, "running", "node.gpu_reset")
        (operation,) = await served.store.operations.list_active()
        assert (operation.node, operation.want) == ("su0-n05", "gpu reset")

    run(scenario)


def test_a_request_for_the_time_is_an_operation_also_of_a_serving_node():
    async def scenario(served: Served) -> None:
        path = "/nodes/su0-n01/bmc-time"
        _, shown = await served.ask("operator", "POST", f"{path}?dry_run=true")
        assert "su0-n01" in shown["result"]["lines"][0]
        assert await served.store.operations.list_active() == ()
        status, asked = await served.ask("operator", "POST", path)
        assert (status, asked["state"], asked["kind"]) == (202, "running", "node.bmc_time")
        (operation,) = await served.store.operations.list_active()
        assert (operation.node, operation.want) == ("su0-n01", "bmc time")
        status, refused = await served.ask("operator", "POST", path)
        assert (status, refused["blockers"][0]["unblock"]) == (409, "Wait for its end.")
        assert (await served.ask("red", "POST", path))[0] == 403

    run(scenario)

"""Cases through the API: who may do what, a tenant's own, pages, archive, what people did."""

from __future__ import annotations

import base64
from typing import Any

from given_events import in_state
from served import NOW, Served, run

from provisioner.integrations.signed_files.bundle_reading import (
    envelope_of,
    list_bundle_objections,
    unpack_bundle,
)
from provisioner.model.case import Case, Origin, Service, Spare, Stage, Ticket
from provisioner.model.node import State
from provisioner.model.times.instant import format_instant
from provisioner.ports import Secret
from provisioner.store.repositories.signing_keys import MasterKey, open_signer
from provisioner.store.repositories.vault import Vault

HOURS_S = 3600.0


async def waiting(served: Served, node: str = "su0-n05", **more: Any) -> Case:
    """A case that waits for people, of a node that is out of service."""
    row = await served.store.nodes.get(node)
    assert row is not None
    if row.state is not State.REPAIRING:
        await served.store.nodes.save(in_state(row, State.REPAIRING, NOW))
    case = Case(
        id=f"{node}-c0001", node=node, origin=Origin.CHECK, reason="a GPU is gone",
        service=Service.CUT_OFF, stage=Stage.HARDWARE, opened_at=NOW - 60,
        ticket=Ticket(work="Replace it.", opened_at=NOW), **more,
    )  # fmt: skip
    added = await served.store.cases.add(case, now=NOW)
    assert added is not None
    return added


async def with_vault(served: Served) -> Vault:
    """The served parts, given what the daemon has: credentials and a key to sign with."""
    key = MasterKey.generate()
    vault = Vault(served.store, key)
    object.__setattr__(served.parts, "vault", vault)
    signer = await open_signer(served.store, key, NOW)
    object.__setattr__(served.parts, "signer", signer)
    return vault


def test_a_tenant_agrees_and_puts_off_for_its_own_nodes_only():
    async def scenario(served: Served) -> None:
        opened = await served.ask("red", "POST", "/nodes/su0-n01/cases", {"reason": "jobs hang"})
        case = f"/cases/{opened[1]['result']['case']}"
        until = {"until": format_instant(NOW + 5 * 24 * HOURS_S)}
        for verb, body in (("defer", until), ("accept", None)):
            assert (await served.ask("blue", "POST", f"{case}/{verb}", body))[0] == 404
            assert (await served.ask("viewer", "POST", f"{case}/{verb}", body))[0] == 403
        late = await served.ask(
            "red", "POST", f"{case}/defer", {"until": format_instant(NOW + 1e7)}
        )
        assert late[1]["blockers"][0]["detail"].startswith("it can be put off until 14 days")
        assert (await served.ask("red", "POST", f"{case}/defer", until))[0] == 200
        assert (await served.ask("red", "GET", case))[1]["line"]["drain_at"] == until["until"]
        status, told = await served.ask("red", "POST", f"{case}/accept")
        assert (status, told["asked_by"]) == (200, "red@example")
        assert (await served.ask("red", "GET", case))[1]["line"]["drain_at"] == format_instant(NOW)
        told = await served.ask("red", "GET", "/notices?kind=failure")
        assert [(n["tenant"], n["kind"]) for n in told[1]["items"]] == [("red", "failure")]
        assert (await served.ask("blue", "GET", "/notices"))[1]["items"] == []
        for verb in ("returned", "replace", "retire", "close", "rma", "spare", "tell"):
            assert (await served.ask("red", "POST", f"{case}/{verb}", {}))[0] == 403, verb

    run(scenario)


def test_how_a_tenant_is_served_meanwhile_is_not_its_own_to_say():
    async def scenario(served: Served) -> None:
        body = {"reason": "jobs hang", "service": "keep"}
        told = await served.ask("red", "POST", "/nodes/su0-n01/cases", body)
        assert (told[0], told[1]["type"]) == (403, "urn:provisioner:problem:service")
        made = await served.ask("operator", "POST", "/nodes/su0-n01/cases", body)
        shown = await served.ask("red", "GET", f"/cases/{made[1]['result']['case']}")
        assert (shown[1]["line"]["service"], shown[1]["line"]["reason"]) == ("keep", "")

    run(scenario)


def test_a_rack_is_given_back_with_a_case_for_each_of_its_hosts():
    async def scenario(served: Served) -> None:
        body = {"reason": "water below"}
        assert (await served.ask("operator", "POST", "/racks/nowhere/cases", body))[0] == 404
        told = await served.ask("operator", "POST", "/racks/su0-rack1/cases", body)
        assert told[1]["result"]["cases"] == {
            n: f"{n}-c0001" for n in ("su0-n01", "su0-n03", "su0-n05")
        }
        again = await served.ask("operator", "POST", "/racks/su0-rack1/cases", body)
        assert again[1]["result"]["cases"] == told[1]["result"]["cases"]  # they join

    run(scenario)


def test_every_case_is_on_one_page_and_a_tenant_pages_through_its_own():
    async def scenario(served: Served) -> None:
        book = served.store.cases
        for number in range(1, 8):
            tenant, node = ("red", "su0-n01") if number % 2 else ("blue", "su0-n03")
            case = Case(
                id=f"{node}-c{number:04d}", node=node, origin=Origin.EVENT, reason="x",
                service=Service.KEEP, tenant=tenant, opened_at=NOW + number // 3,
                closed_at=0.0 if number > 5 else NOW + 99, stage=Stage.OPENED,
            )  # fmt: skip
            await book.add(case, now=NOW)
        for who, wanted in (("viewer", 7), ("red", 4), ("blue", 3)):
            seen, path = [], "/cases?limit=2"
            while path:
                _, told = await served.ask(who, "GET", path)
                seen += [c["id"] for c in told["items"]]
                path = f"/cases?limit=2&cursor={told['next']}" if told["next"] else ""
            assert (len(seen), len(set(seen))) == (wanted, wanted), who
        _, told = await served.ask("viewer", "GET", "/cases?open=true&node=su0-n01")
        assert [c["id"] for c in told["items"]] == ["su0-n01-c0007"]
        assert (await served.ask("viewer", "GET", "/cases?cursor=x"))[0] == 400

    run(scenario)


def test_what_the_vendor_said_is_recorded_by_whoever_saw_the_case_as_it_is():
    async def scenario(served: Served) -> None:
        case = await waiting(served)
        path = f"/cases/{case.id}"
        tag = (await served.client.get(f"/v1{path}", headers=served.key("operator"))).headers[
            "ETag"
        ]
        number = {"number": "RMA-4711"}
        assert (await served.ask("operator", "POST", f"{path}/rma", number, If_Match=tag))[0] == 200
        assert (await served.ask("operator", "POST", f"{path}/rma", number, If_Match=tag))[0] == 412
        bad = {"number": "RMA\x1b[2J"}
        assert (await served.ask("operator", "POST", f"{path}/rma", bad))[0] == 400
        spare = {"kind": "gpu", "serial": "1650000000042"}
        assert (await served.ask("operator", "POST", f"{path}/spare", spare))[0] == 200
        told = await served.ask("operator", "POST", f"{path}/tell")
        assert told[1]["blockers"][0]["detail"].startswith("there is nothing that its ticket")
        shown = (await served.ask("viewer", "GET", path))[1]["case"]
        assert shown["ticket"]["rma"] == "RMA-4711"
        assert Spare.model_validate(shown["spare"], strict=False).serial == "1650000000042"
        end = {"why": "nothing found"}
        assert (await served.ask("operator", "POST", f"{path}/close", end))[0] == 200
        figures = await served.ask("viewer", "GET", "/repairs?days=1")
        assert figures[1]["endings"] == {"no_fault": 1}

    run(scenario)


def test_exchanged_hardware_is_logged_into_with_what_the_site_keeps_and_nothing_else():
    async def scenario(served: Served) -> None:
        case = await waiting(served)
        path = f"/cases/{case.id}"
        without = await served.ask("operator", "POST", f"{path}/replace", {})
        assert "credentials" in without[1]["blockers"][0]["detail"]
        vault = await with_vault(served)
        unknown = await served.ask("operator", "POST", f"{path}/replace", {})
        assert "no factory login of generic" in unknown[1]["blockers"][0]["detail"]
        card = {"work": "DPU replaced", "cards": ["DPU_9"]}
        told = await served.ask("operator", "POST", f"{path}/returned", card)
        assert told[1]["blockers"][0]["detail"] == "su0-n05 has no card DPU_9"

        await vault.put("factory/generic", "admin", Secret("fresh"))
        told = await served.ask("operator", "POST", f"{path}/replace", {"why": "board dead"})
        assert (told[0], told[1]["result"]["stage"]) == (200, "closed")
        node = await served.store.nodes.get("su0-n05")
        assert node is not None
        assert (node.state, node.certificate, node.served) == (State.DISCOVERED, "", "unknown")
        assert await served.store.evidence.is_revoked("cert-su0-n05")
        login = await vault.current("su0-n05/host")
        assert login is not None
        assert login[1].reveal() == "fresh"
        assert "fresh" not in str(await served.store.journal.list(limit=1000))

    run(scenario)


def test_an_archive_is_given_as_the_ticket_has_it_to_the_staff_only():
    async def scenario(served: Served) -> None:
        case = await waiting(served)
        path = f"/cases/{case.id}/bundle"
        assert (await served.ask("red", "GET", path))[0] == 403
        await with_vault(served)
        answer = await served.client.get(f"/v1{path}", headers=served.key("viewer"))
        members = unpack_bundle(await answer.read())
        assert answer.content_type == "application/gzip"
        assert list_bundle_objections(members, envelope_of(members).payload) == ()

        stored = await served.store.evidence.put_output(base64.b64encode(b"as sent").decode())
        changed = case.model_copy(update={"evidence": {"bundle": stored}})
        await served.store.cases.save(changed, now=NOW)
        answer = await served.client.get(f"/v1{path}", headers=served.key("viewer"))
        assert await answer.read() == b"as sent"

    run(scenario)


def test_the_dry_run_of_a_request_says_its_effect_or_why_it_is_not_due():
    async def scenario(served: Served) -> None:
        case = await waiting(served)

        async def read(verb: str, body: object) -> dict[str, Any]:
            path = f"/cases/{case.id}/{verb}?dry_run=true"
            status, shown = await served.ask("operator", "POST", path, body)
            assert status == 200
            return shown

        returned = await read("returned", {"work": "GPU 5 replaced", "cards": ["DPU_1"]})
        assert returned["result"]["lines"] == [
            (
                "su0-n05 is taken in as unknown hardware: its parts are compared with those "
                "before, then it is certified anew."
            ),
            "Factory logins are used for: DPU_1.",
        ]
        closed = await read("close", {"why": "nothing found"})
        assert closed["result"]["lines"] == [
            "The case ends as: no fault. Nothing proves that su0-n05 is well."
        ]
        rma = await read("rma", {"number": "R1"})
        assert rma["result"]["lines"] == [
            "The number is recorded with the case and its ticket. The node is not touched."
        ]
        accepted = await read("accept", None)
        assert accepted["blockers"][0]["detail"] == "it is in hardware: not due now"
        deferred = await read("defer", {"until": format_instant(NOW + HOURS_S)})
        assert deferred["blockers"][0]["detail"] == "it is not waiting to be drained"
        after = await served.store.cases.get(case.id)
        assert after is not None
        assert after.generation == case.generation  # nothing was changed

    run(scenario)

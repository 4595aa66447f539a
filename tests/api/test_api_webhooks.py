"""Webhooks as resources: PUT replaces, PATCH merges, and what waits and the secret stay."""

from __future__ import annotations

from typing import Any

import pytest
from served import Served, run

from provisioner.cli.client.preparing import build_body
from provisioner.cli.client.surface import read_specs
from provisioner.integrations.webhooks.posted_events import secret_of
from provisioner.model.integrations.webhook import secret_name
from provisioner.ports import Secret, StaleWrite
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault

HOOK = "/webhooks/billing"
SECRET = secret_of(b"s" * 32)
BODY = {"url": "https://billing.example/a", "kinds": ["case_*"], "nodes": ["su0-*"]}


async def add_webhook(served: Served, **more: Any) -> Vault:
    """One receiver, and the vault with its secret."""
    vault = Vault(served.store, MasterKey.generate())
    object.__setattr__(served.parts, "vault", vault)
    body = {**BODY, "secret": SECRET, **more}
    assert (await served.ask("operator", "PUT", HOOK, body))[0] == 200
    return vault


async def read_webhook(served: Served) -> Any:
    status, shown = await served.ask("viewer", "GET", HOOK)
    assert status == 200
    assert "whsec_" not in str(shown)
    return shown


async def read_tag(served: Served) -> str:
    answer = await served.client.get("/v1" + HOOK, headers=served.key("viewer"))
    return answer.headers["ETag"]


async def patch(served: Served, body: Any, **headers: str) -> tuple[int, Any]:
    status, document = await served.ask("operator", "PATCH", HOOK, body, **headers)
    assert "whsec_" not in str(document)
    return status, document


def test_a_merge_changes_the_fields_that_it_names_and_null_removes_one():
    async def scenario(served: Served) -> None:
        await add_webhook(served)
        before = await read_webhook(served)
        change = {"url": "https://billing.example/b", "tenant": "red", "kinds": None}
        status, document = await patch(served, change)
        assert (status, document["state"], document["kind"]) == (200, "done", "webhook.set")
        assert document["result"]["changed"] == "url, kinds, tenant"
        after = await read_webhook(served)
        assert after == {**before, "url": change["url"], "tenant": "red", "kinds": ["*"]}

        assert (await patch(served, {"tenant": None, "paused_why": "it moves"}))[0] == 200
        after = await read_webhook(served)
        assert (after["tenant"], after["paused_why"]) == ("", "it moves")
        assert (await patch(served, {"paused_why": None}))[0] == 200
        assert (await read_webhook(served))["paused_why"] == ""

    run(scenario)


def test_a_replacement_has_defaults_for_what_it_leaves_out_and_keeps_secret_and_pause():
    async def scenario(served: Served) -> None:
        vault = await add_webhook(served, after=0)
        assert (await patch(served, {"paused_why": "it moves"}))[0] == 200
        status = next(iter(await served.store.webhooks.list()))
        body = {"url": "https://billing.example/b", "tenant": "blue", "secret": SECRET}
        for number in range(2):  # sent again, it changes nothing
            code, document = await served.ask("operator", "PUT", HOOK, body)
            assert (code, document["kind"]) == (200, "webhook.set")
            changed = "nothing" if number else "url, kinds, nodes, tenant"
            assert document["result"]["changed"] == changed
            assert "whsec_" not in str(document)
        after = await read_webhook(served)
        assert (after["url"], after["kinds"], after["nodes"]) == (body["url"], ["*"], ["*"])
        assert (after["tenant"], after["paused_why"]) == ("blue", "it moves")
        assert next(iter(await served.store.webhooks.list())).position == status.position == 0
        current = await vault.current(secret_name("billing"))
        assert current is not None
        assert current[1].reveal() == SECRET

    run(scenario)


def test_a_replacement_with_another_secret_is_refused_and_names_the_rotation():
    async def scenario(served: Served) -> None:
        vault = await add_webhook(served)
        other = {"url": "https://else.example/", "secret": secret_of(b"o" * 32)}
        status, refused = await served.ask("operator", "PUT", HOOK, other)
        assert (status, refused["type"]) == (409, "urn:provisioner:problem:exists")
        assert "`provisioner webhook rotate billing`" in refused["unblock"]
        assert (await read_webhook(served))["url"] == BODY["url"]
        # one that is coming signs already
        await vault.begin(secret_name("billing"), "billing", Secret(other["secret"]))
        assert (await served.ask("operator", "PUT", HOOK, other))[0] == 200
        assert (await served.ask("operator", "PUT", HOOK, {**BODY, "secret": "c2hvcnQ="}))[0] == 400
        new = {"url": "https://else.example/"}
        assert (await served.ask("operator", "PUT", "/webhooks/second", new))[0] == 400

    run(scenario)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"url": None}, 400, "cannot be removed"),
        ({"url": "http://billing.example/"}, 400, "it would be sent unencrypted"),
        ({"url": "https://user:x@billing.example/"}, 400, "user or password"),
        ({"kinds": ["a"] * 33}, 400, "no patterns"),
        ({"ca": "no certificate"}, 400, "the certificate is unreadable"),
        ({"secret": SECRET}, 400, "secret"),
        ({"made_at": "2026-11-21T12:00:00Z"}, 400, "made_at"),
        ({"tenant": "absent"}, 404, "tenant"),
    ],
)
def test_a_merge_that_makes_no_good_receiver_is_refused(change: Any, status: int, words: str):
    async def scenario(served: Served) -> None:
        await add_webhook(served)
        before = await read_webhook(served)
        code, refused = await patch(served, change)
        assert code == status
        assert words in refused["title"] + refused.get("detail", "")
        assert refused["unblock"]
        assert await read_webhook(served) == before
        assert (await served.ask("operator", "PATCH", "/webhooks/absent", {}))[0] == 404

    run(scenario)


def test_no_role_names_an_address_that_the_site_does_not_allow():
    async def scenario(served: Served) -> None:
        await add_webhook(served)
        before = await read_webhook(served)
        for url in (
            "http://billing.example/",
            "https://127.0.0.1/",
            "https://2130706433/",
            "https://[::ffff:169.254.169.254]/",
            "https://localhost./",
            "https://10.0.0.9/",
        ):
            change = {"url": url, "plain": True}
            code, refused = await patch(served, change)
            words = refused["title"] + refused.get("detail", "")
            assert (code, "webhook_" in words, bool(refused["unblock"])) == (400, True, True), url
            new = {**change, "secret": SECRET}
            assert (await served.ask("operator", "PUT", "/webhooks/second", new))[0] == 400
            assert (await served.ask("operator", "PUT", HOOK, change))[0] == 400
        assert await read_webhook(served) == before

    run(scenario)


def test_a_stored_url_that_the_site_no_longer_allows_is_not_waived():
    async def scenario(served: Served) -> None:
        await add_webhook(served)
        row = next(iter(await served.store.webhooks.list())).webhook
        stored = row.model_copy(update={"url": "http://10.0.0.9/"})  # of an older version
        await served.store.webhooks.replace(row, stored, "ada", 5.0)
        assert (await patch(served, {"kinds": ["alert*"], "plain": True}))[0] == 400
        assert (await served.ask("operator", "POST", f"{HOOK}/pause", {"why": "moves"}))[0] == 200
        assert (await patch(served, {"url": "https://billing.example/"}))[0] == 200

    run(scenario)


def test_an_http_url_is_allowed_once_and_stays():
    async def scenario(served: Served) -> None:
        await add_webhook(served)
        change = {"url": "http://10.0.0.9/", "plain": True}
        assert (await patch(served, change))[0] == 200
        assert (await patch(served, {"kinds": ["alert*"]}))[0] == 200
        assert (await patch(served, {"url": "http://10.0.0.10/"}))[0] == 400
        assert (await read_webhook(served))["url"] == "http://10.0.0.9/"

    run(scenario, webhook_plain=True, webhook_networks=("10.0.0.0/24",))


def test_if_match_holds_the_fields_and_not_the_progress():
    async def scenario(served: Served) -> None:
        await add_webhook(served, kinds=["*"], nodes=["*"], after=0)
        tag = await read_tag(served)
        assert await served.store.webhooks.spread("billing", 100) > 0
        assert await read_tag(served) != tag  # a reader sees that more waits
        assert (await patch(served, {"kinds": ["alert*"]}, If_Match=tag))[0] == 200
        for verb, body in (("PATCH", {"kinds": ["*"]}), ("PUT", BODY), ("DELETE", None)):
            status, refused = await served.ask("operator", verb, HOOK, body, If_Match=tag)
            assert (status, refused["type"]) == (412, "urn:provisioner:problem:changed")
        assert (await read_webhook(served))["kinds"] == ["alert*"]
        new = {"url": "https://else.example/", "secret": SECRET}
        status, _ = await served.ask("operator", "PUT", "/webhooks/second", new, If_Match=tag)
        assert status == 412

    run(scenario)


def test_a_merge_that_waited_takes_nothing_back():
    async def scenario(served: Served) -> None:
        await add_webhook(served)
        tag = await read_tag(served)
        waiting = [
            (await patch(served, {"kinds": ["alert*"]}))[1]["id"],
            (await patch(served, {"kinds": ["audit*"]}, If_Match=tag))[1]["id"],
        ]
        books = served.store.webhooks
        row = next(iter(await books.list())).webhook
        await books.replace(row, row.model_copy(update={"nodes": ("su1-*",)}), "ada", 5.0)
        for number, state in zip(waiting, ("done", "failed"), strict=True):
            await served.ask("approver", "POST", f"/requests/{number}/approve", {})
            _, ended = await served.ask("viewer", "GET", f"/operations/{number}")
            assert ended["state"] == state
        after = await read_webhook(served)
        assert (after["kinds"], after["nodes"]) == (["alert*"], ["su1-*"])
        with pytest.raises(StaleWrite):
            await books.replace(row, row, "ada", 6.0)

    run(scenario, api_four_eyes=("webhook.set",))


def test_a_dry_run_names_the_changes_and_a_key_makes_one_change():
    async def scenario(served: Served) -> None:
        await add_webhook(served, kinds=["*"], nodes=["*"], after=0)
        waiting = await served.store.webhooks.spread("billing", 100)
        change = {"kinds": ["case_*"], "paused_why": "it moves"}
        dry = await served.ask("operator", "PATCH", HOOK + "?dry_run=true", change)
        assert (dry[0], dry[1]["state"]) == (200, "dry_run")
        assert dry[1]["result"]["lines"] == [
            "billing: kinds is case_*, and was *.",
            "billing is paused.",
            f"{waiting} undelivered events do not match any more: they are dropped.",
        ]
        before = await read_webhook(served)
        assert (before["kinds"], before["pending"]) == (["*"], waiting)

        first = await patch(served, change, Idempotency_Key="one")
        assert (await patch(served, {"kinds": ["*"]}))[0] == 200
        assert await patch(served, change, Idempotency_Key="one") == first
        assert first[1]["result"]["dropped"] == waiting
        after = await read_webhook(served)
        assert (after["kinds"], after["pending"]) == (["*"], 0)
        _, events = await served.ask("viewer", "GET", "/events?kind=webhook")
        detail = events["items"][1]["detail"]
        assert detail["changed_by"] == "operator@example"
        assert (detail["fields"], detail["dropped"]) == (["kinds", "paused_why"], waiting)

    run(scenario)


def test_the_command_sends_the_named_fields_alone():
    spec = read_specs()["webhook set"]
    assert build_body("webhook set", spec, {"kinds": ["alert*"], "url": None}) == {
        "kinds": ["alert*"]
    }

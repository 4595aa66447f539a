"""Policies, the hardware list and the matrix's files as resources."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from served import NOW, RELEASE, Served, run

from provisioner.model.times.instant import format_instant
from provisioner.store.repositories import agents
from provisioner.store.rows import tenant_rows

POLICY = "/policies/bmc-firmware"
BASE = (Path(__file__).parents[2] / "firmware_matrix.yaml").read_text(encoding="utf-8")
ENTRY = "/hardware/su0-n04"


async def changes_of(served: Served, kind: str) -> list[dict[str, Any]]:
    _, page = await served.ask("viewer", "GET", f"/events?kind={kind}&limit=500")
    return [event["detail"] for event in page["items"]]


def test_a_policy_is_put_read_merged_and_deleted_by_the_clients_name():
    async def scenario(served: Served) -> None:
        assert (await served.ask("viewer", "GET", POLICY))[0] == 404
        assert (await served.ask("operator", "PATCH", POLICY, {"note": "x"}))[0] == 404
        body = {"policy": {"canary": {"size": 8}}, "note": "for BMC firmware"}
        for _ in range(2):
            assert (await served.ask("operator", "PUT", POLICY, body))[0] == 200
        _, kept = await served.ask("viewer", "GET", POLICY)
        assert (kept["generation"], kept["by"]) == (1, "operator@example")  # a repetition is none
        assert (kept["policy"]["canary"]["size"], kept["at"]) == (8, format_instant(NOW))
        patch = {"policy": {"canary": {"soak_s": 60}, "budget_strict": True}}
        assert (await served.ask("operator", "PATCH", POLICY, patch))[0] == 200
        _, kept = await served.ask("viewer", "GET", POLICY)
        assert kept["policy"]["canary"] == {"size": 8, "soak_s": 60, "failures": 0}
        assert (kept["policy"]["budget_strict"], kept["note"]) == (True, "for BMC firmware")
        reset = {"policy": {"canary": None}}
        assert (await served.ask("operator", "PATCH", POLICY, reset))[0] == 200
        _, kept = await served.ask("viewer", "GET", POLICY)
        assert kept["policy"]["canary"]["size"] == 5  # null sets the default
        assert (await served.ask("operator", "PUT", POLICY, {}))[0] == 200
        _, kept = await served.ask("viewer", "GET", POLICY)
        assert (kept["policy"]["budget_strict"], kept["note"]) == (False, "")  # PUT replaces
        _, listed = await served.ask("viewer", "GET", "/policies")
        assert ([p["name"] for p in listed["items"]], listed["total"]) == (["bmc-firmware"], 1)
        assert (await served.ask("operator", "DELETE", POLICY))[0] == 200
        assert (await served.ask("viewer", "GET", POLICY))[0] == 404
        changes = await changes_of(served, "policy")
        assert [set(c) for c in changes] == [{"policy", "by"}] * 4 + [{"dropped", "by"}]

    run(scenario)


def test_a_policy_that_is_none_is_refused_with_its_field():
    async def scenario(served: Served) -> None:
        for name, body, status in (
            ("Upper", {}, 400),
            ("ok", {"policy": {"waves": [{"upto": {"percent": 50}}]}}, 400),
            ("ok", {"policy": {"limits": {"rail": {"count": 1}}}}, 400),
            ("ok", {"policy": {"cannary": {}}}, 400),
        ):
            assert (await served.ask("operator", "PUT", f"/policies/{name}", body))[0] == status
        assert (await served.ask("operator", "PUT", POLICY, {}))[0] == 200
        patch = {"policy": {"canary": {"size": -1}}}
        status, refused = await served.ask("operator", "PATCH", POLICY, patch)
        assert (status, "canary.size" in refused["detail"]) == (400, True)
        assert (await served.ask("viewer", "PUT", POLICY, {}))[0] == 403
        assert (await served.ask("operator-rack1", "PUT", POLICY, {}))[0] == 403
        assert (await served.ask("red", "GET", POLICY))[0] == 403

    run(scenario)


def test_a_policy_that_another_person_changed_meanwhile_is_not_overwritten():
    async def scenario(served: Served) -> None:
        assert (await served.ask("operator", "PUT", POLICY, {"note": "one"}))[0] == 200
        body = {"note": "two"}
        asked = await served.ask("operator", "PUT", POLICY, body, If_Match='"g7"')
        assert asked[0] == 412
        status, waiting = await served.ask("operator", "DELETE", POLICY)
        assert (status, waiting["state"]) == (202, "waiting")
        assert (await served.ask("operator", "PUT", POLICY, body, If_Match='"g1"'))[0] == 200
        approve = f"/requests/{waiting['id']}/approve"
        status, refused = await served.ask("approver", "POST", approve, {})
        assert (status, refused["blockers"][0]["detail"]) == (409, "it was changed meanwhile")
        assert (await served.ask("viewer", "GET", POLICY))[1]["note"] == "two"

    run(scenario, api_four_eyes=["policy.delete"])


def test_a_dry_run_of_a_policy_lists_the_fields_that_differ_and_keeps_nothing():
    async def scenario(served: Served) -> None:
        body = {"policy": {"budget_strict": True}}
        _, shown = await served.ask("operator", "PUT", f"{POLICY}?dry_run=true", body)
        assert shown["result"]["lines"][:2] == [
            "bmc-firmware, compared with the defaults: 1 fields differ.",
            "budget_strict: False -> True",
        ]
        assert (await served.ask("viewer", "GET", POLICY))[0] == 404

    run(scenario)


def test_a_campaign_copies_the_policy_that_it_names():
    async def scenario(served: Served) -> None:
        body = {"policy": {"canary": {"size": 1, "soak_s": 7}}}
        assert (await served.ask("operator", "PUT", POLICY, body))[0] == 200
        draft = {"release": RELEASE, "select": "node=su0-n04", "policy_name": "bmc-firmware"}
        status, made = await served.ask("operator", "POST", "/campaigns", draft)
        assert status == 200, made
        assert (await served.ask("operator", "DELETE", POLICY))[0] == 200
        _, shown = await served.ask("viewer", "GET", f"/campaigns/{made['result']['campaign']}")
        assert shown["campaign"]["policy"]["canary"]["soak_s"] == 7
        assert (await served.ask("operator", "POST", "/campaigns", draft))[0] == 404
        both = draft | {"policy": {}}
        assert (await served.ask("operator", "POST", "/campaigns", both))[0] == 400

    run(scenario)


def test_the_hardware_list_has_each_node_as_declared_and_no_login():
    async def scenario(served: Served) -> None:
        _, first = await served.ask("viewer", "GET", "/hardware?limit=4")
        _, rest = await served.ask("viewer", "GET", f"/hardware?limit=9&cursor={first['next']}")
        names = [e["name"] for e in (*first["items"], *rest["items"])]
        assert (names, first["total"], rest["next"]) == (sorted(names), 7, "")
        assert len(names) == 7
        _, entry = await served.ask("viewer", "GET", ENTRY)
        assert entry["location"]["rack"] == "su0-rack0"
        assert (entry["ports"][0]["switch"], entry["bmcs"][0]["url"]) == (
            "leaf-su0-r0",
            "https://10.0.0.4",
        )
        assert not {"password", "username"} & set(str(entry).split("'"))
        assert (await served.ask("viewer", "GET", "/hardware/absent"))[0] == 404
        assert (await served.ask("red", "GET", "/hardware"))[0] == 403

    run(scenario)


def test_an_entry_of_a_known_node_with_other_cables_is_refused_by_their_names():
    async def scenario(served: Served) -> None:
        _, entry = await served.ask("viewer", "GET", ENTRY)
        kept = {name: entry[name] for name in ("kind", "location", "ports", "os_disk")}
        other = kept | {"location": kept["location"] | {"rack": "su0-rack9"}, "ports": []}
        status, refused = await served.ask("operator", "PUT", ENTRY, other)
        assert (status, refused["detail"]) == (409, "su0-n04 differs in location, ports")
        # the same entry goes the way of every intake, which needs a daemon that reaches BMCs
        status, refused = await served.ask("operator", "PUT", ENTRY, kept)
        assert (status, refused["title"]) == (409, "This process reaches no BMC")
        assert (await served.ask("operator", "PUT", "/hardware/bad name", kept))[0] == 400
        assert (await served.ask("operator-rack1", "PUT", ENTRY, kept))[0] == 403

    run(scenario)


def test_the_files_of_the_matrix_are_shown_with_text_and_digest():
    async def scenario(served: Served) -> None:
        _, shown = await served.ask("viewer", "GET", "/matrix")
        (base,) = shown["items"]
        assert base["sha256"] == hashlib.sha256(BASE.encode()).hexdigest()
        assert shown["sha256"] == served.parts.matrix.digest()
        _, file = await served.ask("viewer", "GET", "/matrix/files/0")
        assert file["text"] == BASE
        for number in ("1", "-1", "x", "99999999999999"):
            assert (await served.ask("viewer", "GET", f"/matrix/files/{number}"))[0] == 404

    run(scenario)


def test_overlays_are_tried_without_a_change():
    overlay = """
schema: 1
releases:
  spectrum-x-1.3.0:
    profiles:
      hgx-h100-bf3:
        pins:
          host.bios: {version: "9.9", artifact: bios.bin, sha256: "%s", evidence: own}
""" % ("a" * 64)

    async def scenario(served: Served) -> None:
        before = served.parts.matrix.digest()
        body = {"overlays": [{"name": "site.yaml", "text": overlay}]}
        status, tried = await served.ask("viewer", "POST", "/matrix/trial", body)
        assert (status, tried["objection"]) == (200, None)
        changes = {c["profile"]: c for c in tried["changes"]}
        change = changes["hgx-h100-bf3"]
        assert {c["component"] for c in tried["changes"]} == {"host.bios"}
        assert (change["before"], change["after"]) == ("unknown", "9.9")
        assert tried["sha256"] not in ("", before)
        bad = {"overlays": [{"name": "site.yaml", "text": overlay.replace("version", "vresion")}]}
        _, refused = await served.ask("viewer", "POST", "/matrix/trial", bad)
        assert (refused["objection"]["source"], refused["sha256"]) == ("site.yaml", "")
        assert refused["objection"]["remedy"]
        assert served.parts.matrix.digest() == before

    run(scenario)


def test_a_view_is_ones_own_until_it_is_shared_and_never_another_sides():
    async def scenario(served: Served) -> None:
        async def names(who: str) -> list[str]:
            _, told = await served.ask(who, "GET", "/views")
            return [f"{v['owner']} {v['name']}" for v in told["items"]]

        body = {"address": "#/nodes?where=rack%3Dsu0-*"}
        for who in ("viewer", "red"):
            assert (await served.ask(who, "PUT", "/views/mine", body))[0] == 200
        assert await names("operator") == []
        for _ in range(2):  # a repetition replaces it
            answer = await served.ask("viewer", "PUT", "/views/mine", {**body, "shared": True})
            assert answer[0] == 200
        assert await names("operator") == ["viewer@example mine"]
        assert await names("red") == ["red@example mine"]
        of_viewer = "/views/mine?owner=viewer@example"
        assert (await served.ask("operator", "GET", of_viewer))[1]["address"] == body["address"]
        assert (await served.ask("red", "GET", of_viewer))[0] == 404
        assert (await served.ask("operator", "DELETE", "/views/mine"))[0] == 404
        assert (await served.ask("viewer", "DELETE", "/views/mine"))[0] == 200
        assert await names("operator") == []

    run(scenario)


def test_views_are_bounded_and_lead_nowhere_but_into_the_console(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agents, "VIEWS_MAX", 2)

    async def scenario(served: Served) -> None:
        addresses = ("https://x.example", "javascript:1", "#/\u202e", "#/ x", "#/" + "x" * 4000)
        for address in (*addresses, "/v1/session"):
            status, _ = await served.ask("viewer", "PUT", "/views/v", {"address": address})
            assert status == 400, address
        good = {"address": "#/fleet"}
        for name in ("a" * 81, "%20a", "a%0ab"):
            assert (await served.ask("viewer", "PUT", f"/views/{name}", good))[0] == 400
        for name, status in (("a", 200), ("b", 200), ("c", 409), ("a", 200)):
            assert (await served.ask("viewer", "PUT", f"/views/{name}", good))[0] == status
        assert (await served.ask("operator", "PUT", "/views/mine", good))[0] == 200
        assert (await served.ask("red", "PUT", "/views/mine", good))[0] == 200
        monkeypatch.setattr(agents, "VIEWS_OF_SIDE_MAX", 2)  # fewer than the staff has by now
        assert (await served.ask("red", "PUT", "/views/other", good))[0] == 200  # room of its own
        assert (await served.ask("red", "PUT", "/views/third", good))[0] == 409
        other = {"address": "#/tenants"}
        assert (await served.ask("operator", "PUT", "/views/mine", other))[0] == 409
        kept = await served.ask("operator", "GET", "/views/mine")
        assert (kept[0], kept[1]["address"]) == (200, "#/fleet")  # a refusal takes nothing away

    run(scenario)


def test_the_views_of_a_tenants_people_go_with_the_tenant():
    async def scenario(served: Served) -> None:
        store = served.parts.store
        view = {"address": "#/fleet", "shared": True}
        for who in ("red", "viewer"):
            assert (await served.ask(who, "PUT", "/views/mine", view))[0] == 200
        red = next(t for t in await store.tenants.list() if t.name == "red")
        await store.write(lambda c: tenant_rows.remove_tenant(c, red))

        assert await store.views.list("red", "red@example") == ()
        assert len(await store.views.list("", "viewer@example")) == 1

    run(scenario)

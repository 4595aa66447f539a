"""What every answer promises: pages, filters, ETags, replays, limits, a way out of each no."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from given_events import event_of, in_state
from served import MATRIX, NOW, PROFILE, RELEASE, Served, run
from sqlalchemy import update

from provisioner.api.changes import Outcome
from provisioner.api.parts import ApiParts
from provisioner.control.watch.watch_standing import TimeStanding
from provisioner.model.access import ChangeKind, ChangeRequest
from provisioner.model.inventory import Component, Inventory
from provisioner.model.node import State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.times.instant import format_instant
from provisioner.runtime import permit as process_scope
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.rows import request_rows
from provisioner.store.rows.evidence_rows import put_inventory
from provisioner.store.rows.request_rows import read_tokens
from provisioner.store.schema.schema import tokens


def test_a_list_is_paged_and_filtered():
    async def scenario(served: Served) -> None:
        seen, path = [], "/nodes?limit=2"
        while path:
            status, told = await served.ask("viewer", "GET", path)
            assert (status, len(told["items"]) <= 2) == (200, True)
            seen += [n["id"] for n in told["items"]]
            path = f"/nodes?limit=2&cursor={told['next']}" if told["next"] else ""
        assert seen == ["leaf-su0-r0"] + [f"su0-n0{i}" for i in range(1, 7)]
        where = "state=released and not tenant=red and kind=host"
        _, told = await served.ask("viewer", "GET", f"/nodes?where={where}")
        assert [n["id"] for n in told["items"]] == ["su0-n03"]
        _, told = await served.ask("viewer", "GET", "/nodes?where=rack=su0-rack1 reason!=check_*")
        assert [n["id"] for n in told["items"]] == ["su0-n01", "su0-n03"]
        _, told = await served.ask("viewer", "GET", "/summary")
        assert told["nodes"] == 7
        _, told = await served.ask("viewer", "GET", "/fleet")
        assert [row[0] for row in told["rows"]] == seen

    run(scenario)


def test_what_cannot_be_read_is_a_problem_that_says_what_helps():
    async def scenario(served: Served) -> None:
        for path, word in (
            ("/nodes?where=colour=red", "where"),
            ("/nodes?where=((", "where"),
            ("/nodes?limit=0", "query"),
            ("/nodes?limit=1&limit=2", "query"),
            ("/nodes?unknown=1", "query"),
            ("/nodes?cursor=WyJ4Il0x", "cursor"),
            ("/nodes?cursor=WzFd", "cursor"),
            ("/audit?cursor=WyJ4Il0", "cursor"),
        ):
            status, told = await served.ask("viewer", "GET", path)
            assert (status, told["type"]) == (400, f"urn:provisioner:problem:{word}"), path
            assert told["unblock"], path
        status, told = await served.ask("viewer", "GET", "/nothing")
        assert (status, told["title"]) == (404, "There is no such path")
        answer = await served.client.post("/v1/nodes", headers=served.key("operator"))
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")
        typed = served.key("operator", **{"Content-Type": "text/plain"})
        answer = await served.client.put("/v1/tenants/x", data=b"{}", headers=typed)
        assert answer.status == 415

    run(scenario)


def test_an_answer_that_is_known_is_not_sent_again_and_a_stale_decision_is_refused():
    async def scenario(served: Served) -> None:
        answer = await served.client.get("/v1/nodes/su0-n05", headers=served.key("viewer"))
        tag = answer.headers["ETag"]
        again = await served.client.get(
            "/v1/nodes/su0-n05", headers=served.key("viewer", **{"If-None-Match": tag})
        )
        assert (again.status, await again.read()) == (304, b"")
        path = "/nodes/su0-n05/retry"
        status, told = await served.ask("operator", "POST", path, If_Match='"g9"')
        assert (status, told["type"]) == (412, "urn:provisioner:problem:changed")
        status, told = await served.ask("operator", "POST", path, If_Match=tag)
        assert (status, told["state"]) == (202, "running")
        node = await served.store.nodes.get("su0-n05")
        assert node is not None
        assert node.state == "converging"
        status, told = await served.ask("operator", "POST", path, If_Match=tag)
        assert status == 412

    run(scenario)


def test_a_change_with_one_key_is_made_once():
    async def scenario(served: Served) -> None:
        path, body = "/nodes/su0-n01/reclaim", {"for_repair": True, "accept_no_return": True}
        first = await served.ask("operator", "POST", path, body, Idempotency_Key="k1")
        second = await served.ask("operator", "POST", path, body, Idempotency_Key='"k1"')
        assert first[0] == 202
        assert second == first
        other = await served.ask("operator", "POST", path, {}, Idempotency_Key="k1")
        assert (other[0], other[1]["type"]) == (422, "urn:provisioner:problem:key-reused")
        fresh = await served.ask("operator", "POST", path, body, Idempotency_Key="k2")
        assert (fresh[0], fresh[1]["blockers"][0]["reason"]) == (409, "precondition")
        assert await served.ask("operator", "POST", path, body, Idempotency_Key="k2") == fresh
        # keys are each caller's own
        mine = await served.ask("red", "POST", path, body, Idempotency_Key="k1")
        assert mine[0] == 409
        status, told = await served.ask("viewer", "GET", f"/operations/{first[1]['id']}")
        assert (status, told["state"], told["asked_by"]) == (200, "running", "operator@example")
        bad = await served.ask("operator", "POST", path, body, Idempotency_Key="a b")
        assert bad[0] == 400

    run(scenario)


def test_a_request_on_a_node_is_done_when_the_node_rests():
    async def scenario(served: Served) -> None:
        _, told = await served.ask("red", "POST", "/nodes/su0-n01/reclaim", {"for_repair": True})
        node = await served.store.nodes.get("su0-n01")
        assert node is not None
        moved = in_state(node, node.state.RELEASED, NOW + 5.0)
        await served.store.nodes.save(moved)
        status, later = await served.ask("red", "GET", f"/operations/{told['id']}")
        assert (status, later["state"], later["ended_at"]) == (200, "done", format_instant(NOW + 5))

    run(scenario)


@pytest.mark.parametrize(("first", "end"), [("CERTIFIED", "done"), ("QUARANTINED", "failed")])
def test_a_request_that_has_ended_stays_so_whatever_its_node_does_later(first: str, end: str):
    async def scenario(served: Served) -> None:
        _, told = await served.ask("red", "POST", "/nodes/su0-n01/reclaim", {"for_repair": True})
        for at, state in enumerate((first, "CONVERGING", "QUARANTINED", "CERTIFIED"), 5):
            node = await served.store.nodes.get("su0-n01")
            assert node is not None
            await served.store.nodes.save(in_state(node, State[state], NOW + at))
            _, later = await served.ask("operator", "GET", f"/operations/{told['id']}")
            assert (later["state"], later["note"]) == (end, f"it is {first.lower()}")
            assert later["ended_at"] == format_instant(NOW + 5)
        journalled = await served.ask("operator", "GET", "/events?node=su0-n01&kind=asked")
        assert [e["detail"]["state"] for e in journalled[1]["items"]].count(end) == 1

    run(scenario)


def test_a_tenant_sees_no_text_of_the_staff_of_a_request_that_has_failed():
    async def scenario(served: Served) -> None:
        _, told = await served.ask("red", "POST", "/nodes/su0-n01/reclaim", {"for_repair": True})
        node = await served.store.nodes.get("su0-n01")
        assert node is not None
        why = Blocker(
            reason=Reason.UNREACHABLE, subject="host", detail="https://10.0.0.1", unblock="Go."
        )
        failed = in_state(node, State.QUARANTINED, NOW + 5)
        await served.store.nodes.save(failed.model_copy(update={"blockers": (why,)}))
        path = f"/operations/{told['id']}"
        assert "10.0.0.1" in str((await served.ask("operator", "GET", path))[1])
        for where in (path, "/requests"):
            _, seen = await served.ask("red", "GET", where)
            assert "10.0.0.1" not in str(seen)
            assert "ask the operators of the site" in str(seen)

    run(scenario)


def test_another_person_has_to_approve_where_the_site_wants_it():
    async def scenario(served: Served) -> None:
        path = "/nodes/su0-n03/reclaim"
        _, asked = await served.ask("operator", "POST", path, {"accept_no_return": True})
        assert asked["state"] == "waiting"
        node = await served.store.nodes.get("su0-n03")
        assert node is not None
        assert node.state == "released"
        approve = f"/requests/{asked['id']}/approve"
        assert (await served.ask("operator", "POST", approve, {}))[0] == 403
        status, told = await served.ask("approver", "POST", approve, {"note": "agreed"})
        assert (status, told["state"], told["decided_by"]) == (202, "running", "approver@example")
        assert (await served.ask("approver", "POST", approve, {}))[0] == 409
        node = await served.store.nodes.get("su0-n03")
        assert node is not None
        assert node.state == "draining"

        _, second = await served.ask("operator", "POST", "/nodes/su0-n01/reclaim", {})
        refuse = f"/requests/{second['id']}/refuse"
        status, told = await served.ask("approver", "POST", refuse, {"note": "not now"})
        assert (status, told["state"], told["note"]) == (200, "refused", "not now")
        _, third = await served.ask("operator", "POST", "/nodes/su0-n01/reclaim", {})
        served.parts.clock.at += 25 * 3600
        approve = f"/requests/{third['id']}/approve"
        status, told = await served.ask("approver", "POST", approve, {})
        assert (status, told["title"]) == (409, "It is expired, not waiting")
        _, told = await served.ask("viewer", "GET", "/audit")
        who = {(r["detail"]["by"], r["detail"]["state"]) for r in told["items"]
               if r["kind"] == "asked"}  # fmt: skip
        assert ("approver@example", "refused") in who

    run(scenario, api_four_eyes=("node.reclaim",))


def test_the_asker_does_not_approve_with_another_token_of_his():
    async def scenario(served: Served) -> None:
        _, asked = await served.ask("operator", "POST", "/nodes/su0-n03/reclaim", {})
        row = await served.store.write(_same_person)
        assert row
        status, told = await served.ask("approver", "POST", f"/requests/{asked['id']}/approve", {})
        assert (status, told["type"]) == (403, "urn:provisioner:problem:four-eyes")

    def _same_person(connection):
        token = next(t for t in read_tokens(connection) if t.subject == "approver@example")
        body = token.model_copy(update={"subject": "Operator@example"}).model_dump_json()
        connection.execute(update(tokens).where(tokens.c.id == token.id).values(body=body))
        return True

    run(scenario, api_four_eyes=("node.reclaim",))


async def lines_of(answer, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        line = (await asyncio.wait_for(answer.content.readline(), 10)).decode().strip()
        if line and not line.startswith(":"):
            found.append(line)
    return found


def test_a_stream_replays_what_was_missed_and_then_tells_what_happens():
    async def scenario(served: Served) -> None:
        path = "/v1/events/stream"
        async with served.client.get(path + "?after=0&node=su0-n01",
                                     headers=served.key("viewer")) as answer:  # fmt: skip
            lines = await lines_of(answer, 6)
            event = json.loads(lines[5].removeprefix("data: "))
            assert (event["kind"], event["node"]) == ("state", "su0-n01")
            await served.store.journal.append(event_of("state", "su0-n01", {"to": "draining"}), NOW)
            later = await lines_of(answer, 3)
            assert json.loads(later[2].removeprefix("data: "))["detail"] == {"to": "draining"}
        known = served.key("viewer", **{"Last-Event-ID": later[0].removeprefix("id: ")})
        await served.store.journal.append(event_of("state", "su0-n01", {"to": "certified"}), NOW)
        async with served.client.get(path, headers=known) as answer:
            again = await lines_of(answer, 6)
            assert json.loads(again[5].removeprefix("data: "))["detail"] == {"to": "certified"}

    run(scenario)


def test_a_stream_brings_the_columns_of_the_nodes_that_changed_to_who_may_see_them():
    async def scenario(served: Served) -> None:
        _, before = await served.ask("viewer", "GET", "/fleet/map")
        path = f"/v1/events/stream?fleet={before['change']}"
        opened = [
            await served.client.get(path, headers=served.key(who)) for who in ("viewer", "red")
        ]
        staff, tenant = opened
        await lines_of(staff, 3)
        row = await served.store.nodes.get("su0-n03")
        assert row is not None
        moved = await served.store.nodes.save(row.model_copy(update={"release": "other"}))
        await served.store.journal.append(event_of("state", "su0-n03", {"to": "draining"}), NOW)
        lines = await lines_of(staff, 5)
        at = lines.index("event: fleet")
        fleet = json.loads(lines[at + 1].removeprefix("data: "))
        release = fleet["fields"]["release"]
        of_tenant = [await lines_of(tenant, 5)]
        for stream in opened:
            stream.close()
        missed = f"/v1/events/stream?fleet={before['change']}"
        async with served.client.get(missed, headers=served.key("viewer")) as again:
            caught_up = await lines_of(again, 5)

        assert moved
        assert fleet["nodes"] == ["su0-n03"]
        assert fleet["change"] > before["change"]
        assert release["values"][release["index"][0]] == ["other"]
        assert "su0-n03" not in str(of_tenant)
        assert json.loads(caught_up[4].removeprefix("data: "))["nodes"] == ["su0-n03"]

    run(scenario)


def test_a_stream_tells_a_tenant_of_its_own_nodes_only():
    async def scenario(served: Served) -> None:
        path = "/v1/events/stream?after=0"
        async with served.client.get(path, headers=served.key("blue")) as answer:
            await served.store.journal.append(event_of("state", "su0-n01", {"to": "draining"}), NOW)
            await served.store.journal.append(event_of("state", "su0-n03", {"to": "draining"}), NOW)
            text = "\n".join(await lines_of(answer, 9))
            assert "su0-n03" in text
            assert "su0-n01" not in text
            assert "draining" not in text

    run(scenario)


def test_streams_are_bounded_and_end_with_their_token():
    async def scenario(served: Served) -> None:
        path, key = "/v1/events/stream?after=0", served.key("viewer")
        async with served.client.get(path, headers=key) as one:
            await lines_of(one, 3)
            full = await served.client.get(path, headers=key)
            assert (full.status, full.headers["Retry-After"]) == (503, "60")
            served.parts.clock.at += 40 * 86400
            await served.store.journal.append(event_of("state", "su0-n01", {"to": "x"}), NOW)
            await asyncio.wait_for(one.content.read(), 20)
            assert one.content.at_eof()

    run(scenario, api_streams_max=1)


def test_whoever_does_not_wait_follows_the_operation():
    async def scenario(served: Served) -> None:
        body = {"nodes": 2}
        status, told = await served.ask(
            "operator", "PUT", "/tenants/green", body, Prefer="respond-async"
        )
        assert (status, told["state"]) == (202, "running")
        for _ in range(50):
            _, later = await served.ask("viewer", "GET", f"/operations/{told['id']}")
            if later["state"] != "running":
                break
            await asyncio.sleep(0.05)
        assert later["state"] == "failed"  # this site has no leaf
        assert later["blockers"][0]["unblock"]

    run(scenario)


def test_no_token_is_logged(caplog):
    async def scenario(served: Served) -> None:
        caplog.set_level("DEBUG")
        await served.ask("viewer", "GET", "/nodes")
        await served.ask("viewer", "POST", "/nodes/su0-n01/reclaim", {})
        await served.ask("operator", "POST", "/nodes/su0-n01/reclaim", {})
        assert all(token not in caplog.text for token in served.tokens.values())
        rows = await served.store.journal.list(limit=1000)
        journal = json.dumps([dict(row) for row in rows])
        assert all(token not in journal for token in served.tokens.values())

    run(scenario)


def test_health_tells_whether_the_daemon_is_overloaded_and_by_what():
    async def scenario(served: Served) -> None:
        status, told = await served.ask("viewer", "GET", "/health")
        assert status == 200
        assert told["level"] in ("CALM", "STRAINED", "SEVERE")
        assert (told["level"] == "CALM") == (told["strained_by"] == [])

    run(scenario)


def test_health_says_that_the_time_is_in_doubt_and_what_ends_that():
    async def scenario(served: Served) -> None:
        set_forward_s = [0.0]
        clock = WallClock(boot=lambda: 5.0, machine=lambda: NOW + set_forward_s[0])
        standing = TimeStanding(served.store, clock)
        await standing.begin()
        said = []
        for step_s in (0.0, 7200.0, 0.0):
            set_forward_s[0] = step_s
            await standing.compare_clocks()
            said.append((await served.ask("viewer", "GET", "/health"))[1])
        process_scope.get_scope().notices.pop("time")

        assert (said[0]["notices"], said[2]["notices"]) == ([], [])
        assert "set forward by 7200 s" in said[1]["notices"][0]
        assert "provisioner clock accept" in said[1]["notices"][0]

    run(scenario)


def test_a_version_that_is_spelled_otherwise_is_met_and_an_unknown_pin_is_neither():
    async def scenario(served: Served) -> None:
        pins = MATRIX.releases[RELEASE].profiles[PROFILE].pins
        known, printed = "bluefield.bundle", "bf-bundle-2.10.0-147_25.01_ubuntu-22.04_prod"
        unknown = next(k for k, p in pins.items() if not p.known)
        parts = {
            known: printed,
            unknown: "1.0",
            "host.spare": "1.0",
        }
        components = tuple(
            Component(kind=kind, slot="s", version=version, source="/redfish")
            for kind, version in parts.items()
        )
        seen = Inventory(node="su0-n01", vendor="unknown", components=components)
        await served.store.write(lambda c: put_inventory(c, seen, NOW))

        status, told = await served.ask("viewer", "GET", "/nodes/su0-n01/parts")

        met = {c["kind"]: (c["met"], c["why"]) for c in told["components"]}
        assert status == 200
        assert pins[known].version != printed
        assert met[known] == (True, "")
        assert met[unknown][0] is None
        assert "nobody publishes" in met[unknown][1]
        assert met["host.spare"] == (None, "not pinned")

    run(scenario)


def test_who_asks_who_it_is_hears_the_sites_time():
    async def scenario(served: Served) -> None:
        _, told = await served.ask("red", "GET", "/me")

        assert (told["now"], told["speed"]) == (format_instant(NOW), 1.0)

    run(scenario)


def test_the_outcome_of_a_change_is_kept_and_answered_though_its_row_went_stale():
    """Another process takes the change for lost while it is carried out."""

    async def scenario(served: Served) -> None:
        works, store = served.parts.works, served.store
        executors = dict(works._executors)
        reclaim = executors[ChangeKind.NODE_RECLAIM]

        async def outrun(parts: ApiParts, asked: ChangeRequest) -> Outcome:
            outcome = await reclaim(parts, asked)
            await store.write(partial(request_rows.give_up, now=NOW))
            return outcome

        works._executors = {**executors, ChangeKind.NODE_RECLAIM: outrun}
        body = {"for_repair": True, "accept_no_return": True}
        status, told = await served.ask("operator", "POST", "/nodes/su0-n01/reclaim", body)
        _, later = await served.ask("viewer", "GET", f"/operations/{told['id']}")

        assert status == 202
        assert later["state"] == told["state"] == "running"

    run(scenario)


@pytest.mark.parametrize("damage", [{"body": "no JSON"}, {"body": "{}"}, {"issued_at": "today"}])
def test_one_damaged_certificate_hides_neither_the_debts_nor_the_other_certificates(damage):
    async def scenario(served: Served) -> None:
        def spoil(connection: Any) -> None:
            for name, value in damage.items():
                line = f"UPDATE certificates SET {name} = ? WHERE id = ?"
                done = connection.exec_driver_sql(line, (value, "cert-su0-n01"))
                assert done.rowcount == 1

        await served.store.write(spoil)
        status, told = await served.ask("viewer", "GET", "/debt")
        assert status == 200, told
        lines = {(line["node"], line["version"]) for line in told["items"]}
        if "body" in damage:
            assert ("su0-n01", "its row is damaged") in lines
        assert not any(node != "su0-n01" and "damaged" in word for node, word in lines)
        status, told = await served.ask("viewer", "GET", "/certificates")
        assert status == 200, told
        assert "cert-su0-n03" in json.dumps(told)

    run(scenario)

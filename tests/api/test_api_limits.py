"""What one caller may take of the API: rates, streams, places; and what the journal keeps of it."""

from __future__ import annotations

import asyncio
from functools import partial
from http.client import HTTPConnection

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from served import NOW, Served, run

from provisioner.access.rates import BUCKETS_MAX, Rate
from provisioner.access.tokens import DAY_S, new_token
from provisioner.api.callers import LONG_PERIODS
from provisioner.cli.client import connection
from provisioner.cli.client.connection import Connection, Place
from provisioner.model.access import Role
from provisioner.runtime import permit as process_scope
from provisioner.store.rows import request_rows as token_rows

RECLAIM = "/nodes/su0-n01/reclaim"


async def rows_of(served: Served, kind: str) -> list[dict[str, object]]:
    rows = await served.store.journal.list(limit=10_000)
    return [dict(row["detail"]) for row in rows if row["kind"] == kind]


def test_a_rate_lets_a_burst_through_and_then_its_average():
    rate = Rate(60, 60.0)
    assert [rate.take_permissions("a", 0.0) for _ in range(60)] == [0.0] * 60
    assert rate.take_permissions("a", 0.0) == pytest.approx(1.0)
    assert rate.take_permissions("b", 0.0) == 0.0
    assert rate.take_permissions("a", 1.0) == 0.0
    assert rate.take_permissions("a", 1.0) > 0.0


def test_callers_that_are_counted_are_bounded():
    rate = Rate(1, 60.0)
    for number in range(BUCKETS_MAX + 10):
        rate.take_permissions(str(number), 0.0)
    assert len(rate._buckets) == BUCKETS_MAX


def test_requests_over_the_rate_are_429_with_a_remedy():
    async def scenario(served: Served) -> None:
        answers = [await served.ask("red", "GET", "/me") for _ in range(4)]
        assert [status for status, _ in answers] == [200, 200, 200, 429]
        problem = answers[-1][1]
        assert problem["type"].endswith(":rate")
        assert "api_requests_per_min" in problem["unblock"]
        answer = await served.client.get("/v1/me", headers=served.key("red"))
        assert 1 <= int(answer.headers["Retry-After"]) <= 20
        assert (await served.ask("blue", "GET", "/me"))[0] == 200  # it is each caller's own

    run(scenario, api_requests_per_min=3)


def test_two_tokens_of_one_person_are_one_caller():
    async def scenario(served: Served) -> None:
        token, record = new_token("red@example", Role.TENANT, "red", 30.0, NOW - DAY_S)
        await served.store.write(partial(token_rows.add_token, token=record, now=NOW))
        served.tokens["again"] = token
        who = ("red", "again", "red", "again")
        assert [(await served.ask(w, "GET", "/me"))[0] for w in who] == [200, 200, 429, 429]

    run(scenario, api_requests_per_min=2)


def test_a_path_without_a_token_is_counted_by_address():
    async def scenario(served: Served) -> None:
        answers = [await served.client.get("/v1/openapi.json") for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert (await served.client.get("/v1/nowhere")).status == 429
        assert (await served.ask("viewer", "GET", "/me"))[0] == 200

    run(scenario, api_requests_per_min=2)


def test_a_tenant_cannot_flood_the_journal_and_nothing_is_lost():
    async def scenario(served: Served) -> None:
        before = (await served.store.journal.verify()).rows
        statuses = [(await served.ask("red", "POST", RECLAIM))[0] for _ in range(40)]
        assert statuses.count(429) == 35
        assert (await served.store.journal.verify()).rows <= before + 10
        await served.parts.callers.close()
        (row,) = await rows_of(served, "limited")
        assert row == {"caller": "red/red@example", "verb": "reclaim_node", "refused": 35}
        _, told = await served.ask("viewer", "GET", "/audit")
        assert told["items"][0]["kind"] == "limited"

    run(scenario, api_audit_rows_per_h=10)


def test_changes_have_a_rate_of_their_own():
    async def scenario(served: Served) -> None:
        statuses = [(await served.ask("red", "POST", RECLAIM))[0] for _ in range(3)]
        assert statuses[2] == 429
        assert (await served.ask("red", "GET", "/me"))[0] == 200

    run(scenario, api_changes_per_min=2)


def test_failed_logins_of_an_address_are_limited_and_good_tokens_go_on():
    async def scenario(served: Served) -> None:
        assert (await served.ask("viewer", "GET", "/me"))[0] == 200
        wrong = {"Authorization": "Bearer prv_" + "A" * 43}
        statuses = [(await served.client.get("/v1/me", headers=wrong)).status for _ in range(6)]
        assert statuses == [401, 401, 401, 429, 429, 429]
        assert (await served.ask("viewer", "GET", "/me"))[0] == 200  # was good before
        assert (await served.ask("red", "GET", "/me"))[0] == 429  # is not known yet
        await served.parts.callers.close()
        (row,) = await rows_of(served, "limited")
        assert row == {"verb": "login", "refused": 4, "by_address": {"127.0.0.1": 4}}

    run(scenario, api_failed_logins_per_min=3)


def test_one_caller_does_not_hold_all_streams():
    async def scenario(served: Served) -> None:
        path, streams = "/v1/events/stream?after=0", []
        for who in ("red", "red", "red", "blue", "viewer"):
            streams.append(await served.client.get(path, headers=served.key(who)))
        assert [s.status for s in streams] == [200, 200, 429, 200, 503]
        assert int(streams[2].headers["Retry-After"]) > 0
        assert process_scope.get_scope().counts["api_streams"] == 3
        for stream in streams:
            stream.close()

    run(scenario, api_streams_max=3, api_streams_per_caller=2)


def test_a_stream_ends_after_its_life_and_gives_its_place_back():
    async def scenario(served: Served) -> None:
        path, key = "/v1/events/stream?after=0", served.key("red")
        for _ in range(2):
            answer = await served.client.get(path, headers=key)
            assert answer.status == 200
            await asyncio.wait_for(answer.content.read(), 20)

    run(scenario, api_streams_per_caller=1, api_stream_life_s=0.3)


def test_one_caller_does_not_hold_all_places_for_changes():
    async def scenario(served: Served) -> None:
        held = served.parts.callers
        caller = await served.parts.identity.identify_caller(served.key("red")["Authorization"])
        assert caller is not None
        with held.hold_change(caller):
            before = (await served.store.journal.verify()).rows
            status, problem = await served.ask("red", "POST", RECLAIM)
            assert (status, problem["status"]) == (429, 429)
            assert (await served.store.journal.verify()).rows == before
        assert (await served.ask("red", "POST", RECLAIM))[0] != 429

    run(scenario, api_changes_at_once=1)


def test_requests_under_way_are_bounded_for_a_caller():
    async def scenario(served: Served) -> None:
        caller = await served.parts.identity.identify_caller(served.key("red")["Authorization"])
        assert caller is not None
        with served.parts.callers.hold_request(caller):
            assert (await served.ask("red", "GET", "/me"))[0] == 429
            assert (await served.ask("blue", "GET", "/me"))[0] == 200
        assert (await served.ask("red", "GET", "/me"))[0] == 200

    run(scenario, api_requests_at_once=1)


def test_idempotency_keys_of_a_caller_are_bounded():
    async def scenario(served: Served) -> None:
        for number in range(3):
            status, problem = await served.ask("red", "POST", RECLAIM, Idempotency_Key=f"k{number}")
        assert (status, problem["type"].rpartition(":")[2]) == (429, "keys")
        assert (await served.ask("red", "POST", RECLAIM, Idempotency_Key="k0"))[0] != 429
        assert (await served.ask("blue", "POST", RECLAIM, Idempotency_Key="k0"))[0] == 404

    run(scenario, api_keys_per_caller=2)


def test_changes_that_wait_for_an_approval_are_bounded():
    async def scenario(served: Served) -> None:
        path = "/certificates/cert-su0-n0{}/revoke"
        asked = [
            await served.ask("operator", "POST", path.format(n), {"reason": "x"}) for n in (4, 6, 4)
        ]
        assert [status for status, _ in asked] == [202, 202, 429]
        assert "approver" in asked[2][1]["unblock"]

    run(scenario, api_waiting_per_caller=2, api_four_eyes=["certificate.revoke"])


def test_a_caller_that_is_limited_for_long_is_a_notice():
    async def scenario(served: Served) -> None:
        gathered = served.parts.callers._gathered
        for _ in range(LONG_PERIODS):
            for _ in range(3):
                await served.ask("red", "GET", "/me")
            assert not process_scope.get_scope().notices.get("callers")
            await gathered.write_rows()
        _, health = await served.ask("viewer", "GET", "/health")
        assert any("red/red@example has been limited" in n for n in health["notices"])
        await gathered.write_rows()
        assert not process_scope.get_scope().notices["callers"]
        assert process_scope.get_scope().limited["requests"] > 0

    run(scenario, api_requests_per_min=2)


def test_the_client_waits_as_long_as_it_is_asked_to(monkeypatch: pytest.MonkeyPatch):
    asked: list[float] = []

    async def main() -> int:
        answers = iter([429, 429, 429, 429, 200])

        async def answer(_request: web.Request) -> web.Response:
            return web.json_response({}, status=next(answers), headers={"Retry-After": "7"})

        app = web.Application()
        app.router.add_get("/v1/me", answer)
        async with TestServer(app) as server:

            def plainly(limit_s: float | None) -> HTTPConnection:
                return HTTPConnection(server.host, server.port, timeout=limit_s)

            reach = Connection(plainly, Place(server="https://example.org"), {})
            monkeypatch.setattr(connection.time, "sleep", asked.append)
            return (await asyncio.to_thread(reach.send_request, "GET", "/me")).status

    assert asyncio.run(main()) == 200
    assert asked == [7.0] * 4


def test_the_journal_stays_whole_while_callers_are_limited():
    async def scenario(served: Served) -> None:
        for _ in range(5):
            await served.ask("red", "POST", RECLAIM)
        await served.parts.callers.close()
        assert (await served.store.journal.verify()).intact

    run(scenario, api_audit_rows_per_h=2)

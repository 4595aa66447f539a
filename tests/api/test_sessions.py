"""Browsers' sessions: begun by a token, ended in the store, too weak for what destroys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from served import MATRIX, NOW, WIDE, Served, StillClock, fill, no_leaves, run
from sqlalchemy import select
from test_api_routes import CLOSED, OWN, RED, path_of, with_campaign_and_case

from provisioner.access.sessions import SECRET, caller_of_session, new_session
from provisioner.access.tokens import DAY_S, new_token, sha256_of
from provisioner.api import table
from provisioner.api.app import build_application
from provisioner.api.console_pages import COOKIE
from provisioner.api.route import OPERATORS, Effect, Route
from provisioner.api.routes.alerts import Me
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.daemon.api import api_parts
from provisioner.model.access import Caller, Role
from provisioner.settings import Settings
from provisioner.store.rows import page_rows
from provisioner.store.rows import request_rows as session_rows
from provisioner.store.rows import request_rows as token_rows
from provisioner.store.schema.schema import metadata
from provisioner.store.sql_store import SqlStore, open_store
from provisioner.telemetry.logs import scrub

LIMITS = Settings().session_limits()
OWN_PAGE = {"X-Provisioner-Console": "1"}
RECLAIM = ("POST", "/nodes/su0-n01/reclaim", {"for_repair": False, "accept_no_return": True})


async def sign_in(served: Served, who: str, **headers: str) -> str:
    """The secret that a browser keeps; the cookie's other words are checked."""
    answer = await served.client.post("/v1/session", headers=served.key(who, **headers))
    assert answer.status == 200, await answer.text()
    words = answer.headers["Set-Cookie"].split("; ")
    assert words[0].startswith(f"{COOKIE}=")
    assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} <= set(words)
    assert not any(word.lower().startswith("domain") for word in words)
    secret = words[0].partition("=")[2]
    assert SECRET.fullmatch(secret)
    return secret


async def ask(
    served: Served, secret: str, verb: str, path: str, body: Any = None, **more: str
) -> tuple[int, Any]:
    """(status, JSON) of a request of our own page with a cookie."""
    headers = {"Cookie": f"{COOKIE}={secret}", **OWN_PAGE, **more}
    given = {} if body is None else {"json": body}
    answer = await served.client.request(verb, "/v1" + path, headers=headers, **given)
    return answer.status, await answer.json(content_type=None)


def move(served: Served, seconds: float) -> None:
    served.parts.clock.at += seconds


async def journal_of(served: Served) -> list[dict[str, Any]]:
    read = partial(page_rows.journal_page, after=0, limit=500, kinds={"session"}, node="")
    rows, _ = await served.store.read(read)
    return [row["detail"] for row in rows]


def test_a_browser_keeps_a_secret_of_its_own_and_the_store_only_its_digest():
    async def scenario(served: Served) -> None:
        secret = await sign_in(served, "operator")
        status, me = await ask(served, secret, "GET", "/me")
        sessions = await served.store.read(
            partial(session_rows.read_sessions, limits=LIMITS, now=NOW)
        )

        assert (status, me["subject"], me["via"]) == (
            200, "operator@example", f"session {sessions[0].id}",
        )  # fmt: skip
        assert sessions[0].sha256 == sha256_of(secret)
        assert secret not in sessions[0].model_dump_json()
        assert served.tokens["operator"] not in secret
        begun = [row["begun"]["subject"] for row in await journal_of(served)]
        assert begun == ["operator@example"]

    run(scenario)


def test_neither_a_token_in_the_cookie_nor_a_secret_as_a_token_opens_anything():
    async def scenario(served: Served) -> None:
        secret = await sign_in(served, "operator")
        assert (await ask(served, served.tokens["operator"], "GET", "/me"))[0] == 401
        answer = await served.client.get("/v1/me", headers={"Authorization": f"Bearer {secret}"})
        assert answer.status == 401

    run(scenario)


def test_a_stolen_cookie_is_worth_nothing_after_the_sign_out():
    async def scenario(served: Served) -> None:
        stolen = await sign_in(served, "operator")
        assert (await ask(served, stolen, "DELETE", "/session"))[0] == 200
        assert (await ask(served, stolen, "GET", "/me"))[0] == 401
        assert (await journal_of(served))[-1]["why"] == "operator@example signed out"

    run(scenario)


def test_a_stolen_cookie_is_worth_nothing_once_it_was_idle():
    async def scenario(served: Served) -> None:
        stolen = await sign_in(served, "operator")
        for _ in range(3):  # use keeps it
            move(served, LIMITS.idle_s - 1.0)
            assert (await ask(served, stolen, "GET", "/me"))[0] == 200
        # what a page asks by itself, and an open stream, do not
        move(served, LIMITS.idle_s - 1.0)
        unattended = {"X-Provisioner-Unattended": "1"}
        assert (await ask(served, stolen, "GET", "/me", **unattended))[0] == 200
        headers = {"Cookie": f"{COOKIE}={stolen}"}
        stream = await served.client.get("/v1/events/stream", headers=headers)
        assert stream.status == 200
        stream.close()
        move(served, 1.0)
        assert (await ask(served, stolen, "GET", "/me"))[0] == 401

    run(scenario)


def test_a_session_that_is_used_all_day_ends_all_the_same():
    async def scenario(served: Served) -> None:
        secret = await sign_in(served, "operator")
        step = LIMITS.idle_s / 2
        for _ in range(int(LIMITS.whole_s / step) - 1):
            move(served, step)
            assert (await ask(served, secret, "GET", "/me"))[0] == 200
        move(served, step)
        assert (await ask(served, secret, "GET", "/me"))[0] == 401

    run(scenario)


def test_a_stolen_cookie_does_not_prolong_itself():
    async def scenario(served: Served) -> None:
        stolen = await sign_in(served, "operator")
        status, told = await ask(served, stolen, "POST", "/session")
        assert (status, told["title"]) == (401, "A session begins with a token")

    run(scenario)


def test_a_cookie_alone_destroys_nothing_until_a_token_was_shown_again():
    async def scenario(served: Served) -> None:
        stolen = await sign_in(served, "operator")
        move(served, LIMITS.proof_s + 1.0)
        key = {"Idempotency-Key": "k1"}
        verbs = (
            RECLAIM,
            ("POST", "/certificates/cert-su0-n01/revoke", {"reason": "a wrong report"}),
            ("POST", f"/tokens/{await token_id(served, 'viewer')}/revoke", None),
        )
        for verb, path, body in verbs:
            headers = {"Cookie": f"{COOKIE}={stolen}", **OWN_PAGE, **key}
            given = {} if body is None else {"json": body}
            answer = await served.client.request(verb, "/v1" + path, headers=headers, **given)
            told = await answer.json(content_type=None)
            challenge = answer.headers["WWW-Authenticate"]

            assert (answer.status, told["type"]) == (
                401, "urn:provisioner:problem:fresh-sign-in",
            )  # fmt: skip
            assert 'error="insufficient_user_authentication", max_age="300"' in challenge
        assert (await served.store.nodes.get("su0-n01")).state == "released"
        assert (await ask(served, stolen, "GET", "/nodes"))[0] == 200  # it is not signed out

        fresh = await sign_in(served, "operator", Cookie=f"{COOKIE}={stolen}")
        assert (await ask(served, stolen, "GET", "/me"))[0] == 401  # it was replaced
        status, told = await ask(served, fresh, *RECLAIM, **key)
        assert status in (200, 202), told

    run(scenario)


def test_a_retirement_needs_a_token_and_an_ordinary_change_does_not():
    async def scenario(served: Served) -> None:
        fault = {"reason": "GPU 5 fell off the bus"}
        secret = await sign_in(served, "operator")
        move(served, LIMITS.proof_s + 1.0)
        status, opened = await ask(served, secret, "POST", "/nodes/su0-n05/cases", fault)
        assert status == 200, opened
        case = opened["result"]["case"]
        status, told = await ask(
            served, secret, "POST", f"/cases/{case}/retire", {"why": "old", "disks": "destroyed"}
        )
        assert (status, told["title"]) == (401, "A fresh sign-in is needed"), told

    run(scenario)


# what a momentary act may leave: its own record, and the state of the work under way
OF_A_SESSION = OWN - {"save_view", "delete_view"}
FLOW = {"requests", "journal", "operations", "nodes", "cases", "campaigns"}


def dump(connection: Any) -> dict[str, list[Any]]:
    """Every table as it is, in the order of its rows."""
    return {
        name: sorted(map(repr, connection.execute(select(rows)).all()))
        for name, rows in metadata.tables.items()
    }


def holder_of(route: Route) -> str:
    names = {"operator": Role.OPERATOR, "approver": Role.APPROVER, "viewer": Role.VIEWER}
    return next((name for name, role in names.items() if role in route.roles), "red")


def test_what_outlives_a_session_needs_a_fresh_sign_in_on_every_route_by_its_effect():
    """A cookie past its proof changes no row but those of the work under way, on any route."""

    async def scenario(served: Served) -> None:
        await with_campaign_and_case(served)
        stolen = {who: await sign_in(served, who) for who in ("operator", "approver", "viewer")}
        move(served, LIMITS.proof_s + 1.0)
        for secret in stolen.values():  # its use is written once
            assert (await ask(served, secret, "GET", "/me"))[0] == 200
        done = set()
        for route in (r for r in CLOSED if r.verb != "GET" and r.name not in OF_A_SESSION):
            given = {n: v for n, v in (route.example or {}).items() if n not in route.lasting_with}
            body = given if route.body else None
            before = await served.store.read(dump)
            secret = stolen[holder_of(route)]
            query = f"?sha256={'0' * 64}&size_bytes=1" if route.streamed else ""
            status, told = await ask(served, secret, route.verb, path_of(route) + query, body)
            after = await served.store.read(dump)
            changed = {name for name, rows in after.items() if rows != before[name]}

            if route.effect is Effect.LASTING:
                assert (status, told["title"]) == (401, "A fresh sign-in is needed"), route.name
                assert "Sign in again" in told["unblock"]
                assert changed == set(), (route.name, changed)
            else:
                assert status != 401, (route.name, told)
                own = {"saved_views"} if route.name == "save_view" else set()  # nobody else's
                assert changed <= (FLOW | own if route.changes else set()), (route.name, changed)
                done |= {route.name} if changed else set()
        assert {"retry_node", "open_case", "retry_blocked_nodes"} <= done

    run(scenario, **WIDE)


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("POST", "/nodes/su0-n05/retry", {"admit_tpm": "0" * 64}),
        ("POST", "/nodes/su0-n05/retry", {"tenant_data": "erase"}),
        ("POST", "/nodes/su0-n05/retry", {"new_board": True}),
        ("POST", "/nodes/su0-n05/cases", {"reason": "a fan", "service": "cut_off"}),
        ("POST", "/cases/CASE/returned", {"work": "a card", "cards": ["DPU_1"]}),
        ("PUT", "/views/night", {"address": "#/fleet", "shared": True}),
    ],
)
def test_a_momentary_change_with_a_word_that_outlives_it_needs_a_fresh_sign_in(verb, path, body):
    async def scenario(served: Served) -> None:
        await with_campaign_and_case(served)
        secret = await sign_in(served, "operator")
        move(served, LIMITS.proof_s + 1.0)
        there = path.replace("CASE", RED["case"])
        status, told = await ask(served, secret, verb, there, body)
        assert (status, told["title"]) == (401, "A fresh sign-in is needed"), told
        dry, _ = await ask(served, secret, verb, there + "?dry_run=true", body)
        assert dry != 401  # it is only described
        fresh = await sign_in(served, "operator")
        assert (await ask(served, fresh, verb, there, body))[0] != 401
        assert (await served.ask("operator", verb, there, body))[0] != 401

    run(scenario)


def test_a_route_that_changes_something_without_stating_its_effect_is_no_route():
    async def handle(_: Any) -> Any:
        raise AssertionError

    made = partial(Route, path="/x", name="x", tag="t", summary="s", roles=OPERATORS)
    made = partial(made, handle=handle, answers={200: Me})
    for verb in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(ValueError, match="state its effect"):
            made(verb)
        assert made(verb, effect=Effect.LASTING).is_lasting(None)
    for effect in (Effect.LASTING, Effect.MOMENTARY):
        with pytest.raises(ValueError, match="a GET only reads"):
            made("GET", effect=effect)
    for effect in Effect:
        with pytest.raises(ValueError, match="lasting_with"):
            made("POST", effect=effect, lasting_with=frozenset({"unknown"}))
    assert not made("GET").changes


def test_an_approval_of_what_destroys_needs_a_token_too():
    async def scenario(served: Served) -> None:
        status, told = await served.ask("operator", *RECLAIM)
        assert (status, told["state"]) == (202, "waiting"), told
        secret = await sign_in(served, "approver")
        move(served, LIMITS.proof_s + 1.0)
        path = f"/requests/{told['id']}/approve"
        assert (await ask(served, secret, "POST", path, {}))[0] == 401
        assert (await served.ask("approver", "POST", path, {}))[0] in (200, 202)

    run(scenario, api_four_eyes=("node.reclaim",))


async def token_id(served: Served, who: str) -> str:
    digest = sha256_of(served.tokens[who])
    token = await served.store.read(partial(token_rows.find_token, digest=digest))
    assert token is not None
    return token.id


def test_a_revoked_token_ends_every_session_that_it_began_at_once():
    async def scenario(served: Served) -> None:
        one, two = await sign_in(served, "viewer"), await sign_in(served, "viewer")
        other = await sign_in(served, "approver")
        path = f"/tokens/{await token_id(served, 'viewer')}/revoke"
        assert (await served.ask("operator", "POST", path))[0] == 200

        for secret in (one, two):
            assert (await ask(served, secret, "GET", "/me"))[0] == 401
        assert (await ask(served, other, "GET", "/me"))[0] == 200
        listed = await served.ask("operator", "GET", "/sessions")
        assert [s["subject"] for s in listed[1]["items"]] == ["approver@example"]

    run(scenario)


def test_an_expired_token_ends_its_sessions_and_streams():
    async def scenario(served: Served) -> None:
        token, record = new_token("short", Role.VIEWER, "", 600.0 / DAY_S, NOW)
        await served.store.write(partial(token_rows.add_token, token=record, now=NOW))
        served.tokens["short"] = token
        secret = await sign_in(served, "short")
        assert (await ask(served, secret, "GET", "/me"))[0] == 200
        move(served, 600.0)
        assert (await ask(served, secret, "GET", "/me"))[0] == 401

    run(scenario)


def test_an_operator_ends_another_persons_session():
    async def scenario(served: Served) -> None:
        stolen = await sign_in(served, "red")
        listed = await served.ask("viewer", "GET", "/sessions")
        number = listed[1]["items"][0]["id"]
        assert "sha256" not in listed[1]["items"][0]
        assert (await served.ask("viewer", "POST", f"/sessions/{number}/end"))[0] == 403
        assert (await served.ask("operator", "POST", f"/sessions/{number}/end"))[0] == 200
        assert (await ask(served, stolen, "GET", "/me"))[0] == 401
        assert (await served.ask("operator", "POST", "/sessions/ffffffff/end"))[0] == 404

    run(scenario)


def test_a_person_has_so_many_sessions_and_signs_in_so_often():
    async def scenario(served: Served) -> None:
        secrets = []
        for _ in range(LIMITS.per_person + 1):
            secrets.append(await sign_in(served, "viewer"))
            move(served, 1.0)
        alive = [(await ask(served, s, "GET", "/me"))[0] == 200 for s in secrets]
        assert alive == [False] + [True] * LIMITS.per_person

        for _ in range(session_rows.BEGUN_MAX - LIMITS.per_person - 1):
            await sign_in(served, "viewer")
        answer = await served.client.post("/v1/session", headers=served.key("viewer"))
        assert (answer.status, answer.headers["Retry-After"]) == (429, "60")
        await sign_in(served, "operator")  # another person is not held back
        move(served, session_rows.BEGUN_S)
        await sign_in(served, "viewer")

    run(scenario)


def test_a_change_by_cookie_comes_from_our_own_page_only():
    async def scenario(served: Served) -> None:
        secret = await sign_in(served, "operator")
        cookie = {"Cookie": f"{COOKIE}={secret}"}
        for headers in (cookie, {**cookie, **OWN_PAGE, "Sec-Fetch-Site": "cross-site"}):
            for path in ("/v1/nodes/su0-n05/retry", "/v1/session"):
                answer = await served.client.post(path, headers=headers)
                assert answer.status == 403, path

    run(scenario)


def test_neither_secret_nor_digest_is_logged(caplog):
    caplog.set_level(logging.DEBUG)

    async def scenario(served: Served) -> None:
        secret = await sign_in(served, "operator")
        await ask(served, secret, "GET", "/me")
        move(served, LIMITS.idle_s)
        await ask(served, secret, "GET", "/me")
        assert "is no longer good" in caplog.text
        assert secret not in caplog.text
        assert sha256_of(secret) not in caplog.text
        assert secret not in scrub(f"a library said {secret}")

    run(scenario)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """The file of a database with a fleet in it."""
    file = tmp_path / "provisioner.db"

    async def make() -> None:
        store = open_store(file)
        await fill(store)
        await store.close()

    asyncio.run(make())
    return file


def parts_on(store: SqlStore, clock: StillClock) -> Any:
    keeper = TenantKeeper(store, clock, [], no_leaves)
    return api_parts(store, keeper, MATRIX, Path("artifacts"), Context(store, clock, Settings()))


def test_a_session_survives_a_restart_and_ends_on_every_daemon_at_once(shared):
    async def scenario() -> None:
        clock = StillClock()
        token, record = new_token("ada", Role.OPERATOR, "", 30.0, NOW)
        first = open_store(shared)
        await first.write(partial(token_rows.add_token, token=record, now=NOW))
        async with TestClient(
            TestServer(build_application(parts_on(first, clock), table.ALL))
        ) as one:
            served = Served(parts_on(first, clock), one, {"ada": token})
            secret = await sign_in(served, "ada")
        await first.close()

        stores = [open_store(shared) for _ in range(2)]
        apps = [build_application(parts_on(s, clock), table.ALL) for s in stores]
        async with TestClient(TestServer(apps[0])) as one, TestClient(TestServer(apps[1])) as two:
            both = [
                Served(parts_on(s, clock), c, {}) for s, c in zip(stores, (one, two), strict=True)
            ]
            assert [(await ask(s, secret, "GET", "/me"))[0] for s in both] == [200, 200]
            assert (await ask(both[1], secret, "DELETE", "/session"))[0] == 200
            assert [(await ask(s, secret, "GET", "/me"))[0] for s in both] == [401, 401]
        for store in stores:
            await store.close()

    asyncio.run(scenario())


def of_provider(**changes: Any) -> Caller:
    given = {
        "subject": "ada", "roles": frozenset({Role.OPERATOR}), "via": "https://id",
        "issuer": "https://id", "expires_at": NOW + 900.0,
    }  # fmt: skip
    return Caller.model_validate(given | changes)


def test_a_session_of_a_providers_token_ends_with_the_token_and_with_the_provider():
    secret, session = new_session(of_provider(), LIMITS, NOW)
    caller = caller_of_session(session, None, LIMITS, "https://id", NOW + 899.0)

    assert SECRET.fullmatch(secret)
    assert caller is not None
    assert (caller.subject, caller.roles, caller.signed_in_at) == (
        "ada", frozenset({Role.OPERATOR}), NOW,
    )  # fmt: skip
    assert caller_of_session(session, None, LIMITS, "https://id", NOW + 900.0) is None
    assert caller_of_session(session, None, LIMITS, "https://other", NOW + 1.0) is None
    assert caller_of_session(session, None, LIMITS, "", NOW + 1.0) is None


def test_a_session_whose_tokens_row_is_gone_or_is_another_is_nobody():
    _, record = new_token("ada", Role.OPERATOR, "", 1.0, NOW)
    caller = Caller(subject="ada", roles=frozenset({Role.OPERATOR}), token=record.id)
    _, session = new_session(caller, LIMITS, NOW)

    assert caller_of_session(session, record, LIMITS, "", NOW) is not None
    assert caller_of_session(session, None, LIMITS, "", NOW) is None
    other = record.model_copy(update={"id": "ffffffff"})
    assert caller_of_session(session, other, LIMITS, "", NOW) is None
    assert caller_of_session(session, record, LIMITS, "", NOW - 1.0) is None  # a clock went back

"""Who left at the provider has no session, no token and no approval here, from that answer on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from served import NOW, WIDE, Served, run
from test_sessions import ask, sign_in

from provisioner.access.tokens import DAY_S, new_token
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState, Role
from provisioner.store.rows import request_rows

TOKEN = "t" * 40
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
Scenario = Callable[[Served], Awaitable[None]]


def serve(tmp_path: Path, scenario: Scenario, **settings: Any) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    run(scenario, scim_token_file=str(file), **{**WIDE, **settings})


async def scim(
    served: Served, verb: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    named = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/scim+json"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    answer = await served.client.request(verb, f"/scim/v2{path}", data=raw, headers=named)
    text = await answer.text()
    lower = {name.lower(): value for name, value in answer.headers.items()}
    return answer.status, json.loads(text) if text else None, lower


async def create(served: Served, name: str = "ada", **more: Any) -> str:
    body = {"schemas": [USER], "userName": name, "active": True, **more}
    status, told, _ = await scim(served, "POST", "/Users", body)
    assert status == 201, told
    return str(told["id"])


async def give_token(served: Served, subject: str, role: Role = Role.OPERATOR) -> None:
    token, record = new_token(subject, role, "", 30.0, NOW - DAY_S)
    await served.store.write(partial(request_rows.add_token, token=record, now=NOW))
    served.tokens[subject] = token


def operation(**fields: Any) -> dict[str, Any]:
    return {"schemas": [PATCH], "Operations": [fields]}


LEAVING = {
    "Okta": operation(op="replace", value={"active": False}),
    "Entra ID": operation(op="Replace", path="active", value="False"),
    "Entra ID, aadOptscim062020": operation(op="replace", path="active", value=False),
    "with the schema in front": operation(op="replace", path=f"{USER}:active", value=False),
    "as a key with the schema": operation(op="Add", value={f"{USER}:active": "false"}),
    "removed": operation(op="remove", path="ACTIVE"),
    "null": operation(op="replace", path="active", value=None),
    "last of several": {
        "schemas": [PATCH],
        "operations": [
            {"op": "replace", "path": "displayName", "value": "Ada"},
            {"OP": "REPLACE", "Value": {"Active": False}},
        ],
    },
}


def test_a_person_that_leaves_is_refused_from_the_answer_on(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        for number, form in enumerate([*LEAVING, "PUT", "DELETE"]):
            await leaves(served, form, f"Ada{number}")

    async def leaves(served: Served, form: str, name: str) -> None:
        await give_token(served, name)
        person = await create(served, name.lower())
        secret = await sign_in(served, name)
        waiting = await served.store.requests.add(
            ChangeRequest(
                kind=ChangeKind.NODE_RECLAIM,
                subject="su0-n01",
                asked_by=name,
                asked_at=NOW,
                state=RequestState.WAITING,
            )
        )
        assert (await served.ask(name, "GET", "/me"))[0] == 200
        assert (await ask(served, secret, "GET", "/me"))[0] == 200

        path = f"/Users/{person}"
        if form == "PUT":
            status, *_ = await scim(
                served, "PUT", path, {"userName": name.lower(), "active": False}
            )
        elif form == "DELETE":
            status, *_ = await scim(served, "DELETE", path)
        else:
            status, *_ = await scim(served, "PATCH", path, LEAVING[form])

        assert status in (200, 204), form
        assert (await served.ask(name, "GET", "/me"))[0] == 401, form
        assert (await ask(served, secret, "GET", "/me"))[0] == 401
        refused = await served.store.requests.get(waiting.id)
        assert refused is not None
        assert (refused.state, refused.decided_by) == (RequestState.REFUSED, "scim")
        assert (await served.ask("approver", "POST", f"/requests/r{waiting.id}/approve"))[0] == 409
        tokens = {t.subject: t.revoked_at for t in await served.store.tokens.list()}
        assert tokens[name]
        assert not tokens["operator@example"]
        # and a token that somebody makes for it later opens nothing either
        await give_token(served, name.upper())
        assert (await served.ask(name.upper(), "GET", "/me"))[0] == 401
        assert (await served.ask("operator", "GET", "/me"))[0] == 200
        rows = [r for r in await served.store.journal.list(limit=1000) if r["kind"] == "directory"]
        row = next(r for r in reversed(rows) if r["detail"]["standing"] != "active")
        assert (len(row["detail"]["sessions"]), row["detail"]["requests"]) == (1, [waiting.id])

    serve(tmp_path, scenario)


def test_what_cannot_be_read_changes_nothing_and_says_why(tmp_path: Path) -> None:
    bodies = [
        operation(op="replace", path="active", value="no"),
        operation(op="replace", path="active", value=0),
        operation(op="replace", path="active", value=[False]),
        operation(op="replace", value={"active": False, "Active": True}),
        operation(op="delete", path="active"),
        operation(op="remove"),
        operation(op="replace", path='active[value eq "x"]', value=False),
        operation(op="replace", path="userName", value=""),
        operation(op="replace", path="id", value="x"),
        {"schemas": [PATCH], "Operations": []},
        {"schemas": [PATCH], "Operations": [{"op": "replace", "path": "x y", "value": 1}]},
        {"schemas": [USER], "Operations": [{"op": "remove", "path": "active"}]},
        b"[" * 50_000,
        b"\xff",
        b"[]",
    ]

    async def scenario(served: Served) -> None:
        person = await create(served, "ada", emails=[{"value": "a@b.example", "type": "work"}])
        _, before, _ = await scim(served, "GET", f"/Users/{person}")

        for body in bodies:
            status, told, headers = await scim(served, "PATCH", f"/Users/{person}", body)

            assert status == 400, body
            assert told["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:Error"], body
            assert told["status"] == "400", body
            assert told["detail"], body
            assert headers["content-type"].startswith("application/scim+json"), body
            assert (await scim(served, "GET", f"/Users/{person}"))[1] == before, body

    serve(tmp_path, scenario)


def test_a_person_that_comes_back_is_let_in_again_with_a_new_token_alone(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        await give_token(served, "ada")
        person = await create(served)
        await scim(served, "PATCH", f"/Users/{person}", LEAVING["Okta"])
        # a document that does not say it lets nobody in
        status, told, _ = await scim(served, "PUT", f"/Users/{person}", {"userName": "ada"})
        assert (status, told["active"]) == (200, False)

        back = operation(op="replace", value={"active": True})
        assert (await scim(served, "PATCH", f"/Users/{person}", back))[0] == 200

        assert (await served.ask("ada", "GET", "/me"))[0] == 401  # the old token stays revoked
        await give_token(served, "ada")
        assert (await served.ask("ada", "GET", "/me"))[0] == 200
        await scim(served, "DELETE", f"/Users/{person}")
        assert (await served.ask("ada", "GET", "/me"))[0] == 401
        assert (await scim(served, "GET", f"/Users/{person}"))[0] == 404
        await create(served)  # hired again
        await give_token(served, "ada")
        assert (await served.ask("ada", "GET", "/me"))[0] == 200

    serve(tmp_path, scenario)


def test_other_names_of_a_person_are_shut_out_and_a_shared_one_is_not(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        mails = [{"value": "Ada@Example.com"}, {"value": "noc@example.com"}]
        person = await create(served, "ada", externalId="00u1", emails=mails)
        await create(served, "bob", emails=[{"value": "noc@example.com"}])
        for subject in ("ada@example.com", "00u1", "noc@example.com"):
            await give_token(served, subject)

        await scim(served, "PATCH", f"/Users/{person}", LEAVING["Okta"])

        answers = {
            subject: (await served.ask(subject, "GET", "/me"))[0]
            for subject in ("ada@example.com", "00u1", "noc@example.com")
        }
        assert answers == {"ada@example.com": 401, "00u1": 401, "noc@example.com": 200}

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    ("end", "when"),
    [(n, "before") for n in ("deactivated", "deleted")]
    + [("deactivated", w) for w in ("with", "after", "long before")],
)
def test_who_was_renamed_is_shut_out_by_the_names_that_it_had(
    tmp_path: Path, when: str, end: str
) -> None:
    """Entra ID renames whom it deletes, and a session bears the name of its sign-in."""

    async def scenario(served: Served) -> None:
        mails = [{"value": "ada@example.com"}]
        person = await create(served, "ada", emails=mails)
        path = f"/Users/{person}"
        await give_token(served, "Ada")
        secret = await sign_in(served, "Ada")
        other = operation(op="replace", value={"userName": "0f3a.ada", "emails": []})
        if when in ("before", "long before"):
            assert (await scim(served, "PATCH", path, other))[0] == 200
        if when == "long before":
            for n in range(3):
                named = operation(op="replace", value={"userName": f"ada{n}"})
                assert (await scim(served, "PATCH", path, named))[0] == 200
            assert (await ask(served, secret, "GET", "/me"))[0] == 200  # it is active
        if when == "with":
            both = {"active": False, "userName": "0f3a.ada", "emails": []}
            await scim(served, "PATCH", path, operation(op="replace", value=both))
        elif end == "deactivated":
            await scim(served, "PATCH", path, LEAVING["Okta"])
        else:
            await scim(served, "DELETE", path)
        if when == "after":
            assert (await scim(served, "PATCH", path, other))[0] == 200

        assert (await ask(served, secret, "GET", "/me"))[0] == 401
        for subject in ("Ada", "ada@example.com"):
            await give_token(served, subject)
            assert (await served.ask(subject, "GET", "/me"))[0] == 401, subject
        tokens = [t for t in await served.store.tokens.list() if t.subject == "Ada"]
        assert any(t.revoked_at for t in tokens)

    serve(tmp_path, scenario)


def test_a_name_that_another_person_has_now_is_that_persons(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        first = await create(served, "ada")
        rename = operation(op="replace", value={"userName": "countess"})
        await scim(served, "PATCH", f"/Users/{first}", rename)
        second = await create(served, "ada")
        await give_token(served, "ada")

        await scim(served, "PATCH", f"/Users/{first}", LEAVING["Okta"])
        assert (await served.ask("ada", "GET", "/me"))[0] == 200

        # and one that is active does not hold a door open for who left, by a name that it had
        third = await create(served, "grace")
        rename = operation(op="replace", value={"userName": "hopper"})
        await scim(served, "PATCH", f"/Users/{third}", rename)
        fourth = await create(served, "grace")
        await give_token(served, "grace")
        await scim(served, "PATCH", f"/Users/{fourth}", LEAVING["Okta"])
        assert (await served.ask("grace", "GET", "/me"))[0] == 401
        assert second != fourth

    serve(tmp_path, scenario)


def test_an_address_that_passes_to_another_person_opens_no_other_name(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        mails = [{"value": "noc@example.com"}]
        person = await create(served, "ada", emails=mails)
        await scim(served, "DELETE", f"/Users/{person}")
        await create(served, "bob", emails=mails)

        for subject, answer in (("ada", 401), ("noc@example.com", 200), ("bob", 200)):
            await give_token(served, subject)
            assert (await served.ask(subject, "GET", "/me"))[0] == answer, subject

    serve(tmp_path, scenario)


def test_the_token_of_the_client_opens_the_directory_and_nothing_else(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        served.tokens["scim"] = TOKEN
        assert (await served.ask("scim", "GET", "/me"))[0] == 401
        for who in ("operator", "viewer", "red"):
            status, _, headers = await scim(
                served, "GET", "/Users", Authorization=f"Bearer {served.tokens[who]}"
            )
            assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="scim"')
        file = tmp_path / "token"
        file.write_text(f"{'n' * 40}\n{TOKEN}\n")  # while it is exchanged both are good
        await asyncio.sleep(0.01)
        assert (await scim(served, "GET", "/Users"))[0] == 200
        new = {"Authorization": f"Bearer {'n' * 40}"}
        assert (await scim(served, "GET", "/Users", **new))[0] == 200
        file.write_text("short\n")  # a file that cannot be used opens nothing
        assert (await scim(served, "GET", "/Users"))[0] == 401

    serve(tmp_path, scenario)


def test_filters_pages_versions_and_groups(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        people = [await create(served, f"p{n}@example.com", externalId=f"E{n}") for n in range(5)]
        for wanted, found in (
            ('userName eq "P3@EXAMPLE.COM"', 1),
            ('userName Eq "p3@example.com" and active eq true', 1),
            ('externalId eq "E2"', 1),
            ('externalId eq "e2"', 0),
            (f'id eq "{people[0]}"', 1),
            ("active eq false", 0),
            ("externalId pr", 5),
            (f'{USER}:userName eq "p1@example.com"', 1),
        ):
            status, told, _ = await scim(served, "GET", f"/Users?filter={_quote(wanted)}")
            assert (status, told["totalResults"]) == (200, found), wanted
        for wrong in (
            "userName co p",
            'userName eq "a" or userName eq "b"',
            "userName",
            'not(a eq "b")',
        ):
            status, told, _ = await scim(served, "GET", f"/Users?filter={_quote(wrong)}")
            assert (status, told["scimType"]) == (400, "invalidFilter"), wrong
        _, told, _ = await scim(served, "GET", "/Users?startIndex=4&count=3&attributes=userName")
        assert [set(r) for r in told["Resources"]] == [{"schemas", "id", "userName"}] * 2
        assert (told["totalResults"], told["itemsPerPage"]) == (5, 2)

        assert (await scim(served, "POST", "/Users", {"userName": "P1@example.com"}))[0] == 409
        _, _, headers = await scim(served, "GET", f"/Users/{people[0]}")
        tag = headers["etag"]
        assert (await scim(served, "GET", f"/Users/{people[0]}", If_None_Match=tag))[0] == 304
        path = f"/Users/{people[0]}"
        assert (await scim(served, "PATCH", path, LEAVING["Okta"], If_Match=tag))[0] == 200
        assert (await scim(served, "DELETE", path, If_Match=tag))[0] == 412

        members = [{"value": people[1]}, {"value": people[2]}]
        _, group, _ = await scim(
            served, "POST", "/Groups", {"displayName": "ops", "members": members}
        )
        place = f"/Groups/{group['id']}"
        await scim(
            served, "PATCH", place, operation(op="Remove", path="members", value=members[:1])
        )
        chosen = f'members[value eq "{people[2]}"]'
        await scim(served, "PATCH", place, operation(op="remove", path=chosen))
        await scim(served, "PATCH", place, operation(op="Add", path="members", value=members[:1]))
        _, told, _ = await scim(served, "GET", place)
        assert [m["value"] for m in told["members"]] == [people[1]]
        _, told, _ = await scim(served, "GET", f"/Users/{people[1]}")
        assert [g["display"] for g in told["groups"]] == ["ops"]
        assert (
            "members" not in (await scim(served, "GET", f"{place}?excludedAttributes=members"))[1]
        )

    serve(tmp_path, scenario)


def _quote(text: str) -> str:
    from urllib.parse import quote

    return quote(text)


def test_a_site_without_the_setting_has_no_such_path(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        assert (await scim(served, "GET", "/Users"))[0] == 404

    run(scenario)


def test_people_and_when_they_left_are_listed_for_staff_and_for_no_tenant(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        await give_token(served, "eve", Role.VIEWER)
        ada, bob = await create(served), await create(served, "bob")
        group = {"schemas": [USER.replace("User", "Group")], "displayName": "ops"}
        told = await scim(served, "POST", "/Groups", {**group, "members": [{"value": ada}]})
        assert told[0] == 201, told
        await scim(served, "PATCH", f"/Users/{ada}", LEAVING["Okta"])
        await scim(served, "DELETE", f"/Users/{bob}")
        await create(served, "cyd")
        status, listed, *_ = await served.ask("eve", "GET", "/people")

        assert status == 200
        people = sorted(listed["items"], key=lambda p: p["name"])
        assert [(p["name"], p["standing"], p["groups"]) for p in people] == [
            ("ada", "inactive", ["ops"]),
            ("bob", "gone", []),
            ("cyd", "active", []),
        ]
        assert [bool(p["left_at"]) for p in people] == [True, True, False]
        assert listed["groups"] == ["ops"]

    serve(tmp_path, scenario)

"""Passwords of BMCs through the API: listed without them, changed on demand, one shown to a person.

Everything that leaves the daemon or stays in its database is searched for the password: only the
answer of a reveal has it.
"""

from __future__ import annotations

import json
from typing import Any

from served import NOW, Served, run

from provisioner.model.credential import CredentialStanding, RotationCause
from provisioner.ports import Secret
from provisioner.runtime import permit
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault

PASSWORD = "Kq7-hidden-Word.9"
SHOW = "/nodes/su0-n04/credentials/host/show"
WHY = {"reason": "the host hangs"}
H = 3600.0


async def keep_logins(served: Served) -> Vault:
    """The daemon has set the passwords of n04 to n06; those of the others are the site's own."""
    vault = Vault(served.store, MasterKey.generate())
    object.__setattr__(served.parts, "vault", vault)
    names = {}
    for number in (4, 5, 6):
        node = await served.store.nodes.get(f"su0-n0{number}")
        assert node is not None
        own = tuple(b.model_copy(update={"rotated": True}) for b in node.bmcs)
        await served.store.nodes.save(node.model_copy(update={"bmcs": own}))
        names[f"{node.id}/host"] = node.id
        await vault.put(f"{node.id}/host", "root", Secret(PASSWORD))
    await served.store.credential_standings.enroll(names, NOW - 30 * 86_400.0)
    return vault


async def standing(served: Served, name: str = "su0-n04/host") -> CredentialStanding:
    row = await served.store.credential_standings.get(name)
    assert row is not None
    return row


async def approved(served: Served) -> str:
    """A request of the operator for n04's password that the approver approved; its id."""
    _, asked = await served.ask("operator", "POST", SHOW, WHY)
    await served.ask("approver", "POST", f"/requests/{asked['id']}/approve", {})
    return str(asked["id"])


async def reveal(served: Served, number: str, who: str = "operator", **more: str) -> Any:
    return await served.ask(who, "POST", f"/requests/{number}/reveal", {}, **more)


def test_logins_are_listed_by_pages_nodes_and_demands_and_without_passwords():
    async def scenario(served: Served) -> None:
        await keep_logins(served)
        _, first = await served.ask("viewer", "GET", "/credentials?limit=2")
        assert [row["name"] for row in first["items"]] == ["su0-n04/host", "su0-n05/host"]
        path = f"/credentials?limit=2&cursor={first['next']}"
        _, rest = await served.ask("viewer", "GET", path)
        assert ([row["name"] for row in rest["items"]], rest["next"]) == (["su0-n06/host"], "")
        _, one = await served.ask("viewer", "GET", "/credentials?node=su0-n06")
        assert [row["node"] for row in one["items"]] == ["su0-n06"]
        assert (await served.ask("viewer", "GET", "/credentials?due=true"))[1]["items"] == []
        assert PASSWORD not in json.dumps([first, rest])
        assert (await served.ask("red", "GET", "/credentials"))[0] == 403

    run(scenario)


def test_a_demand_selects_by_node_rack_login_person_or_all():
    async def scenario(served: Served) -> None:
        await keep_logins(served)
        cases: dict[str, tuple[dict[str, Any], RotationCause, list[str]]] = {
            "node": ({"nodes": ["su0-n04"]}, RotationCause.REQUESTED, ["su0-n04/host"]),
            "login": ({"logins": ["su0-n05/host"]}, RotationCause.REQUESTED, ["su0-n05/host"]),
            "rack": (
                {"racks": ["su0-rack0"]},
                RotationCause.REQUESTED,
                ["su0-n04/host", "su0-n06/host"],
            ),
            "a node and its login, which is one": (
                {"nodes": ["su0-n04"], "logins": ["su0-n04/host"]},
                RotationCause.REQUESTED,
                ["su0-n04/host"],
            ),
            "all": (
                {"all": True, "emergency": True},
                RotationCause.EMERGENCY,
                ["su0-n04/host", "su0-n05/host", "su0-n06/host"],
            ),
        }
        book = served.store.credential_standings
        for name, (body, cause, logins) in cases.items():
            path = "/credentials/rotate"
            dry = await served.ask("operator", "POST", f"{path}?dry_run=true", {**body, **WHY})
            assert f"Passwords of {len(logins)} BMCs" in dry[1]["result"]["lines"][0], name
            assert await book.list_due(NOW, 0.0, 10) == []
            status, done = await served.ask("operator", "POST", path, {**body, **WHY})
            assert (status, done["result"]) == (200, {"logins": len(logins)}), name
            due = await book.list_due(NOW, 0.0, 10)
            assert [(s.name, s.cause) for s in due] == [(login, cause) for login in logins], name
            _, shown = await served.ask("viewer", "GET", "/credentials?due=true")
            assert [row["name"] for row in shown["items"]] == logins, name
            for row in due:  # as after the change
                await book.remove([row.name])
                await book.enroll({row.name: row.node}, NOW)
        rows = await served.store.journal.list()
        assert [r["detail"]["why"] for r in rows if r["kind"] == "request"] == [
            WHY["reason"]
        ] * len(cases)

    run(scenario)


def test_a_demand_that_fits_nothing_or_is_unclear_is_refused_and_never_means_all():
    async def scenario(served: Served) -> None:
        await keep_logins(served)
        for body, status in (
            ({}, 400),
            ({"nodes": [], "racks": []}, 400),
            ({"nodes": ["su0-n04"], "all": True}, 400),
            ({"person": "ada", "all": True}, 400),
            ({"nodes": ["su0-n99"]}, 404),
            ({"racks": ["su0-rack9"]}, 404),
            ({"logins": ["su0-n01/host"]}, 404),
            ({"nodes": ["su0-n01"]}, 409),  # its login is the site's own
            ({"person": "ada"}, 409),  # she was shown none
        ):
            answer = await served.ask("operator", "POST", "/credentials/rotate", {**body, **WHY})
            assert answer[0] == status, body
        assert await served.store.credential_standings.list_due(NOW, 0.0, 10) == []

    run(scenario)


def test_a_password_is_shown_after_another_person_approved_it_and_is_changed_afterwards():
    async def scenario(served: Served) -> None:
        await keep_logins(served)
        status, asked = await served.ask("operator", "POST", SHOW, WHY)
        assert (status, asked["state"]) == (202, "waiting")  # without any setting for it
        assert (await reveal(served, asked["id"]))[0] == 409
        _, done = await served.ask("approver", "POST", f"/requests/{asked['id']}/approve", {})
        assert done["state"] == "done"
        assert (await standing(served)).cause is None  # nothing was shown yet

        status, shown = await reveal(served, asked["id"])
        assert (status, shown["username"], shown["password"]) == (200, "root", PASSWORD)
        row = await standing(served)
        assert row.cause is RotationCause.SHOWN
        assert row.shown_to == ("operator@example",)
        book = served.store.credential_standings
        assert await book.list_due(NOW + 4 * H - 1, 0.0, 10) == []
        assert [s.name for s in await book.list_due(NOW + 4 * H, 0.0, 10)] == ["su0-n04/host"]
        rows = [r for r in await served.store.journal.list() if r["kind"] == "credential_shown"]
        (said,) = [r["detail"] for r in rows]
        assert (said["by"], said["approved"]) == ("operator@example", "approver@example")
        assert said["why"] == WHY["reason"]

        # he leaves: what he was shown is changed before its time
        left = {"person": "OPERATOR@example", **WHY}
        assert (await served.ask("approver", "POST", "/credentials/rotate", left))[0] == 403
        await served.ask("operator", "POST", "/credentials/rotate", left)
        assert [s.cause for s in await book.list_due(NOW, 0.0, 10)] == [RotationCause.PERSON_LEFT]

    run(scenario)


def test_a_set_up_password_is_shown_like_one_of_a_bmc_and_no_rotation_takes_it():
    """A boot of its host has to change it: the keeper of passwords is never handed its row."""

    async def scenario(served: Served) -> None:
        vault = await keep_logins(served)
        book = served.store.credential_standings
        show = SHOW.replace("/host/", "/setup/")
        kept = served.parts.settings.credential_setup_password
        if not kept:
            assert (await served.ask("operator", "POST", show, WHY))[0] == 404
            return
        await vault.put("su0-n04/setup", "SetupPassword", Secret(PASSWORD))
        await book.enroll({"su0-n04/setup": "su0-n04"}, NOW)
        _, asked = await served.ask("operator", "POST", show, WHY)
        await served.ask("approver", "POST", f"/requests/{asked['id']}/approve", {})
        status, shown = await reveal(served, str(asked["id"]))
        assert (status, shown["username"], shown["password"]) == (200, "SetupPassword", PASSWORD)
        await book.demand(RotationCause.EMERGENCY, NOW)
        assert (await standing(served, "su0-n04/setup")).cause is RotationCause.EMERGENCY
        due = [s.name for s in await book.list_due(NOW + 9 * H, NOW + 1.0, 10)]
        assert due == ["su0-n04/host", "su0-n05/host", "su0-n06/host"]

    for kept in (False, True):
        run(scenario, credential_setup_password=kept)


def test_nobody_approves_his_own_request_and_only_he_reads_the_password():
    async def scenario(served: Served) -> None:
        await keep_logins(served)
        number = await approved(served)
        assert (await reveal(served, number, "approver"))[0] == 403  # not an operator
        served.tokens["operator"], own = served.tokens["red"], served.tokens["operator"]
        assert (await reveal(served, number))[0] == 403
        served.tokens["operator"] = own
        _, again = await served.ask("operator", "POST", SHOW, WHY)
        path = f"/requests/{again['id']}/approve"
        assert (await served.ask("operator", "POST", path, {}))[0] == 403
        assert (await reveal(served, "r99"))[0] == 404
        assert (await standing(served)).shown_to == ()

    run(scenario)


def test_another_operator_cannot_read_a_password_that_was_approved_for_one():
    async def scenario(served: Served) -> None:
        await keep_logins(served)
        number = await approved(served)
        stored = await served.store.requests.get(int(number[1:]))
        assert stored is not None
        other = stored.model_copy(update={"asked_by": "ada@example"})
        await served.store.requests.save(other, "test", NOW)
        status, refused = await reveal(served, number)
        assert (status, refused["title"]) == (403, "It was approved for another person")

    run(scenario)


def test_no_row_no_stored_answer_and_no_header_has_the_password():
    async def scenario(served: Served) -> None:
        await keep_logins(served)
        number = await approved(served)
        path = f"/v1/requests/{number}/reveal"
        headers = {**served.key("operator"), "Idempotency-Key": "same"}
        for _ in range(2):
            answer = await served.client.post(path, headers=headers)
            assert (await answer.json())["password"] == PASSWORD
            assert answer.headers["Cache-Control"] == "no-store"
            assert "ETag" not in answer.headers
            assert "Idempotency-Replayed" not in answer.headers
        _, request = await served.ask("viewer", "GET", f"/operations/{number}")
        assert PASSWORD not in json.dumps(request)

        def dump(connection: Any) -> str:
            raw = connection.connection.driver_connection
            return "\n".join(raw.iterdump())

        assert PASSWORD not in await served.store.read(dump)

    run(scenario)


def test_a_reveal_ends_with_its_time_and_repeating_it_prolongs_nothing():
    async def scenario(served: Served) -> None:
        await keep_logins(served)
        number = await approved(served)
        clock = served.parts.context.clock
        await reveal(served, number)
        clock.at = NOW + 3 * H  # type: ignore[attr-defined]
        assert (await reveal(served, number))[0] == 200
        assert (await standing(served)).due_at == NOW + 4 * H
        clock.at = NOW + 4 * H  # type: ignore[attr-defined]
        status, refused = await reveal(served, number)
        assert (status, refused["title"]) == (409, "The time to read it is over")

    run(scenario)


def test_no_password_is_shown_while_it_is_being_changed():
    async def scenario(served: Served) -> None:
        vault = await keep_logins(served)
        number = await approved(served)
        book = served.store.credential_standings
        await book.begin_attempt("su0-n04/host", "su0-n04", NOW + 1800.0)
        status, refused = await reveal(served, number)
        assert (status, refused["title"]) == (409, "This password is being changed")
        assert (await standing(served)).shown_to == ()
        # it failed: either of two passwords may be in force, and both are shown
        await vault.begin("su0-n04/host", "root", Secret("Another.1"))
        await book.record_failure("su0-n04/host", "the BMC is silent", NOW + 1800.0)
        _, shown = await reveal(served, number)
        assert (shown["password"], shown["pending_password"]) == (PASSWORD, "Another.1")
        # an operation may be at it again
        assert await served.store.operations.open("su0-n04", "credentials", NOW) is not None
        assert (await reveal(served, number))[0] == 409

    run(scenario)


def test_a_change_that_ends_during_a_reveal_keeps_the_new_password_from_it():
    async def scenario(served: Served) -> None:
        vault = await keep_logins(served)
        number = await approved(served)
        book = served.store.credential_standings

        class Racing(Vault):
            async def current(self, name: str) -> tuple[str, Secret] | None:
                stored = await Vault.current(self, name)
                await book.remove([name])  # as the change's last row does: the demand is met
                await book.enroll({name: "su0-n04"}, NOW)
                return stored

        vault.__class__ = Racing
        status, refused = await reveal(served, number)
        assert (status, refused["title"]) == (409, "This password is being changed")
        assert PASSWORD not in json.dumps(refused)

    run(scenario)


def test_a_login_of_the_site_and_one_that_is_missing_cannot_be_shown():
    async def scenario(served: Served) -> None:
        await keep_logins(served)
        for path, status in (
            ("/nodes/su0-n01/credentials/host/show", 409),
            ("/nodes/su0-n04/credentials/card/show", 404),
            ("/nodes/su0-n99/credentials/host/show", 404),
        ):
            assert (await served.ask("operator", "POST", path, WHY))[0] == status, path

    run(scenario)


def test_a_daemon_that_changes_nothing_shows_no_password():
    async def scenario(served: Served) -> None:
        await keep_logins(served)
        number = await approved(served)
        with permit.observe():
            assert (await reveal(served, number))[0] == 409
        assert (await standing(served)).shown_to == ()

    run(scenario)

"""Who a simulated BMC lets in: sessions, lockout, factory passwords, accounts."""

from __future__ import annotations

import pytest
from bmc_door import ACCOUNT, ROOT, SYSTEM, Door, reason


class TestLogin:
    def test_the_root_is_open_and_all_else_is_not(self) -> None:
        door = Door()

        assert door.ask("GET", ROOT, headers={}).status == 200
        assert door.ask("GET", f"{ROOT}/", headers={}).status == 200
        assert door.ask("GET", SYSTEM, headers={}).status == 401
        assert door.ask("GET", f"{ROOT}/no-such", headers={}).status == 401
        assert door.ask("GET", SYSTEM).status == 200

    @pytest.mark.parametrize("header", ["Basic", "Basic !!!", "Basic AAAA", "Bearer x", ""])
    def test_a_strange_authorization_header_is_no_login(self, header: str) -> None:
        assert Door().ask("GET", SYSTEM, headers={"authorization": header}).status == 401

    def test_a_session_lives_as_long_as_it_is_used(self) -> None:
        door = Door()
        token = {"x-auth-token": door.session().headers["X-Auth-Token"]}
        for _ in range(5):
            door.clock.move(250)
            assert door.ask("GET", SYSTEM, headers=token).status == 200
        door.clock.move(301)

        assert door.ask("GET", SYSTEM, headers=token).status == 401

    def test_the_session_table_is_bounded_and_dead_sessions_make_room(self) -> None:
        door = Door()
        for _ in range(16):
            assert door.session().status == 201
        full = door.session()
        door.clock.move(301)

        assert (full.status, reason(full)) == (503, "SessionLimitExceeded")
        assert door.session().status == 201

    def test_a_deleted_session_is_over(self) -> None:
        door = Door()
        told = door.session()
        token = {"x-auth-token": told.headers["X-Auth-Token"]}

        assert door.ask("DELETE", told.headers["Location"], headers=token).status == 204
        assert door.ask("GET", SYSTEM, headers=token).status == 401

    def test_too_many_wrong_passwords_lock_the_account_for_a_while(self) -> None:
        door = Door()
        for _ in range(3):
            assert door.session("wrong").status == 401
        assert door.session().status == 401, "locked, though the password is right"
        door.clock.move(31)

        assert door.session().status == 201

    def test_factory_credentials_of_a_bluefield_open_nothing_but_their_account(self) -> None:
        door = Door("DPU_0")
        opened = door.session()
        refused = door.ask("GET", f"{ROOT}/Systems")
        changed = door.ask("PATCH", f"{ACCOUNT}/root", {"Password": "Changed-at-once-1"})

        assert opened.status == 201
        assert b"PasswordChangeRequired" in opened.body
        assert (refused.status, reason(refused)) == (403, "PasswordChangeRequired")
        assert changed.status == 200
        assert door.ask("GET", f"{ROOT}/Systems").status == 401
        new = door.basic("Changed-at-once-1")
        assert door.ask("GET", f"{ROOT}/Systems", headers=new).status == 200

    def test_a_new_password_ends_other_sessions(self) -> None:
        door = Door()
        token = {"x-auth-token": door.session().headers["X-Auth-Token"]}
        door.ask("PATCH", f"{ACCOUNT}/2", {"Password": "Changed-at-once-1"})

        assert door.ask("GET", SYSTEM, headers=token).status == 401

    def test_accounts_of_dell_are_slots_that_nobody_creates(self) -> None:
        body = {"UserName": "x", "Password": "long-enough-1", "RoleId": "Operator"}

        assert Door(vendor="dell").ask("POST", ACCOUNT, body).status == 405
        assert Door().ask("POST", ACCOUNT, body).status == 201

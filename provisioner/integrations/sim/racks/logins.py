"""The account of a simulated BMC: one user, a factory password that has to change, sessions."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.integrations.sim.racks.rack import ROOT, Answer, Rack, ref

_ACCOUNT = f"{ROOT}/AccountService/Accounts/1"
_SESSIONS = f"{ROOT}/SessionService/Sessions"
_CHANGE = {
    "error": {
        "code": "Base.1.8.GeneralError",
        "@Message.ExtendedInfo": [
            {"MessageId": "Base.1.8.PasswordChangeRequired", "MessageArgs": [_ACCOUNT]}
        ],
    }
}


@dataclass(frozen=True)
class Login:
    """What a request carries: a user with a password, or a session's token."""

    user: str = ""
    password: str = ""
    token: str = ""


@dataclass
class Account:
    """The one account of a BMC. `most`: sessions that were open at one time."""

    user: str
    password: str
    must_change: bool = True
    tokens: dict[str, str] = field(default_factory=dict)
    opened: int = 0
    most: int = 0
    failures: int = 0  # logins with a wrong password

    def _admits(self, login: Login) -> bool:
        if login.token:
            return login.token in self.tokens.values()
        return (login.user, login.password) == (self.user, self.password)

    def answer(self, method: str, path: str, body: Any, login: Login) -> Answer | None:
        """Answer what is the account's own, and what it forbids; None: the unit answers."""
        path = path.partition("?")[0].rstrip("/")
        if path == ROOT and method == "GET":
            return None
        if path == _SESSIONS and method == "POST":
            return self._open(body)
        if not self._admits(login):
            self.failures += not login.token
            return Answer(401)
        if path == _ACCOUNT and method == "PATCH":
            self.password = str(body["Password"])
            self.must_change = False
            return Answer(204)
        if path.startswith(f"{_SESSIONS}/") and method == "DELETE":
            return Answer(204 if self.tokens.pop(path, None) else 404)
        if self.must_change and path != _ACCOUNT:
            return Answer(403, _CHANGE)
        return self._show(path) if method == "GET" else None

    def _open(self, body: Any) -> Answer:
        if (body.get("UserName"), body.get("Password")) != (self.user, self.password):
            self.failures += 1
            return Answer(401)
        if self.must_change:
            return Answer(403, _CHANGE)
        self.opened += 1
        where = f"{_SESSIONS}/{self.opened}"
        self.tokens[where] = f"token-{self.opened}"
        self.most = max(self.most, len(self.tokens))
        headers = {"Location": where, "X-Auth-Token": self.tokens[where]}
        return Answer(201, {"@odata.id": where, "Id": str(self.opened)}, headers)

    def _show(self, path: str) -> Answer | None:
        shown = {
            f"{ROOT}/AccountService": {"Accounts": ref("AccountService/Accounts")},
            f"{ROOT}/AccountService/Accounts": {"Members": [{"@odata.id": _ACCOUNT}]},
            _ACCOUNT: {"@odata.id": _ACCOUNT, "Id": "1", "UserName": self.user, "Enabled": True},
            _SESSIONS: {"Members": [{"@odata.id": each} for each in self.tokens]},
        }
        found = shown.get(path)
        return None if found is None else Answer(200, found)


def ask(
    rack: Rack, account: Account | None, url: str, method: str, path: str, body: Any, login: Login
) -> Answer:
    """Answer one request to a BMC or NVOS, past the BMC's account if it has one. Raises Silence."""
    if account is not None:
        told = account.answer(method, path, body, login)
        if told is not None:
            return told
    answer = rack.request(url, method, path, body, login.password)
    root = path.partition("?")[0].rstrip("/") == ROOT
    if account is None or not root or answer.status != 200:
        return answer
    links = {"Sessions": {"@odata.id": _SESSIONS}}
    shown = {**answer.body, "AccountService": ref("AccountService"), "Links": links}
    return Answer(200, shown, answer.headers)


def read_login(headers: Mapping[str, str]) -> Login:
    """Return what a request's headers carry."""
    token = headers.get("X-Auth-Token", "")
    kind, _, value = headers.get("Authorization", "").partition(" ")
    if token or kind != "Basic":
        return Login(token=token)
    user, _, password = base64.b64decode(value).decode().partition(":")
    return Login(user, password)

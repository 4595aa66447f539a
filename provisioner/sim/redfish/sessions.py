"""Sessions of a simulated BMC, with a limit and a timeout; a restart of the BMC ends them."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.sim.redfish.accounts import ACCOUNTS, Accounts
from provisioner.sim.redfish.redfish_answers import (
    Answer,
    Json,
    make_answer,
    make_base_message,
    make_error,
)
from provisioner.sim.redfish.redfish_tree import ROOT, Request, Resource, Tree, make_patch_check

SESSIONS = f"{ROOT}/SessionService/Sessions"
SHORT_S = 10.0  # of a session that a fault shortens: less than the pause between two polls


@dataclass
class Session:
    """A token, its account, and the time of its last use."""

    id: str
    token: str
    account: str
    used_at: float


class Sessions:
    """The session table."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.shape = accounts.shape
        self.rng = accounts.machine.rng
        self.sessions: dict[str, Session] = {}  # by token
        self.timeout_s = float(self.shape.session_timeout_s)
        self.pace = 1.0  # the clock's speed: requests take real time, so timeouts grow with it
        self._counted = 0
        accounts.bmc.on_reset.append(lambda _: self.sessions.clear())
        accounts.on_lost.append(self._end)

    def account_of(self, token: str, now: float) -> str | None:
        """The account of a token; using it keeps it alive."""
        session = self.sessions.get(token)
        if session is None:
            return None
        short = "short_sessions" in self.accounts.bmc.troubles
        limit_s = SHORT_S if short else self.timeout_s * self.pace
        if now > session.used_at + limit_s:
            del self.sessions[token]
            return None
        session.used_at = now
        return session.account

    def _end(self, account: str, but: str | None) -> None:
        for token, session in list(self.sessions.items()):
            if session.account == account and token != but:
                del self.sessions[token]

    def open(self, request: Request) -> Answer:
        """POST to the session collection."""
        body = request.json or {}
        for name in ("UserName", "Password"):
            if name not in body:
                return make_error(400, "PropertyMissing", name, prop=name)
            if not isinstance(body[name], str):
                return make_error(400, "PropertyValueTypeError", str(body[name]), name, prop=name)
        account = self.accounts.check(body["UserName"], body["Password"], request.now)
        if account is None:
            return make_error(
                401, "ResourceAtUriUnauthorized", SESSIONS, "Invalid username or password"
            )
        for token, old in list(self.sessions.items()):
            if request.now > old.used_at + self.timeout_s * self.pace:
                del self.sessions[token]
        if len(self.sessions) >= self.shape.session_max:
            return make_error(503, "SessionLimitExceeded", headers={"Retry-After": "30"})
        self._counted += 1
        session = Session(
            f"{self.rng.getrandbits(40):010x}{self._counted}",
            f"{self.rng.getrandbits(160):040x}",
            account.id,
            request.now,
        )
        self.sessions[session.token] = session
        shown = self._show_session(session)
        if account.change_required:
            shown["@Message.ExtendedInfo"] = [
                make_base_message("PasswordChangeRequired", f"{ACCOUNTS}/{account.id}")
            ]
        place = f"{SESSIONS}/{session.id}"
        return make_answer(201, shown, {"X-Auth-Token": session.token, "Location": place})

    def _show_session(self, session: Session) -> Json:
        return {
            "@odata.id": f"{SESSIONS}/{session.id}",
            "@odata.type": "#Session.v1_5_0.Session",
            "Id": session.id,
            "Name": "User Session",
            "UserName": self.accounts.accounts[session.account].username,
            "Password": None,
        }

    def _session(self, session_id: str) -> Resource | None:
        session = next((s for s in self.sessions.values() if s.id == session_id), None)
        if session is None:
            return None

        def close(_: Request) -> Answer:
            self.sessions.pop(session.token, None)
            return make_answer(204)

        return Resource(lambda: self._show_session(session), delete=close)

    def mount(self, tree: Tree) -> None:
        """Put SessionService into the tree."""
        tree.add_live(
            f"{ROOT}/SessionService",
            lambda: {
                "@odata.type": "#SessionService.v1_1_8.SessionService",
                "Id": "SessionService",
                "Name": "Session Service",
                "ServiceEnabled": True,
                "SessionTimeout": int(self.timeout_s),
                "Sessions": {"@odata.id": SESSIONS},
            },
            patch=self._set_timeout,
        )
        tree.add_collection(
            SESSIONS,
            "SessionCollection",
            lambda: [s.id for s in self.sessions.values()],
            resolve=self._session,
            post=self.open,
        )

    def _set_timeout(self, body: Json, _: Request) -> Answer | None:
        fault = make_patch_check("SessionTimeout")(body)
        seconds = body.get("SessionTimeout")
        if fault is None and not (isinstance(seconds, int) and 30 <= seconds <= 86400):
            fault = make_error(400, "PropertyValueTypeError", str(seconds), "SessionTimeout")
        if fault is None and isinstance(seconds, int):
            self.timeout_s = float(seconds)
        return fault

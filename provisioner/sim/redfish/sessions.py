"""Sessions of a simulated BMC, with a limit and a timeout; they are lost when the BMC restarts."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.sim.redfish.accounts import ACCOUNTS, Accounts
from provisioner.sim.redfish.redfish_answers import Answer, Json, answer, base, error
from provisioner.sim.redfish.redfish_tree import ROOT, Request, Resource, Tree, writable

SESSIONS = f"{ROOT}/SessionService/Sessions"
SHORT_S = 10.0  # of a session where a fault shortens it: less than the pause between two looks


@dataclass
class Session:
    """A token, whose it is, and when it was used last."""

    id: str
    token: str
    account: str
    used_at: float


class Sessions:
    """The session table."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts, self.shape, self.rng = accounts, accounts.shape, accounts.machine.rng
        self.sessions: dict[str, Session] = {}  # by token
        self.timeout_s = float(self.shape.session_timeout_s)
        self.pace = 1.0  # of the clock: requests take real time, so that a session lasts as long
        self._counted = 0
        accounts.bmc.on_reset.append(lambda _: self.sessions.clear())
        accounts.on_lost.append(self._end)

    def account_of(self, token: str, now: float) -> str | None:
        """The account that a token stands for; using it keeps it alive."""
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
                return error(400, "PropertyMissing", name, prop=name)
            if not isinstance(body[name], str):
                return error(400, "PropertyValueTypeError", str(body[name]), name, prop=name)
        account = self.accounts.check(body["UserName"], body["Password"], request.now)
        if account is None:
            return error(401, "ResourceAtUriUnauthorized", SESSIONS, "Invalid username or password")
        for token, old in list(self.sessions.items()):
            if request.now > old.used_at + self.timeout_s * self.pace:
                del self.sessions[token]
        if len(self.sessions) >= self.shape.session_max:
            return error(503, "SessionLimitExceeded", headers={"Retry-After": "30"})
        self._counted += 1
        session = Session(
            f"{self.rng.getrandbits(40):010x}{self._counted}", f"{self.rng.getrandbits(160):040x}",
            account.id, request.now,
        )  # fmt: skip
        self.sessions[session.token] = session
        shown = self._show_session(session)
        if account.change_required:
            shown["@Message.ExtendedInfo"] = [
                base("PasswordChangeRequired", f"{ACCOUNTS}/{account.id}")
            ]
        place = f"{SESSIONS}/{session.id}"
        return answer(201, shown, {"X-Auth-Token": session.token, "Location": place})

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
            return answer(204)

        return Resource(lambda: self._show_session(session), delete=close)

    def mount(self, tree: Tree) -> None:
        """Put SessionService into the tree."""
        tree.live(
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
        tree.collection(
            SESSIONS,
            "SessionCollection",
            lambda: [s.id for s in self.sessions.values()],
            resolve=self._session,
            post=self.open,
        )

    def _set_timeout(self, body: Json, _: Request) -> Answer | None:
        fault = writable("SessionTimeout")(body)
        seconds = body.get("SessionTimeout")
        if fault is None and not (isinstance(seconds, int) and 30 <= seconds <= 86400):
            fault = error(400, "PropertyValueTypeError", str(seconds), "SessionTimeout")
        if fault is None and isinstance(seconds, int):
            self.timeout_s = float(seconds)
        return fault

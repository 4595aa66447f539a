"""Authentication of a simulated BMC: accounts with factory passwords, roles and a lockout."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable
from dataclasses import dataclass

from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import Bmc
from provisioner.integrations.sim.redfish.redfish_tree import (
    ROOT,
    Answer,
    Json,
    Request,
    Resource,
    Tree,
    make_answer,
    make_base_message,
    make_error,
    make_patch_check,
)
from provisioner.integrations.sim.redfish.shape import Shape

ACCOUNTS = f"{ROOT}/AccountService/Accounts"
ROLES = {
    "Administrator": [
        "Login",
        "ConfigureManager",
        "ConfigureUsers",
        "ConfigureSelf",
        "ConfigureComponents",
    ],
    "Operator": ["Login", "ConfigureSelf", "ConfigureComponents"],
    "ReadOnly": ["Login", "ConfigureSelf"],
}


@dataclass
class Account:
    """A user. A factory password may have to be changed before any other request is answered."""

    id: str
    username: str
    password: str
    role: str = "Administrator"
    enabled: bool = True
    change_required: bool = False
    failures: int = 0
    failed_at: float = 0.0

    def is_locked(self, shape: Shape, now: float) -> bool:
        """Whether too many wrong passwords lock this account now."""
        return (
            0 < shape.lockout_threshold <= self.failures and now < self.failed_at + shape.lockout_s
        )


class Accounts:
    """The account table; it survives a BMC reset."""

    def __init__(self, machine: Machine, bmc: Bmc, shape: Shape) -> None:
        self.machine = machine
        self.bmc = bmc
        self.shape = shape
        first = shape.account_id or bmc.username
        self.accounts = {
            first: Account(
                first, bmc.username, bmc.password, change_required=shape.change_factory_password
            )
        }
        # called when a password changed or an account is gone: (account, token to keep alive)
        self.on_lost: list[Callable[[str, str | None], None]] = []
        self._basic: dict[str, tuple[str, str]] = {}  # header -> (user, password), as a cache

    def authenticate_basic(self, basic: str, now: float) -> Account | None:
        """The account of an Authorization header; None if there is none."""
        if basic not in self._basic:
            parsed = _parse_basic(basic)
            if parsed is None:
                return None
            if len(self._basic) > 100:  # guesses must not fill memory
                self._basic.clear()
            self._basic[basic] = parsed
        return self.check(*self._basic[basic], now)

    def check(self, username: str, password: str, now: float) -> Account | None:
        """The account, if the password is right and it is neither locked nor disabled."""
        account = next((a for a in self.accounts.values() if a.username == username), None)
        if account is None or account.is_locked(self.shape, now):
            return None
        if hmac.compare_digest(account.password.encode(), password.encode()) and account.enabled:
            account.failures = 0
            return account
        if now > account.failed_at + self.shape.lockout_s:
            account.failures = 0
        account.failures += 1
        account.failed_at = now
        self.machine.log_event(now, "login_failed", self.bmc.name, f"{username} {account.failures}")
        return None

    def _lost(self, account: str, but: str | None) -> None:
        for listener in self.on_lost:
            listener(account, but)

    def _show(self, account: Account) -> Json:
        return {
            "@odata.id": f"{ACCOUNTS}/{account.id}",
            "@odata.type": "#ManagerAccount.v1_7_0.ManagerAccount",
            "Id": account.id,
            "Name": "User Account",
            "Description": "User Account",
            "AccountTypes": ["Redfish"],
            "UserName": account.username,
            "Password": None,
            "PasswordChangeRequired": account.change_required,
            "RoleId": account.role,
            "Enabled": account.enabled,
            "Locked": account.failures >= self.shape.lockout_threshold > 0,
            "Links": {"Role": {"@odata.id": f"{ROOT}/AccountService/Roles/{account.role}"}},
        }

    def _password_fault(self, password: object) -> Answer | None:
        if not isinstance(password, str):
            return make_error(400, "PropertyValueTypeError", "****", "Password", prop="Password")
        if not self.shape.password_min <= len(password) <= self.shape.password_max:
            return make_error(400, "PropertyValueFormatError", "****", "Password", prop="Password")
        return None

    def _change(self, account: Account, body: Json, request: Request) -> Answer | None:
        fault = make_patch_check(
            "Password",
            "UserName",
            "Enabled",
            "RoleId",
            "Locked",
            "AccountTypes",
            "PasswordChangeRequired",
        )(body)
        if fault is None and "Password" in body:
            fault = self._password_fault(body["Password"])
        if fault is None and body.get("RoleId", "Operator") not in ROLES:
            fault = make_error(400, "PropertyValueNotInList", str(body["RoleId"]), "RoleId")
        for name in ("Enabled", "PasswordChangeRequired"):
            if fault is None and not isinstance(body.get(name, True), bool):
                fault = make_error(400, "PropertyValueTypeError", str(body[name]), name, prop=name)
        if fault:
            return fault
        if "Password" in body:
            account.password = body["Password"]
            account.change_required = False
            # DSP0266 13.3.6: other sessions of the account end with its old password
            self._lost(account.id, request.headers.get("x-auth-token"))
            self.machine.log_event(request.now, "password", self.bmc.name, account.username)
        if isinstance(body.get("UserName"), str):
            account.username = body["UserName"]
        account.change_required = body.get("PasswordChangeRequired", account.change_required)
        account.role = body.get("RoleId", account.role)
        account.enabled = body.get("Enabled", account.enabled)
        if body.get("Locked") is False:
            account.failures = 0
        return None

    def _account(self, account_id: str) -> Resource | None:
        account = self.accounts.get(account_id)
        if account is None:
            return None

        def delete(_: Request) -> Answer:
            if len(self.accounts) == 1:
                return make_error(400, "ResourceInUse")
            del self.accounts[account_id]
            self._lost(account_id, None)
            return make_answer(204)

        return Resource(
            lambda: self._show(account),
            patch=lambda body, request: self._change(account, body, request),
            delete=delete,
        )

    def _create(self, request: Request) -> Answer:
        body = request.json or {}
        for name in ("UserName", "Password", "RoleId"):
            if not isinstance(body.get(name), str):
                return make_error(400, "CreateFailedMissingReqProperties", name, prop=name)
        if any(a.username == body["UserName"] for a in self.accounts.values()):
            return make_error(
                400, "ResourceAlreadyExists", "ManagerAccount", "UserName", body["UserName"]
            )
        fault = self._password_fault(body["Password"])
        if fault is None and body["RoleId"] not in ROLES:
            fault = make_error(
                400, "PropertyValueNotInList", body["RoleId"], "RoleId", prop="RoleId"
            )
        if fault:
            return fault
        account_id = body["UserName"]
        if self.shape.account_id:
            account_id = str(1 + max(int(i) for i in self.accounts))
        account = Account(account_id, body["UserName"], body["Password"], body["RoleId"])
        account.enabled = body.get("Enabled", True) is True
        self.accounts[account_id] = account
        place = f"{ACCOUNTS}/{account_id}"
        return make_answer(201, self._show(account), {"Location": place})

    def mount(self, tree: Tree) -> None:
        """Put AccountService into the tree."""
        shape = self.shape
        tree.add_fixed(
            f"{ROOT}/AccountService",
            {
                "@odata.type": "#AccountService.v1_8_0.AccountService",
                "Id": "AccountService",
                "Name": "Account Service",
                "ServiceEnabled": True,
                "AccountLockoutThreshold": shape.lockout_threshold,
                "AccountLockoutDuration": shape.lockout_s,
                "AccountLockoutCounterResetAfter": shape.lockout_s,
                "MinPasswordLength": shape.password_min,
                "MaxPasswordLength": shape.password_max,
                "Accounts": {"@odata.id": ACCOUNTS},
                "Roles": {"@odata.id": f"{ROOT}/AccountService/Roles"},
            },
        )
        tree.add_collection(
            ACCOUNTS,
            "ManagerAccountCollection",
            lambda: list(self.accounts),
            resolve=self._account,
            post=None if shape.account_slots else self._create,
        )
        tree.add_collection(f"{ROOT}/AccountService/Roles", "RoleCollection", lambda: list(ROLES))
        for role, privileges in ROLES.items():
            tree.add_fixed(
                f"{ROOT}/AccountService/Roles/{role}",
                {
                    "@odata.type": "#Role.v1_3_1.Role",
                    "Id": role,
                    "Name": f"{role} Role",
                    "RoleId": role,
                    "IsPredefined": True,
                    "AssignedPrivileges": privileges,
                },
            )


def _parse_basic(header: str) -> tuple[str, str] | None:
    scheme, _, coded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        username, colon, password = base64.b64decode(coded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (username, password) if colon else None


# ------------------------------------------------------------------------------
# Sessions of a simulated BMC, with a limit and a timeout; a restart of the BMC ends them.


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

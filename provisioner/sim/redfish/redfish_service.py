"""One simulated Redfish service without a transport: a request goes in, an answer comes out.

Protocol rules are DSP0266's; what a vendor does differently is in its `Shape`. Faults are put in
front of `handle` by whoever wants them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import unquote
from zlib import crc32

from provisioner.sim.hardware.clock import SimClock
from provisioner.sim.hardware.machine import Machine
from provisioner.sim.redfish.accounts import ACCOUNTS, Account, Accounts
from provisioner.sim.redfish.redfish_answers import GONE, JSON_TYPE, Answer, Json, dump, error
from provisioner.sim.redfish.redfish_events import Events
from provisioner.sim.redfish.redfish_query import QueryFault, expand, page, select
from provisioner.sim.redfish.redfish_tree import ROOT, Request, Resource, Tree
from provisioner.sim.redfish.sessions import SESSIONS, Sessions
from provisioner.sim.redfish.shapes import Shape
from provisioner.sim.redfish.tasks import TaskTable

PUBLIC = frozenset({"/redfish", ROOT, f"{ROOT}/odata", f"{ROOT}/$metadata", f"{ROOT}/openapi.yaml"})
RETRY_S = "10"
SHORT_PAGE = 3  # members a page where a fault makes pages short
UNSAFE = frozenset({"POST", "PATCH", "DELETE", "PUT"})


class RedfishService:
    """A BMC's service. `tree` holds its resources; `requests` counts what it answered."""

    def __init__(self, machine: Machine, bmc: str, shape: Shape, clock: SimClock) -> None:
        self.machine, self.shape, self.clock = machine, shape, clock
        self.bmc = machine.bmcs[bmc]
        self.tree = Tree()
        self.accounts = Accounts(machine, self.bmc, shape)
        self.sessions = Sessions(self.accounts)
        self.tasks = TaskTable(self.bmc, shape)
        self.requests = 0
        self.events: Events | None = None  # set when its event service is mounted

    def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        peer: str = "",
    ) -> Answer:
        """Answer one request. Header names are lowercase; `peer` is who asks, for the log."""
        now = self.clock.now()
        self.machine.schedule.advance(now)
        self.requests += 1
        phase = self.bmc.phase(now)
        if phase == "gone":
            return GONE
        if phase == "starting":
            headers = {"Retry-After": RETRY_S}
            return error(503, "ServiceTemporarilyUnavailable", RETRY_S, headers=headers)
        path = unquote(path)
        if path != "/" and path.endswith("/"):
            path = path[:-1]
        told = self._answer(method, path, query, headers, body, now, partial=phase == "partial")
        if method == "HEAD":
            told = told._replace(body=b"")
        return told._replace(headers={"OData-Version": "4.0", **_COMMON, **told.headers})

    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        now: float,
        *,
        partial: bool,
    ) -> Answer:
        if headers.get("odata-version", "4.0") != "4.0":
            return error(412, "HeaderInvalid", "OData-Version")
        login = method == "POST" and path in (SESSIONS, f"{SESSIONS}/Members")
        account: Account | None = None
        if not login and not (path in PUBLIC and method in ("GET", "HEAD")):
            account = self._who(headers, now)
            if account is None:
                return error(401, "NoValidSession", headers={"WWW-Authenticate": _CHALLENGE})
            refusal = self._forbidden(account, method, path)
            if refusal:
                return refusal
        name = account.id if account else ""
        request = Request(method, path, query, headers, body, None, name, now)
        if login:
            request = request._replace(path=SESSIONS)
        if method in UNSAFE:
            return self._change(request)
        return self._read(request, partial=partial)

    def _who(self, headers: Mapping[str, str], now: float) -> Account | None:
        token = headers.get("x-auth-token")
        if token is not None:
            name = self.sessions.account_of(token, now)
            account = None if name is None else self.accounts.accounts.get(name)
            return account if account and account.enabled else None
        basic = headers.get("authorization")
        return self.accounts.basic(basic, now) if basic else None

    def _forbidden(self, account: Account, method: str, path: str) -> Answer | None:
        own = f"{ACCOUNTS}/{account.id}"
        if account.change_required:
            # DSP0266 13.3.7.1: nothing but the own account until its password was changed
            if path == own and method in ("GET", "HEAD", "PATCH"):
                return None
            if path.startswith(f"{SESSIONS}/") and method == "DELETE":
                return None
            return error(403, "PasswordChangeRequired", own)
        if method not in UNSAFE or account.role == "Administrator":
            return None
        if path.startswith(SESSIONS) or (path == own and method == "PATCH"):
            return None
        kept = (f"{ROOT}/AccountService", f"{ROOT}/Managers", f"{ROOT}/UpdateService")
        if account.role == "ReadOnly" or path.startswith(kept):
            return error(403, "InsufficientPrivilege")
        return None

    # --- reading

    def _read(self, request: Request, *, partial: bool) -> Answer:
        path = request.path
        resource = self.tree.find(path)
        if resource is None:
            monitored = self.tasks.monitor_at(path)
            if monitored is None:
                return error(404, "ResourceMissingAtURI", path)
            return monitored
        if request.method not in ("GET", "HEAD"):
            return error(405, "OperationNotAllowed", headers={"Allow": resource.methods()})
        if resource.stream is not None:
            return resource.stream(request)
        if resource.read is None:
            return error(405, "OperationNotAllowed", headers={"Allow": resource.methods()})
        if self._late(resource, path, request.now, partial=partial):
            return error(404, "ResourceMissingAtURI", path)
        refusal = resource.refuses() if resource.refuses else None
        if refusal:
            return refusal
        value = resource.read()
        if value is None:
            return error(404, "ResourceMissingAtURI", path)
        if path == f"{ROOT}/$metadata":
            return Answer(200, {"Content-Type": "application/xml;charset=utf-8"}, value["xml"])
        if partial and resource.collection and not resource.partial:
            value = {**value, "Members": [], "Members@odata.count": 0}
        if request.query or (self._page_max() and resource.collection):
            try:
                value = self._queried(value, request, resource)
            except QueryFault as fault:
                return fault.answer
        return _shown(value, request, resource)

    def _late(self, resource: Resource, path: str, now: float, *, partial: bool) -> bool:
        if partial and not resource.partial and not resource.collection:
            return True
        late = self.shape.task_late_s
        return bool(late) and self.tasks.hidden(path.removeprefix(self.shape.task_prefix), now)

    def _queried(self, value: Json, request: Request, resource: Resource) -> Json:
        for name in request.query:
            known = ("$expand", "$select", "$top", "$skip", "$skiptoken")
            if name.startswith("$") and name not in known:
                raise QueryFault(error(501, "QueryNotSupported"))
        if resource.collection:
            value = page(value, request.path, request.query, self._page_max())
        asked = request.query.get("$expand")
        if asked is not None:
            if not self.shape.expand_levels:
                raise QueryFault(error(501, "QueryNotSupported"))
            value = expand(value, asked, self.tree, self.shape)
        if "$select" in request.query:
            value = select(value, request.query["$select"])
        return value

    def _page_max(self) -> int:
        return SHORT_PAGE if "pages" in self.bmc.troubles else self.shape.page_max

    # --- changing

    def _change(self, request: Request) -> Answer:
        resource = self.tree.find(request.path)
        if resource is None:
            return error(404, "ResourceMissingAtURI", request.path)
        method = request.method
        able = {"POST": resource.post, "DELETE": resource.delete, "PATCH": resource.patch}
        if able.get(method) is None:
            return error(405, "OperationNotAllowed", headers={"Allow": resource.methods()})
        if method == "DELETE":
            assert resource.delete is not None
            return resource.delete(request)
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip()
        if kind.endswith("json"):
            got = _parse(request.body)
            if isinstance(got, Answer):
                return got
            request = request._replace(json=got)
        elif method == "PATCH" or kind == "text/plain":
            return error(415, "UnsupportedMediaType")
        if method == "POST":
            assert resource.post is not None
            return resource.post(request)
        return self._patch(resource, request)

    def _patch(self, resource: Resource, request: Request) -> Answer:
        assert resource.patch is not None
        assert resource.read is not None
        before = resource.read()
        if before is None:
            return error(404, "ResourceMissingAtURI", request.path)
        wanted = request.headers.get("if-match")
        if wanted is None and self.shape.if_match and not request.path.startswith(ACCOUNTS):
            return error(428, "PreconditionRequired")
        if wanted is not None and wanted.strip() != "*":
            etag = f'"{crc32(dump(before)):08x}"'
            # RFC 9110 13.1.1: compared strongly, a weak tag never fits
            if etag not in [w.strip() for w in wanted.split(",")]:
                return error(412, "PreconditionFailed")
        if not request.json:
            return error(400, "MalformedJSON")
        refusal = resource.patch(request.json, request)
        if refusal is not None:
            return refusal
        after = resource.read() or {}
        body = dump(after)
        return Answer(200, {"Content-Type": JSON_TYPE, "ETag": f'"{crc32(body):08x}"'}, body)


_CHALLENGE = 'Basic realm="Redfish"'
_COMMON = {"Cache-Control": "no-cache", "Server": "simulated"}


def _shown(value: Json, request: Request, resource: Resource) -> Answer:
    """A resource with its ETag; the ETag is over what the resource says, not over itself."""
    body = dump(value)
    etag = f'"{crc32(body):08x}"'
    if request.headers.get("if-none-match") == etag:
        return Answer(304, {"ETag": etag})
    if resource.patch:  # who may change it must find its ETag in a collection's answer too
        body = dump({**value, "@odata.etag": etag})
    headers = {"Content-Type": JSON_TYPE, "ETag": etag, "Allow": resource.methods()}
    if "@odata.type" in value:
        headers["Link"] = f"<{_schema(value['@odata.type'])}>; rel=describedby"
    return Answer(200, headers, body)


def _schema(odata_type: str) -> str:
    name = odata_type.lstrip("#").rpartition(".")[0]
    return f"http://redfish.dmtf.org/schemas/v1/{name}.json"


def _parse(body: bytes) -> Json | Answer:
    if not body.strip():
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return error(400, "MalformedJSON")
    return value if isinstance(value, dict) else error(400, "MalformedJSON")

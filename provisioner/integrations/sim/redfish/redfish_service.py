"""One simulated Redfish service without a transport: a request goes in, an answer comes out.

The protocol rules are DSP0266's; a vendor's deviations are in its `Shape`. Callers put faults in
front of `handle`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote
from zlib import crc32

from provisioner.integrations.sim.hardware.clock import SimClock
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.redfish.accounts import (
    ACCOUNTS,
    SESSIONS,
    Account,
    Accounts,
    Sessions,
)
from provisioner.integrations.sim.redfish.redfish_events import Events
from provisioner.integrations.sim.redfish.redfish_tree import (
    GONE,
    JSON_TYPE,
    ROOT,
    Answer,
    Json,
    Request,
    Resource,
    Tree,
    dump_json,
    make_error,
)
from provisioner.integrations.sim.redfish.shape import Shape
from provisioner.integrations.sim.redfish.tasks import TaskTable

# ------------------------------------------------------------------------------
# Query parameters: $expand, $select, $top and $skip (DSP0266 clause 7.3).


class QueryFault(Exception):
    """A query that cannot be answered; carries the error answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


def cut_page(value: Json, path: str, query: Mapping[str, str], page_max: int) -> Json:
    """One page of a collection with its nextLink."""
    members = value["Members"]
    skip = _number(query, "$skip", query.get("$skiptoken", "0"))
    top = _number(query, "$top", str(len(members)))
    size = min(top, page_max) if page_max else top
    if not skip and size >= len(members):
        return value
    part = {**value, "Members": members[skip : skip + size]}
    if skip + size < min(len(members), skip + top):
        part["Members@odata.nextLink"] = f"{path}?$skip={skip + size}"
    return part


def _number(query: Mapping[str, str], name: str, default: str) -> int:
    text = query.get(name, default)
    if not text.isdigit():
        if text.lstrip("-").isdigit():
            raise QueryFault(make_error(400, "QueryParameterOutOfRange", text, name, ">= 0"))
        raise QueryFault(make_error(400, "QueryParameterValueTypeError", text, name))
    return int(text)


def expand_links(value: Json, option: str, tree: Tree, shape: Shape) -> Json:
    """The resource with its links expanded, up to the service's limit."""
    match = re.fullmatch(r"([.~*])(?:\(\$levels=(\d+)\))?", option)
    if not match:
        raise QueryFault(make_error(400, "QueryParameterValueTypeError", option, "$expand"))
    levels = min(int(match.group(2) or 1), shape.expand_levels)
    kind = match.group(1)
    return {
        key: part if _skipped(kind, key) else _whole(part, levels, kind, tree, shape)
        for key, part in value.items()
    }


def _skipped(kind: str, key: str) -> bool:
    return (kind == "." and key == "Links") or (kind == "~" and key != "Links")


def _whole(value: Any, levels: int, kind: str, tree: Tree, shape: Shape) -> Any:
    """`value` with its references resolved; `kind` selects them."""
    if isinstance(value, list):
        return [_whole(v, levels, kind, tree, shape) for v in value]
    if not isinstance(value, dict):
        return value
    if set(value) != {"@odata.id"}:
        return {
            k: v if kind == "." and k == "Links" else _whole(v, levels, kind, tree, shape)
            for k, v in value.items()
        }
    resource = tree.find(value["@odata.id"]) if levels > 0 else None
    linked = resource.read() if resource and resource.read else None
    if linked is None:
        return value
    linked = {k: v for k, v in linked.items() if k not in shape.expand_drops}
    if levels == 1:
        return linked
    return {
        k: v if _skipped(kind, k) else _whole(v, levels - 1, kind, tree, shape)
        for k, v in linked.items()
    }


def select(value: Json, names: str) -> Json:
    """The named properties, and the annotations that every resource needs."""
    selected = {name.strip().partition("/")[0] for name in names.split(",")}
    return {k: v for k, v in value.items() if k in selected or k.startswith("@odata")}


PUBLIC = frozenset({"/redfish", ROOT, f"{ROOT}/odata", f"{ROOT}/$metadata", f"{ROOT}/openapi.yaml"})
RETRY_S = "10"
SHORT_PAGE = 3  # members a page where a fault makes pages short
UNSAFE = frozenset({"POST", "PATCH", "DELETE", "PUT"})


class RedfishService:
    """A BMC's service. `tree` holds its resources; `requests` counts its answers."""

    def __init__(self, machine: Machine, bmc: str, shape: Shape, clock: SimClock) -> None:
        self.machine = machine
        self.shape = shape
        self.clock = clock
        self.bmc = machine.bmcs[bmc]
        self.tree = Tree()
        self.accounts = Accounts(machine, self.bmc, shape)
        self.sessions = Sessions(self.accounts)
        self.tasks = TaskTable(self.bmc, shape)
        self.requests = 0
        self.events: Events | None = None  # set together with its event service

    def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        peer: str = "",
    ) -> Answer:
        """Answer one request. Header names are lowercase; `peer` is the client, for the log."""
        now = self.clock.now()
        self.machine.schedule.advance(now)
        self.requests += 1
        phase = self.bmc.get_phase(now)
        if phase == "gone":
            return GONE
        if phase == "starting":
            headers = {"Retry-After": RETRY_S}
            return make_error(503, "ServiceTemporarilyUnavailable", RETRY_S, headers=headers)
        path = unquote(path)
        if path != "/" and path.endswith("/"):
            path = path[:-1]
        answer = self._answer(method, path, query, headers, body, now, partial=phase == "partial")
        if method == "HEAD":
            answer = answer._replace(body=b"")
        return answer._replace(headers={"OData-Version": "4.0", **_COMMON, **answer.headers})

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
            return make_error(412, "HeaderInvalid", "OData-Version")
        login = method == "POST" and path in (SESSIONS, f"{SESSIONS}/Members")
        account: Account | None = None
        if not login and not (path in PUBLIC and method in ("GET", "HEAD")):
            account = self._who(headers, now)
            if account is None:
                return make_error(401, "NoValidSession", headers={"WWW-Authenticate": _CHALLENGE})
            refusal = self._forbidden(account, method, path) or self._locked(method, path)
            if refusal:
                return refusal
        name = account.id if account else ""
        request = Request(method, path, query, headers, body, None, name, now)
        if login:
            request = request._replace(path=SESSIONS)
        if method in UNSAFE:
            answer = self._change(request)
            if self.events is not None:
                self.events.note_change(request, answer)
            return answer
        return self._read(request, partial=partial)

    def _who(self, headers: Mapping[str, str], now: float) -> Account | None:
        token = headers.get("x-auth-token")
        if token is not None:
            name = self.sessions.account_of(token, now)
            account = None if name is None else self.accounts.accounts.get(name)
            return account if account and account.enabled else None
        basic = headers.get("authorization")
        return self.accounts.authenticate_basic(basic, now) if basic else None

    def _forbidden(self, account: Account, method: str, path: str) -> Answer | None:
        own = f"{ACCOUNTS}/{account.id}"
        if account.change_required:
            # DSP0266 13.3.7.1: only its own account until its password is changed
            if path == own and method in ("GET", "HEAD", "PATCH"):
                return None
            if path.startswith(f"{SESSIONS}/") and method == "DELETE":
                return None
            return make_error(403, "PasswordChangeRequired", own)
        if method not in UNSAFE or account.role == "Administrator":
            return None
        if path.startswith(SESSIONS) or (path == own and method == "PATCH"):
            return None
        allowed_prefixes = (f"{ROOT}/AccountService", f"{ROOT}/Managers", f"{ROOT}/UpdateService")
        if account.role == "ReadOnly" or path.startswith(allowed_prefixes):
            return make_error(403, "InsufficientPrivilege")
        return None

    def _locked(self, method: str, path: str) -> Answer | None:
        """System Lockdown Mode. source: iDRAC9 User's Guide: power operations stay, and the mode
        itself can be left; libredfish writes the attribute that leaves it.
        """
        attributes = self.machine.host.first_boot
        locked = attributes.get("Lockdown.1.SystemLockdown") == "Enabled"
        if not locked or method not in UNSAFE or self.bmc.name != "host":
            return None
        free = ("/Actions/ComputerSystem.Reset", "/DellAttributes/iDRAC.Embedded.1")
        if path.startswith(SESSIONS) or path.endswith(free):
            return None
        return make_error(403, "InsufficientPrivilege")

    # --- reading

    def _read(self, request: Request, *, partial: bool) -> Answer:
        path = request.path
        resource = self.tree.find(path)
        if resource is None:
            monitored = self.tasks.monitor_at(path)
            if monitored is None:
                return make_error(404, "ResourceMissingAtURI", path)
            return monitored
        if request.method not in ("GET", "HEAD"):
            return make_error(
                405, "OperationNotAllowed", headers={"Allow": resource.list_methods()}
            )
        if resource.stream is not None:
            return resource.stream(request)
        if resource.read is None:
            return make_error(
                405, "OperationNotAllowed", headers={"Allow": resource.list_methods()}
            )
        if self._late(resource, path, request.now, partial=partial):
            return make_error(404, "ResourceMissingAtURI", path)
        refusal = resource.refuses() if resource.refuses else None
        if refusal:
            return refusal
        value = resource.read()
        if value is None:
            return make_error(404, "ResourceMissingAtURI", path)
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
        return bool(late) and self.tasks.is_hidden(path.removeprefix(self.shape.task_prefix), now)

    def _queried(self, value: Json, request: Request, resource: Resource) -> Json:
        for name in request.query:
            supported = ("$expand", "$select", "$top", "$skip", "$skiptoken")
            if name.startswith("$") and name not in supported:
                raise QueryFault(make_error(501, "QueryNotSupported"))
        if resource.collection:
            value = cut_page(value, request.path, request.query, self._page_max())
        expand_option = request.query.get("$expand")
        if expand_option is not None:
            if not self.shape.expand_levels:
                raise QueryFault(make_error(501, "QueryNotSupported"))
            value = expand_links(value, expand_option, self.tree, self.shape)
        if "$select" in request.query:
            value = select(value, request.query["$select"])
        return value

    def _page_max(self) -> int:
        return SHORT_PAGE if "pages" in self.bmc.troubles else self.shape.page_max

    # --- changing

    def _change(self, request: Request) -> Answer:
        resource = self.tree.find(request.path)
        if resource is None:
            return make_error(404, "ResourceMissingAtURI", request.path)
        method = request.method
        able = {"POST": resource.post, "DELETE": resource.delete, "PATCH": resource.patch}
        if able.get(method) is None:
            return make_error(
                405, "OperationNotAllowed", headers={"Allow": resource.list_methods()}
            )
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
            return make_error(415, "UnsupportedMediaType")
        if method == "POST":
            assert resource.post is not None
            return resource.post(request)
        return self._patch(resource, request)

    def _patch(self, resource: Resource, request: Request) -> Answer:
        assert resource.patch is not None
        assert resource.read is not None
        before = resource.read()
        if before is None:
            return make_error(404, "ResourceMissingAtURI", request.path)
        if_match = request.headers.get("if-match")
        if if_match is None and self.shape.if_match and not request.path.startswith(ACCOUNTS):
            return make_error(428, "PreconditionRequired")
        if if_match is not None and if_match.strip() != "*":
            etag = f'"{crc32(dump_json(before)):08x}"'
            # RFC 9110 13.1.1: a strong comparison, so a weak tag never matches
            if etag not in [w.strip() for w in if_match.split(",")]:
                return make_error(412, "PreconditionFailed")
        if not request.json:
            return make_error(400, "MalformedJSON")
        refusal = resource.patch(request.json, request)
        if refusal is not None:
            return refusal
        after = resource.read() or {}
        body = dump_json(after)
        return Answer(200, {"Content-Type": JSON_TYPE, "ETag": f'"{crc32(body):08x}"'}, body)


_CHALLENGE = 'Basic realm="Redfish"'
_COMMON = {"Cache-Control": "no-cache", "Server": "simulated"}


def _shown(value: Json, request: Request, resource: Resource) -> Answer:
    """A resource with its ETag; the ETag covers the resource without the ETag itself."""
    body = dump_json(value)
    etag = f'"{crc32(body):08x}"'
    if request.headers.get("if-none-match") == etag:
        return Answer(304, {"ETag": etag})
    if resource.patch:  # clients need the ETag of a writable member in its collection too
        if "@odata.etag" in value:
            body = dump_json({**value, "@odata.etag": etag})
        else:  # as the last field of the same text
            body = body[:-1] + b',"@odata.etag":' + dump_json(etag) + b"}"
    headers = {"Content-Type": JSON_TYPE, "ETag": etag, "Allow": resource.list_methods()}
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
        return make_error(400, "MalformedJSON")
    return value if isinstance(value, dict) else make_error(400, "MalformedJSON")

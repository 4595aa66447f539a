"""NVUE's REST API in front of one simulated switch, without a transport.

Shapes: NVIDIA's Cumulus documents and clients (docs/sources/switches.md#nvue-revisions).
Without `?rev=` a GET answers the *applied* configuration, not the operational state, like NVUE.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from provisioner.integrations.sim.hardware.clock import SimClock
from provisioner.integrations.sim.redfish.redfish_tree import GONE, Answer
from provisioner.integrations.sim.switches.nvue_schema import find_violation, hide_secrets
from provisioner.integrations.sim.switches.switch import Revision, Switch
from provisioner.integrations.sim.switches.switch import Tree as SwitchConfigTree
from provisioner.integrations.sim.switches.switch_fabric import Fabric, neighbour_tables

# ------------------------------------------------------------------------------
# What NVUE refuses in a body about filters: names and values of `acl`, and of a port's lists.
#
# source: NVUE reference of Cumulus Linux 5, "ACL" of the commands that set and unset (in
# CumulusNetworks/docs, content/nvue-reference, read 2026-11-28): the properties of `match ip` and
# their values, and "Interface": `acl <acl-id> inbound|outbound`. Assumed: the numbers of rules are
# 1 to 65535, a refusal is HTTP 400, and a port with a list that is not there is no error.


Tree = dict[str, Any]
MATCHES = frozenset({"ip", "mac"})
OF_IP = frozenset(
    (
        *("connection-state", "dest-ip", "dest-port", "dscp", "ecn", "fragment", "hashlimit"),
        *("icmp-type", "icmpv6-type", "protocol", "recent-list", "source-ip", "source-port"),
        *("tcp", "udp"),
    )
)
OF_LAYER_4 = {
    "tcp": frozenset(
        ("all-mss-except", "dest-port", "flags", "mask", "mss", "source-port", "state")
    ),
    "udp": frozenset({"dest-port", "source-port"}),
}
PROTOCOLS = ("tcp", "udp", "ospf", "pim", "icmp", "icmpv6", "igmp")
ACTIONS = frozenset(
    (
        *("deny", "erspan", "log", "permit", "police", "recent", "set", "source-nat"),
        *("dest-nat", "span"),
    )
)
TYPES = ("ipv4", "ipv6", "mac")
WAYS = frozenset({"inbound", "outbound"})
RULES_LAST = 65_535
PORTS_LAST = 65_535


def find_acl_violation(parts: tuple[str, ...], body: Tree) -> str:
    """Why a body of a PATCH at this path is refused; "" if it is taken. Null takes a part away."""
    tree = body
    for part in reversed(parts):
        tree = {part: tree}
    for name, acl in _inner(tree, "acl"):
        for error in _list_acl_errors(acl):
            return f"acl/{name}: {error}"
    for name, interface in _inner(tree, "interface"):
        for bound, ways in _inner(interface, "acl"):
            if strange := sorted(ways.keys() - WAYS):
                return f"interface/{name}/acl/{bound}: {strange[0]} is not a property"
    return ""


def _list_acl_errors(acl: Tree) -> Iterator[str]:
    if acl.get("type") not in (None, *TYPES):
        yield f"type {acl['type']} is not one of {', '.join(TYPES)}"
    for number, rule in _inner(acl, "rule"):
        if not (number.isascii() and number.isdigit() and 0 < int(number) <= RULES_LAST):
            yield f"rule {number} is no number of a rule"
        for key in (rule.get("action") or {}).keys() - ACTIONS:
            yield f"rule/{number}/action: {key} is not a property"
        for key in (rule.get("match") or {}).keys() - MATCHES:
            yield f"rule/{number}/match: {key} is not a property"
        ip = (rule.get("match") or {}).get("ip") or {}
        yield from (f"rule/{number}/match/ip: {error}" for error in _list_ip_errors(ip))


def _list_ip_errors(ip: Tree) -> Iterator[str]:
    for key in sorted(ip.keys() - OF_IP):
        yield f"{key} is not a property"
    if ip.get("protocol") not in (None, *PROTOCOLS):
        yield f"protocol {ip['protocol']} is not one of {', '.join(PROTOCOLS)}"
    for name, known in OF_LAYER_4.items():
        inner = ip.get(name) or {}
        for key in sorted(inner.keys() - known):
            yield f"{name}/{key} is not a property"
        if inner.get("state") not in (None, "established"):
            yield f"{name}/state: {inner['state']} is not established"
        for port in inner.get("dest-port") or {}:
            low, _, high = str(port).partition("-")
            if not all(p.isdigit() and 0 < int(p) <= PORTS_LAST for p in (low, high or low)):
                yield f"{name}/dest-port: {port} is no port"


def _inner(tree: Tree, key: str) -> Iterator[tuple[str, Tree]]:
    """Yield the objects below a key; what is taken away (null) is not among them."""
    listed = tree.get(key)
    for name, value in (listed if isinstance(listed, dict) else {}).items():
        if isinstance(value, dict):
            yield str(name), value


PREFIX = "/nvue_v1"
BODY_MAX = 1024 * 1024  # bytes; a whole configuration is below 100 KB


class NvueService:
    """Answers one request at a time; nothing in here waits."""

    def __init__(self, switch: Switch, clock: SimClock) -> None:
        self.switch = switch
        self.clock = clock
        self.fabric = Fabric(switch)
        self.requests = 0
        self.reachable: Callable[[], bool] = lambda: True  # faults may cut the management link
        self._jobs: dict[str, SwitchConfigTree] = {}
        self._accepted = ("", b"")  # a valid Authorization header and its password hash

    def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        """The answer; `GONE` while the switch does not answer. `headers` have lowercase names."""
        now = self.clock.now()
        self.switch.schedule.advance(now)
        if not self.switch.is_up(now) or not self.reachable():
            return GONE
        self.requests += 1
        if not self._authorized(headers.get("authorization", "")):
            return _problem(401, "Unauthorized", "wrong username or password")
        if self.switch.password_expired:
            return _problem(403, "Forbidden", "the password must be changed at the first login")
        if not path.startswith(PREFIX):
            return _problem(404, "Not Found", path)
        parts = tuple(unquote(p) for p in path[len(PREFIX) :].split("/") if p)
        document: Any = None
        if body:
            try:
                document = json.loads(body[:BODY_MAX])
            except (ValueError, RecursionError):
                return _problem(400, "Bad Request", "the body is not JSON")
        if method == "GET" and query.get("view") == "neighbor" and parts == ("interface",):
            return _json(200, neighbour_tables(self.switch, now))
        if method == "GET":
            return self._get(parts, query.get("rev", "applied"), now)
        if method == "POST":
            return self._post(parts, document, now)
        if method in ("PATCH", "DELETE"):
            if parts[:1] == ("revision",) and method == "PATCH":
                return self._change_revision(parts[1:], document, now)
            return self._change(parts, query.get("rev", ""), method, document)
        return _problem(405, "Method Not Allowed", method)

    def _authorized(self, header: str) -> bool:
        expected = f"{self.switch.username}:{self.switch.password}".encode()
        if (header, expected) == self._accepted:
            return True
        scheme, _, value = header.partition(" ")
        try:
            received = base64.b64decode(value, validate=True)
        except ValueError:
            received = b""
        if scheme.lower() != "basic" or not hmac.compare_digest(received, expected):
            return False
        self._accepted = (header, expected)
        return True

    # --- reading

    def _get(self, parts: tuple[str, ...], rev: str, now: float) -> Answer:
        switch = self.switch
        if parts[:1] == ("action",):
            job = self._jobs.get(parts[1]) if len(parts) == 2 else self._jobs
            return _json(200, job) if job is not None else _not_found(parts)
        if parts[:1] == ("revision",):
            if len(parts) == 1:
                return _json(200, {r.id: _revision(r) for r in switch.revisions.values()})
            revision = switch.revisions.get(parts[1])
            return _json(200, _revision(revision)) if revision else _not_found(parts)
        special = self.fabric.read_document(parts, now)
        if special is not None:
            return _json(200, special)
        tree: SwitchConfigTree
        if rev == "operational":
            tree = switch.operational
        elif rev in ("applied", "startup"):
            tree = switch.applied if rev == "applied" else switch.startup
        elif rev in switch.revisions:
            tree = switch.build_tree(switch.revisions[rev])
        else:
            return _problem(404, "Not Found", f"revision {rev}")
        document = _walk(tree, parts)
        if document is None:
            return _not_found(parts)
        if rev == "operational" and parts[:1] == ("interface",):
            document = self._with_link(document, parts, now)
        return _json(200, hide_secrets(document))

    def _with_link(self, document: Any, parts: tuple[str, ...], now: float) -> Any:
        """Add the VRF, even the default one, and the link to operational interfaces."""

        def show_interface(name: str, entry: SwitchConfigTree) -> SwitchConfigTree:
            up = self.switch.link_up(name, now)
            ip = {"vrf": "default"} | entry.get("ip", {})
            link = {"state": {"up" if up else "down": {}}, "mtu": 9216, "speed": "400G"}
            return entry | {"ip": ip, "link": link | self.switch.planted.links.get(name, {})}

        if len(parts) == 1:
            return {name: show_interface(name, entry) for name, entry in document.items()}
        if len(parts) == 2:
            return show_interface(parts[1], document)
        if parts[2:] == ("ip",):
            return {"vrf": "default"} | document
        return document

    # --- changing

    def _post(self, parts: tuple[str, ...], document: Any, now: float) -> Answer:
        if parts == ("revision",):
            revision = self.switch.new_revision()
            return _json(201, {revision.id: _revision(revision)})
        actions = [k for k in document if k.startswith("@")] if isinstance(document, dict) else []
        if len(actions) != 1 or not isinstance(document[actions[0]], dict):
            return _problem(400, "Bad Request", "exactly one @action is needed")
        parameters = document[actions[0]].get("parameters")
        job = self._start(
            parts, actions[0], parameters if isinstance(parameters, dict) else {}, now
        )
        if job is None:
            return _not_found((*parts, actions[0]))
        # a bare job id, as text: not an object (docs/sources/switches.md#job-ids)
        return Answer(202, {"Content-Type": "application/json"}, job.encode())

    def _change(self, parts: tuple[str, ...], rev: str, method: str, document: Any) -> Answer:
        revision = self.switch.revisions.get(rev)
        if revision is None:
            return _problem(400, "Bad Request", f"rev={rev} is not a pending revision")
        if revision.state != "pending":
            return _problem(400, "Bad Request", f"revision {rev} is {revision.state}")
        if method == "DELETE":
            if _walk(self.switch.build_tree(revision), parts) is None:
                return _not_found(parts)
            if not parts:
                for key in list(self.switch.applied):
                    revision.changes.append(((key,), None))
            else:
                revision.changes.append((parts, None))
            return Answer(204, {})
        if not isinstance(document, dict):
            return _problem(400, "Bad Request", "the body must be an object")
        violation = find_violation(self.switch.version, parts, document)
        if violation := violation or find_acl_violation(parts, document):
            return _problem(400, "Bad Request", violation)
        revision.changes.append((parts, document))  # since 5.10 the answer is the change
        return _json(200, hide_secrets(document))

    def _change_revision(self, parts: tuple[str, ...], document: Any, now: float) -> Answer:
        state = document.get("state") if isinstance(document, dict) else None
        prompt = document.get("auto-prompt") if isinstance(document, dict) else None
        agreed = isinstance(prompt, dict) and prompt.get("ays") == "ays_yes"
        if parts == ("applied",) and state == "save":
            self.switch.save(now)
            return _json(200, {"state": "applied_and_saved", "transition": {"issue": {}}})
        revision = self.switch.revisions.get(parts[0]) if len(parts) == 1 else None
        if revision is None:
            return _not_found(("revision", *parts))
        if state != "apply":
            return _problem(400, "Bad Request", f"state {state!r:.40} cannot be asked for")
        if revision.state != "pending":
            return _problem(400, "Bad Request", f"revision {revision.id} is {revision.state}")
        if not agreed:
            revision.state = "ays_fail"
            revision.issue = {"0": {"code": "ays", "message": "are you sure? was not answered"}}
        else:
            self.switch.apply(revision, now)
        return _json(200, _revision(revision))

    # --- actions

    def _start(
        self, parts: tuple[str, ...], action: str, parameters: SwitchConfigTree, now: float
    ) -> str | None:
        """Start an action; return its job id, or None if there is no such action here."""
        switch = self.switch
        durations = self.switch.durations
        if (parts, action) == (("system", "image"), "@fetch"):
            url = str(parameters.get("remote-url", ""))
            return self._fetch(url, urlsplit(url).path.rsplit("/", 1)[-1], now)
        if action == "@install" and parts[:2] == ("system", "image"):
            name = parts[3] if parts[2:3] == ("files",) and len(parts) == 4 else ""
            name = name or str(parameters.get("image-file", parameters.get("image", "")))
            return self._job(now, durations.install_s, lambda at: switch.install_image(name, at))
        if (parts, action) == (("system", "image"), "@boot-next"):
            return self._job(now, 1.0, lambda _at: self._boot_next(parameters))
        if action == "@reboot" and parts in (("system",), ("system", "reboot")):
            # it accepts, and is gone a moment later
            return self._job(now, 2.0, self._reboot)
        return None

    def _reboot(self, at: float) -> str:
        self.fabric.lose_traffic(at)
        self.switch.reboot(at)
        return ""

    def _boot_next(self, parameters: SwitchConfigTree) -> str:
        switch = self.switch
        partition = next((str(v) for v in parameters.values() if isinstance(v, str | int)), "other")
        inactive = 2 if switch.current == 1 else 1
        chosen = {"other": inactive, "partition1": 1, "partition2": 2, "1": 1, "2": 2}.get(
            partition
        )
        if chosen is None or switch.partitions[chosen] is None:
            return f"there is no image {partition}"
        switch.next = chosen
        return ""

    def _fetch(self, url: str, name: str, now: float) -> str:
        got: list[bytes | None] = []
        job = self._new_job()
        boots = self.switch.boots

        def finish(at: float) -> None:
            if boots != self.switch.boots:
                return
            if not got:  # still downloading: check again a little later
                self.switch.schedule.plan_act(at + 5.0, finish)
                return
            self._end(job, self.switch.store_image(name, got[0], at))

        self.switch.fetch(url, got.append)
        self.switch.schedule.plan_act(
            now + self.switch.add_jitter(self.switch.durations.fetch_s), finish
        )
        return job

    def _job(self, now: float, seconds: float, act: Callable[[float], str]) -> str:
        """A job that runs `act` after `seconds`; `act` returns an error text, or ""."""
        job = self._new_job()
        boots = self.switch.boots

        def finish(at: float) -> None:
            if boots == self.switch.boots:
                self._end(job, act(at))

        self.switch.schedule.plan_act(now + self.switch.add_jitter(seconds), finish)
        return job

    def _new_job(self) -> str:
        job = str(len(self._jobs) + 1)
        self._jobs[job] = {"state": "running", "status": "", "detail": "", "http_status": 200}
        return job

    def _end(self, job: str, error: str) -> None:
        self._jobs[job] = {
            "state": "action_error" if error else "action_success",
            "status": error or "Action succeeded",
            "detail": error,
            "http_status": 500 if error else 200,
        }


def _revision(revision: Revision) -> SwitchConfigTree:
    transition = {"issue": revision.issue, "progress": revision.progress}
    return {"state": revision.state, "transition": transition}


def _walk(tree: Any, parts: tuple[str, ...]) -> Any:
    for part in parts:
        if not isinstance(tree, dict) or part not in tree:
            return None
        tree = tree[part]
    return tree


def _json(status: int, document: Any) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(document).encode())


def _problem(status: int, title: str, detail: str) -> Answer:
    document = {"title": title, "detail": detail, "status": status}
    return Answer(
        status, {"Content-Type": "application/problem+json"}, json.dumps(document).encode()
    )


def _not_found(parts: tuple[str, ...]) -> Answer:
    return _problem(404, "Not Found", "/" + "/".join(parts))

"""A simulated VAST management system: tenants, view policies, views, quotas, VIP pools, tasks.

Paths, fields and statuses are those of the OpenAPI 3 document that go-vast-client of github.com/
vast-data carries (openapi_schema/api.tar.gz, commit 3ce13e96); a test holds every request and
answer against an excerpt of it. What the document does not say is chosen against the caller: a new
policy without lists lets everybody in, an address is one tenant's alone, a tenant with views or
files is not removed, and a removal is a task that takes a while.
"""

from __future__ import annotations

import copy
import ipaddress
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from provisioner.integrations.sim.redfish.redfish_tree import GONE, make_answer
from provisioner.integrations.sim.redfish.redfish_tree import Answer as HttpAnswer

NAME = "vms"  # of its endpoint
Body = dict[str, Any]
Answer = tuple[int, dict[str, str], Any]
NOUNS = ("tenants", "viewpolicies", "views", "quotas", "vippools")
LISTS = (
    "nfs_read_write",
    "nfs_read_only",
    "nfs_root_squash",
    "nfs_no_squash",
    "nfs_all_squash",
    "smb_read_write",
    "smb_read_only",
    "s3_read_write",
    "s3_read_only",
    "trash_access",
)
TASK_LOOKS = 2  # a task is running for so many looks


class SimulatedVms:
    """The state of one cluster. `log` has every change that was carried out, in its order.

    Faults, for tests: `refuse` (status of the next answers), `cut` (nouns whose lists lose their
    last object), `lose` (the answer of so many changes is lost after they are made).
    """

    def __init__(
        self,
        user: str = "admin",
        password: str = "123456",  # noqa: S107 (of a simulated system)
    ) -> None:
        self.user = user
        self.password = password
        self.rows: dict[str, dict[int, Body]] = {noun: {} for noun in NOUNS}
        self.tasks: dict[int, Body] = {}
        self.files: dict[tuple[str, str], int] = {}  # (tenant, path) -> bytes
        self.log: list[tuple[str, str, Any]] = []
        self.asked: list[tuple[str, str]] = []
        self.refuse: list[int] = []
        self.cut: set[str] = set()
        self.lose = 0
        self.silent = False
        self.pages_of = 0  # > 0: lists come in pages of so many
        self.on_change: list[Callable[[], None]] = []
        self._ids = itertools.count(1)
        self._tokens: set[str] = set()
        self._add("tenants", {"name": "default", "client_ip_ranges": []})
        everybody = {name: ["*"] for name in LISTS}
        self._add("viewpolicies", {"name": "default", "tenant_id": 1, **everybody})
        pool = {"name": "tenants", "enabled": True, "subnet_cidr": 24, "role": "PROTOCOLS"}
        self._add("vippools", {**pool, "ip_ranges": [["203.0.113.10", "203.0.113.17"]]})

    # --- for judges: what a client may do, by the cluster's own state

    def list_readable(self, address: str) -> set[tuple[str, str]]:
        """Return (tenant, path) of every export that a client of this address may mount."""
        client = ipaddress.ip_address(address)
        tenants = self.rows["tenants"]
        of = {n for n, t in tenants.items() if _in_ranges(client, t["client_ip_ranges"])}
        return {
            (tenants[view["tenant_id"]]["name"], view["path"])
            for view in self.rows["views"].values()
            if view["tenant_id"] in (of or {1})  # the default one has whom no other lists
            and {"NFS", "NFS4"} & set(view["protocols"])
            and any(
                _is_host(client, host)
                for name in ("nfs_read_write", "nfs_read_only")
                for host in self.rows["viewpolicies"][view["policy_id"]][name]
            )
        }

    def find(self, noun: str, name: str) -> Body | None:
        return next((r for r in self.rows[noun].values() if r.get("name") == name), None)

    # --- requests

    def serve(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> HttpAnswer:
        """Answer one HTTP request; `headers` may have names in any case."""
        words = path.split("/", 3)  # "", "api", its version, the rest
        if len(words) < 4 or words[1] != "api":
            return make_answer(404, {"detail": "Not found."})
        sent = {name.lower(): value for name, value in headers.items()}
        try:
            document = json.loads(body) if body else None
        except ValueError:
            return make_answer(400, {"detail": "JSON parse error"})
        target = f"/{words[3]}?{urlencode(query)}"
        try:
            status, more, value = self.handle(
                method, target, document, sent.get("authorization", "")
            )
        except ConnectionResetError:
            return GONE
        return make_answer(status, value, more)

    def handle(self, method: str, target: str, body: Any, authorization: str) -> Answer:
        """Return (status, headers, JSON or None). `target` is relative to the API."""
        parts = urlsplit(target)
        words = [w for w in parts.path.split("/") if w]
        self.asked.append((method, parts.path))
        if self.refuse:
            status = self.refuse.pop(0)
            return status, {"retry-after": "1"}, {"detail": "try again"}
        if words == ["token"] and method == "POST":
            return self._log_in(body)
        if authorization.partition(" ")[2] not in self._tokens:
            return 401, {}, {"detail": "Given token not valid for any token type"}
        if words and words[0] == "vtasks" and len(words) == 2:
            return self._look_at_task(int(words[1]))
        if not words or words[0] not in NOUNS or len(words) > 2:
            return 404, {}, {"detail": "Not found."}
        query = {k: v[-1] for k, v in parse_qs(parts.query).items()}
        return self._serve(method, words, query, body)

    def expire_tokens(self) -> None:
        self._tokens.clear()

    def _log_in(self, body: Any) -> Answer:
        if not isinstance(body, Mapping) or body.get("password") != self.password:
            return 401, {}, {"detail": "No active account found with the given credentials"}
        token = f"token-{len(self.asked)}"
        self._tokens.add(token)
        return 200, {}, {"access": token, "refresh": "refresh"}

    def _serve(self, method: str, words: list[str], query: Mapping[str, str], body: Any) -> Answer:
        noun = words[0]
        if len(words) == 1:
            return self._list(noun, query) if method == "GET" else self._make(noun, body)
        number = int(words[1]) if words[1].isdigit() else -1
        row = self.rows[noun].get(number)
        if row is None:
            return 404, {}, {"detail": "Not found."}
        match method:
            case "GET":
                return 200, {}, copy.deepcopy(row)
            case "PATCH":
                return self._patch(noun, row, body)
            case "DELETE":
                return self._delete(noun, number, row)
        return 405, {}, {"detail": f"Method {method} not allowed."}

    def _list(self, noun: str, query: Mapping[str, str]) -> Answer:
        rows = [copy.deepcopy(r) for r in self.rows[noun].values()]
        if "tenant_id" in query:
            rows = [r for r in rows if str(r.get("tenant_id")) == query["tenant_id"]]
        if noun == "quotas":
            for row in rows:
                row["used_capacity"] = self._count_used(row)
        total = len(rows)
        cut = rows[:-1] if noun in self.cut else rows
        if not self.pages_of and noun not in self.cut:
            return 200, {}, cut
        size = self.pages_of or len(cut) or 1
        page = int(query.get("page", "1"))
        shown = cut[(page - 1) * size : page * size]
        more = page * size < len(cut)
        following = f"https://vms/api/v5/{noun}/?page={page + 1}" if more else None
        return 200, {}, {"count": total, "next": following, "previous": None, "results": shown}

    def _count_used(self, quota: Body) -> int:
        tenant = self.rows["tenants"].get(quota["tenant_id"], {}).get("name")
        return self.files.get((str(tenant), quota["path"]), 0)

    def _make(self, noun: str, body: Any) -> Answer:
        if not isinstance(body, dict):
            return 400, {}, {"detail": "JSON parse error"}
        problem = self._find_problem(noun, body, None)
        if problem:
            return 400, {}, {"detail": problem}
        row = self._add(noun, body)
        return self._done("POST", f"/{noun}/", body, (201, {}, copy.deepcopy(row)))

    def _patch(self, noun: str, row: Body, body: Any) -> Answer:
        problem = self._find_problem(noun, {**row, **body}, row)
        if problem:
            return 400, {}, {"detail": problem}
        row.update(copy.deepcopy(body))
        shown = copy.deepcopy(row) if noun == "tenants" else None
        return self._done("PATCH", f"/{noun}/{row['id']}/", body, (200, {}, shown))

    def _delete(self, noun: str, number: int, row: Body) -> Answer:
        if noun == "tenants":
            if any(v["tenant_id"] == number for v in self.rows["views"].values()):
                return 400, {}, {"detail": "Tenant has views"}
            if any(tenant == row["name"] and size for (tenant, _), size in self.files.items()):
                return 400, {}, {"detail": "Tenant directory is not empty"}
            made = next(self._ids)
            task = {"id": made, "name": "tenant_delete", "state": "RUNNING"}
            self.tasks[made] = {**task, "messages": {}, "looks": 0, "ends": number}
            answer: Answer = (200, {}, {"async_task": task})
            return self._done("DELETE", f"/tenants/{number}/", None, answer)
        in_use = any(v["policy_id"] == number for v in self.rows["views"].values())
        if noun == "viewpolicies" and in_use:
            return 400, {}, {"detail": "Policy is in use"}
        del self.rows[noun][number]
        return self._done("DELETE", f"/{noun}/{number}/", None, (204, {}, None))

    def _look_at_task(self, number: int) -> Answer:
        task = self.tasks.get(number)
        if task is None:
            return 404, {}, {"detail": "Not found."}
        task["looks"] += 1
        if task["looks"] >= TASK_LOOKS and task["state"] == "RUNNING":
            task["state"] = "COMPLETED"
            ended = task["ends"]
            self.rows["tenants"].pop(ended, None)
            policies = self.rows["viewpolicies"]
            for one in [n for n, p in policies.items() if p.get("tenant_id") == ended]:
                del policies[one]
        return 200, {}, {k: v for k, v in task.items() if k not in ("looks", "ends")}

    def _done(self, method: str, path: str, body: Any, answer: Answer) -> Answer:
        self.log.append((method, path, copy.deepcopy(body)))
        for tell in self.on_change:
            tell()
        if self.lose:
            self.lose -= 1
            raise ConnectionResetError("the answer is lost")
        return answer

    def _add(self, noun: str, body: Body) -> Body:
        number = next(self._ids)
        row = {"id": number, "guid": f"{noun}-{number:08d}", **copy.deepcopy(body)}
        if noun == "tenants":
            row.setdefault("client_ip_ranges", [])
        if noun == "viewpolicies":
            for name in LISTS:
                row.setdefault(name, ["*"])
        if noun == "views":
            row.setdefault("protocols", ["NFS"])
        row.pop("create_dir", None)
        self.rows[noun][number] = row
        return row

    def _find_problem(self, noun: str, body: Body, old: Body | None) -> str:
        others = [r for r in self.rows[noun].values() if r is not old]
        if noun != "views" and any(r.get("name") == body.get("name") for r in others):
            return f"{noun}: name {body.get('name')} already exists"
        if noun == "tenants":
            for pair in body.get("client_ip_ranges") or []:
                for other in others:
                    if any(_overlap(pair, held) for held in other["client_ip_ranges"]):
                        return f"client_ip_ranges overlap with tenant {other['name']}"
        if noun == "views":
            if body.get("policy_id") not in self.rows["viewpolicies"]:
                return "Invalid policy_id"
            mine = [r for r in others if r.get("tenant_id") == body.get("tenant_id")]
            if any(r["path"] == body.get("path") for r in mine):
                return "View with this path already exists"
        return ""


def _in_ranges(client: Any, ranges: list[list[str]]) -> bool:
    return any(
        client.version == ipaddress.ip_address(a).version
        and ipaddress.ip_address(a) <= client <= ipaddress.ip_address(b)
        for a, b in ranges
    )


def _is_host(client: Any, host: str) -> bool:
    if host == "*":
        return True
    if "*" in host:
        fields = zip(str(client).split("."), host.split("."), strict=False)
        return all(wanted in ("*", had) for had, wanted in fields)
    try:
        return client in ipaddress.ip_network(host, strict=False)
    except ValueError:
        return False


def _overlap(one: list[str], other: list[str]) -> bool:
    a, b, c, d = (ipaddress.ip_address(x) for x in (*one, *other))
    return a.version == c.version and int(a) <= int(d) and int(c) <= int(b)

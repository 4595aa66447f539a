"""Fault rules in front of every simulated service: they disturb connections and change answers.

A rule selects requests by endpoint, path, method and headers (globs) and has one effect on them,
on all or on the first `count`. Rules count requests instead of using chance, so that a run replays
exactly. Faults of parts and machines are in `site.part_faults`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from multidict import CIMultiDict

from provisioner.integrations.sim.redfish.redfish_tree import GONE, JSON_TYPE, Answer

# ------------------------------------------------------------------------------
# Faults that only a load test shows, on one node or between several; no inventory shows them.


# name, number in the list of faults, what happens
ALL = (
    ("gpu_wrong_results", "L1", "a GPU computes wrong results under load"),
    ("gpu_slow_under_load", "L2", "a GPU is a sixth slower under load than its siblings"),
    ("hbm_slow", "L3", "a GPU's memory has half its bandwidth"),
    ("loopback_slow", "L4", "a rail's NIC copies at half the speed of its port"),
    ("drive_errors", "L5", "a drive's reads end with an error"),
    ("memory_flips_bits", "L6", "the host's memory flips bits under load"),
    ("cable_lossy", "F1", "a rail's cable loses packets: slow with every partner"),
    ("slow_among_nodes", "F2", "a node is slow on all rails, with every partner"),
    ("corrupts_among_nodes", "F3", "what a node sends on rail 2 arrives with wrong values"),
)


Serve = Callable[[], Answer]

HUGE_BYTES = 100 * 1024 * 1024
NO_HEADERS: Mapping[str, str] = {}


class BadRule(ValueError):
    """A rule that cannot be parsed; the message names the wrong field."""


@dataclass
class Rule:
    """One fault. `seen` counts the matching requests, `done` those that it changed."""

    name: str
    action: str  # a key of ACTIONS
    endpoint: str = "*"  # "su0-n00/host", "*/NIC_*", "leaf-su0-r3"
    path: str = "*"
    method: str = "*"
    value: Any = None  # the action's argument
    count: int | None = None  # requests it changes; None: all
    skip: int = 0  # matching requests that pass before the first change
    every: int = 1  # then only each nth
    status: int = 0  # only answers with this status; 0: all
    # headers, lowercase -> glob; "" matches an absent one. A server adds two of its own: ":nth",
    # the request's number on its connection, and ":open", this endpoint's connections ("007")
    when: Mapping[str, str] = field(default_factory=dict)
    seen: int = 0
    done: int = 0

    def should_change(
        self, endpoint: str, method: str, path: str, headers: Mapping[str, str]
    ) -> bool:
        """Count this request; return whether it is changed."""
        if self.count is not None and self.done >= self.count:
            return False
        if not (
            fnmatchcase(path, self.path)
            and fnmatchcase(method, self.method)
            and fnmatchcase(endpoint, self.endpoint)
            and all(fnmatchcase(headers.get(k, ""), v) for k, v in self.when.items())
        ):
            return False
        self.seen += 1
        return self.seen > self.skip and (self.seen - self.skip - 1) % self.every == 0


@dataclass
class FaultRules:
    """All rules in force. Without rules, a request costs one comparison."""

    rules: list[Rule] = field(default_factory=list)

    def add(self, rule: Rule) -> None:
        """Put a rule in force. Raises `BadRule` for an unknown action."""
        if rule.action not in ACTIONS:
            raise BadRule(f"action: {rule.action!r:.40} is none of {', '.join(sorted(ACTIONS))}")
        if rule.every < 1 or rule.skip < 0:
            raise BadRule("every, skip: must be positive")
        self.rules.append(rule)

    def remove(self, name: str) -> int:
        """Remove all rules with this name; return how many there were."""
        before = len(self.rules)
        self.rules = [r for r in self.rules if r.name != name]
        return before - len(self.rules)

    def apply_rules(
        self,
        endpoint: str,
        method: str,
        path: str,
        serve: Serve,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Answer:
        """Return the answer after all rules; `serve` runs unless a rule replaces the answer."""
        if not self.rules:
            return serve()
        path = path.rstrip("/") or "/"
        fitting = [r for r in self.rules if r.should_change(endpoint, method, path, headers)]
        replacing = next((r for r in fitting if r.action in INSTEAD), None)
        answer = _instead(replacing) if replacing is not None else serve()
        if replacing is not None:
            replacing.done += 1
        for rule in fitting:
            if rule is replacing or (rule.status and rule.status != answer.status):
                continue
            if rule.action not in INSTEAD:
                answer = ACTIONS[rule.action](answer, rule.value)
                rule.done += 1
        return answer


def read_rules(listed: Iterable[Mapping[str, Any]]) -> list[Rule]:
    """Parse rules from plain data. Raises `BadRule` for an unknown field or a wrong type."""
    kinds = {
        "name": str,
        "action": str,
        "endpoint": str,
        "path": str,
        "method": str,
        "value": object,
        "count": int,
        "skip": int,
        "every": int,
        "status": int,
        "when": dict,
    }
    rules = []
    for entry in listed:
        for key, value in entry.items():
            if key not in kinds or not isinstance(value, kinds[key]):
                raise BadRule(f"{key}: unknown, or not of its type")
        if "name" not in entry or "action" not in entry:
            raise BadRule("name, action: both are needed")
        rules.append(Rule(**entry))
    return rules


# --- the actions of rules

INSTEAD = frozenset({"replace", "drop"})  # the service never sees the request


def _instead(rule: Rule) -> Answer:
    if rule.action == "drop":
        return GONE
    fields = rule.value if isinstance(rule.value, dict) else {"status": 200, "body": rule.value}
    body = fields.get("body")
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    headers = {"Content-Type": fields.get("type", JSON_TYPE), **fields.get("headers", {})}
    return Answer(int(fields.get("status", 200)), headers, b"" if body is None else raw)


def _merged(target: Any, change: Any) -> Any:
    """JSON merge patch (RFC 7396), but null is a value here, because BMCs send null."""
    if not isinstance(change, dict) or not isinstance(target, dict):
        return change
    return {**target, **{k: _merged(target.get(k), v) for k, v in change.items()}}


def _merge(answer: Answer, value: Any) -> Answer:
    try:
        body = json.loads(answer.body or b"{}")
    except ValueError:
        return answer
    return answer._replace(body=json.dumps(_merged(body, value)).encode())


def _headers(answer: Answer, value: Any) -> Answer:
    """Set headers; null removes one, a list repeats it; "{}" stands for the previous value."""
    changes = {str(k): v for k, v in value.items()}
    names = {k.lower() for k in changes}
    headers = CIMultiDict((k, v) for k, v in answer.headers.items() if k.lower() not in names)
    old = {k.lower(): v for k, v in answer.headers.items()}
    for name, new in changes.items():
        for one in new if isinstance(new, list) else [] if new is None else [new]:
            headers.add(name, str(one).replace("{}", old.get(name.lower(), "")))
    return answer._replace(headers=headers)


def _substitute(answer: Answer, value: Any) -> Answer:
    old, new = value
    return answer._replace(body=answer.body.replace(str(old).encode(), str(new).encode()))


def _strings(value: Any) -> Any:
    """Every number as a string."""
    if isinstance(value, dict):
        return {k: _strings(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_strings(v) for v in value]
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _stringify(answer: Answer, _value: Any) -> Answer:
    try:
        return answer._replace(body=json.dumps(_strings(json.loads(answer.body))).encode())
    except ValueError:
        return answer


def _repeat_members(answer: Answer, _value: Any) -> Answer:
    try:
        body = json.loads(answer.body)
    except ValueError:
        return answer
    if isinstance(body, dict) and isinstance(body.get("Members"), list):
        body["Members"] = body["Members"] + body["Members"][:1]
    return answer._replace(body=json.dumps(body).encode())


def _more_members(answer: Answer, value: Any) -> Answer:
    """A collection lists members that do not exist: `value` contains their paths."""
    try:
        body = json.loads(answer.body)
    except ValueError:
        return answer
    if isinstance(body, dict) and isinstance(body.get("Members"), list):
        body["Members"] = body["Members"] + [{"@odata.id": str(path)} for path in value]
    return answer._replace(body=json.dumps(body).encode())


def _garbage(answer: Answer, _value: Any) -> Answer:
    """As many bytes as before, but random."""
    noise = bytes((i * 167 + 13) % 256 for i in range(max(len(answer.body), 64)))
    return answer._replace(body=noise)


ACTIONS: dict[str, Callable[[Answer, Any], Answer]] = {
    "replace": lambda answer, _v: answer,  # value: {status, body, type, headers}
    "drop": lambda answer, _v: answer,  # the connection ends before the service gets the request
    "drop_after": lambda _a, _v: GONE,  # ... after it was carried out
    "latency": lambda answer, v: answer._replace(delay_s=float(v)),  # seconds
    "status": lambda answer, v: answer._replace(status=int(v)),
    "break": lambda answer, v: answer._replace(cut=int(v)),  # the connection ends after v bytes
    "truncate": lambda answer, v: answer._replace(
        body=answer.body[: int(v)]
    ),  # a whole, short body
    "merge": _merge,
    "headers": _headers,
    "substitute": _substitute,  # value: [old, new]
    "stringify": _stringify,
    "repeat_members": _repeat_members,
    "more_members": _more_members,  # value: paths
    "garbage": _garbage,
    "pad": lambda answer, v: answer._replace(body=answer.body + b" " * int(v or HUGE_BYTES)),
}

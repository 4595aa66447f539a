"""Conditions of custom resources by the conventions of Kubernetes. Pure.

Each resource has two: `Accepted`, whether the daemon took the specification, and `Ready`, whether
it is reality. A refusal stands in the message with its remedy, and in full in `blockers`.
https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MESSAGE_MAX = 1000
BLOCKERS_MAX = 16
ACCEPTED = "Accepted"
READY = "Ready"


@dataclass(frozen=True)
class Refusal:
    """The daemon's refusal: a word of its closed list, a sentence and the remedy."""

    reason: str
    detail: str
    unblock: str
    blockers: tuple[Mapping[str, str], ...] = ()

    def format_message(self) -> str:
        """Return the sentence with its remedy."""
        return f"{self.detail} Unblock: {self.unblock}" if self.unblock else self.detail


@dataclass(frozen=True)
class Condition:
    """One condition without its times."""

    kind: str
    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result of one reconciliation: conditions, fields of the status, and open requests."""

    conditions: tuple[Condition, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    blockers: tuple[Mapping[str, str], ...] = ()
    gone: bool = False  # of a deletion: nothing is left to wait for


def refuse(refusal: Refusal, fields: Mapping[str, Any] | None = None) -> Outcome:
    """Return the outcome of a specification that the daemon does not take."""
    reason = write_camel(refusal.reason)
    return Outcome(
        (
            Condition(ACCEPTED, "False", reason, refusal.format_message()),
            Condition(READY, "False", reason, refusal.format_message()),
        ),
        fields or {},
        refusal.blockers,
    )


def accept(ready: Condition, fields: Mapping[str, Any] | None = None) -> Outcome:
    """Return the outcome of a specification that the daemon took."""
    return Outcome((Condition(ACCEPTED, "True", "Accepted"), ready), fields or {})


def wait(reason: str, message: str, fields: Mapping[str, Any] | None = None) -> Outcome:
    """Return the outcome of a specification that is taken and not yet reality."""
    return accept(Condition(READY, "False", reason, message), fields)


def report_unknown(message: str) -> Outcome:
    """Return the outcome while the daemon does not answer: the earlier state may still hold."""
    unblock = "Unblock: look at the daemon, its address, its certificate and the operator's token."
    text = f"{message} {unblock}"
    return Outcome((Condition(READY, "Unknown", "Unreachable", text),))


def build_status(
    standing: Mapping[str, Any], outcome: Outcome, generation: int, now: str
) -> dict[str, Any]:
    """Return the fields of the status that change; null removes a field.

    `standing`: the status as it is. A condition keeps its time until its status changes.
    """
    before = {c["type"]: c for c in standing.get("conditions", ())}
    after = dict(before)
    for condition in outcome.conditions:
        old = before.get(condition.kind, {})
        same = old.get("status") == condition.status
        after[condition.kind] = {
            "type": condition.kind,
            "status": condition.status,
            "observedGeneration": generation,
            "lastTransitionTime": old["lastTransitionTime"] if same else now,
            "reason": condition.reason,
            "message": condition.message[:MESSAGE_MAX],
        }
    fields = {
        **outcome.fields,
        "observedGeneration": generation,
        "conditions": [after[kind] for kind in sorted(after)],
        "blockers": [dict(b) for b in outcome.blockers[:BLOCKERS_MAX]] or None,
    }
    return {k: v for k, v in fields.items() if standing.get(k) != v}


def read_refusal(problem: Mapping[str, Any]) -> Refusal:
    """Return the refusal of a problem document (RFC 9457) or of an operation that failed."""
    fields = ("reason", "subject", "detail", "unblock")
    blockers = tuple(
        {name: str(b.get(name, ""))[:MESSAGE_MAX] for name in fields}
        for b in _list(problem.get("blockers"))
    )
    if blockers:
        first = blockers[0]
        detail = f"{first['subject']}: {first['detail']}."
        return Refusal(first["reason"], detail, first["unblock"], blockers)
    reason = str(problem.get("type", "")).rpartition(":")[2] or str(problem.get("state", "failed"))
    detail = str(problem.get("detail") or problem.get("note") or problem.get("title", ""))
    return Refusal(reason, detail, str(problem.get("unblock", "")))


def write_camel(word: str) -> str:
    """Return a word of the API as a reason of a condition: "check_failed" as "CheckFailed"."""
    parts = (p for p in word.replace("-", "_").split("_") if p.isalnum() and p.isascii())
    camel = "".join(p[:1].upper() + p[1:] for p in parts)
    return camel if camel[:1].isalpha() else "Refused"


def _list(value: Any) -> Sequence[Mapping[str, Any]]:
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []

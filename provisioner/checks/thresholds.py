"""Looks thresholds up for one node: a site's own, then the published one, then a learned one.

A check that finds none is skipped with that reason, and a skipped check is never a pass.
"""

from __future__ import annotations

from provisioner.checks.check import CheckContext, NotJudged
from provisioner.checks.threshold_data import ANY, THRESHOLDS, Bound, Limit, Limits


def find(context: CheckContext, name: str) -> Limit:
    """The limit that holds for a node, with its source; value None: there is none yet.

    A learned value stands in only where nobody gives one: a fleet that is bad as a whole must not
    lower what a vendor promises.
    """
    given = _first(context.overrides.get(name, {}), context)
    published = _first(THRESHOLDS[name].values, context)
    found = given if given is not None else published
    if found is not None and found.value is not None:
        return found
    if name in context.learned:
        value, how = context.learned[name]
        return Limit(value=value, source=f"learned: {how}"[:300], learned=True)
    return found or Limit(
        value=None, source=f"none for GPU model {context.gpu_model or 'unknown'!r}"
    )


def floor(context: CheckContext, name: str) -> float:
    """The value that holds for a node; `NotJudged` if there is none yet."""
    limit = find(context, name)
    if limit.value is None:
        what = f"{THRESHOLDS[name].about} on {context.gpu_model or 'an unknown GPU model'}"
        remedy = "learned baseline needed" if limit.learned else "give one in a thresholds file"
        raise NotJudged(f"no published floor of {what} ({name}); {remedy}")
    return limit.value


def misses(context: CheckContext, name: str, measured: float) -> tuple[str, str] | None:
    """None if a figure is good enough, else (measured, wanted) for a person.

    Raises `NotJudged` if there is no threshold yet.
    """
    wanted, row = floor(context, name), THRESHOLDS[name]
    good = measured >= wanted if row.bound is Bound.MIN else measured <= wanted
    if good:
        return None
    return f"{_figure(measured)} {row.unit}", f"{row.bound} {_figure(wanted)} {row.unit}"


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 1e5 else f"{value:.6g}"


def _first(limits: Limits, context: CheckContext) -> Limit | None:
    for key in (context.profile, context.gpu_model, ANY):
        if key and key in limits:
            return limits[key]
    return None


def markdown() -> str:
    """The table in docs/thresholds.md, from the data itself."""
    rows = ["| threshold | unit | for | value | source |", "|---|---|---|---|---|"]
    for name, row in THRESHOLDS.items():
        for model, limit in row.values.items():
            value = "unknown, learned from the fleet"
            if limit.value is not None:
                value = f"{row.bound} {limit.value:,.10g}".replace(",", " ")
            rows.append(f"| `{name}` | {row.unit} | {model} | {value} | {limit.source} |")
    return "\n".join(rows) + "\n"

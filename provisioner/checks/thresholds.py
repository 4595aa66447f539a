"""Looks up thresholds for one node: the site's own, then the published one, then a learned one.

A check without a threshold is skipped with that reason, and a skipped check is never a pass.
"""

from __future__ import annotations

from provisioner.checks.check import CheckContext, NotJudged
from provisioner.checks.threshold_data import ANY, THRESHOLDS, Bound, Limit, Limits


def find(context: CheckContext, name: str) -> Limit:
    """Return the limit that applies to a node, with its source; its value is None if there is none.

    A learned value applies only where no value is published or set, or where the published one is
    coarse and the learned one is stricter: a fleet that is bad as a whole must not lower a figure.
    """
    own = _find_first(context.overrides.get(name, {}), context)
    published = _find_first(THRESHOLDS[name].values, context)
    chosen = own if own is not None else published
    if chosen is not None and chosen.value is not None and not chosen.learned:
        return chosen
    if name in context.learned:
        value, how = context.learned[name]
        if chosen is not None and chosen.value is not None and own is None:
            stricter = max if THRESHOLDS[name].bound is Bound.MIN else min
            if stricter(value, chosen.value) == chosen.value:
                return chosen
        return Limit(value=value, source=f"learned: {how}"[:300], learned=True)
    return chosen or Limit(
        value=None, source=f"none for GPU model {context.gpu_model or 'unknown'!r}"
    )


def require_threshold(context: CheckContext, name: str) -> float:
    """Return the value that applies to a node. Raises `NotJudged` if there is none yet."""
    limit = find(context, name)
    if limit.value is None:
        subject = f"{THRESHOLDS[name].about} on {context.gpu_model or 'an unknown GPU model'}"
        remedy = "learned baseline needed" if limit.learned else "give one in a thresholds file"
        raise NotJudged(f"no published floor of {subject} ({name}); {remedy}")
    return limit.value


def check_threshold(context: CheckContext, name: str, measured: float) -> tuple[str, str] | None:
    """Return None if a figure is good enough, else (measured, required) as text for a person.

    Raises `NotJudged` if there is no threshold yet.
    """
    required = require_threshold(context, name)
    row = THRESHOLDS[name]
    good = measured >= required if row.bound is Bound.MIN else measured <= required
    if good:
        return None
    return (
        f"{_format_figure(measured)} {row.unit}",
        f"{row.bound} {_format_figure(required)} {row.unit}",
    )


def _format_figure(value: float) -> str:
    return f"{value:.0f}" if value >= 1e5 else f"{value:.6g}"


def _find_first(limits: Limits, context: CheckContext) -> Limit | None:
    for key in (context.profile, context.gpu_model, ANY):
        if key and key in limits:
            return limits[key]
    return None


def render_markdown() -> str:
    """Return the table of docs/thresholds.md, made from the data itself."""
    rows = ["| threshold | unit | for | value | source |", "|---|---|---|---|---|"]
    for name, row in THRESHOLDS.items():
        for model, limit in row.values.items():
            value = "unknown, learned from the fleet"
            if limit.value is not None:
                value = f"{row.bound} {limit.value:,.10g}".replace(",", " ")
            rows.append(f"| `{name}` | {row.unit} | {model} | {value} | {limit.source} |")
    return "\n".join(rows) + "\n"

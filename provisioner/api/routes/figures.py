"""Routes of figures for the console: settings, thresholds, measured values, the journal's chain."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.api.route import VIEWERS, Route
from provisioner.checks.threshold_data import THRESHOLDS
from provisioner.model.base import Record
from provisioner.model.cohort import Sample
from provisioner.planning.certification.cohort import Spread, describe_spreads

SAMPLES_MAX = 500  # newest samples of each profile: a node has some 2,000 figures
LOGIN = re.compile(r"(?<=//)[^/@\s]*@")  # user and password within a URL


class SettingView(Record):
    """One setting in force."""

    name: str
    value: str
    default: str
    changed: bool
    about: str


class SettingList(Record):
    """All settings of the process that answers, by name."""

    items: tuple[SettingView, ...]


class ThresholdView(Record):
    """One value of one threshold, and its source."""

    name: str
    about: str
    unit: str
    bound: str
    applies_to: str = Field(description="GPU model, profile, or any.")
    value: float | None = Field(description="null: none is published; it is learned or given.")
    source: str
    own: bool = Field(description="The site's own value, which takes precedence.")


class Measurements(Record):
    """Thresholds, and the distribution of each measured value over the newest samples."""

    thresholds: tuple[ThresholdView, ...]
    spreads: tuple[Spread, ...]
    samples_max: int = Field(description="Newest samples of each profile that were read.")


class JournalCheck(Record):
    """Whether the journal's chain of digests holds."""

    intact: bool
    rows: int
    head: str
    broken_at: int | None
    problem: str


async def list_settings(ask: Ask) -> Reply:
    """Return the settings in force; no setting holds a secret."""
    settings = ask.parts.settings
    defaults = type(settings)()
    items = []
    for name, field in sorted(type(settings).model_fields.items()):
        value = getattr(settings, name)
        default = getattr(defaults, name)
        items.append(
            SettingView(
                name=name,
                value=_format_value(value),
                default=_format_value(default),
                changed=value != default,
                about=field.description or "",
            )
        )
    return Reply(SettingList(items=tuple(items)))


def _format_value(value: Any) -> str:
    if isinstance(value, tuple | list | frozenset):
        return ", ".join(_format_value(v) for v in value)
    return LOGIN.sub("", str(value))


async def show_measurements(ask: Ask) -> Reply:
    """Return thresholds, and how the fleet's measured values are distributed."""
    store = ask.parts.store
    profiles = sorted({n.profile for n in await store.nodes.list() if n.profile})
    samples: list[Sample] = []
    for profile in profiles:
        samples += await store.cohorts.list_samples(profile, None, SAMPLES_MAX)
    baselines = await store.cohorts.list_baselines("")
    spreads = await asyncio.to_thread(describe_spreads, samples, baselines)
    view = Measurements(thresholds=_list_thresholds(ask), spreads=spreads, samples_max=SAMPLES_MAX)
    return Reply(view)


def _list_thresholds(ask: Ask) -> tuple[ThresholdView, ...]:
    rows = []
    for name, threshold in THRESHOLDS.items():
        for own, values in ((True, ask.parts.thresholds.get(name, {})), (False, threshold.values)):
            for key, limit in values.items():
                rows.append(
                    ThresholdView(
                        name=name,
                        about=threshold.about,
                        unit=threshold.unit,
                        bound=threshold.bound.value,
                        applies_to=key,
                        value=limit.value,
                        source=limit.source,
                        own=own,
                    )
                )
    return tuple(rows)


async def verify_journal(ask: Ask) -> Reply:
    """Follow the chain of digests over the whole live journal."""
    check = await ask.parts.store.journal.verify()
    view = JournalCheck(
        intact=check.intact,
        rows=check.rows,
        head=check.head,
        broken_at=check.broken_at,
        problem=check.problem,
    )
    return Reply(view)


ROUTES = (
    Route(
        "GET",
        "/settings",
        "list_settings",
        "fleet",
        "List the settings in force, each with its default and meaning.",
        VIEWERS,
        list_settings,
        {200: SettingList},
    ),
    Route(
        "GET",
        "/measurements",
        "show_measurements",
        "checks",
        "Show thresholds, and how the fleet's measured values are distributed.",
        VIEWERS,
        show_measurements,
        {200: Measurements},
        heavy=True,
    ),
    Route(
        "GET",
        "/audit/verification",
        "verify_audit",
        "events",
        "Follow the journal's chain of digests from its first row to its last.",
        VIEWERS,
        verify_journal,
        {200: JournalCheck},
        heavy=True,
    ),
)

"""Routes that compare nodes with targets and with one another: drift, pending resets, cohorts."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import build_refusal, refuse_expression, refuse_missing
from provisioner.api.route import VIEWERS, Nothing, Route
from provisioner.checks.threshold_data import THRESHOLDS
from provisioner.control.campaigns.selecting import list_under_way, select_nodes
from provisioner.model.base import Record
from provisioner.model.campaign import CampaignRow, ReleasePin
from provisioner.model.cohort import Baseline, Sample
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, State
from provisioner.planning.campaigns import release_drift
from provisioner.planning.campaigns.fleet_fields import FleetVersions
from provisioner.planning.campaigns.release_drift import (
    DebtLine,
    DriftLine,
    DriftRow,
    Outline,
    VersionCount,
    outline_of,
)
from provisioner.planning.certification.certification import DAY_S
from provisioner.planning.certification.cohort import (
    Outlier,
    Policy,
    Spread,
    describe_spreads,
    find_outliers,
)
from provisioner.planning.certification.fault_rates import (
    FaultSuspect,
    find_suspects,
    name_versions,
)
from provisioner.planning.certification.regression import (
    Comparison,
    RegressionPolicy,
    compare_metrics,
)
from provisioner.planning.path.history import build_history
from provisioner.ports import DamagedRow

# ------------------------------------------------------------------------------
# Routes of figures for the console: settings, thresholds, measured values, the journal's chain.


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
        broken_at=check.broken_at if type(check.broken_at) is int else None,  # a damaged number
        problem=check.problem,
    )
    return Reply(view)


FIGURES_ROUTES = (
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


log = logging.getLogger(__name__)
Read = TypeVar("Read")

TAG = "fleet"
FLEET_REPORTS_SAMPLES_MAX = 200_000
DIGITS_SHOWN = 12  # characters of a version set's digest, short enough to type


class Chosen(Record):
    """The selection of nodes."""

    select: str = Field(
        "all", max_length=2000, description="Expression that selects nodes: rack=su0-*."
    )


class ChosenDrift(Chosen):
    """The selection of nodes, and how many are named."""

    named: int | None = Field(
        None, ge=0, le=65_536, description="Nodes at most in `items`; without: all."
    )


class DriftList(Record):
    """Nodes whose versions differ from their target, and the same by component."""

    items: tuple[DriftLine, ...]
    table: tuple[DriftRow, ...] = Field(
        (), description="Each component that differs, with its nodes: what most run first."
    )
    total: int = Field(0, description="Nodes that differ.")


class VersionList(Record):
    """Every running version of every component, with the nodes that run it."""

    items: tuple[VersionCount, ...]


class DebtList(Record):
    """Firmware that is written and not active yet, and expired certificates of released nodes."""

    items: tuple[DebtLine, ...]


class CohortQuery(Record):
    """The selection of nodes that are compared."""

    profile: str = Field("", max_length=128, description="Select nodes of this profile.")


class ComparisonQuery(CohortQuery):
    """The version sets that are compared, by the beginning of their digests."""

    before: str = Field(
        "",
        max_length=64,
        description="Version set, as cohorts are listed; empty: the last one measured before.",
    )
    after: str = Field(
        "",
        max_length=64,
        description="Version set, as cohorts are listed; empty: the one measured last.",
    )


class Cohort(Record):
    """Comparable nodes: one profile and one set of versions."""

    profile: str
    versions: str
    nodes: int
    sound: int = Field(description="Nodes without a fault; floors are learned from them only.")


class Cohorts(Record):
    """The fleet's comparison."""

    cohorts: tuple[Cohort, ...]
    baselines: tuple[Baseline, ...]
    outliers: tuple[Outlier, ...]


class Comparisons(Record):
    """Each metric before and after a change of versions."""

    items: tuple[Comparison, ...]


async def list_drift(ask: Ask) -> Reply:
    """Return the nodes whose release or versions are not those of their target."""
    fleet = await _read_versions(ask)
    found = await asyncio.to_thread(release_drift.list_differing, *fleet)
    table = await asyncio.to_thread(release_drift.tabulate_drift, found)
    shown = found if ask.query.named is None else found[: ask.query.named]
    lines = tuple(release_drift.build_line(one, fleet[3], ask.now) for one in shown)
    return Reply(DriftList.model_construct(items=lines, table=table, total=len(found)))


async def list_versions(ask: Ask) -> Reply:
    """Return the running versions of the fleet, counted against the pins."""
    fleet = await _read_versions(ask)
    lines = await asyncio.to_thread(release_drift.count_versions, *fleet)
    return Reply(VersionList(items=lines))


async def _read_versions(
    ask: Ask,
) -> tuple[
    Sequence[Outline],
    FleetVersions,
    Matrix,
    Sequence[ReleasePin],
    Mapping[str, tuple[CampaignRow, str]],
    float,
]:
    store = ask.parts.store
    if ask.query.select.strip() == "all":  # no record of a node is parsed for it
        columns = await store.nodes.list_columns(None)
        nodes = [Outline(c[0], c[2], *c[4:]) for c in columns]
    else:
        nodes = [outline_of(node) for node in await _select(ask)]
    versions = FleetVersions(*await store.evidence.list_versions())
    pins = await store.campaigns.list_pins()
    return nodes, versions, ask.parts.matrix, pins, await list_under_way(store.campaigns), ask.now


async def list_debt(ask: Ask) -> Reply:
    """Return staged versions with the reset that activates them, and certificates that lapsed."""
    store = ask.parts.store
    nodes, inventories, unread = await _read_chosen(ask)
    entries, lost = await _read_each(nodes, lambda n: store.operations.list_entries(n.id))
    staged = {name: build_history(listed, "").staged for name, listed in entries.items()}
    serving = [n for n in nodes if n.state is State.RELEASED]
    held, damaged = await _read_each(
        serving, lambda n: store.evidence.get_certificate(n.certificate)
    )
    revoked = {r.certificate for r in await store.evidence.list_revocations()}
    certificates = {n: c for n, c in held.items() if c is not None}
    lapsed = release_drift.find_lapsed_certificates(
        serving, certificates, revoked, ask.now, damaged
    )
    unknown = release_drift.list_unread({"inventory": unread, "ledger": lost})
    debt = release_drift.find_debt(inventories, staged)
    return Reply(DebtList(items=(*debt, *lapsed, *unknown)))


async def _select(ask: Ask) -> tuple[Node, ...]:
    """Return the chosen nodes. Raises Refused where the expression cannot be read."""
    store = ask.parts.store
    nodes = await store.nodes.list()
    try:
        return await select_nodes(
            ask.query.select, nodes, store, ask.parts.matrix, ask.now, "select"
        )
    except InputError as error:
        raise refuse_expression(error, "select") from None


async def _read_chosen(ask: Ask) -> tuple[tuple[Node, ...], dict[str, Inventory], frozenset[str]]:
    """Return the nodes, their inventories, and those whose inventory is a damaged row."""
    store = ask.parts.store
    nodes = await _select(ask)
    read, damaged = await _read_each(nodes, lambda n: store.evidence.get_inventory(n.id))
    inventories = {name: inventory for name, inventory in read.items() if inventory is not None}
    return nodes, inventories, damaged


async def _read_each(
    nodes: Iterable[Node], read: Callable[[Node], Awaitable[Read]]
) -> tuple[dict[str, Read], frozenset[str]]:
    """Return what was read, by node, and the nodes whose row is damaged: the store names those."""
    answers: dict[str, Read] = {}
    damaged: set[str] = set()
    for node in nodes:
        try:
            answers[node.id] = await read(node)
        except DamagedRow as error:
            log.error("%s: %s", node.id, error)
            damaged.add(node.id)
    return answers, frozenset(damaged)


class SuspectQuery(Nothing):
    """The time whose faults are weighed."""

    days: int = Field(90, ge=1, le=730, description="Days until now.")


class Suspects(Record):
    """What the fleet's faults accuse."""

    items: tuple[FaultSuspect, ...] = Field(
        description="Versions, places and parts, the likeliest first."
    )
    faults: int = Field(description="Faults of nodes that served or were free.")
    node_days: float = Field(description="Days that nodes served or were free, summed.")


async def show_cohorts(ask: Ask) -> Reply:
    """Return cohorts, the learned floors, and nodes that differ from their cohort."""
    samples, learned = await _read_samples(ask)
    every = Counter((s.profile, s.versions[:DIGITS_SHOWN]) for s in samples)
    sound = Counter((s.profile, s.versions[:DIGITS_SHOWN]) for s in samples if s.sound)
    cohorts = tuple(
        Cohort(profile=key[0], versions=key[1], nodes=every[key], sound=sound[key])
        for key in sorted(every)
    )
    worst = tuple(find_outliers([s for s in samples if s.sound], Policy()))
    return Reply(Cohorts(cohorts=cohorts, baselines=tuple(learned), outliers=worst))


async def compare_cohorts(ask: Ask) -> Reply:
    """Return whether a change of versions made nodes worse, each node compared with itself."""
    samples, _ = await _read_samples(ask)
    after = ask.query.after or _find_last(_leave_out(samples, ask.query.before))
    last = max((s.taken_at for s in samples if s.versions.startswith(after)), default=0.0)
    earlier_samples = [s for s in _leave_out(samples, after) if s.taken_at <= last]
    before = ask.query.before or _find_last(earlier_samples)
    if not (before and after):  # nodes were measured with one set at most
        return Reply(Comparisons(items=()))
    earlier = _measured(samples, before)
    items = compare_metrics(earlier, _measured(samples, after), RegressionPolicy())
    return Reply(Comparisons(items=items))


async def list_suspects(ask: Ask) -> Reply:
    """Return which versions, places and parts make nodes fail, as far as faults tell."""
    store = ask.parts.store
    stays = await store.usage.list_stays(ask.now - ask.query.days * DAY_S, ask.now)
    _, listed = await store.evidence.list_versions()
    models = await store.evidence.list_models()
    marks = {n.id: list_marks(n, models.get(n.id, ())) for n in await store.nodes.list()}
    sets = {digest: name_versions(versions) for digest, versions in listed.items()}
    found = await asyncio.to_thread(find_suspects, stays, sets, marks)
    days = sum(stay.ends_at - stay.begins_at for stay in stays) / DAY_S
    return Reply(Suspects(items=found, faults=sum(stay.failed for stay in stays), node_days=days))


def list_marks(node: Node, models: Sequence[str]) -> frozenset[str]:
    """Return what may make a node fail beside its versions, as expressions name it: its rack,
    feeds and leaves, the models of its parts, and what people say of it by tags.
    """
    named = {
        "rack": [node.location.rack] if node.location.rack else [],
        "pdu": [outlet.pdu for outlet in node.outlets],
        "leaf": [port.switch for port in node.ports],
        "model": models,
        "tag": node.tags,
    }
    return frozenset(f"{kind}={value}" for kind, values in named.items() for value in values)


def _leave_out(samples: Sequence[Sample], versions: str) -> Sequence[Sample]:
    return [s for s in samples if not (versions and s.versions.startswith(versions))]


def _find_last(samples: Sequence[Sample]) -> str:
    """Return the version set that was measured last; empty: there is none."""
    return max(samples, key=lambda s: s.taken_at).versions if samples else ""


def _measured(samples: Sequence[Sample], versions: str) -> dict[str, dict[str, float]]:
    mine = [s for s in samples if s.versions.startswith(versions)]
    if not mine or len({s.versions for s in mine}) > 1:
        problem = "No version set begins so" if not mine else "Several version sets begin so"
        raise build_refusal(400, "versions", problem, "See `provisioner cohort show`.", versions)
    return {s.node: dict(s.measured) for s in mine}


async def _read_samples(ask: Ask) -> tuple[list[Sample], Sequence[Baseline]]:
    store = ask.parts.store
    profile = ask.query.profile
    profiles = {n.profile for n in await store.nodes.list() if n.profile}
    if profile and profile not in profiles:
        raise refuse_missing("profile among the nodes")
    samples: list[Sample] = []
    for name in [profile] if profile else sorted(profiles):
        samples += await store.cohorts.list_samples(name, None, FLEET_REPORTS_SAMPLES_MAX)
    return samples, await store.cohorts.list_baselines(profile)


ROUTES = (
    Route(
        "GET",
        "/drift",
        "list_drift",
        TAG,
        "List nodes whose versions differ from their campaign, pin, or the fleet's release.",
        VIEWERS,
        list_drift,
        {200: DriftList},
        query=ChosenDrift,
        heavy=True,
    ),
    Route(
        "GET",
        "/versions",
        "list_versions",
        TAG,
        "List the running versions of each component, counted against the pins.",
        VIEWERS,
        list_versions,
        {200: VersionList},
        query=Chosen,
        heavy=True,
    ),
    Route(
        "GET",
        "/debt",
        "list_debt",
        TAG,
        "List firmware that is written but not active yet, and the reset that activates it.",
        VIEWERS,
        list_debt,
        {200: DebtList},
        query=Chosen,
        heavy=True,
    ),
    Route(
        "GET",
        "/cohorts",
        "show_cohorts",
        TAG,
        "Show cohorts, learned floors, and nodes that differ from their cohort.",
        VIEWERS,
        show_cohorts,
        {200: Cohorts},
        query=CohortQuery,
        heavy=True,
        refusals={404: "No node has this profile."},
    ),
    Route(
        "GET",
        "/cohorts/suspects",
        "list_suspects",
        TAG,
        "Show which versions, places and parts make nodes fail, by the fleet's faults.",
        VIEWERS,
        list_suspects,
        {200: Suspects},
        query=SuspectQuery,
        heavy=True,
    ),
    Route(
        "GET",
        "/cohorts/comparison",
        "compare_cohorts",
        TAG,
        "Compare nodes before and after a change of versions, each with itself.",
        VIEWERS,
        compare_cohorts,
        {200: Comparisons},
        query=ComparisonQuery,
        heavy=True,
        refusals={404: "No node has this profile."},
    ),
)

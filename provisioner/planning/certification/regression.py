"""Comparison of nodes before and after a change, node by node. Pure.

Each node is its own control: the relative difference of its two measurements. The median is the
effect, and an exact sign test (binomial) is its certainty. A metric stops a wave if it is worse
both by an effect that matters and beyond chance; a wave that is too small for a result is
`NOT_TOLD`, never good.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import exp, lgamma, log
from statistics import median

from pydantic import TypeAdapter, ValidationError

from provisioner.checks.check import Check, CheckContext
from provisioner.model.base import Record
from provisioner.model.campaign import Campaign, CampaignRow, Progress
from provisioner.model.case import Case, PartChange, PartsDifference, RemedyKind
from provisioner.model.cohort import CheckResult, Evidence, Finding, HealthReport, Verdict
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.node import BmcRef, Node, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.cohort import rule_of

# ------------------------------------------------------------------------------
# Repetition of failed load tests, and the joint verdict of several runs. Pure.
#
# A figure that is slightly too low may be chance; the test runs three times, and the median
# decides, not the best, because a test that is repeated until it passes proves nothing. Wrong data,
# a crash, a timeout, or a figure far below its floor is never repeated.


_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


class RepeatPolicy(Record):
    """Limits for repetitions; proposals, to be tuned."""

    runs: int = 3  # odd, so that there is a median
    soft: float = 0.10  # a figure within 10 % of its limit may be chance


def is_narrow_miss(finding: Finding, policy: RepeatPolicy) -> bool:
    measured = _NUMBER.search(finding.measured)
    limit_text = _NUMBER.search(finding.wanted)
    if measured is None or limit_text is None:
        return False
    limit = float(limit_text[0])
    return limit != 0 and abs(float(measured[0]) - limit) <= policy.soft * abs(limit)


def should_repeat(results: Sequence[CheckResult], policy: RepeatPolicy) -> bool:
    """Return whether a load test with these results so far is to run once more."""
    if not results or results[0].verdict is not Verdict.FAIL or len(results) >= policy.runs:
        return False
    # the figures must miss softly in every run that failed; one hard failure ends it
    failed = [r for r in results if r.verdict is not Verdict.PASS]
    if not all(r.findings and all(is_narrow_miss(f, policy) for f in r.findings) for r in failed):
        return False
    return not _decided(results, policy)


def verdict_of(results: Sequence[CheckResult], policy: RepeatPolicy) -> CheckResult:
    """Return the median run, or the first run that failed by more than a narrow miss."""
    assert results
    if len(results) == 1:
        return results[0]
    for result in results:
        if result.verdict is not Verdict.PASS and not all(
            is_narrow_miss(f, policy) for f in result.findings
        ):
            return result
    passed = [r for r in results if r.verdict is Verdict.PASS]
    failed = [r for r in results if r.verdict is not Verdict.PASS]
    return passed[-1] if len(passed) > policy.runs // 2 else failed[-1]


def _decided(results: Sequence[CheckResult], policy: RepeatPolicy) -> bool:
    most = policy.runs // 2 + 1
    passed = sum(r.verdict is Verdict.PASS for r in results)
    return passed >= most or len(results) - passed >= most


# ------------------------------------------------------------------------------
# Stored evidence judged again, under other thresholds or newer judges.
#
# Pure, and without effect: the stored report stays unchanged.


Raw = Mapping[str, Evidence]  # by command name
_RAW: TypeAdapter[dict[str, Evidence]] = TypeAdapter(dict[str, Evidence])
AFTER = " after "  # "ecc after nccl_single": a check that was judged again after a load test


class Rejudgement(Record):
    """One result, as recorded and as judged now."""

    check: str
    was: Verdict
    now: CheckResult

    @property
    def changed(self) -> bool:
        return self.was is not self.now.verdict

    @property
    def worse(self) -> bool:
        """Return whether it passed, and would not now."""
        return self.was is Verdict.PASS and self.now.verdict is not Verdict.PASS


def parse_outputs(text: str) -> Raw | None:
    """Return stored outputs by command name; None if the text has another form."""
    try:
        return _RAW.validate_json(text)
    except ValidationError:
        return None


def rejudge_report(
    report: HealthReport, raw: Mapping[str, str], checks: Sequence[Check], context: CheckContext
) -> Iterator[Rejudgement]:
    """Judge every result of a report that has evidence again. `raw`: digest -> stored text.

    A result that was skipped because an earlier gate failed has no evidence, and is left out.
    """
    by_name = {check.name: check for check in checks}
    for result in report.results:
        if not result.evidence:
            continue
        now = _now(result, raw, by_name, context)
        renamed = now.model_copy(update={"check": result.check, "evidence": result.evidence})
        yield Rejudgement(check=result.check, was=result.verdict, now=renamed)


def _now(
    result: CheckResult, raw: Mapping[str, str], checks: Mapping[str, Check], context: CheckContext
) -> CheckResult:
    check = checks.get(result.check.split(AFTER)[0])
    if check is None:
        return result.model_copy(update={"verdict": Verdict.SKIPPED, "findings": ()})
    outputs = parse_outputs(raw.get(result.evidence, ""))
    if outputs is None:
        return check.report_skipped("its evidence is not stored, or cannot be read")
    return check.judge(outputs, context)


# ------------------------------------------------------------------------------
# The differences in parts before and after people worked on a node. Pure.
#
# A part without a serial before or after proves nothing; it is named, and never counted as
# unchanged. A part that was built in is unknown hardware, whatever its model.


Parts = tuple[tuple[str, str, str, str], ...]  # (kind, slot, serial, model)


def list_parts(inventory: Inventory | None) -> Parts:
    """Return every part that can be swapped; "" where it reports no serial or model."""
    if inventory is None:
        return ()
    return tuple(
        sorted((d.kind.value, d.slot, d.serial or "", _model(d)) for d in inventory.devices)
    )


def _model(device: Device) -> str:
    """Return the identity of a matching spare: the part number, or else the model."""
    return device.part or device.model or ""


def compare_parts(case: Case, after: Inventory) -> PartsDifference:
    """Return the differences between the case's parts and the present ones, in slot order."""
    was = {(k, s): (serial, model) for k, s, serial, model in case.parts_before}
    now = {(k, s): (serial, model) for k, s, serial, model in list_parts(after)}
    old_place = {serial: slot for (_, slot), (serial, _) in was.items() if serial}
    changes = []
    unknown = []
    for key in sorted(was.keys() | now.keys()):
        before = was.get(key)
        then = now.get(key)
        serials = tuple(None if p is None else p[0] for p in (before, then))
        if "" in serials:
            unknown.append("/".join(key))
            continue
        if serials[0] == serials[1]:
            continue
        changes.append(
            PartChange(
                kind=DeviceKind(key[0]),
                slot=key[1],
                before=serials[0],
                after=serials[1],
                model_before=before[1] if before else None,
                model_after=then[1] if then else None,
                moved_from=old_place.get(serials[1] or "", ""),
            )
        )
    system = bool(
        case.system_before and after.system_serial and case.system_before != after.system_serial
    )
    return _judge_changes(case, tuple(changes), tuple(unknown), system=system)


def _judge_changes(
    case: Case, changes: tuple[PartChange, ...], unknown: tuple[str, ...], *, system: bool
) -> PartsDifference:
    requested = _wanted(case)
    swapped = {c.slot for c in changes}
    return PartsDifference(
        changes=changes,
        unknown=unknown,
        unexpected=tuple(sorted(f"{c.kind}/{c.slot}" for c in changes if c.slot not in requested)),
        missing=tuple(sorted(s for s in requested - swapped if _known(case, s))),
        wrong=tuple(sorted(_wrong(c) for c in changes if _wrong(c))),
        system_changed=system,
    )


def _wanted(case: Case) -> set[str]:
    """Return the slots into which the case asked people to put another part."""
    last = case.tries[-1] if case.tries else None
    return {last.part} if last is not None and last.remedy is RemedyKind.REPLACE else set()


def _known(case: Case, slot: str) -> bool:
    """Return whether the inventory ever listed the slot: an optic or a cable has no serial here."""
    return any(s == slot and serial for _, s, serial, _ in case.parts_before)


def _wrong(change: PartChange) -> str:
    """Return a part of another make than the one before; "" if it is the same or unknown."""
    was = change.model_before
    now = change.model_after
    if not was or not now or was == now:
        return ""
    return f"{change.kind}/{change.slot}: {now} instead of {was}"


def is_doubtful(case: Case) -> bool:
    """Return whether serials cannot show people's work, in which case everything is tested."""
    last = case.tries[-1] if case.tries else None
    if case.deeper or last is None or last.remedy is not RemedyKind.REPLACE:
        return True
    return not any(slot == last.part and serial for _, slot, serial, _ in case.parts_before)


def reset_exchanged_bmcs(node: Node, slots: Iterable[str]) -> tuple[BmcRef, ...]:
    """Return the node's BMCs, those of exchanged cards without their pin, serial and credential."""
    fresh = set(slots)
    bare = {"pin": "", "serial": "", "base_mac": "", "rotated": False}
    return tuple(b.model_copy(update=bare) if b.name in fresh else b for b in node.bmcs)


class Replacement(Record):
    """A host that replaces another one, and the credentials of its predecessor, to be removed."""

    node: Node
    forget: tuple[str, ...]  # names in the vault


def replace_host(node: Node, now: float, bmcs: Sequence[BmcRef] = ()) -> Replacement:
    """Return another host in the same place: it keeps only name, location and cables.

    It has no tenant, certificate, profile, erasure or operating system of its predecessor; its own
    disks are as unknown as the host, so that they may hold data until they are erased.
    """
    fresh = Node(
        id=node.id,
        kind=node.kind,
        generation=node.generation,
        state=State.DISCOVERED,
        entered_at=now,
        placement=node.placement if node.placement is Placement.MAINTENANCE else Placement.NONE,
        vrf=node.vrf if node.placement is Placement.MAINTENANCE else "",
        fenced_at=node.fenced_at,
        release=node.release,
        served=STRANGER,
        address=node.address,
        location=node.location,
        ports=node.ports,
        bmcs=tuple(bmcs) or reset_exchanged_bmcs(node, {b.name for b in node.bmcs}),
        note="another host stands in this place",
    )
    return Replacement(node=fresh, forget=tuple(f"{node.id}/{b.name}" for b in node.bmcs))


STRANGER = "unknown"  # a host may bring unknown data along; it is erased before anything else


_NOTHING = 1e-17  # terms below this share do not change the sum


class Effect(StrEnum):
    """The result of a comparison."""

    BETTER_OR_SAME = "better_or_same"
    WORSE = "worse"
    NOT_TOLD = "not_told"  # too few nodes were measured before and after


class RegressionPolicy(Record):
    """Thresholds; proposals, to be tuned. The effect that matters is half of the effect that
    makes one node an outlier, because a whole cohort does not move by chance.
    """

    nodes_min: int = 5  # the fewest with which a sign test can reach p < 0.05
    effect_part: float = 0.5  # of the metric's own effect
    p_max: float = 0.05


class Comparison(Record):
    """One metric before and after. `change`: median relative change, negative is worse."""

    metric: str
    nodes: int
    change: float
    p: float  # probability of so many worse nodes without a change
    effect: Effect


def compare_metrics(
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
    policy: RegressionPolicy,
) -> tuple[Comparison, ...]:
    """Compare every metric that nodes measured both before and after (node -> metric -> value)."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for node in sorted(before.keys() & after.keys()):
        mine: dict[str, list[tuple[float, float]]] = {}
        for metric in sorted(before[node].keys() & after[node].keys()):
            pair = (before[node][metric], after[node][metric])
            mine.setdefault(metric.partition("/")[0], []).append(pair)
        for name, values in mine.items():  # a node with eight GPUs counts once
            pairs.setdefault(name, []).append(
                values[0]
                if len(values) == 1
                else (median(a for a, _ in values), median(b for _, b in values))
            )
    return tuple(
        _compared(name, values, policy)
        for name, values in sorted(pairs.items())
        if rule_of(name) is not None
    )


def _compared(
    name: str, pairs: Sequence[tuple[float, float]], policy: RegressionPolicy
) -> Comparison:
    rule = rule_of(name)
    assert rule is not None
    gains = [rule.sign * (b - a) for a, b in pairs]
    size = median(abs(a) for a, _ in pairs)
    change = median(gains)
    moved = [g for g in gains if g != 0]
    worse = sum(g < 0 for g in moved)
    p = _tail(len(moved), worse)
    least = policy.effect_part * max(rule.relative * size, rule.absolute)
    if len(pairs) < policy.nodes_min:
        effect = Effect.NOT_TOLD
    else:
        effect = Effect.WORSE if -change > least and p < policy.p_max else Effect.BETTER_OR_SAME
    relative = change / size if size else change
    return Comparison(metric=name, nodes=len(pairs), change=relative, p=p, effect=effect)


def _tail(tosses: int, heads: int) -> float:
    """Return the probability of at least so many heads.

    Each term is computed from the one before, and the first in logarithms, because exact terms of
    thousands of nodes have thousands of digits.
    """
    if 2 * heads <= tosses:
        return 1.0 if heads == 0 else 1.0 - _tail(tosses, tosses - heads + 1)
    ways = lgamma(tosses + 1) - lgamma(heads + 1) - lgamma(tosses - heads + 1)
    term = total = exp(ways - tosses * log(2))
    for k in range(heads, tosses):
        term *= (tosses - k) / (k + 1)
        total += term
        if term < total * _NOTHING:
            break
    return total


def judge_wave(
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
    policy: RegressionPolicy,
) -> tuple[Blocker, ...]:
    """Return why the waves after this one must not start; () if no metric is worse."""
    return tuple(
        Blocker(
            reason=Reason.CHECK_FAILED,
            subject=c.metric,
            detail=f"{c.nodes} nodes are {-c.change:.1%} worse than before (p = {c.p:.2g})",
            unblock="Roll the wave back, or accept the change with a reason.",
        )
        for c in compare_metrics(before, after, policy)
        if c.effect is Effect.WORSE
    )


def judge_campaign(
    campaign: Campaign, rows: Mapping[str, CampaignRow], policy: RegressionPolicy
) -> tuple[Blocker, ...]:
    """Return the metrics that became worse, by profile."""
    if campaign.going_back:
        return ()
    judged = [r for r in rows.values() if r.progress.state in (Progress.SOAKING, Progress.DONE)]
    regressions: list[Blocker] = []
    for profile in sorted({r.facts.profile for r in judged}):
        mine = [r for r in judged if r.facts.profile == profile and r.before and r.after]
        before = {r.node: r.before for r in mine}
        after = {r.node: r.after for r in mine}
        regressions += judge_wave(before, after, policy)
    return tuple(b for b in regressions if b.subject not in campaign.accepted)

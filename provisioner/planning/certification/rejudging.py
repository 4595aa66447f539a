"""Stored evidence judged again, under other thresholds or newer judges: what would change.

Pure, and it changes nothing: a report stays what it was when it was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import TypeAdapter, ValidationError

from provisioner.checks.check import Check, CheckContext
from provisioner.model.base import Record
from provisioner.model.health import CheckResult, Evidence, HealthReport, Verdict

Raw = Mapping[str, Evidence]  # by command name
_RAW: TypeAdapter[dict[str, Evidence]] = TypeAdapter(dict[str, Evidence])
AFTER = " after "  # "ecc after nccl_single": a check that was judged again after a load test


class Rejudged(Record):
    """One result, as it was and as it would be now."""

    check: str
    was: Verdict
    now: CheckResult

    @property
    def changed(self) -> bool:
        return self.was is not self.now.verdict

    @property
    def worse(self) -> bool:
        """It passed, and would not now."""
        return self.was is Verdict.PASS and self.now.verdict is not Verdict.PASS


def raw_outputs(text: str) -> Raw | None:
    """Outputs as they are stored, by command name; None if this is no such text."""
    try:
        return _RAW.validate_json(text)
    except ValidationError:
        return None


def rejudge(
    report: HealthReport,
    raw: Mapping[str, str],
    checks: Sequence[Check],
    context: CheckContext,
) -> Iterator[Rejudged]:
    """Every result of a report that has evidence. `raw`: digest -> stored text.

    A result that was skipped because an earlier gate failed has none, and is left out.
    """
    by_name = {check.name: check for check in checks}
    for result in report.results:
        if not result.evidence:
            continue
        now = _now(result, raw, by_name, context)
        renamed = now.model_copy(update={"check": result.check, "evidence": result.evidence})
        yield Rejudged(check=result.check, was=result.verdict, now=renamed)


def _now(
    result: CheckResult, raw: Mapping[str, str], checks: Mapping[str, Check], context: CheckContext
) -> CheckResult:
    check = checks.get(result.check.split(AFTER)[0])
    if check is None:
        return result.model_copy(update={"verdict": Verdict.SKIPPED, "findings": ()})
    outputs = raw_outputs(raw.get(result.evidence, ""))
    if outputs is None:
        return check.skipped("its evidence is not stored, or cannot be read")
    return check.judge(outputs, context)

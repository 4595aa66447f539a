"""Stored evidence judged again, under other thresholds or newer judges.

Pure, and without effect: the stored report stays unchanged.
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
    report: HealthReport,
    raw: Mapping[str, str],
    checks: Sequence[Check],
    context: CheckContext,
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

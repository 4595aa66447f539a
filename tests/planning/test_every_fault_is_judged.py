"""No fault that a check, an alert or a work can tell is without a rule of the diagnosis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provisioner import checks
from provisioner.checks.check import BEFORE, CheckContext
from provisioner.checks.kernel_log import CHECK as KERNEL_LOG
from provisioner.checks.xid.error_codes import Family
from provisioner.model.alert import Alert, Classification
from provisioner.model.case import Fault, PartClass, RemedyKind
from provisioner.model.cohort import (
    CheckResult,
    Evidence,
    Finding,
    Gate,
    HealthReport,
    Severity,
    Verdict,
)
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.planning.certification.escalation import (
    BY_THE_TABLE,
    RULES,
    Occurrence,
    Remedy,
    Rule,
    Step,
    find_escalations,
    judge_history,
)
from provisioner.planning.repair.case_policy import FAULTY, faults_of
from provisioner.planning.repair.diagnosis import diagnose, find_rules, load_rules

ROOT = Path(__file__).parent.parent / "golden" / "checks"
CASES = sorted(p.parent for p in ROOT.glob("*/*/expected.json"))
CONTEXT = CheckContext.model_validate_json((ROOT / "context.json").read_text())
BY_NAME = {check.name: check for check in checks.ALL}
LINES = {command.name: command.line for check in checks.ALL for command in check.commands}
PARTS = ("host", "", "fabric", "GPU_SXM_1", "GPU 3", "PCI 0000:52:00", "mlx5_1", "never heard of")
"""What checks call their parts, and what none does."""


def told(findings: tuple[Finding, ...], check: str) -> tuple[Fault, ...]:
    """Return the faults that the repair reads of a report with these findings."""
    result = CheckResult(check=check, gate=Gate.A, verdict=Verdict.FAIL, findings=findings)
    report = HealthReport(
        node="n1", inventory_digest="d", started_at=1.0, ended_at=2.0, results=(result,)
    )
    return faults_of(Node(id="n1", kind=NodeKind.HOST), report, ())


def unjudged(faults: tuple[Fault, ...]) -> list[Fault]:
    return [fault for fault in faults if not find_rules(fault, load_rules())]


@pytest.mark.parametrize("severity", Severity)
def test_a_finding_with_words_that_no_rule_knows_is_judged(severity: Severity) -> None:
    findings = tuple(
        Finding(part=part, severity=severity, detail=f"quite another thing, for once{n}")
        for n, part in enumerate(PARTS)
    )
    for check in sorted(BY_NAME):
        faults = told(findings, check)

        assert len(faults) == len(PARTS), check
        assert unjudged(faults) == [], check
        assert unjudged(told(findings, f"{check} after gpu_burn")) == [], check


def test_a_check_that_cannot_judge_or_accuses_nothing_is_judged() -> None:
    unread = Finding(part="host", severity=Severity.CONFIG, detail="cannot be judged: strange")

    for check in sorted(BY_NAME):
        assert [f.id for f in told((unread,), check)] == ["unreadable"], check
        assert unjudged(told((unread,), check)) == [], check
        assert len(told((), check)) == 1, check
        assert unjudged(told((), check)) == [], check


def test_what_each_recorded_output_is_blamed_for_is_judged() -> None:
    left = {f"{c.parent.name}/{c.name}": found for c in CASES if (found := unjudged(blamed_for(c)))}

    assert left == {}


def blamed_for(case: Path) -> tuple[Fault, ...]:
    """Return the faults that the repair reads of a check's recorded output."""
    codes = json.loads((case / "expected.json").read_text())["exit_codes"]
    outputs = {
        file.stem: Evidence(
            source=LINES[file.stem.removesuffix(BEFORE)],
            exit_code=codes.get(file.stem, 0),
            text=file.read_bytes().decode(),
        )
        for file in case.glob("*.txt")
    }
    result = BY_NAME[case.parent.name].judge(outputs, CONTEXT)
    return told(result.findings, result.check) if result.verdict is Verdict.FAIL else ()


@pytest.mark.parametrize("subject", ["n1", "n1/NIC_3", "leaf-su0-r3/fabric", "rail 3", ""])
def test_a_blocker_of_a_faulty_node_is_judged(subject: str) -> None:
    for reason in sorted(FAULTY):
        blocker = Blocker.model_validate(
            {"reason": reason, "subject": subject, "detail": "words", "unblock": "words"}
        )
        node = Node(id="n1", kind=NodeKind.HOST, blockers=(blocker,))

        assert unjudged(faults_of(node, None, ())) == [], reason


@pytest.mark.parametrize("classification", Classification)
def test_an_alert_of_any_class_and_of_an_unknown_name_is_judged(
    classification: Classification,
) -> None:
    alert = Alert(
        node="n1", id="Vendor.1.0.NewKind", target="XYZ", classifications=(classification,),
        message="words", source="bmc", since=1.0, last_at=1.0,
    )  # fmt: skip
    faults = faults_of(Node(id="n1", kind=NodeKind.HOST), None, (alert,))

    assert len(faults) == 1
    assert unjudged(faults) == []


def test_a_line_for_other_faults_gives_way_to_every_line_that_knows_the_fault() -> None:
    known = Fault(source="check", id="ecc", part="GPU 3", detail="uncorrectable errors 3")
    other = Fault(source="check", id="ecc", part="GPU 3", detail="words")

    assert not any(rule.otherwise for rule in find_rules(known, load_rules()))
    assert all(rule.otherwise for rule in find_rules(other, load_rules()))


NOW = 1_800_000_000.0


def history_of(rule: Rule, part: str) -> tuple[list[Occurrence], list[Remedy]]:
    """Return events and remedies to which one rule of the escalation applies."""
    code = rule.codes[0] if rule.codes else (20034 if rule.family is Family.SXID else 79)
    wanted = max(rule.count, 2) + rule.remedies_min + 1
    step = min(rule.window_s / (wanted + 2), 3600.0)
    times = [NOW - step * (n + 1) for n in range(wanted)]
    events = [
        Occurrence(
            at=at, family=rule.family, code=c, part=part, link=4, place="GPC 8, TPC 5",
            words="fatal",
        )
        for at in times
        for c in (code, *rule.beside[:1])
    ]  # fmt: skip
    steps = rule.after_remedy[:1]
    return events, [Remedy(at=at - step / 2, step=s) for at in times for s in steps]


# a single event of the last day asks for as much, and is judged with the log that has it
JUDGED_BY_ITS_OWN_LOG = {"48 with remapping", "one NVLink 5 link down again"}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
@pytest.mark.parametrize("unread", [False, True])
def test_a_part_whose_history_asks_for_a_remedy_is_accused_with_that_remedy(
    rule: Rule, *, unread: bool
) -> None:
    part = "NVSwitch_2" if rule.family is Family.SXID else "GPU_SXM_5"
    events, remedies = history_of(rule, part)
    present = (
        (Finding(part="host", severity=Severity.CONFIG, detail="cannot be judged: dmesg"),)
        if unread
        else ()
    )
    result = CheckResult(check=KERNEL_LOG.name, gate=Gate.A, verdict=Verdict.PASS, findings=present)
    report = HealthReport(
        node="n1", inventory_digest="d", started_at=NOW - 60, ended_at=NOW, results=(result,)
    )

    judged = judge_history(report, events, remedies, NOW)
    demanded = [f for r in judged.results for f in r.findings if f.part == part]
    faults = faults_of(Node(id="n1", kind=NodeKind.HOST), judged, ())
    found = diagnose(faults, None)
    best = found.suspects[0]

    if rule.name in JUDGED_BY_ITS_OWN_LOG:
        asked = find_escalations(events, remedies, NOW)
        assert [e.rule for e in asked if e.part == part] == [BY_THE_TABLE]
        return
    assert demanded, "the history asks for nothing"
    assert best.part == part
    assert best.rule
    asks = {f.severity for f in demanded}
    if Severity.ISOLATE in asks:  # RMA or the vendor's diagnosis: no round of remedies before it
        kinds = {PartClass.GPU, PartClass.GPU_MEMORY, PartClass.NVSWITCH, PartClass.NVLINK}
        assert best.kind in kinds
        assert found.start is RemedyKind.REPLACE
        assert best.confidence >= 0.4, "sure enough to name the part in the work"
    else:
        assert found.start in (RemedyKind.GPU_RESET, RemedyKind.COLD_BOOT)


def test_each_step_that_a_history_can_ask_for_was_tried() -> None:
    assert {rule.step for rule in RULES} == {Step.RESET, Step.DIAGNOSE, Step.RMA}

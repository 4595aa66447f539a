"""T1: DCGM's diagnostics, judged by what its document says and not by its exit code.

Both documents are read: "DCGM GPU Diagnostic" of 3.x and "DCGM Diagnostic" of 4.x. A skipped test
is not a pass; a failure without a severity is treated as the worst; a failure of severity CONFIG
asks to repair the host and run again (persistence mode off fails every GPU that way).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import DCGM
from provisioner.checks.reading import json_of, mapping, sequence, text_of, word
from provisioner.model.health import Evidence, Finding, Gate, Severity

# dcgm_errors.h: 0 NONE, 3 UNKNOWN; whatever is not listed is the worst
_SEVERITY = {
    1: Severity.MONITOR,
    2: Severity.ISOLATE,
    4: Severity.ISOLATE,  # TRIAGE
    5: Severity.CONFIG,
    6: Severity.RESET_GPU,
}
# level 2 runs these plugins (NvidiaValidationSuite.cpp); 3.x names its tests one by one, so that
# there the categories are looked for
_WANTED_4 = ("software", "memory", "pcie")
_WANTED_3 = ("Deployment", "Hardware", "Integration")
_PER_GPU_4 = ("memory", "pcie")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    document = mapping(json_of(text_of(evidence, DCGM, any_exit=True), "dcgmi"), "dcgmi")
    new = "DCGM Diagnostic" in document
    body = mapping(document.get("DCGM Diagnostic" if new else "DCGM GPU Diagnostic"), "dcgmi")
    seen: dict[str, set[str]] = {}
    for listed in sequence(body.get("test_categories"), "test_categories"):
        category = mapping(listed, "category")
        for entry in sequence(category.get("tests"), "tests"):
            test = mapping(entry, "test")
            name = word(test.get("name"), "name")
            group = name if new else word(category.get("category"), "category")
            passed, findings = _test(name, test)
            seen.setdefault(group, set()).update(passed)
            yield from findings
    for group in _WANTED_4 if new else _WANTED_3:
        if group not in seen:
            yield fault("host", Severity.CONFIG, f"DCGM did not run {group}")
        elif new and group in _PER_GPU_4 and len(seen[group]) != context.gpus:
            yield fault(
                "host",
                Severity.ISOLATE,
                f"GPUs that passed {group}",
                len(seen[group]),
                context.gpus,
            )


def _test(name: str, test: Mapping[str, Any]) -> tuple[set[str], list[Finding]]:
    """GPUs that passed one test, and its faults."""
    results = sequence(test.get("results"), "results")
    if not results:
        raise Unreadable(f"dcgmi: {name[:40]} has no result")
    passed: set[str] = set()
    found: list[Finding] = []
    for listed in results:
        result = mapping(listed, "result")
        part = _part(result)
        status = word(result.get("status"), "status")
        faults = [_warning(name, part, w) for w in _warnings(result)]
        found += [f for f in faults if f is not None]
        if status.lower() == "pass":
            passed.add(part)
        elif status.lower() in ("skip", "skipped"):
            found.append(fault(part, Severity.CONFIG, f"{name}: skipped, which is no pass"))
        elif not any(faults):
            # no severity is given: the worst is assumed, except where DCGM itself only warns
            worst = Severity.MONITOR if status.lower() == "warn" else Severity.ISOLATE
            found.append(fault(part, worst, f"{name}: {status}, without a severity"))
    found += _summary(name, test)
    return passed, found


def _summary(name: str, test: Mapping[str, Any]) -> Iterator[Finding]:
    """Faults that exist only as plain words in the summary of a test."""
    summary = mapping(test.get("test_summary", {}), "test_summary")
    status = str(summary.get("status", "Pass"))
    if status.lower() != "pass":
        yield fault("host", Severity.CONFIG, f"{name}: summary says {status}")
    listed = summary.get("info", [])
    for info in listed if isinstance(listed, list) else [listed]:
        words = str(info)
        if "error" in words.lower() or "skipped" in words.lower():
            yield fault("host", Severity.CONFIG, f"{name}: {words}")


def _part(result: Mapping[str, Any]) -> str:
    if "entity_id" in result:
        return f"{result.get('entity_group', 'GPU')} {result['entity_id']}"
    return f"GPU {result.get('gpu_ids', result.get('gpu_id', 'all'))}"


def _warnings(result: Mapping[str, Any]) -> list[Any]:
    listed = result.get("warnings", result.get("warning", []))
    return listed if isinstance(listed, list) else [listed]


def _warning(name: str, part: str, listed: Any) -> Finding | None:
    """One warning as a finding; None for severity NONE."""
    if not isinstance(listed, dict):
        return fault(part, Severity.ISOLATE, f"{name}: {listed}")
    code = listed.get("error_severity")
    if code == 0 and not isinstance(code, bool):
        return None
    known = _SEVERITY.get(code) if isinstance(code, int) else None
    return fault(
        part,
        known or Severity.ISOLATE,
        f"{name}: {listed.get('warning', 'no words')}",
        f"error {listed.get('error_id', '?')}",
    )


CHECK = Check("dcgm_diag", Gate.B, (DCGM,), _findings, load=True)

"""DCGM's multi-node diagnostic, judged host by host.

Its one test runs on GB200 and GB300 NVL systems only (DCGM 4.6), so no HGX profile asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, fault
from provisioner.checks.dcgm_judge import judge_test
from provisioner.checks.readers.dcgm_document import read_multi_node_tests
from provisioner.checks.readers.tool_output import read_output
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

MNDIAG = Command(
    name="dcgm_mndiag", line="dcgmi mndiag --run mnubergemm --json --hostList", limit_s=7200.0
)


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    tests, hosts, errors = read_multi_node_tests(read_output(evidence, MNDIAG, any_exit=True))
    for warned in errors:
        yield fault("fabric", Severity.ISOLATE, warned.words, f"error {warned.error_id}")
    for test in tests:
        yield from judge_test(test)
        passed = {p for r in test.results if r.status == "pass" for p in r.parts}
        for host in hosts:
            passed_gpus = sum(part.startswith(f"{host} ") for part in passed)
            if passed_gpus != context.gpus:
                detail = f"GPUs that passed {test.title}"
                yield fault(host, Severity.ISOLATE, detail, passed_gpus, context.gpus)


CHECK = Check("dcgm_mndiag", Gate.C, (MNDIAG,), _findings, load=True, on_request=True)

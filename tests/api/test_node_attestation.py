"""The signed evidence of a node at the API: index, golden and found values, and Secure Boot.

The outputs are recorded ones of `tests/golden/checks`, judged by the rule of that folder.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from served import MATRIX, NOW, PROFILE, RELEASE, Served, run

from provisioner.checks import attested_firmware, collected_reports, secure_boot
from provisioner.checks.check import CheckContext
from provisioner.model.cohort import CheckResult, Evidence, HealthReport
from provisioner.model.matrix import Matrix
from provisioner.store.rows import evidence_rows

GOLDEN = Path(__file__).parents[1] / "golden" / "checks"
CONTEXT = CheckContext.model_validate_json((GOLDEN / "context.json").read_text())
CASES = {
    attested_firmware.CHECK: GOLDEN / "attestation" / "bad_another_measurement",
    collected_reports.CHECK_GPUS: GOLDEN / "gpu_reports" / "bad_another_measurement",
    secure_boot.CHECK: GOLDEN / "secure_boot" / "bad_foreign_key",
}
PATH = "/nodes/su0-n04/attestation"


def require_evidence() -> Matrix:
    release = MATRIX.releases[RELEASE]
    profile = release.profiles[PROFILE].model_copy(update={"attestation": CONTEXT.attestation})
    changed = release.model_copy(update={"profiles": {**release.profiles, PROFILE: profile}})
    return MATRIX.model_copy(update={"releases": {**MATRIX.releases, RELEASE: changed}})


async def validate(served: Served) -> None:
    """Store the results of both checks with their evidence, as a validation does."""
    results: list[CheckResult] = []
    for check, case in CASES.items():
        (command,) = check.commands
        text = (case / f"{command.name}.txt").read_text()
        outputs = {command.name: Evidence(source=command.line, exit_code=0, text=text)}
        raw = {name: output.model_dump(mode="json") for name, output in outputs.items()}
        digest = await served.store.evidence.put_output(json.dumps(raw, sort_keys=True))
        results.append(check.judge(outputs, CONTEXT).model_copy(update={"evidence": digest}))
    report = HealthReport(
        node="su0-n04",
        inventory_digest="0" * 64,
        started_at=NOW - 60.0,
        ended_at=NOW - 30.0,
        results=tuple(results),
    )
    await served.store.write(partial(evidence_rows.put_report, report=report))


@pytest.fixture
def answers() -> dict[str, Any]:
    seen: dict[str, Any] = {}

    async def scenario(served: Served) -> None:
        seen["before"] = await served.ask("viewer", "GET", PATH)
        await validate(served)
        seen["shown"] = await served.ask("viewer", "GET", PATH)
        seen["whole"] = await served.ask("viewer", "GET", f"{PATH}?evidence=true")
        seen["explained"] = await served.ask("viewer", "GET", "/nodes/su0-n04/explanation")
        seen["tenant"] = await served.ask("red", "GET", PATH)

    run(scenario, matrix=require_evidence())
    return seen


def test_a_differing_measurement_is_shown_with_index_golden_and_found_value(
    answers: dict[str, Any],
) -> None:
    status, view = answers["shown"]

    assert answers["before"][0] == 404
    assert status == 200
    (lying,) = [root for root in view["roots"] if root["verdict"] == "contradicted"]
    (mismatch,) = lying["mismatches"]
    assert lying["matched"] == lying["golden"] - 1
    assert mismatch["golden"] != [mismatch["measured"]]
    (finding,) = [f for f in view["differences"] if f["part"] == lying["component"]]
    assert (finding["wanted"], finding["measured"]) == (
        mismatch["golden"][0],
        mismatch["measured"],
    )
    assert view["evidence"] == {}

    sentences = " ".join(answers["explained"][1]["why"])
    assert f"{lying['component']}: measurement {mismatch['index']}" in sentences
    assert f"found {mismatch['measured']}; golden {mismatch['golden'][0]}" in sentences


def test_a_gpu_that_differs_is_shown_with_its_policy(answers: dict[str, Any]) -> None:
    _, view = answers["shown"]

    assert (view["gpu_reports_policy"], view["nvswitch_reports_policy"]) == ("require", "require")
    proved, lying = view["devices"]
    assert (proved["verdict"], lying["verdict"]) == ("proved", "contradicted")
    (mismatch,) = lying["mismatches"]
    sentences = " ".join(answers["explained"][1]["why"])
    assert f"{lying['component']}: measurement {mismatch['index']}" in sentences
    assert f"found {mismatch['measured']}; golden {mismatch['golden'][0]}" in sentences


def test_keys_of_secure_boot_are_shown_beside_those_that_are_admitted(
    answers: dict[str, Any],
) -> None:
    (system,) = answers["shown"][1]["systems"]

    assert system["secure_boot"] is True
    differing = [d["database"] for d in system["databases"] if d["differs"]]
    assert differing == ["db"]
    assert all(d["admitted_digests"] for d in system["databases"])


def test_evidence_is_given_for_auditors_and_never_to_tenants(answers: dict[str, Any]) -> None:
    assert set(answers["whole"][1]["evidence"]) == {"measurements", "secure_boot", "gpu_reports"}
    assert answers["tenant"][0] in (403, 404)

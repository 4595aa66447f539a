"""Reports that `nvattest` collects in the host: the host carries them, and is not believed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from attested_devices import DRIVER_INDICES, VBIOS, flip, make_gpu, write_driver_rim
from collected_evidence import (
    DRIVER_RIM,
    SWITCH_VALUES,
    VBIOS_RIM,
    Answer,
    admit,
    enter,
    make_context,
    make_switch,
)

from provisioner.checks.check import CheckContext
from provisioner.checks.collected_reports import CHECK_GPUS, GPUS, NVSWITCHES
from provisioner.integrations.sim.hardware.simulated_tpm import make_values
from provisioner.model.cohort import Severity, Verdict
from provisioner.model.matrix import AttestationRule, GpuReportRule
from provisioner.planning.certification.attested_state import (
    digest_roots,
    read_devices,
    summarise_devices,
)


def test_devices_that_sign_our_nonce_and_the_golden_values_pass() -> None:
    result = Answer().judge()

    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    switch = Answer(NVSWITCHES, [enter(make_switch())]).judge()
    assert (switch.verdict, switch.findings) == (Verdict.PASS, ())


def tamper(entry: dict[str, Any], at: int) -> dict[str, Any]:
    raw = base64.b64decode(entry["evidence"])
    return {**entry, "evidence": base64.b64encode(flip(raw, at)).decode()}


HONEST = enter(make_gpu("A1"))
OTHER_FIRMWARE = {**make_values("firmware"), 5: b"\xee" * 48}
OTHER_RIM = ("NV_GPU_DRIVER_GH100_590.12", write_driver_rim(seed="another"))
NO_REFERENCE = make_context().model_copy(update={"references": {"hgx.gpu": admit(VBIOS_RIM)}})
OLD_PIN = make_context().model_copy(
    update={"pins": {"host.driver": ("580.95.05",), "hgx.gpu": (VBIOS,)}}
)
LIES: dict[str, tuple[Callable[[], Answer], Severity, str]] = {
    "other firmware under the same version": (
        lambda: Answer(entries=[HONEST, enter(make_gpu("A2", values=OTHER_FIRMWARE))]),
        Severity.ISOLATE,
        "measurement 5 is not the one that NV_GPU_VBIOS_1010_0200_882_9600A50001 admits",
    ),
    "an edited measurement": (
        lambda: Answer(entries=[HONEST, tamper(enter(make_gpu("A2")), 900)]),
        Severity.ISOLATE,
        "signature",
    ),
    "an answer to another question": (
        lambda: Answer(entries=[HONEST, enter(make_gpu("A2"), bytes(32))]),
        Severity.ISOLATE,
        "replayed",
    ),
    "one GPU that answers for two": (
        lambda: Answer(entries=[HONEST, HONEST]),
        Severity.ISOLATE,
        "it answers with the identity of",
    ),
    "the chain of another GPU": (
        lambda: Answer(
            entries=[HONEST, {**enter(make_gpu("A2")), "certificate": HONEST["certificate"]}]
        ),
        Severity.ISOLATE,
        "signature",
    ),
    "an NVSwitch that answers for a GPU": (
        lambda: Answer(entries=[HONEST, enter(make_switch())]),
        Severity.ISOLATE,
        "a GPU was asked, and LS10 NVSwitch S1 answers",
    ),
    "a version that the matrix does not pin": (
        lambda: Answer(context=OLD_PIN),
        Severity.ISOLATE,
        "version is not the pin: driver 590.12, pinned 580.95.05",
    ),
    "a GPU without a report": (
        lambda: Answer(entries=[HONEST]),
        Severity.POWER_CYCLE,
        "attester missing",
    ),
    "more GPUs than the host has": (
        lambda: Answer(entries=[enter(make_gpu(f"A{n}")) for n in range(3)]),
        Severity.CONFIG,
        "more GPUs give a report than the host has",
    ),
    "no manifest at hand": (
        lambda: Answer(manifests=(VBIOS_RIM,)),
        Severity.CONFIG,
        "reference missing",
    ),
    "a manifest that the pin does not name": (
        lambda: Answer(context=NO_REFERENCE),
        Severity.CONFIG,
        "rim is not the admitted one",
    ),
    "another manifest of this version": (
        lambda: Answer(manifests=(OTHER_RIM, VBIOS_RIM)),
        Severity.CONFIG,
        "rim is not the admitted one",
    ),
    "no chain": (
        lambda: Answer(entries=[HONEST, {"evidence": enter(make_gpu("A2"))["evidence"]}]),
        Severity.CONFIG,
        "chain",
    ),
    "no SPDM": (
        lambda: Answer(entries=[HONEST, {**HONEST, "evidence": "AAAA"}]),
        Severity.CONFIG,
        "malformed at byte 0: 0xaa begins no SPDM message",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_or_a_missing_proof_never_passes(lie: str) -> None:
    make, severity, words = LIES[lie]

    result = make().judge()

    assert result.verdict is Verdict.FAIL
    assert any(words in f.detail for f in result.findings), result.findings
    assert max(f.severity is severity for f in result.findings if words in f.detail)


SILENT: dict[str, tuple[Answer, str]] = {
    "not installed": (
        Answer(exit_code=127, printed="sh: 1: nvattest: not found"),
        "nvattest is not installed in the host",
    ),
    "not in a mode that gives reports": (
        Answer(result=509, exit_code=253, entries=None),
        "result 509: the GPUs run neither in mode CC nor in PPCIE",
    ),
    "no driver": (Answer(result=500, exit_code=244, entries=None), "result 500: NVML did not"),
    "no library": (Answer(result=600, exit_code=88, entries=None), "result 600: NSCQ did not"),
    "a result of a later release": (
        Answer(result=951, exit_code=183, entries=None),
        "result 951: m",
    ),
    "text": (Answer(printed="GPU evidence collection was successful."), "printed no evidence"),
    "no nonce of ours": (Answer(nonce="00"), "no nonce of ours"),
}


@pytest.mark.parametrize("silence", SILENT)
def test_a_tool_that_gives_no_reports_is_a_named_failure(silence: str) -> None:
    answer, words = SILENT[silence]

    (finding,) = answer.judge().findings

    assert answer.judge().verdict is Verdict.FAIL
    assert words in finding.detail


@pytest.mark.parametrize("entries", [None, [], {}, "x", [[[[]]]]])
def test_a_success_without_evidences_is_no_success(entries: Any) -> None:
    result = Answer(entries=entries).judge()

    assert result.verdict is Verdict.FAIL
    assert [(f.measured, f.wanted) for f in result.findings] == [("0", "2")]


def test_a_host_of_unknown_size_must_give_one_report_at_least() -> None:
    context = make_context().model_copy(update={"nvswitches": 0})

    assert Answer(NVSWITCHES, [], context=context).judge().verdict is Verdict.FAIL
    assert Answer(NVSWITCHES, [enter(make_switch())], context=context).judge().verdict is (
        Verdict.PASS
    )


def test_lines_that_the_tool_logs_are_passed_over() -> None:
    quiet = json.loads(Answer().outputs()[GPUS.name].text)["printed"]
    printed = f"[2026-11-22] [error] {{no}}\n{{not json\n{quiet}\n[2026-11-22] [info] [done]\n"

    assert Answer(printed=printed).judge().verdict is Verdict.PASS


def test_admitted_digests_stand_in_place_of_manifests() -> None:
    golden = {i: (make_values("firmware")[i].hex(),) for i in (2, 3, 21)}
    rule = GpuReportRule(policy="require", digests=golden, learned_from="su0-n01, 2026-11-22")
    context = make_context(gpu_reports=rule)

    assert Answer(context=context, manifests=()).judge().verdict is Verdict.PASS
    lying = [HONEST, enter(make_gpu("A2", values={**make_values("firmware"), 3: b"\xee" * 48}))]
    (finding,) = Answer(entries=lying, context=context).judge().findings
    assert finding.part == "GH100 GPU A2"
    assert "su0-n01, 2026-11-22" in finding.detail


def test_recorded_findings_cost_nothing_and_are_shown() -> None:
    context = make_context(gpu_reports=GpuReportRule(policy="record"))
    required = Answer(entries=[HONEST])

    recorded = Answer(entries=[HONEST], context=context).judge()

    assert recorded.verdict is Verdict.PASS
    assert recorded.findings == required.judge().findings


def test_a_profile_that_asks_for_none_is_not_judged_as_if_it_did() -> None:
    assert Answer(context=CheckContext(attestation=AttestationRule())).judge().verdict is (
        Verdict.FAIL
    )


def test_blackwell_without_confidential_mode_is_asked_by_corelib() -> None:
    rule = GpuReportRule(policy="require", library="corelib")

    (command,) = CHECK_GPUS.commands_of(make_context(gpu_reports=rule))

    assert command.line.endswith(
        "--device gpu --nonce NONCE --gpu-evidence-source corelib --gpu-architecture blackwell"
    )


def digest_of(answer: Answer) -> str:
    devices = read_devices(answer.kind, answer.outputs(), answer.context)
    assert devices is not None
    return digest_roots(devices)


def test_the_attested_state_is_that_of_the_compared_measurements() -> None:
    again = [enter(make_gpu(name), b"\x77" * 32) for name in ("A2", "A1")]
    uncounted = {**make_values("firmware"), 60: b"\x01" * 48}  # no golden value
    state = digest_of(Answer())

    assert digest_of(Answer(entries=again, nonce="77" * 32)) == state
    assert digest_of(Answer(entries=[HONEST, enter(make_gpu("A2", values=uncounted))])) == state
    assert digest_of(Answer(entries=[HONEST, enter(make_gpu("A3"))])) != state
    lying = [HONEST, enter(make_gpu("A2", values=OTHER_FIRMWARE))]
    assert digest_of(Answer(entries=lying)) != state


def test_the_summary_names_index_golden_and_measured_value() -> None:
    answer = Answer(entries=[HONEST, enter(make_gpu("A2", values=OTHER_FIRMWARE))])

    proved, lying = summarise_devices(answer.outputs(), answer.context)

    assert (proved.component, proved.verdict) == ("GH100 GPU A1", "proved")
    assert proved.golden == proved.matched == len(DRIVER_INDICES) - 1 + 12  # without NVDEC's
    (mismatch,) = lying.mismatches
    assert (mismatch.index, mismatch.measured) == (5, "ee" * 48)
    assert mismatch.golden == (make_values("firmware")[5].hex(),)


def test_golden_values_of_a_switch_are_compared() -> None:
    other = make_switch(values={**SWITCH_VALUES, 7: b"\xee" * 48})

    (finding,) = Answer(NVSWITCHES, [enter(other)]).judge().findings

    assert (finding.part, finding.measured) == ("LS10 NVSwitch S1", "ee" * 48)
    assert DRIVER_RIM[1] != VBIOS_RIM[1]

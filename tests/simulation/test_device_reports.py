"""GPUs and NVSwitches of a simulated host are asked in a validation, through the same SSH as ever.

Devices, keys and manifests are the simulator's; the host shows the right version all the time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from leaf_rig import Rig

from provisioner import checks
from provisioner.checks.attestation.trust_anchors import digest_spki
from provisioner.checks.check import CheckContext
from provisioner.checks.collected_reports import GPUS, NVSWITCHES
from provisioner.checks.context import build_context
from provisioner.control.context import Context
from provisioner.control.watch.attestation_watch import ReportQuestions
from provisioner.execution.validate.validator import Validator
from provisioner.integrations.sim.hardware.device_authority import find_authority
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.report_devices import sign_manifest
from provisioner.model.cohort import CheckResult, HealthReport, Verdict
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import Boots, Node, Placement, State
from provisioner.planning.certification import certification
from provisioner.planning.certification.attested_state import parse_evidence
from provisioner.planning.certification.regression import rejudge_report
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.watch.leaks import Renewal
from provisioner.store.rows import evidence_rows

NODE = "su0-n00"


def admit(folder: Path, kind: str, version: str) -> dict[str, str]:
    """Write a manifest into the site's folder of references; return its line in the matrix."""
    rim_id, raw = sign_manifest(kind, version)
    (folder / f"{rim_id}.xml").write_bytes(raw)
    return {
        "rim": rim_id,
        "sha256": hashlib.sha256(raw).hexdigest(),
        "admitted": "2025-06-01",
    }


def make_matrix(folder: Path, versions: Mapping[str, str], policy: str) -> Matrix:
    maker = {
        "name": find_authority().root_name,
        "spki_sha256": digest_spki(find_authority().root.certificate),
        "source": "the simulator",
    }
    switches = [admit(folder, "switch", versions["switch"])]
    pins = {
        "host.driver": ("driver", versions["driver"]),
        "hgx.gpu": ("vbios", versions["vbios"]),
    }
    profile = {
        "match": {"kind": "host", "devices": {"gpu": 8, "nvswitch": 4}},
        "pins": {
            kind: {"version": version, "reference": admit(folder, which, version)}
            for kind, (which, version) in pins.items()
        },
        "attestation": {
            "makers": [maker],
            "gpu_reports": {"policy": policy},
            "nvswitch_reports": {"policy": policy, "references": switches},
        },
    }
    tree = {"schema": 1, "releases": {"r": {"profiles": {"hgx-h100-bf3": profile}}}}
    return parse([("matrix.yaml", json.dumps(tree))])


def validate(
    folder: Path, change: Callable[[Machine], Any] = lambda _machine: None, policy: str = "require"
) -> tuple[HealthReport, dict[str, str], CheckContext]:
    """Return the report of a host, its stored evidence by digest, and the context of its judge."""

    async def main() -> tuple[HealthReport, dict[str, str], CheckContext]:
        rig, record, inventory, matrix = await prepare(folder, change, policy)
        validator = Validator(rig.effects, rig.store, checks.ALL, matrix)
        report = await validator.validate(record, inventory, selected=())
        assert isinstance(report, HealthReport)
        texts = {
            r.evidence: await rig.store.evidence.get_output(r.evidence) or ""
            for r in report.results
        }
        await rig.close()
        return report, texts, build_context(record, inventory, matrix)

    return asyncio.run(main())


async def prepare(
    folder: Path, change: Callable[[Machine], Any], policy: str
) -> tuple[Rig, Node, Inventory, Matrix]:
    """Return a site with a host whose profile asks for reports."""
    rig = await Rig(attestation_references=str(folder)).open()
    machine = rig.site.machines[NODE]
    matrix = make_matrix(
        folder,
        {
            "driver": rig.site.hosts[NODE].driver,
            "vbios": machine.firmware["host", "HGX_FW_GPU_SXM_1"].running,
            "switch": machine.firmware["host", "HGX_FW_NVSwitch_0"].running,
        },
        policy,
    )
    change(machine)
    inventory = Inventory(
        node=NODE,
        vendor="x",
        devices=tuple(
            Device(kind=DeviceKind(d.kind), slot=d.slot, model=d.model, serial=d.serial)
            for d in machine.devices.values()
            if d.kind in ("gpu", "nvswitch")
        ),
    )
    record = rig.nodes[NODE].model_copy(update={"release": "r", "profile": "hgx-h100-bf3"})
    return rig, record, inventory, matrix


def by_name(report: HealthReport) -> dict[str, CheckResult]:
    return {r.check: r for r in report.results}


@pytest.fixture(scope="module")
def honest(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[HealthReport, dict[str, str], CheckContext]:
    return validate(tmp_path_factory.mktemp("references"))


def test_all_devices_of_an_honest_host_are_proved(
    honest: tuple[HealthReport, dict[str, str], CheckContext],
) -> None:
    report, _, _ = honest

    assert report.failures == ()
    assert set(by_name(report)) == {GPUS.name, NVSWITCHES.name}


def test_the_evidence_is_whole_and_each_question_has_a_nonce_of_its_own(
    honest: tuple[HealthReport, dict[str, str], CheckContext],
) -> None:
    report, texts, context = honest
    nonces = set()
    for result in report.results:
        ((name, output),) = parse_evidence(texts[result.evidence]).items()
        stored = json.loads(output.text)
        assert stored["nonce"] in output.source
        assert name == result.check
        nonces.add(stored["nonce"])

    assert len(nonces) == 2
    # an auditor needs neither the folder of references nor the host
    again = list(rejudge_report(report, texts, checks.ALL, context))
    assert [one.now.verdict for one in again] == [Verdict.PASS, Verdict.PASS]


LIES: dict[str, tuple[Callable[[Machine], Any], str, str]] = {
    "other firmware in a GPU": (
        lambda machine: machine.implants.add("GPU_SXM_5"),
        GPUS.name,
        "measurement 5 is not the one that NV_GPU_VBIOS_G520_0200_885_",
    ),
    "other firmware in an NVSwitch": (
        lambda machine: machine.implants.add("NVSwitch_2"),
        NVSWITCHES.name,
        "measurement 5 is not the one that NV_SWITCH_BIOS_",
    ),
    "a GPU that gives no report": (
        lambda machine: machine.silent_roots.add("GPU_SXM_5"),
        GPUS.name,
        "attester missing: GPUs that give a report",
    ),
    "the tool is not there": (
        lambda machine: setattr(machine, "nvattest", None),
        GPUS.name,
        "nvattest is not installed in the host",
    ),
    "the GPUs are not in a confidential mode": (
        lambda machine: setattr(machine, "nvattest", 509),
        GPUS.name,
        "outside of which NVML gives no reports",
    ),
    "a version that is not pinned": (
        lambda machine: machine.host.loaded.update({"host.driver": "555.1"}),
        GPUS.name,
        "version is not the pin: driver 555.1, pinned",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_host_that_lies_or_is_silent_fails_gate_a(lie: str, tmp_path: Path) -> None:
    change, name, words = LIES[lie]

    report, _, _ = validate(tmp_path, change)

    result = by_name(report)[name]
    assert result.verdict is Verdict.FAIL
    assert any(words in f.detail for f in result.findings), result.findings


def test_recorded_reports_cost_nothing(tmp_path: Path) -> None:
    report, _, _ = validate(tmp_path, lambda m: m.implants.add("GPU_SXM_5"), "record")

    (finding,) = by_name(report)[GPUS.name].findings
    assert report.failures == ()
    assert finding.measured != finding.wanted


def ask_again(
    folder: Path,
    change: Callable[[Machine], Any] = lambda _machine: None,
    **fields: Any,
) -> list[tuple[bool, Renewal]]:
    """Certify a host that waits, change it, and ask its devices again."""

    async def main() -> list[tuple[bool, Renewal]]:
        rig, record, inventory, matrix = await prepare(folder, lambda _machine: None, "require")
        validator = Validator(rig.effects, rig.store, checks.ALL, matrix)
        report = await validator.validate(record, inventory, selected=())
        assert isinstance(report, HealthReport)
        await rig.store.write(partial(evidence_rows.put_report, report=report))
        await rig.store.write(
            partial(evidence_rows.put_inventory, inventory=inventory, now=rig.clock.now())
        )
        waiting = record.model_copy(update={"state": State.CERTIFIED, **fields})
        certificate = certification.issue_certificate(
            certificate_id="c",
            node=waiting,
            inventory=inventory,
            report=report,
            matrix_digest="m",
            now=rig.clock.now(),
            valid_s=86400.0,
        )
        change(rig.site.machines[NODE])
        context = Context(rig.store, rig.clock, rig.effects.settings)
        questions = await ReportQuestions(context, rig.effects, matrix).list_questions(
            waiting, certificate
        )
        answers = [(required, await ask()) for required, ask in questions]
        await rig.close()
        return answers

    return asyncio.run(main())


def test_a_host_that_waits_proves_its_devices_again(tmp_path: Path) -> None:
    answers = ask_again(tmp_path)

    assert [(required, a.differs, a.unproved) for required, a in answers] == [(True, (), ())] * 2
    assert all(a.roots for _, a in answers)  # what was shown goes to the evidence log


def test_a_gpu_of_a_waiting_host_that_runs_other_firmware_differs(tmp_path: Path) -> None:
    (_, of_gpus), (_, of_switches) = ask_again(tmp_path, lambda m: m.implants.add("GPU_SXM_5"))

    ((name, message),) = of_gpus.differs
    assert name.startswith("GH100 GPU ")
    assert "measurement 5 is not the one that NV_GPU_VBIOS" in message
    assert of_switches.proved


def test_a_gpu_that_was_exchanged_was_not_certified(tmp_path: Path) -> None:
    def exchange(machine: Machine) -> None:
        machine.devices["GPU_SXM_5"].serial = "1659999999999"

    (_, of_gpus), _ = ask_again(tmp_path, exchange)

    assert of_gpus.differs == (("GH100 GPU 1659999999999", "it was not certified"),)


def test_a_silent_tool_leaves_a_waiting_host_unproved(tmp_path: Path) -> None:
    (_, of_gpus), _ = ask_again(tmp_path, lambda machine: setattr(machine, "nvattest", None))

    ((name, message),) = of_gpus.unproved
    assert name == GPUS.name
    assert "nvattest is not installed" in message


def test_a_host_that_stopped_answers_nothing(tmp_path: Path) -> None:
    (_, of_gpus), _ = ask_again(tmp_path, lambda machine: machine.faults.add("inband_unreachable"))

    assert of_gpus.differs == ()
    assert "the host gave no answer" in of_gpus.unproved[0][1]


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": "red"},
        {"state": State.RELEASED},
        {"boots": Boots.RAMDISK},
        {"placement": Placement.CUSTOMER},
    ],
)
def test_nothing_is_asked_of_a_host_that_is_or_becomes_a_tenants(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    assert ask_again(tmp_path, **fields) == []

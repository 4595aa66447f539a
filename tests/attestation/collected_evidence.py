"""Re-made answers of `nvattest`: simulated GPUs and NVSwitches, signed by the tests' authority."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from attested_devices import (
    AT,
    AUTHORITY,
    DRIVER,
    NONCE,
    VBIOS,
    make_gpu,
    write_driver_rim,
    write_vbios_rim,
)

from provisioner.checks import collected_reports
from provisioner.checks.attestation.trust_anchors import digest_spki
from provisioner.checks.check import Check, CheckContext
from provisioner.checks.collected_reports import GPUS, NVSWITCHES, ReportKind, wrap_output
from provisioner.integrations.sim.hardware.simulated_tpm import SpdmResponder, make_values
from provisioner.model.cohort import CheckResult, Evidence
from provisioner.model.matrix import (
    AttestationRule,
    GpuReportRule,
    Reference,
    ReportRule,
    TrustedMaker,
)

SWITCH_BIOS = "96.10.55.00.01"
SWITCH_VALUES = make_values("switch", 31)
DRIVER_RIM = ("NV_GPU_DRIVER_GH100_590.12", write_driver_rim())
VBIOS_RIM = ("NV_GPU_VBIOS_1010_0200_882_9600A50001", write_vbios_rim())
MAKER = TrustedMaker(
    name=AUTHORITY.root_name,
    spki_sha256=digest_spki(AUTHORITY.root.certificate),
    source="the simulator",
)
CHECKS: dict[str, Check] = {
    GPUS.name: collected_reports.CHECK_GPUS,
    NVSWITCHES.name: collected_reports.CHECK_NVSWITCHES,
}


def admit(rim: tuple[str, bytes]) -> Reference:
    digest = hashlib.sha256(rim[1]).hexdigest()
    return Reference(rim=rim[0], sha256=digest, admitted="2026-11-20")


def make_context(**changes: Any) -> CheckContext:
    rule = {
        "gpu_reports": GpuReportRule(policy="require"),
        "nvswitch_reports": ReportRule(
            policy="require", digests={i: (v.hex(),) for i, v in SWITCH_VALUES.items()}
        ),
        **changes,
    }
    return CheckContext(
        gpus=2,
        nvswitches=1,
        pins={"host.driver": (DRIVER,), "hgx.gpu": (VBIOS,), "hgx.nvswitch": (SWITCH_BIOS,)},
        references={"host.driver": admit(DRIVER_RIM), "hgx.gpu": admit(VBIOS_RIM)},
        attestation=AttestationRule(makers=(MAKER,), **rule),
    )


def make_switch(serial: str = "S1", **changes: Any) -> SpdmResponder:
    device = AUTHORITY.make_device("LS_10 A01 FSP", serial)
    opaque = {6: SWITCH_BIOS.encode() + b"\0"}
    return SpdmResponder(device, **{"values": SWITCH_VALUES, "opaque": opaque, **changes})


def enter(responder: SpdmResponder, nonce: bytes = NONCE, **changes: Any) -> dict[str, Any]:
    """Return the entry of one device; what the host says beside the report is wrong on purpose."""
    return {
        "arch": "HOPPER",
        "certificate": base64.b64encode(responder.device.chain_pem.encode()).decode(),
        "evidence": base64.b64encode(responder.answer(nonce)).decode(),
        "nonce": "00" * 32,
        "vbios_version": "99.99",
        "version": "1.0",
        **changes,
    }


@dataclass
class Answer:
    """What a host printed, and what it is judged by; a test changes one thing of it."""

    kind: ReportKind = GPUS
    entries: list[dict[str, Any]] | None = field(
        default_factory=lambda: [enter(make_gpu("A1")), enter(make_gpu("A2"))]
    )
    result: int = 0
    exit_code: int = 0
    printed: str | None = None  # in place of the answer
    nonce: str = NONCE.hex()
    manifests: tuple[tuple[str, bytes], ...] = (DRIVER_RIM, VBIOS_RIM)
    context: CheckContext = field(default_factory=make_context)

    def outputs(self) -> dict[str, Evidence]:
        answer = {"evidences": self.entries, "result_code": self.result, "result_message": "m"}
        printed = json.dumps(answer, indent=4) if self.printed is None else self.printed
        text = wrap_output(printed, self.exit_code, self.nonce, AT, self.manifests, ())
        evidence = Evidence(source=self.kind.command.line, exit_code=0, text=text)
        return {self.kind.command.name: evidence}

    def judge(self) -> CheckResult:
        return CHECKS[self.kind.name].judge(self.outputs(), self.context)

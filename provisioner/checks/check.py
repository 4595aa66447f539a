"""A health check: the commands that it needs, and a pure function that judges their raw outputs.

An output that cannot be read never passes. A judge raises `Unreadable` for such an output and
`NotJudged` where it has no threshold; `Check.judge` turns both into a verdict, so that a device
cannot cause a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated

from pydantic import AfterValidator, Field

from provisioner.checks.threshold_data import Limits
from provisioner.model.base import Record
from provisioner.model.cohort import CheckResult, Evidence, Finding, Gate, Severity, Verdict
from provisioner.model.matrix import AttestationRule, Reference
from provisioner.model.node import NodeKind

# Evidence holds a command's output from before a load test under the command's name plus this.
BEFORE = "@before"
# Bounds the findings of one result: a hostile output with a million faults is still one fault.
FINDINGS_MAX = 64
DETAIL_MAX = 300  # characters of device output that a finding repeats


class Unreadable(Exception):
    """Raised when an output is not in its tool's format: garbled, cut short or absent."""


class NotJudged(Exception):
    """Raised when no threshold is published for this GPU, so that the output cannot be judged."""


def _require_regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern[:60]!r} is no regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_require_regex)]


class Command(Record):
    """One command inside the host (docs/in-band.md), or one path of a switch's API."""

    name: str
    line: str
    limit_s: float
    bmc: bool = False  # read from the host's BMC; `line` names the resources
    asks: bool = False  # `line` has NONCE where each run puts a fresh number of ours


class CheckContext(Record):
    """What outputs are compared with: the node's parts, pins, cables and thresholds."""

    gpu_model: str = ""  # "H100", "H200", "B200"; "": not recognised
    profile: str = ""  # the node's profile in the matrix, to which a threshold may be specific
    gpus: int = 8  # an HGX baseboard has eight
    gpu_serials: tuple[str, ...] = ()  # from Redfish; () where it gives none
    pins: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)  # kind -> approved versions
    nic_parameters: Mapping[str, str] = Field(default_factory=dict)  # NV-config of SuperNICs
    nic_runtime: Mapping[str, str] = Field(default_factory=dict)  # SuperNIC settings after a boot
    rails: int = 0  # east-west ports
    link_layer: str = "Ethernet"  # of the rails: "Ethernet" | "InfiniBand"
    dpu_pci: tuple[str, ...] = ()  # north-south cards, which have an NV-config of their own
    neighbours: tuple[tuple[str, str], ...] = ()  # (leaf, interface) that the ports are cabled to
    # "leaf/interface" -> PCI address of the card at the node's end; "" where it is unknown
    cabled_pci: Mapping[str, str] = Field(default_factory=dict)
    # "leaf/interface" -> "node/card" of other nodes' cables on the same leaves
    port_owners: Mapping[str, str] = Field(default_factory=dict)
    # leaf -> what its LLDP calls a port -> the port's name, of leaves that call them otherwise
    port_names: Mapping[str, Mapping[str, str]] = Field(default_factory=dict)
    # PCI address of a GPU or NVSwitch, with and without its function -> its slot
    slot_of_pci: Mapping[str, str] = Field(default_factory=dict)
    # kind -> versions that the pinned bundle contains
    bundled: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    # (the host's address of a rail, the address that it must reach by that rail)
    rail_paths: tuple[tuple[str, str], ...] = ()
    rail_pci: tuple[str, ...] = ()  # cards that carry the east-west ports, where known
    grammars: Mapping[str, str] = Field(default_factory=dict)  # kind -> grammar of its versions
    sockets: int = 0  # CPUs by the bill of materials or by Redfish; 0: unknown
    drives: int = 0  # NVMe drives by the bill of materials; 0: unknown
    attestation: AttestationRule = AttestationRule()  # of the profile
    boot_contradiction: str = ""  # between BMC and TPM, about the last boot that was quoted
    # kind -> the signed manifest with the golden values of its pin
    references: Mapping[str, Reference] = Field(default_factory=dict)
    nvswitches: int = 0  # by the bill of materials or by Redfish; 0: unknown
    # the site's own thresholds, which take precedence over published ones (docs/thresholds.md)
    overrides: Mapping[str, Limits] = Field(default_factory=dict)
    # the site's own patterns of harmless kernel messages, in addition to kernel_harmless.csv
    harmless_lines: tuple[Pattern, ...] = ()
    # what a training step computed in the fleet, by name (fabric/training_step.py)
    training: Mapping[str, float] = Field(default_factory=dict)
    # threshold -> (value, how the fleet taught it), used where no value is published
    learned: Mapping[str, tuple[float, str]] = Field(default_factory=dict)


Judge = Callable[[Mapping[str, Evidence], CheckContext], Iterable[Finding]]
# Builds a node's commands, where a limit must be passed to the tool (DCGM's own are too low).
Lines = Callable[[CheckContext], tuple[Command, ...]]
# Reads what an output measured, by "name/part"; raises `Unreadable` as a judge does.
Measure = Callable[[Mapping[str, Evidence], CheckContext], Mapping[str, float]]
MEASURED_MAX = 512  # numbers of one result


@dataclass(frozen=True)
class Check:
    """One check. `after_load`: it is judged again after every load test."""

    name: str
    gate: Gate
    commands: tuple[Command, ...]
    findings: Judge
    kind: NodeKind = NodeKind.HOST
    load: bool = False  # puts load on the node: runs alone
    after_load: bool = False
    measure: Measure | None = None
    lines: Lines | None = None
    thresholds: tuple[str, ...] = ()  # names of the thresholds that the check applies
    on_request: bool = False  # never part of a standard validation, whatever its gate
    # returns whether findings are recorded without effect on the verdict
    is_recorded: Callable[[CheckContext], bool] = lambda _context: False

    def commands_of(self, context: CheckContext) -> tuple[Command, ...]:
        return self.lines(context) if self.lines is not None else self.commands

    def judge(self, evidence: Mapping[str, Evidence], context: CheckContext) -> CheckResult:
        """Return the verdict on these outputs; `evidence` maps a command's name to its output."""
        findings: list[Finding] = []
        verdict = Verdict.FAIL
        try:
            for finding in self.findings(evidence, context):
                findings.append(finding)
                if len(findings) == FINDINGS_MAX:
                    break
        except Unreadable as problem:
            findings.append(fault("host", Severity.CONFIG, f"cannot be judged: {problem}"))
        except NotJudged as problem:
            if not findings:
                verdict = Verdict.SKIPPED
            findings.append(fault("host", Severity.CONFIG, f"not judged: {problem}"))
        if not findings or self.is_recorded(context):
            verdict = Verdict.PASS
        return CheckResult(
            check=self.name,
            gate=self.gate,
            verdict=verdict,
            findings=tuple(findings),
            measured=self._read_measurements(evidence, context),
        )

    def _read_measurements(
        self, evidence: Mapping[str, Evidence], context: CheckContext
    ) -> Mapping[str, float]:
        """Return the finite numbers that these outputs measured; {} where they cannot be read."""
        if self.measure is None:
            return {}
        try:
            numbers = self.measure(evidence, context)
        except (Unreadable, NotJudged):
            return {}
        finite = {_printable(n): v for n, v in numbers.items() if isfinite(v)}
        return dict(sorted(finite.items())[:MEASURED_MAX])

    def report_skipped(self, why: str) -> CheckResult:
        """Return a result that says why this check was not run; it never counts as a pass."""
        return CheckResult(
            check=self.name,
            gate=self.gate,
            verdict=Verdict.SKIPPED,
            findings=(fault("host", Severity.CONFIG, why),),
        )


def fault(
    part: str, severity: Severity, detail: str, measured: object = "", expected: object = ""
) -> Finding:
    """Return a finding whose texts are bounded and printable, as they may repeat device output."""
    return Finding(
        part=_printable(part)[:80],
        severity=severity,
        detail=_printable(detail),
        measured=_printable(str(measured)),
        wanted=_printable(str(expected)),
    )


def _printable(text: str) -> str:
    """Replace control characters, so that a device cannot write to a person's terminal."""
    return "".join(c if c.isprintable() else " " for c in text[:DETAIL_MAX])

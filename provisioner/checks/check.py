"""What a check is: the commands it needs, and a pure judgement of their raw outputs.

Rule: nothing unread is a pass. A judge raises `Unreadable` for an output that it cannot read and
`NotJudged` where no threshold is known; both become a verdict here, never a traceback.
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
from provisioner.model.health import CheckResult, Evidence, Finding, Gate, Severity, Verdict
from provisioner.model.node import NodeKind

# The output of a command before a load test is in the evidence under its name with this behind it.
BEFORE = "@before"
# A hostile output with a million faults is one fault as well as any other.
FINDINGS_MAX = 64
DETAIL_MAX = 300  # characters of what a device said that a finding repeats


class Unreadable(Exception):
    """An output is not what its tool prints: garbled, cut short, or not there at all."""


class NotJudged(Exception):
    """There is nothing to judge against: no threshold is published for this GPU."""


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern[:60]!r} is no regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_compiles)]


class Command(Record):
    """One command inside the host (docs/in-band.md), or one path of a switch's API."""

    name: str
    line: str
    limit_s: float
    bmc: bool = False  # read from the host's BMC; `line` says what


class CheckContext(Record):
    """What the outputs are held against: the node's parts, pins and cables."""

    gpu_model: str = ""  # "H100", "H200", "B200"; "": not recognised
    profile: str = ""  # of the matrix; a threshold may be given for it alone
    gpus: int = 8  # an HGX baseboard has eight
    gpu_serials: tuple[str, ...] = ()  # from Redfish; (): it gives none
    pins: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)  # kind -> approved versions
    nic_parameters: Mapping[str, str] = Field(default_factory=dict)  # NV-config of SuperNICs
    nic_runtime: Mapping[str, str] = Field(default_factory=dict)  # theirs after every boot
    rails: int = 0  # east-west ports
    dpu_pci: tuple[str, ...] = ()  # north-south cards, which have an NV-config of their own
    neighbours: tuple[tuple[str, str], ...] = ()  # (leaf, interface) that the ports are cabled to
    # "leaf/interface" -> PCI address of the card at the node's end; "": not known
    cabled_pci: Mapping[str, str] = Field(default_factory=dict)
    # "leaf/interface" -> "node/card" of other nodes' cables on the same leaves
    port_owners: Mapping[str, str] = Field(default_factory=dict)
    # PCI address of a GPU or NVSwitch, with and without its function -> its slot
    slot_of_pci: Mapping[str, str] = Field(default_factory=dict)
    # kind -> versions that the pinned bundle brings
    bundled: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    rail_pci: tuple[str, ...] = ()  # cards that carry the east-west ports, as far as known
    grammars: Mapping[str, str] = Field(default_factory=dict)  # kind -> grammar of its versions
    sockets: int = 0  # CPUs of the bill of materials, or that Redfish lists; 0: not known
    drives: int = 0  # NVMe drives of it; 0: it does not say
    # a site's own thresholds, which beat the published ones (docs/thresholds.md)
    overrides: Mapping[str, Limits] = Field(default_factory=dict)
    # a site's own patterns of kernel messages that mean nothing, beside kernel_harmless.csv
    harmless_lines: tuple[Pattern, ...] = ()
    # threshold -> (value, how it was learned from the fleet), used where nobody published one
    learned: Mapping[str, tuple[float, str]] = Field(default_factory=dict)


Judge = Callable[[Mapping[str, Evidence], CheckContext], Iterable[Finding]]
# The commands for one node, where a limit must be passed to the tool (DCGM's own are too low).
Lines = Callable[[CheckContext], tuple[Command, ...]]
# What an output measured, by "name/part"; raises Unreadable as a judge does.
Measure = Callable[[Mapping[str, Evidence], CheckContext], Mapping[str, float]]
MEASURED_MAX = 512  # numbers of one result


@dataclass(frozen=True)
class Check:
    """One check. `after_load`: judged again after every load test, for faults that load brings."""

    name: str
    gate: Gate
    commands: tuple[Command, ...]
    findings: Judge
    kind: NodeKind = NodeKind.HOST
    load: bool = False  # puts load on the node: runs alone
    after_load: bool = False
    measure: Measure | None = None
    lines: Lines | None = None
    thresholds: tuple[str, ...] = ()  # names of those that it is judged by
    on_request: bool = False  # never part of a plain validation, whatever its gate

    def commands_of(self, context: CheckContext) -> tuple[Command, ...]:
        """The commands as they are run on a node of this context."""
        return self.lines(context) if self.lines is not None else self.commands

    def judge(self, evidence: Mapping[str, Evidence], context: CheckContext) -> CheckResult:
        """The verdict on these outputs; `evidence` is by command name."""
        found: list[Finding] = []
        verdict = Verdict.FAIL
        try:
            for finding in self.findings(evidence, context):
                found.append(finding)
                if len(found) == FINDINGS_MAX:
                    break
        except Unreadable as problem:
            found.append(fault("host", Severity.CONFIG, f"cannot be judged: {problem}"))
        except NotJudged as problem:
            if not found:
                verdict = Verdict.SKIPPED
            found.append(fault("host", Severity.CONFIG, f"not judged: {problem}"))
        return CheckResult(
            check=self.name,
            gate=self.gate,
            verdict=verdict if found else Verdict.PASS,
            findings=tuple(found),
            measured=self._measured(evidence, context),
        )

    def _measured(
        self, evidence: Mapping[str, Evidence], context: CheckContext
    ) -> Mapping[str, float]:
        """The finite numbers that these outputs measured; none where they cannot be read."""
        if self.measure is None:
            return {}
        try:
            numbers = self.measure(evidence, context)
        except (Unreadable, NotJudged):
            return {}
        finite = {_printable(n): v for n, v in numbers.items() if isfinite(v)}
        return dict(sorted(finite.items())[:MEASURED_MAX])

    def skipped(self, why: str) -> CheckResult:
        """This check was not run; that is never a pass."""
        return CheckResult(
            check=self.name,
            gate=self.gate,
            verdict=Verdict.SKIPPED,
            findings=(fault("host", Severity.CONFIG, why),),
        )


def fault(
    part: str, severity: Severity, detail: str, measured: object = "", wanted: object = ""
) -> Finding:
    """A finding whose texts are bounded and printable: they may repeat what a device said."""
    return Finding(
        part=_printable(part)[:80],
        severity=severity,
        detail=_printable(detail),
        measured=_printable(str(measured)),
        wanted=_printable(str(wanted)),
    )


def _printable(words: str) -> str:
    """No control characters: a device must not write to a person's terminal."""
    return "".join(c if c.isprintable() else " " for c in words[:DETAIL_MAX])

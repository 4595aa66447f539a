"""Measurements of nodes, and the baselines that the fleet's comparison learns from them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant

# ------------------------------------------------------------------------------
# Results of health checks, with their findings and their evidence.


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105 (a verdict, not a password)
    FAIL = "fail"
    SKIPPED = "skipped"  # never counts as a pass


class Severity(StrEnum):
    """The remedy that a finding asks for: from repairing the host to returning the part.

    source: docs/sources/health.md#dcgm-severity.
    """

    CONFIG = "config"  # repair the host and run again
    MONITOR = "monitor"
    RESET_GPU = "reset_gpu"
    RESTART = "restart"
    POWER_CYCLE = "power_cycle"
    ISOLATE = "isolate"  # candidate for return


class Gate(StrEnum):
    A = "a"  # identity, errors, links: seconds
    B = "b"  # single-node load: minutes
    C = "c"  # fabric, in the maintenance VRF
    D = "d"  # long burn, for new and repaired nodes


class Finding(Record):
    """One fault that a check reports, at one part."""

    part: str  # "GPU_SXM_5", "rail3", "host"
    severity: Severity
    detail: str
    measured: str = ""
    wanted: str = ""


class CheckResult(Record):
    """A check's verdict. A failure has at least one finding.

    A pass has none, except of a check whose findings are only recorded.
    """

    check: str
    gate: Gate
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    evidence: str = ""  # SHA-256 of the raw output in the evidence table
    # Measurements, by "name/part" with the unit in the name ("busbw_gb_s/host",
    # "host_to_gpu_gb_s/GPU 3"): compared with the fleet, and before with after.
    measured: Mapping[str, float] = Field(default_factory=dict)


class Evidence(Record):
    """Raw output of one command or path, unchanged, with its exit status."""

    source: str  # the command line or Redfish path
    exit_code: int | None  # None: it did not end (timeout), or it has no exit code
    text: str
    truncated: bool = False


class HealthReport(Record):
    """All results of one validation, bound to the parts and versions installed when it ran."""

    node: str
    inventory_digest: str
    started_at: float
    ended_at: float
    results: tuple[CheckResult, ...]
    selected: tuple[str, ...] = ()  # checks that were chosen for it; (): those of every validation
    causes: tuple[str, ...] = ()  # why these were chosen
    fabric: bool = False  # tests among nodes (gate C) are required after these

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """Return every result that is not a pass; a skipped check is never a pass."""
        return tuple(r for r in self.results if r.verdict is not Verdict.PASS)


class Sample(Record):
    """The measurements of one node when it was last judged with one set of versions."""

    node: str
    rack: str
    profile: str
    versions: str  # digest of its version set
    measured: Mapping[str, float]  # "name/part", the unit in the name
    sound: bool  # no check reported a fault; only then it contributes to a baseline
    taken_at: float = 0.0


class Baseline(Record):
    """A learned level and the floor that follows from it (a ceiling for metrics where less is
    better).
    """

    metric: str  # the group: "busbw_gb_s", or with a rail
    profile: str
    versions: str
    level: float
    floor: float
    anchor: float  # the first level, or the published value
    nodes: int
    racks: int
    below: int  # sound nodes that are worse than the floor
    learned_at: Instant

    def __str__(self) -> str:
        return f"{self.nodes} nodes in {self.racks} racks share {self.level:.6g}"

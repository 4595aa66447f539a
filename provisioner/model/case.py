"""A repair from the fault to the node's return: one case, its suspects, what was tried, its times.

Rule: a case states what was seen, tried and measured; what follows from it is decided in
`planning/repair/case_policy.py`. Times are seconds since the epoch; 0 is "not yet".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.inventory import DeviceKind


class Origin(StrEnum):
    """Who noticed the fault."""

    EVENT = "event"  # an alert of the watch, or of the site's own monitoring
    CHECK = "check"  # a health check, or tests among nodes
    WORK = "work"  # an update, a boot or a look that failed for good
    TENANT = "tenant"
    OPERATOR = "operator"
    MAINTENANCE = "maintenance"  # planned work by people: nothing is wrong with the node


class Service(StrEnum):
    """What becomes of the tenant's use of the node while the case is open."""

    KEEP = "keep"  # it goes on serving; the tenant has a notice
    DRAIN = "drain"  # it is taken back once the notice has run out, or the tenant agrees
    CUT_OFF = "cut_off"  # it is taken back now


class Stage(StrEnum):
    """Where a case is. A case goes back to `diagnosis` after a remedy that did not help."""

    OPENED = "opened"  # noticed; the node serves on, or is on its way into the maintenance tenant
    EVIDENCE = "evidence"  # fenced; what a reset would destroy is collected
    DIAGNOSIS = "diagnosis"  # evidence is there; suspect and remedy are chosen
    REMEDY = "remedy"  # a remedy is carried out, or waits for its turn
    MEASURING = "measuring"  # a remedy was carried out; the node is brought up and validated
    HARDWARE = "hardware"  # people work on it: reseat, replace
    RETURNING = "returning"  # back from people: a stranger, until it is certified
    RETIRING = "retiring"  # it goes for good: erased, ports closed, credentials removed
    CLOSED = "closed"


class Ending(StrEnum):
    """How a case was closed."""

    CURED = "cured"  # by a remedy; certified again
    REPAIRED = "repaired"  # by people; certified again
    NO_FAULT = "no_fault"  # nothing was found, or it was kept and the fault is over
    REPLACED = "replaced"  # another host stands in its place
    RETIRED = "retired"


class RemedyKind(StrEnum):
    """The rungs of the ladder, from the one that costs least."""

    RERUN = "rerun"  # judge again: nothing is touched
    GPU_RESET = "gpu_reset"
    COLD_BOOT = "cold_boot"  # host power off, then on
    REFLASH = "reflash"  # the pinned firmware is written once more, then activated
    AC_CYCLE = "ac_cycle"  # standby power is taken away too
    RESEAT = "reseat"  # by a person: out and in again, or the cable or module cleaned
    REPLACE = "replace"  # by a person: another part


BY_PEOPLE = frozenset({RemedyKind.RESEAT, RemedyKind.REPLACE})


class PartClass(StrEnum):
    """What a suspect is, for ladders and for reports."""

    GPU = "gpu"
    GPU_MEMORY = "gpu_memory"
    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"
    BASEBOARD = "baseboard"
    PCIE = "pcie"
    NIC = "nic"
    DPU = "dpu"
    OPTIC = "optic"
    CABLE = "cable"
    LEAF = "leaf"
    MEMORY = "memory"
    CPU = "cpu"
    STORAGE = "storage"
    PSU = "psu"
    FAN = "fan"
    COOLING = "cooling"
    BMC = "bmc"
    SOFTWARE = "software"
    HOST = "host"  # nothing better can be said


class Suspect(Record):
    """A part that may be the cause. `evidence`: lines that a person can follow to their source."""

    part: str  # "GPU_SXM_5", "DPU_1", "DPU_1/p0", "leaf-03/swp1s0", "host"
    kind: PartClass
    confidence: float = Field(ge=0.0, le=1.0)
    rule: str  # name of the rule in `planning/repair/diagnosis_rules.csv`
    why: str  # one sentence
    evidence: tuple[str, ...] = ()
    serial: str = ""
    part_number: str = ""
    vendor: str = ""


class Fault(Record):
    """One thing seen, as the diagnosis reads it and as before and after are compared.

    `source` says who saw it: "alert", "check", "event_log", "xid", "isolation", "inventory",
    "report" (a person's words), "work".
    """

    source: str
    id: str  # name of the alert, of the check, of the reason; "xid 79"
    part: str = ""  # as the source names it; "" is the node
    detail: str = ""
    at: float = 0.0
    count: int = 1

    @property
    def key(self) -> str:
        """What makes it the same fault before and after a remedy."""
        return f"{self.source}:{self.id}:{self.part}"


class Outcome(StrEnum):
    """What became of one try of a remedy."""

    UNDER_WAY = "under_way"
    CURED = "cured"  # none of the faults before it is there after it
    LESS = "less"  # some are gone, some are left
    SAME = "same"
    WORSE = "worse"  # there are others now too
    NOT_DONE = "not_done"  # it could not be carried out


class RemedyTry(Record):
    """One try of one remedy: what was there before it, and what after."""

    remedy: RemedyKind
    part: str
    kind: PartClass
    attempt: int  # of this remedy on this part in this case, from 1
    started_at: float
    done_at: float = 0.0  # carried out (or not); its effect is still to be measured
    measured_at: float = 0.0
    outcome: Outcome = Outcome.UNDER_WAY
    before: tuple[str, ...] = ()  # keys of faults
    after: tuple[str, ...] = ()
    detail: str = ""


class StageTime(Record):
    """When a stage of a case was entered."""

    stage: Stage
    at: float


class Ticket(Record):
    """A piece of work for people, as the site's own system knows it."""

    id: str = ""  # the other system's; "": it has not been taken there yet
    system: str = ""  # name of the adapter: "webhook", "email", ...
    url: str = ""
    opened_at: float = 0.0
    closed_at: float = 0.0
    rma: str = ""  # the vendor's return number
    bundle: str = ""  # SHA-256 of the signed evidence archive
    led: bool = False  # the identify LED was switched on for it
    led_problem: str = ""  # why it is not as it is to be
    work: str = ""  # what to do, in one sentence
    asked: str = ""  # what its system is to hear; written before it is sent
    asks: int = 0  # messages of this ticket so far
    told: str = ""  # what its system has heard last; equal to `asked`: nothing is open
    tries: int = 0  # of the last message
    problem: str = ""  # why it was not told yet


class Spare(Record):
    """The part that is to go in, or went in."""

    kind: DeviceKind
    part_number: str = ""
    serial: str = ""
    reserved_at: float = 0.0


class PartChange(Record):
    """One slot whose part is another one. None: the slot was, or is, empty."""

    kind: DeviceKind
    slot: str
    before: str | None = None  # serial
    after: str | None = None
    model_before: str | None = None
    model_after: str | None = None
    moved_from: str = ""  # the slot that the new serial was in before


class PartsDifference(Record):
    """What differs in parts before and after people worked on a node."""

    changes: tuple[PartChange, ...] = ()
    unknown: tuple[str, ...] = ()  # "kind/slot" without a serial before or after: nothing is proved
    unexpected: tuple[str, ...] = ()  # changed, and not what the case asked for
    missing: tuple[str, ...] = ()  # asked for, and not changed
    wrong: tuple[str, ...] = ()  # another model or part number than what was there
    system_changed: bool = False  # the host itself is another one


class Notice(Record):
    """What a tenant is told of a node. Stored when it arises, sent by whoever sends."""

    id: str
    tenant: str
    node: str
    case: str = ""
    kind: str  # "failure" | "maintenance" | "returned" | "retirement" | "replacement"
    text: str
    at: float
    effective_at: float = 0.0  # when the node is taken, at the latest; 0: it is not
    channels: int | None = None  # webhooks that took it when it was written; None: not counted
    sent_at: float = 0.0
    accepted_at: float = 0.0  # the tenant agrees to be drained earlier

    @property
    def delivery(self) -> str:
        """Return "sent", "waiting" (a webhook has not taken it yet) or "recorded only"."""
        if self.sent_at:
            return "sent"
        return "recorded only" if self.channels == 0 else "waiting"


class JoinedReport(Record):
    """One report that joined a case which was open already."""

    origin: Origin
    reason: str  # one sentence
    by: str  # a person, a tenant, the source of the alert
    at: float


class Case(Record):
    """One fault of one node. `generation` grows by one with every change."""

    id: str  # "n07-0003": node and number
    node: str
    generation: int = 0
    origin: Origin
    reason: str  # one sentence: what was reported
    by: str = ""  # who reported it: a person, a tenant, the alert's source
    service: Service
    tenant: str = ""  # that the node served when it was opened; it goes back to it
    stage: Stage = Stage.OPENED
    stages: tuple[StageTime, ...] = ()
    reports: tuple[JoinedReport, ...] = ()  # that joined it after it was opened, oldest first
    weighed: tuple[str, ...] | None = None  # alerts its service was chosen by; None: not recorded
    faults: tuple[Fault, ...] = ()  # as last collected
    evidence: Mapping[str, str] = Field(default_factory=dict)  # name -> SHA-256 of what is stored
    gaps: tuple[str, ...] = ()  # evidence that could not be had, and why
    suspects: tuple[Suspect, ...] = ()  # most likely first
    tries: tuple[RemedyTry, ...] = ()
    next_at: float = 0.0  # nothing is tried before (rate limit, notice)
    note: str = ""  # what it waits for, for people
    parts_before: tuple[tuple[str, str, str, str], ...] = ()  # (kind, slot, serial, model)
    system_before: str = ""  # serial of the host
    profile: str = ""  # of the node when it was opened; "": it was not taken over then
    vendor: str = ""
    difference: PartsDifference | None = None
    ticket: Ticket | None = None
    spare: Spare | None = None
    deeper: bool = False  # a repeat offender: everything is tested before it is certified
    score: float = 0.0  # of its history, when the case was opened
    drain_at: float = 0.0  # when it is taken from its tenant
    work_ends_at: float = 0.0  # of planned maintenance, as people expect it; 0: they did not say
    retire_at: float = 0.0  # people decided that the node goes for good, then; 0: they did not
    disks_gone: str = ""  # who destroyed its disks, and how; "": it is erased before it is retired
    opened_at: float
    closed_at: float = 0.0
    ending: Ending | None = None

    @property
    def open(self) -> bool:
        """Whether it is not closed."""
        return self.stage is not Stage.CLOSED

    @property
    def suspect(self) -> Suspect | None:
        """The most likely cause."""
        return self.suspects[0] if self.suspects else None

    @property
    def trying(self) -> RemedyTry | None:
        """The remedy whose effect is not measured yet."""
        last = self.tries[-1] if self.tries else None
        return last if last is not None and last.outcome is Outcome.UNDER_WAY else None

    def entered(self, stage: Stage, now: float, **changes: object) -> Case:
        """This case after entering `stage`; the generation is the store's to raise."""
        stages = (*self.stages, StageTime(stage=stage, at=now))
        return self.model_copy(update={"stage": stage, "stages": stages, **changes})

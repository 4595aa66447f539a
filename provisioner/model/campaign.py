"""Campaigns: a release brought to many nodes in waves, under limits; words and records only.

`planning/rollout.py` decides, `control/campaigns.py` carries out. Times are seconds of the daemon's
clock (Unix time) unless the name says otherwise. What a policy file may say is `Policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from provisioner.model.base import Record
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker

DEFERRAL_MAX_S = 14 * 86_400  # nobody may put an upgrade off for longer
DAY_S = 86_400


class Domain(StrEnum):
    """What may be lost at one blow. Hosts are counted in the first five, switches in the others."""

    RACK = "rack"
    SCALABLE_UNIT = "scalable_unit"
    LEAF = "leaf"
    RAIL = "rail"  # a rail's leaves
    PLANE = "plane"  # a plane's switches
    TENANT = "tenant"
    TOTAL = "total"


class Limit(Record):
    """How many of a domain's members may be out of service at once: a number, or a share.

    A share is of all members of the domain in the fleet, rounded down, but at least 1 if the
    share is above 0. 0 closes the domain.
    """

    count: int | None = Field(default=None, ge=0)
    percent: float | None = Field(default=None, ge=0, le=100)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.count is None) == (self.percent is None):
            raise ValueError("a limit has either `count` or `percent`")
        return self


class Canary(Record):
    """The first nodes of a campaign, and how long they are watched before others follow."""

    size: int = Field(default=4, ge=0)  # spread over profiles, revisions, racks, rails
    soak_s: int = Field(default=3600, ge=0)


class Wave(Record):
    """A part of the campaign's nodes: everything up to this share, soaked before the next."""

    upto: Limit = Limit(percent=100)
    soak_s: int = Field(default=0, ge=0)


class Window(Record):
    """When work may begin and must be over. Days of the week and a time in UTC plus an offset."""

    days: tuple[int, ...] = Field(default=(0, 1, 2, 3, 4, 5, 6), min_length=1)  # 0 is Monday
    start_min: int = Field(ge=0, lt=1440)  # minutes after midnight
    minutes: int = Field(ge=1, le=7 * 1440)
    utc_offset_min: int = Field(default=0, ge=-720, le=840)

    @model_validator(mode="after")
    def _days_of_a_week(self) -> Self:
        if not all(0 <= d <= 6 for d in self.days):
            raise ValueError("days are numbers from 0 (Monday) to 6")
        return self


class Freeze(Record):
    """A span of time in which nothing begins or runs, whatever the windows say."""

    begins_at: float
    ends_at: float
    reason: str


class AtDeadline(StrEnum):
    """What happens when a tenant's deferral is used up."""

    PROCEED = "proceed"  # the node is upgraded without further questions
    RETIRE = "retire"  # it is taken from the tenant for good, upgraded, and idle afterwards
    SKIP = "skip"  # it stays as it is, and the report says so


class TenantTerms(Record):
    """What tenants are owed before a node of theirs is touched."""

    notice_s: int = Field(default=DAY_S, ge=0)
    waves_ahead: int = Field(default=1, ge=0)  # waves behind the open one that get notice already
    deferral_max_s: int = Field(default=DEFERRAL_MAX_S, ge=0, le=DEFERRAL_MAX_S)
    at_deadline: AtDeadline = AtDeadline.PROCEED
    windows: Mapping[str, tuple[Window, ...]] = {}  # by tenant; not listed: at any time


class Breaker(Record):
    """When a campaign stops itself before its failure budget is used up."""

    of_last: int = Field(default=10, ge=1)  # nodes that finished last
    failures: int = Field(default=3, ge=1)  # so many failures among them
    same_reason: int = Field(default=2, ge=1)  # so many failures of one reason and subject


class LeafHosts(StrEnum):
    """What becomes of tenants' hosts below a leaf that goes down."""

    DRAIN = "drain"  # they leave service for that time, and count in the limits of hosts
    KEEP = "keep"  # they go on with a rail less; their tenants get notice all the same


class Policy(Record):
    """How careful a campaign is. The defaults are proposals."""

    canary: Canary = Canary()
    waves: tuple[Wave, ...] = Field(
        default=(Wave(upto=Limit(percent=10), soak_s=1800), Wave()), min_length=1, max_length=32
    )
    limits: Mapping[Domain, Limit] = {  # hosts: rack, scalable_unit, leaf, tenant, total
        Domain.RACK: Limit(percent=50),
        Domain.SCALABLE_UNIT: Limit(percent=25),
        Domain.TENANT: Limit(percent=10),
        Domain.TOTAL: Limit(percent=10),
    }
    switch_limits: Mapping[Domain, Limit] = {  # switches: rail, plane, scalable_unit, rack, total
        Domain.SCALABLE_UNIT: Limit(count=1),
        Domain.TOTAL: Limit(percent=10),
    }
    failure_budget: Limit = Limit(percent=2)  # of the campaign's nodes; more failures stop it
    # True: no more nodes are under way than the budget has left, so that it holds even if all fail
    budget_strict: bool = False
    breaker: Breaker = Breaker()
    windows: tuple[Window, ...] = ()  # change windows of the site; (): at any time
    freezes: tuple[Freeze, ...] = ()
    tenants: TenantTerms = TenantTerms()
    free_kept: Limit = Limit(count=0)  # of each profile's idle hosts; a share is rounded up
    leaf_hosts: LeafHosts = LeafHosts.DRAIN
    allow_irreversible: bool = False  # nodes that could not be rolled back are admitted


class CampaignState(StrEnum):
    DRAFT = "draft"  # nothing is touched
    STARTED = "started"
    PAUSED = "paused"  # what is under way ends, nothing is admitted; a person resumes it
    STOPPED = "stopped"  # it stopped itself; a person resumes it, aborts it or rolls it back
    ABORTED = "aborted"  # over, some nodes not done
    ROLLING_BACK = "rolling_back"  # its nodes go back to `baseline`
    DONE = "done"


class Campaign(Record):
    """One row of the campaigns table. `baseline`: the release that its nodes come from."""

    id: str
    release: str
    select: str
    policy: Policy = Policy()
    state: CampaignState = CampaignState.DRAFT
    reason: str = ""  # why it is paused, stopped or aborted
    baseline: str = ""
    created_by: str = ""
    created_at: float = 0.0
    started_at: float = 0.0
    generation: int = 0
    one_way_confirmed: tuple[str, ...] = ()  # "component version" of steps that a person confirmed
    accepted: tuple[str, ...] = ()  # metrics whose regression a person accepted

    @property
    def target(self) -> str:
        """The release that nodes are brought to now."""
        return self.baseline if self.state is CampaignState.ROLLING_BACK else self.release


class CampaignNode(Record):
    """What is so of one node of the fleet now. `decide` gets all of them, not the selected only:
    shares and outages are the fleet's. Retired nodes are left out."""

    name: str
    kind: NodeKind = NodeKind.HOST
    selected: bool = True  # the campaign is about it
    profile: str = ""
    revision: str = ""  # of its hardware, as its inventory says
    rack: str = ""
    unit: str = ""  # scalable unit with its pod: "pod0/su1"
    leaves: tuple[str, ...] = ()  # of a host: the leaves it is cabled to
    rails: tuple[int, ...] = ()  # of a leaf: the rails it carries
    planes: tuple[int, ...] = ()  # of a switch
    tenant: str = ""  # "": nobody's
    gpus: int = 0
    in_service: bool = True  # serves or could serve; False: it counts as out already
    steps: int = 0
    resets: int = 0
    minutes: int = 0  # that it is out of service, estimated
    one_way: tuple[str, ...] = ()  # "component version" of steps that nothing undoes
    irreversible: tuple[Blocker, ...] = ()  # what speaks against a way back; (): there is one
    after: tuple[str, ...] = ()  # nodes that must be done first (rules between versions)
    blockers: tuple[Blocker, ...] = ()  # why it cannot be moved now, as the planner says

    @property
    def idle(self) -> bool:
        return not self.tenant


class Progress(StrEnum):
    """How far one node is in one campaign."""

    PENDING = "pending"
    NOTIFIED = "notified"  # its tenant was told; `earliest_at` is when it may begin
    DEFERRED = "deferred"  # its tenant put it off until `deferred_until`
    ADMITTED = "admitted"  # under way
    SOAKING = "soaking"  # back in service with the release, watched
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # left as it is: by a person, or at the end of a deferral


UNDER_WAY = frozenset({Progress.ADMITTED})
SETTLED = frozenset({Progress.DONE, Progress.FAILED, Progress.SKIPPED})


class NodeProgress(Record):
    """One row of a campaign's nodes. `wave` is written at the start and never changes."""

    node: str
    wave: int = 0  # index into the waves of `planning.waves.assign`
    state: Progress = Progress.PENDING
    notified_at: float = 0.0  # 0: its tenant was not told
    earliest_at: float = 0.0  # the end of the notice
    deferred_until: float = 0.0
    admitted_at: float = 0.0
    finished_at: float = 0.0  # when it came back into service, or failed
    reason: str = ""  # a `Reason` value and its subject: why it failed; or why it was skipped
    retire: bool = False  # admitted at the end of its deferral: it does not go back to its tenant


class Admit(Record):
    """One node that may begin now."""

    node: str
    reason: str  # one sentence
    displaces: tuple[str, ...] = ()  # tenants' hosts that must leave service while it is down
    retire: bool = False


class Hold(Record):
    """Why a node must wait, and what would let it go on."""

    why: str
    unblock: str
    until: float = 0.0  # when this ends by itself; 0: not by time


class Notice(Record):
    """What a tenant is to be told. `node` may be a leaf of its hosts."""

    node: str
    tenant: str
    earliest_at: float
    text: str


class Decision(Record):
    """What a campaign does now. The caller writes it down before it acts.

    `done`: nodes whose soak ended well; `skip`: nodes that stay as they are, with the reason;
    `stop`: non-empty, the campaign enters `stopped` with these reasons and admits nothing;
    `finished`: nothing is left to do. `next_look_at`: when time alone changes the answer; 0: never.
    """

    admit: tuple[Admit, ...] = ()
    hold: Mapping[str, Hold] = {}
    notices: tuple[Notice, ...] = ()
    done: tuple[str, ...] = ()
    skip: Mapping[str, str] = {}
    stop: tuple[Blocker, ...] = ()
    finished: bool = False
    wave: int = 0  # the wave that is open
    next_look_at: float = 0.0

"""Campaigns: a release of the matrix brought to many nodes in waves, under limits.

`planning/campaigns/rollout.py` decides, `control/campaigns/campaigns.py` carries out. Times are
seconds of the daemon's clock (Unix time) unless the name says otherwise. `model/campaign.py`
has the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from provisioner.model.base import Record
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker
from provisioner.model.times.instant import Instant, InstantOrNone, read_zone

# ------------------------------------------------------------------------------
# The policy of a campaign: canaries, waves, limits, budget, windows, and terms for tenants.
#
# Times are seconds of the daemon's clock (Unix time) unless the name says otherwise. The file that
# people write is read by `planning/campaigns/campaign_policy_text.py`; docs/campaigns.md explains
# each field.


DEFERRAL_MAX_S = 14 * 86_400  # the longest time for which a tenant may defer an upgrade
DAY_S = 86_400


class Domain(StrEnum):
    """A set of nodes that one fault or one outage can take away together."""

    RACK = "rack"
    SCALABLE_UNIT = "scalable_unit"
    LEAF = "leaf"
    RAIL = "rail"  # a rail's leaves
    PLANE = "plane"  # a plane's switches
    TENANT = "tenant"
    TOTAL = "total"


HOST_DOMAINS = frozenset(Domain) - {Domain.RAIL, Domain.PLANE}
SWITCH_DOMAINS = frozenset(Domain) - {Domain.LEAF, Domain.TENANT}


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
    """The first nodes of a campaign, and how long they are observed before others follow."""

    # spread over profiles, revisions, racks, rails; fewer than five cannot show a regression
    size: int = Field(default=5, ge=0)
    soak_s: int = Field(default=3600, ge=0)
    failures: int = Field(default=0, ge=0)  # more canaries that fail stop the campaign


class Wave(Record):
    """A part of the campaign's nodes: everything up to this share, soaked before the next."""

    upto: Limit = Limit(percent=100)
    soak_s: int = Field(default=0, ge=0)


class Window(Record):
    """A change window: days of the week, and the time of day when work may begin and must be over.

    The time is that of `zone`, an IANA name, with its summer time; without a zone it is UTC plus an
    offset, the same all year. `minutes` is counted on the zone's clock: 22:00-04:00 also ends at
    04:00 in the nights in which the clock changes.
    """

    days: tuple[int, ...] = Field(default=(0, 1, 2, 3, 4, 5, 6), min_length=1)  # 0 is Monday
    start_min: int = Field(ge=0, lt=1440)  # minutes after midnight
    minutes: int = Field(ge=1, le=7 * 1440)
    utc_offset_min: int = Field(default=0, ge=-720, le=840)
    zone: str = ""

    @model_validator(mode="after")
    def _zone_exists(self) -> Self:
        if self.zone:
            read_zone(self.zone)
            if self.utc_offset_min:
                raise ValueError("a window has a time zone or an offset, not both")
        return self

    @model_validator(mode="after")
    def _days_of_a_week(self) -> Self:
        if not all(0 <= d <= 6 for d in self.days):
            raise ValueError("days are numbers from 0 (Monday) to 6")
        return self


class Freeze(Record):
    """A span of time in which no work begins or runs, regardless of the windows."""

    begins_at: Instant
    ends_at: Instant
    reason: str


class AtDeadline(StrEnum):
    """The consequence when a tenant has used up its deferral."""

    PROCEED = "proceed"  # the node is upgraded without further questions
    RETIRE = "retire"  # it is taken from the tenant for good, upgraded, and idle afterwards
    SKIP = "skip"  # it stays as it is, and the report says so


class TenantTerms(Record):
    """The notice, deferrals and windows that tenants get before one of their nodes is touched."""

    notice_s: int = Field(default=DAY_S, ge=0)
    waves_ahead: int = Field(default=1, ge=0)  # waves after the open one that already get notice
    deferral_max_s: int = Field(default=DEFERRAL_MAX_S, ge=0, le=DEFERRAL_MAX_S)
    at_deadline: AtDeadline = AtDeadline.PROCEED
    windows: Mapping[str, tuple[Window, ...]] = {}  # by tenant; not listed: at any time


class Breaker(Record):
    """When a campaign stops itself before its failure budget is used up."""

    of_last: int = Field(default=10, ge=1)  # nodes that finished last
    failures: int = Field(default=3, ge=1)  # so many failures among them
    same_reason: int = Field(default=2, ge=1)  # so many of one reason and subject among them


class LeafHosts(StrEnum):
    """How tenants' hosts below a leaf are treated when the leaf goes down."""

    DRAIN = "drain"  # they leave service for that time and count in the limits of hosts
    KEEP = "keep"  # they continue with one rail less; their tenants still get notice


class Policy(Record):
    """The precautions of a campaign. The defaults are proposals."""

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
    # True: at most as many nodes are under way as the budget has left, so that it holds even if all
    # fail
    budget_strict: bool = False
    breaker: Breaker = Breaker()
    windows: tuple[Window, ...] = ()  # change windows of the site; (): at any time
    freezes: tuple[Freeze, ...] = ()
    tenants: TenantTerms = TenantTerms()
    free_kept: Limit = Limit(count=0)  # of each profile's idle hosts; a share is rounded up
    leaf_hosts: LeafHosts = LeafHosts.DRAIN
    # a campaign that waits for nodes which it does not move ends, or stops, after so long
    standstill_max_s: int = Field(default=DAY_S, ge=0)
    allow_irreversible: bool = False  # admit nodes that could not be rolled back

    @property
    def names_zones(self) -> bool:
        """Whether a window names a time zone, so that the edition of the zone data matters."""
        windows = [*self.windows, *(w for ws in self.tenants.windows.values() for w in ws)]
        return any(w.zone for w in windows)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if odd := sorted(set(self.limits) - HOST_DOMAINS):
            raise ValueError(f"limits: {odd[0]} is a domain of switches, see switch_limits")
        if odd := sorted(set(self.switch_limits) - SWITCH_DOMAINS):
            raise ValueError(f"switch_limits: {odd[0]} is a domain of hosts, see limits")
        if self.waves[-1].upto != Limit(percent=100):
            raise ValueError("waves: the last one goes up to 100 percent")
        if self.budget_strict and 0 in (self.failure_budget.count, self.failure_budget.percent):
            raise ValueError("failure_budget: a strict budget of 0 would admit nothing")
        return self


NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"


class NamedPolicy(Record):
    """A policy that people keep under a name. A campaign has a copy, which no change reaches."""

    name: str = Field(pattern=NAME_PATTERN, description="Name that the client chose.")
    policy: Policy = Field(description="The precautions of a campaign that names it.")
    note: str = Field("", max_length=300, description="What it is for, in a sentence.")
    by: str = Field("", description="Person or program that changed it last.")
    at: Instant = Field(description="Time of the last change.")
    generation: int = Field(1, ge=1, description="Number of the change, from 1.")


class CampaignState(StrEnum):
    DRAFT = "draft"  # no node is touched
    STARTED = "started"
    PAUSED = "paused"  # work under way ends, no node is admitted; a person resumes it
    STOPPED = "stopped"  # it stopped itself; a person resumes it, aborts it or rolls it back
    ABORTED = "aborted"  # over, with some nodes not done
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
    going_back: bool = False  # set with ROLLING_BACK, and kept when that is paused or stopped
    judged_from: InstantOrNone = 0.0  # earlier failures were accepted by the person who resumed it
    baseline: str = ""
    created_by: str = ""
    created_at: InstantOrNone = 0.0
    started_at: InstantOrNone = 0.0
    generation: int = 0
    one_way_confirmed: tuple[str, ...] = ()  # "component version" of steps that a person confirmed
    accepted: tuple[str, ...] = ()  # metrics whose regression a person accepted
    still_since: InstantOrNone = 0.0  # since when nothing of it may begin; 0: something may, or is
    zone_data: str = ""  # edition of the IANA time zones that its windows were read with

    @property
    def target(self) -> str:
        """Return the release that the campaign brings nodes to at present."""
        return self.baseline if self.going_back else self.release


class CampaignNode(Record):
    """The present facts of one node of the fleet. `decide` gets all nodes, not only the selected
    ones, because shares and outages are counted over the fleet. Retired nodes are left out.
    """

    name: str
    kind: NodeKind = NodeKind.HOST
    selected: bool = True  # the campaign concerns it
    profile: str = ""
    revision: str = ""  # of its hardware, from its inventory
    rack: str = ""
    unit: str = ""  # scalable unit with its pod: "pod0/su1"
    leaves: tuple[str, ...] = ()  # of a host: the leaves it is cabled to
    rails: tuple[int, ...] = ()  # of a leaf: the rails it carries
    planes: tuple[int, ...] = ()  # of a switch
    groups: tuple[str, ...] = ()  # of a switch: those of which one has to carry on
    tenant: str = ""  # "": not allocated
    gpus: int = 0
    in_service: bool = True  # serves or could serve; False: it already counts as out of service
    recalled: bool = False  # out of service, and a rollback takes it all the same
    returning: bool = False  # on its way into service by itself: the campaign waits for it
    steps: int = 0
    resets: int = 0
    minutes: int = 0  # estimated time out of service
    one_way: tuple[str, ...] = ()  # "component version" of steps that cannot be undone
    irreversible: tuple[Blocker, ...] = ()  # reasons why it cannot be rolled back; (): it can be
    after: tuple[str, ...] = ()  # nodes that must be done first (rules between versions)
    blockers: tuple[Blocker, ...] = ()  # from the planner: why it cannot be moved now

    @property
    def idle(self) -> bool:
        return not self.tenant


class Progress(StrEnum):
    PENDING = "pending"
    NOTIFIED = "notified"  # its tenant has its notice; it may begin at `earliest_at`
    DEFERRED = "deferred"  # its tenant deferred it until `deferred_until`
    ADMITTED = "admitted"  # under way
    SOAKING = "soaking"  # back in service with the release, under observation
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # left unchanged: by a person, or at the end of a deferral


UNDER_WAY = frozenset({Progress.ADMITTED})
SETTLED = frozenset({Progress.DONE, Progress.FAILED, Progress.SKIPPED})


class NodeProgress(Record):
    """One row of a campaign's nodes. `wave` is written at the start and never changes."""

    node: str
    wave: int = 0  # index into the waves of `planning.waves.assign`
    state: Progress = Progress.PENDING
    notified_at: InstantOrNone = 0.0  # 0: no notice was written
    told: tuple[str, ...] = ()  # tenants that got a notice: of a leaf, those of its hosts
    earliest_at: InstantOrNone = 0.0  # the end of the notice
    deferred_until: InstantOrNone = 0.0
    admitted_at: InstantOrNone = 0.0
    finished_at: InstantOrNone = 0.0  # when it came back into service, or failed
    reason: str = ""  # a `Reason` value and its subject: why it failed; or why it was skipped
    retire: bool = False  # admitted at the end of its deferral: it does not go back to its tenant


class Admit(Record):
    """One node that may begin now."""

    node: str
    reason: str  # one sentence
    displaces: tuple[str, ...] = ()  # tenants' hosts that must leave service while it is down
    retire: bool = False


class Hold(Record):
    """The reason why a node must wait, and the condition that would let it continue."""

    why: str
    unblock: str
    until: float = 0.0  # when this ends by itself; 0: not by time


class CampaignNotice(Record):
    """A notice to a tenant. `node` may be a leaf of its hosts."""

    node: str
    tenant: str
    earliest_at: float
    text: str


class Decision(Record):
    """The actions of a campaign in this turn. The caller records it before it acts.

    `done`: nodes whose soak ended well; `fail`: nodes that left service during it; `skip`: nodes
    that stay unchanged; the last two with the reason. `stop`: if not empty, the campaign enters
    `stopped` with these reasons and admits nothing. `finished`: no work is left. `standstill`: why
    nothing is under way and nothing may begin, now and by time alone; "" if that is not so.
    `next_look_at`: when time alone changes the decision; 0: never.
    """

    admit: tuple[Admit, ...] = ()
    hold: Mapping[str, Hold] = {}
    notices: tuple[CampaignNotice, ...] = ()
    done: tuple[str, ...] = ()
    fail: Mapping[str, str] = {}
    skip: Mapping[str, str] = {}
    stop: tuple[Blocker, ...] = ()
    finished: bool = False
    standstill: str = ""
    wave: int = 0  # the wave that is open
    next_look_at: float = 0.0


# ------------------------------------------------------------------------------
# Rows stored beside a campaign: one for each of its nodes, and the releases that are pinned.


class CampaignRow(Record):
    """One node of one campaign. `facts` are those of the start, because a plan shrinks as it is
    carried out.
    """

    campaign: str
    progress: NodeProgress
    facts: CampaignNode
    kind: NodeKind = NodeKind.HOST
    release_before: str = ""
    profile_before: str = ""
    before: Mapping[str, float] = {}  # measured when it was last judged: "name/part"
    after: Mapping[str, float] = {}  # ... and when it was certified with the campaign's release
    rolled_back: bool = False  # it has gone back to the release that it came from

    @property
    def node(self) -> str:
        return self.progress.node


class PinScope(StrEnum):
    """The scope of a pin, the narrowest first: a node's own pin takes precedence over its
    rack's.
    """

    NODE = "node"
    RACK = "rack"
    FLEET = "fleet"  # the baseline: everything without a pin of its own


class ReleasePin(Record):
    """The release that a node, a rack or the fleet is meant to run, and the reason."""

    scope: PinScope
    name: str  # of the node or rack; "" for the fleet
    release: str
    reason: str
    by: str = ""
    at: InstantOrNone = 0.0
    expires_at: InstantOrNone = 0.0  # 0: never (the fleet's baseline only)

    @property
    def key(self) -> str:
        return f"{self.scope}:{self.name}"

    def is_in_force(self, now: float) -> bool:
        """Return whether the pin is in force at `now`, which means that it has not expired."""
        return not self.expires_at or now < self.expires_at

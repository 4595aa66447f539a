"""Campaigns: a release of the matrix brought to many nodes in waves, under limits.

`planning/campaigns/rollout.py` decides, `control/campaigns/campaigns.py` carries out. Times are
seconds of the daemon's clock (Unix time) unless the name says otherwise. `model/campaign_policy.py`
has the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from provisioner.model.base import Record
from provisioner.model.campaign_policy import Policy
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker
from provisioner.model.times.instant import InstantOrNone


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
    """The progress of one node in one campaign."""

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

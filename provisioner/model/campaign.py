"""Campaigns: a release brought to many nodes in waves, under limits; words and records only.

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
    going_back: bool = False  # set with ROLLING_BACK, and kept when that is paused or stopped
    judged_from: float = 0.0  # failures before were accepted by whoever resumed it
    baseline: str = ""
    created_by: str = ""
    created_at: float = 0.0
    started_at: float = 0.0
    generation: int = 0
    one_way_confirmed: tuple[str, ...] = ()  # "component version" of steps that a person confirmed
    accepted: tuple[str, ...] = ()  # metrics whose regression a person accepted
    zone_data: str = ""  # edition of the IANA time zones that its windows were read with

    @property
    def target(self) -> str:
        """The release that nodes are brought to now."""
        return self.baseline if self.going_back else self.release


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
    returning: bool = False  # on its way into service by itself: waited for, not refused
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
    notified_at: float = 0.0  # 0: nobody was told
    told: tuple[str, ...] = ()  # tenants that were told: of a leaf, those of its hosts
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

    `done`: nodes whose soak ended well; `fail`: nodes that fell out of service in it; `skip`: nodes
    that stay as they are; both with the reason.
    `stop`: non-empty, the campaign enters `stopped` with these reasons and admits nothing;
    `finished`: nothing is left to do. `next_look_at`: when time alone changes the answer; 0: never.
    """

    admit: tuple[Admit, ...] = ()
    hold: Mapping[str, Hold] = {}
    notices: tuple[Notice, ...] = ()
    done: tuple[str, ...] = ()
    fail: Mapping[str, str] = {}
    skip: Mapping[str, str] = {}
    stop: tuple[Blocker, ...] = ()
    finished: bool = False
    wave: int = 0  # the wave that is open
    next_look_at: float = 0.0

"""Events of campaigns, tenants, alerts, webhooks, and of the daemon itself."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from provisioner.model.agent import StoredImage
from provisioner.model.alert import Classification
from provisioner.model.campaign import Campaign, CampaignState, NamedPolicy, Progress, ReleasePin
from provisioner.model.events.event import Event, EventKind
from provisioner.model.node import State
from provisioner.model.recovery import DifferenceKind, Settlement
from provisioner.model.tenant import Tenant
from provisioner.model.times.instant import Instant, InstantOrNone

# --- campaigns


class CampaignChanged(Event):
    """A campaign was made or changed."""

    KIND: ClassVar = EventKind.CAMPAIGN
    campaign: str
    state: CampaignState
    reason: str = ""
    release: str = ""
    select: str = Field("", description="The expression that selects its nodes.")
    policy: str = Field("", description="SHA-256 of its policy.")
    by: str = ""
    request: str = ""
    node: str = Field("", description="The one node that a person changed.")
    progress: Progress | None = None


def describe_change(
    campaign: Campaign,
    by: str,
    *,
    request: str = "",
    node: str = "",
    progress: Progress | None = None,
) -> CampaignChanged:
    """Return the event of a changed campaign, with the person and the request, if there was one."""
    event = CampaignChanged(
        campaign=campaign.id, state=campaign.state, reason=campaign.reason, by=by
    )
    context = {"request": request, "node": node, "progress": progress}
    return event.model_copy(update={name: value for name, value in context.items() if value})


class CampaignNodeChanged(Event):
    """A node went on in a campaign. Only an admission has `release`, `to` and `why`."""

    KIND: ClassVar = EventKind.CAMPAIGN_NODE
    campaign: str
    progress: str = Field(description='A state of its progress, or "displaced".')
    reason: str = ""
    release: str = ""
    to_state: State | None = Field(None, alias="to")
    why: str = ""


class PinChanged(Event):
    """The release that a node, a rack or the fleet is to run was pinned or unpinned."""

    KIND: ClassVar = EventKind.PIN
    pin: ReleasePin | None = None
    dropped: ReleasePin | None = None


class PolicyChanged(Event):
    """A policy that people keep under a name was made, changed or removed."""

    KIND: ClassVar = EventKind.POLICY
    policy: NamedPolicy | None = None
    dropped: NamedPolicy | None = None
    by: str = ""


class ImageChanged(Event):
    """A file of the artifact store was uploaded, described otherwise, or removed."""

    KIND: ClassVar = EventKind.IMAGE
    image: StoredImage | None = None
    dropped: StoredImage | None = None
    by: str = ""


# --- tenants and the fabric


class TenantChanged(Event):
    """A tenant was created, changed, shrunk, made ready or removed."""

    KIND: ClassVar = EventKind.TENANT
    request: str
    tenant: Tenant
    by: str = ""


class SpaceChanged(Event):
    """An act on a tenant's space of shared storage, written before it is sent."""

    KIND: ClassVar = EventKind.SPACE
    space: str = Field(description="Name of the space on the storage.")
    act: str = Field(description="make, limit, export, admit, expel, unexport or remove.")
    text: str = Field(description="The act with its clients, as a line for people.")


class SpaceForeign(Event):
    """A tenant's space differs from its record, and not by an act of the daemon."""

    KIND: ClassVar = EventKind.SPACE_FOREIGN
    space: str = Field(description="Name of the space on the storage.")
    hand: str = Field(description="clients, export, rules, quota, shut or replaced.")
    subject: str = Field(description="The space, or the export in it.")
    text: str = Field(description="The difference, as a line for people.")


class NoticeWritten(Event):
    """A tenant is to read something about one of its nodes."""

    KIND: ClassVar = EventKind.NOTICE
    id: str
    tenant: str
    case: str
    notice_kind: str = Field(alias="kind")
    text: str
    effective_at: InstantOrNone = Field(
        description="When the node is taken at the latest; null: it is not."
    )


class FabricSessionOpened(Event):
    """Tests among nodes began. `lent`: nodes that take part and need no proof themselves."""

    KIND: ClassVar = EventKind.FABRIC_SESSION
    session: str
    seeking: tuple[str, ...]
    lent: tuple[str, ...]


class FabricSessionEnded(Event):
    """Tests among nodes ended."""

    KIND: ClassVar = EventKind.FABRIC_VERDICTS
    session: str
    note: str
    passed: tuple[str, ...]
    blocked: dict[str, str]


class HostsNotApart(Event):
    """A leaf was found that does not keep hosts apart on the network of the agents."""

    KIND: ClassVar = EventKind.HOSTS_NOT_APART
    gaps: tuple[str, ...] = Field(description="What is missing, up to eight.")
    alert: bool = Field(description="The leaf kept them apart before: something changed it.")


class HostsKeptApart(Event):
    """A leaf was made to keep hosts apart. `confirmed`: read back."""

    KIND: ClassVar = EventKind.HOSTS_KEPT_APART
    ports: int
    confirmed: bool
    problems: tuple[str, ...]


# --- alerts and webhooks


class AlertEvent(Event):
    """What both events of an alert have."""

    id: str
    target: str
    classifications: tuple[Classification, ...]
    message: str
    source: str
    flapping: bool


class AlertRaised(AlertEvent):
    """An alert of a node was raised."""

    KIND: ClassVar = EventKind.ALERT_RAISED


class AlertCleared(AlertEvent):
    """An alert of a node was cleared; `message` is the reason."""

    KIND: ClassVar = EventKind.ALERT_CLEARED


class OverrideEnded(Event):
    """A person's override of an alert came to its end."""

    KIND: ClassVar = EventKind.OVERRIDE_ENDED
    node: str
    id: str
    target: str
    by: str
    why: str
    made_at: Instant
    until: Instant


class WebhookChanged(Event):
    """A webhook was added, changed, paused, resumed or removed, or missed an event for good."""

    KIND: ClassVar = EventKind.WEBHOOK
    webhook: str
    url: str = ""
    made_by: str = ""
    removed_by: str = ""
    changed_by: str = ""
    fields: tuple[str, ...] = Field((), description="Names of the fields that were changed.")
    paused: str = Field("", description="Why it is paused; empty: it was resumed.")
    dead: int = Field(0, description="Number of the event that could not be delivered.")
    error: str = ""
    tries: int = 0
    dropped: int = Field(0, description="How many undelivered events were dropped.")
    seq: int | None = None
    by: str = ""


# --- the daemon


class ClockDoubted(Event):
    """The machine's clock is not trusted, so that nothing is decided."""

    KIND: ClassVar = EventKind.CLOCK_DOUBTED
    why: str
    unblock: str


class ClockTrusted(Event):
    """The machine's clock is trusted again."""

    KIND: ClassVar = EventKind.CLOCK_BELIEVED


class Overload(Event):
    """What both events of the daemon's load have."""

    level: str
    by: tuple[dict[str, Any], ...] = Field(description="Each resource that is short, with detail.")


class DaemonOverloaded(Overload):
    """The daemon has more work than it can do, and leaves off routine looks or new work."""

    KIND: ClassVar = EventKind.OVERLOADED


class DaemonRelieved(Overload):
    """The daemon is no longer overloaded."""

    KIND: ClassVar = EventKind.OVERLOAD_OVER


class DaemonNoticed(Event):
    """The daemon reports something about itself, such as a clock that differs."""

    KIND: ClassVar = EventKind.DAEMON_NOTICE
    notices: tuple[str, ...]


class DaemonNoticesEnded(Event):
    """Nothing is left to report about the daemon itself."""

    KIND: ClassVar = EventKind.DAEMON_NOTICE_OVER
    notices: tuple[str, ...] = ()


class LookOnlyBegun(Event):
    """A restored database was noticed: until it is settled, no device is written to."""

    KIND: ClassVar = EventKind.LOOK_ONLY
    why: str


class DifferenceSettled(Event):
    """A difference between the restored rows and the world was settled."""

    KIND: ClassVar = EventKind.RESTORED
    difference: DifferenceKind = Field(alias="kind")
    row: str
    world: str
    vrf: str
    tenant: str
    seen_at: InstantOrNone
    settled: Settlement
    settled_by: str
    settled_at: InstantOrNone
    state: State | None = None
    leaf: str = Field("", description="The leaf whose port or reading it was, or empty.")
    port: str = Field("", description='The port "leaf/interface", or empty.')


class AdoptedPortLeft(Event):
    """A port that a person had left in a customer's VRF is no longer in it."""

    KIND: ClassVar = EventKind.PORT_LEFT
    port: str


class RestoreSettled(Event):
    """All differences after a restore are settled, and the daemons act again."""

    KIND: ClassVar = EventKind.RESTORE_SETTLED
    by: str
    why: str

"""One event: a fact that the journal keeps for good, with the fields that its kind has.

The journal stores an event as the name of its kind, the node that it is about, and the other
fields as JSON. Each kind has exactly one class, so that a writer cannot misspell a field and a
receiver can rely on the schema. Fields that the writer leaves out are not stored: a row says only
the facts at the time of writing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from pydantic import ConfigDict, Field

from provisioner.model.base import Record


class EventKind(StrEnum):
    """Every kind of event. The values are stored, sent to webhooks and shown by the API."""

    # a node's journey
    DISCOVERED = "discovered"
    ADOPTED = "adopted"
    CAPABILITY = "capability"
    WOULD = "would"
    CREDENTIAL = "credential"
    CREDENTIAL_SHOWN = "credential_shown"
    BMC_CERTIFICATE = "bmc_certificate"
    SURVEYED = "surveyed"
    IDENTIFIED = "identified"
    STATE = "state"
    WAITS = "waits"
    PARKED = "parked"
    REMEDY = "remedy"
    STEP = "step"
    VALIDATED = "validated"
    PROVED = "proved"
    CERTIFIED = "certified"
    ATTESTED = "attested"
    ATTENTION = "attention"
    SANITIZED = "sanitized"
    NOT_SANITIZED = "not_sanitized"
    RETIRED = "retired"
    AGENT_REFUSED = "agent_refused"
    BOARD_TPM = "board_tpm"
    # ports and tenants
    ALLOCATED = "allocated"
    FENCE = "fence"
    RELEASED = "released"
    RELEASE_REFUSED = "release_refused"
    TRESPASS = "trespass"
    TAKEN_BACK = "taken_back"
    TENANT = "tenant"
    SPACE = "space"
    SPACE_FOREIGN = "space_foreign"
    NOTICE = "notice"
    HOSTS_NOT_APART = "hosts_not_apart"
    HOSTS_KEPT_APART = "hosts_kept_apart"
    FABRIC_SESSION = "fabric_session"
    FABRIC_VERDICTS = "fabric_verdicts"
    # repair cases
    CASE_OPENED = "case_opened"
    CASE_JOINED = "case_joined"
    CASE_DIAGNOSED = "case_diagnosed"
    CASE_REMEDY = "case_remedy"
    CASE_DONE = "case_done"
    CASE_HARDWARE = "case_hardware"
    CASE_BUNDLE = "case_bundle"
    CASE_LED = "case_led"
    CASE_TICKET = "case_ticket"
    CASE_TELL = "case_tell"
    CASE_DEFERRED = "case_deferred"
    CASE_ACCEPTED = "case_accepted"
    CASE_RETURNED = "case_returned"
    CASE_RMA = "case_rma"
    CASE_SPARE = "case_spare"
    CASE_RETIRING = "case_retiring"
    CASE_RETIRE = "case_retire"
    CASE_CLOSED = "case_closed"
    PARTS = "parts"
    REPLACED = "replaced"
    # campaigns
    CAMPAIGN = "campaign"
    CAMPAIGN_NODE = "campaign_node"
    PIN = "pin"
    POLICY = "policy"
    IMAGE = "image"
    # people
    ASKED = "asked"
    REQUEST = "request"
    TOKEN = "token"  # noqa: S105 (the name of a kind)
    SESSION = "session"
    DIRECTORY = "directory"
    LIMITED = "limited"
    JOURNAL_ARCHIVED = "journal_archived"
    JOURNAL_PRUNED = "journal_pruned"
    FACTORY_LOGINS = "factory_logins"
    CLOCK_ACCEPTED = "clock_accepted"
    # alerts and webhooks
    ALERT_RAISED = "alert_raised"
    ALERT_CLEARED = "alert_cleared"
    OVERRIDE_ENDED = "override_ended"
    WEBHOOK = "webhook"
    # the daemon itself
    CLOCK_DOUBTED = "clock_doubted"
    CLOCK_BELIEVED = "clock_believed"
    OVERLOADED = "overloaded"
    OVERLOAD_OVER = "overload_over"
    DAEMON_NOTICE = "daemon_notice"
    DAEMON_NOTICE_OVER = "daemon_notice_over"
    LOOK_ONLY = "look_only"
    RESTORED = "restored"
    PORT_LEFT = "port_left"
    RESTORE_SETTLED = "restore_settled"


# names of kinds in rows that earlier versions wrote: the journal's chain keeps them as they are
FORMER_NAMES = {
    "agent refused": EventKind.AGENT_REFUSED,
    "fabric session": EventKind.FABRIC_SESSION,
    "fabric verdicts": EventKind.FABRIC_VERDICTS,
}


class Event(Record):
    """The fields that every event has. `about` is the node or leaf concerned; "" means none."""

    model_config = ConfigDict(populate_by_name=True)

    KIND: ClassVar[EventKind]

    about: str = Field(default="", exclude=True)

    def to_detail(self) -> dict[str, Any]:
        """Return the fields that were set, except `about`, as JSON values."""
        whole = self.model_dump(mode="json", by_alias=True)
        fields = type(self).model_fields
        set_fields = (
            fields[name].alias or name for name in self.model_fields_set if name != "about"
        )
        return {name: whole[name] for name in sorted(set_fields)}

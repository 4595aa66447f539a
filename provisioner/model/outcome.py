"""Refusals: the closed list of reasons, and the values that carry them.

Devices fail as values of these types; ports raise the few exceptions of `ports/errors.py`; bugs of
our own are assertions. Never mix the three.
"""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record


class Reason(StrEnum):
    """The reason of a blocker or gap. Closed: a new reason is a new member with its meaning."""

    # observations that failed
    UNREACHABLE = "unreachable"  # no answer within the limit
    LOGIN_REFUSED = "login_refused"  # credentials were not accepted
    PASSWORD_CHANGE = "password_change"  # noqa: S105 (its factory password must change first)
    ACCOUNT_LOCKED = "account_locked"  # the governor or the BMC holds logins back
    CERTIFICATE_CHANGED = "certificate_changed"  # it differs from the pinned one
    CERTIFICATE_UNTRUSTED = "certificate_untrusted"  # none is pinned, and no trusted CA signed it
    HOST_KEY_UNKNOWN = "host_key_unknown"  # no SSH host key is pinned, and none is learned here
    MALFORMED = "malformed"  # an answer that cannot be parsed
    TOO_LARGE = "too_large"  # an answer over its size limit
    NOT_OFFERED = "not_offered"  # the service has no such resource, link or action
    VERSION_MISSING = "version_missing"  # a component without a readable version
    UNKNOWN_VENDOR = "unknown_vendor"  # no quirk declaration fits
    # identity and place
    NOT_EXPECTED = "not_expected"  # not on the expected-hardware list
    FOREIGN_AGENT = "foreign_agent"  # a maintenance agent that is not the one we booted
    DUPLICATE = "duplicate"  # two devices claim one identity
    PAIRING_FAILED = "pairing_failed"  # a DPU without a host, or a host without its DPU
    BILL_OF_MATERIALS = "bill_of_materials"  # parts differ from the profile
    CABLING = "cabling"  # the neighbour is not the planned one, or the link to it is bad
    NO_PROFILE = "no_profile"  # no profile of the release matches this node
    # refusals of the planner
    UNKNOWN_PIN = "unknown_pin"  # the release does not publish this version
    NO_PATH = "no_path"  # no chain of edges from here to the pin
    DOWNGRADE = "downgrade"  # older than what runs, and no edge allows it
    ANTI_ROLLBACK = "anti_rollback"  # the security version forbids going back
    UNKNOWN_GRAMMAR = "unknown_grammar"  # the version cannot be read as its grammar asks
    CONSTRAINT = "constraint"  # no order keeps every rule true on the way
    MISSING_ARTIFACT = "missing_artifact"  # no file to install from
    MISSING_DIGEST = "missing_digest"  # a file without a SHA-256
    MISSING_EVIDENCE = "missing_evidence"  # an edge without evidence
    METHOD_FORBIDDEN = "method_forbidden"  # the site does not allow this way of updating
    NOT_UPDATEABLE = "not_updateable"  # the device reports that it takes no update
    # failures of an action
    BUSY = "busy"  # the device is doing something else now
    REFUSED = "refused"  # the device refused the request
    UPDATE_FAILED = "update_failed"  # the device tried and failed
    UPDATE_STALLED = "update_stalled"  # not finished within the limit
    NOT_ACTIVATED = "not_activated"  # the new version does not run after its activation
    POWER = "power"  # the power state did not follow
    LEAK = "leak"  # coolant was detected, and a person has not confirmed that the host is dry
    PLAYBOOK_FAILED = "playbook_failed"  # in-band work failed on the host
    DIGEST_MISMATCH = "digest_mismatch"  # an artifact differs from the matrix's digest
    CANNOT_TELL = "cannot_tell"  # an action may or may not have happened
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"  # tried as often as allowed
    PRECONDITION = "precondition"  # the observed state has changed; plan again
    # conditions for serving a tenant
    CHECK_FAILED = "check_failed"  # a health check found a fault
    CHECK_SKIPPED = "check_skipped"  # a check gave no verdict
    DRIFT = "drift"  # installed parts or versions differ from the certified ones
    CERTIFICATE_EXPIRED = "certificate_expired"
    CERTIFICATE_INVALID = "certificate_invalid"
    NOT_SANITIZED = "not_sanitized"  # something may still hold a former tenant's data
    TRESPASS = "trespass"  # a port is in a network without a recorded handover
    ISOLATION = "isolation"  # a port is not where it must be, or a leak was seen
    FABRIC = "fabric"  # a leaf, or its way to other leaves, fails in tests among nodes
    SWITCH_REFUSED = "switch_refused"  # a switch did not apply a change
    QUOTA = "quota"  # the tenant's limit is reached
    NOT_CONFIRMED = "not_confirmed"  # a person must confirm it first
    NO_ROOM = "no_room"  # a campaign's limits or windows leave no room for it, ever
    BUDGET = "budget"  # a campaign had more failures than its policy allows
    TIME_LIMIT = "time_limit"  # longer in a state than its limit
    OVERLOADED = "overloaded"  # the daemon or its database was too slow; no request was sent
    DAMAGED_ROW = "damaged_row"  # a stored row cannot be read; parked, not retried
    LOOK_ONLY = "look_only"  # no device may be written to until a restore is settled
    NOT_GRANTED = "not_granted"  # an act on an adopted node that no person has allowed
    OUR_BUG = "our_bug"  # an assertion of ours failed; parked, not retried


class Blocker(Record):
    """A refusal: its reason, the subject, and an instruction that would remove it."""

    reason: Reason
    subject: str  # the component, check, port or BMC concerned, for example "hgx.gpu/GPU_SXM_5"
    detail: str  # one sentence for a person
    unblock: str  # what would remove it, as an instruction

    def __str__(self) -> str:
        return f"{self.reason}: {self.subject}: {self.detail}"


class Gap(Record):
    """A fact that an inventory could not read; it is never guessed."""

    reason: Reason
    source: str  # the Redfish path or command that was used
    detail: str

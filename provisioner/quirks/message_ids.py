"""Message ids of BMCs by what they mean, for reads and writes alike. Data, no I/O.

An id is "Registry.Major.Minor.Key", or a bare key. A row with registries is for those only: vendors
number their messages, and a number means nothing in another's registry. A row without is for any:
services print keys of DMTF's registries under names of their own.
"""

from __future__ import annotations

import re
from enum import StrEnum

from provisioner.model.base import Record


class Meaning(StrEnum):
    """What an answer says about the request, or about the BMC."""

    NOT_READY = "not ready"  # asked again later; says nothing about what the BMC offers
    CHANGE_PASSWORD = "change the password"  # noqa: S105 (a meaning, no password)
    LOCKED = "locked"  # a lockdown, or an account that is held back
    LICENCE = "licence"
    PENDING_JOB = "pending job"  # another job or update has to end first
    REFUSED_PROPERTY = "refused property"
    NEEDS_RESET = "needs reset"  # taken; in force after a reset


class MessageRow(Record):
    """Keys of one meaning; `registry` and `keys` are expressions of the whole text."""

    meaning: Meaning
    keys: str
    source: str
    registry: str = ""


_BASE = "DMTF DSP8011, Base registry 1.19"
_ILO = "HPE iLO registry 2.14 (servermanagementportal.ext.hpe.com, iLO message registry)"
_SMC = "bmclib, recorded answers of Supermicro X11 and later: SMC.1.0, Base.1.0"
_DELL = "Dell event and error message reference for iDRAC9"

# the first row that fits decides
ROWS = (
    MessageRow(meaning=Meaning.CHANGE_PASSWORD, keys="PasswordChangeRequired", source=_BASE),
    MessageRow(
        meaning=Meaning.NOT_READY,
        registry="IDRAC|SWC|",
        keys="SWC0700",  # "iDRAC is not ready. The configuration values cannot be accessed."
        source=f"{_DELL}; quadsproject/badfish#129",
    ),
    MessageRow(
        meaning=Meaning.REFUSED_PROPERTY,
        registry="IDRAC|SYS|",
        keys="SYS410|SYS444",
        source="ansible-collections/community.general#5091",
    ),
    MessageRow(
        meaning=Meaning.LICENCE,
        registry="IDRAC|LIC|",
        keys=r"LIC501",
        source=_DELL,
    ),
    MessageRow(
        meaning=Meaning.PENDING_JOB,
        keys="OemFirmwareAlreadyInUpdateMode",
        source=_SMC,
    ),
    MessageRow(meaning=Meaning.LICENCE, keys="OemLicenseNotPassed", source=_SMC),
    MessageRow(
        meaning=Meaning.LICENCE,
        keys=r"\w*License(Key)?(Required|NotPassed|Missing|Expired|Invalid)?\w*",
        source=f"{_ILO}: LicenseKeyRequired; DMTF License registry; bmcweb's OEM registries",
    ),
    MessageRow(
        meaning=Meaning.NOT_READY,
        keys=r"\w*(NotReady|InvalidOperationForSystemState|DuringSystemPOST"
        r"|TemporarilyUnavailable|SessionLimitExceeded|ServiceInUnknownState"
        r"|ServiceShuttingDown|ResourceInStandby|iLOInReset|ResetInProgress)\w*",
        source=f"{_BASE}; {_ILO}: UnableToModifyDuringSystemPOST, InvalidOperationForSystemState",
    ),
    MessageRow(
        meaning=Meaning.PENDING_JOB,
        keys=r"\w*(InProgress|ResourceInUse)\w*",
        source=f"{_BASE}; DMTF Update registry: UpdateInProgress (Lenovo XCC, AMI, OpenBMC)",
    ),
    MessageRow(
        meaning=Meaning.LOCKED,
        keys=r"\w*(Lockdown|AccountLocked)\w*",
        source="keys of vendors that name it in words; no numbered id is known to be sourced",
    ),
    MessageRow(
        meaning=Meaning.NEEDS_RESET,
        keys=r"(System|Device)?Reset(Required|Recommended)",
        source=f"{_BASE}; {_ILO}: SystemResetRequired (libredfish hpe.rs), ResetRequired",
    ),
    MessageRow(
        meaning=Meaning.REFUSED_PROPERTY,
        keys=r"Property(NotWritable|Unknown|NotWritableOrUnknown|NotUpdated|NotSupported|Value\w*)",
        source=_BASE,
    ),
)
_BOUND = 256


def find_meaning(message_id: str) -> Meaning | None:
    """Return what a message id means; None: no source tells."""
    if len(message_id) > _BOUND:
        return None
    registry, _, key = message_id.rpartition(".")
    registry = registry.split(".", 1)[0]
    for row in ROWS:
        fits = not row.registry or re.fullmatch(row.registry, registry, re.IGNORECASE)
        if fits and re.fullmatch(row.keys, key, re.ASCII):
            return row.meaning
    return None

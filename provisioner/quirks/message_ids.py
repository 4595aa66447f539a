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


# the registry of a message, "" where it is a bare number; iDRAC sends both
_DELL = "IDRAC|SWC|SYS|LIC|"
_BASE = "DMTF Base registry 1.16 (openbmc/bmcweb, base_message_registry.hpp) and 1.18 (below)"
_UPDATE = "DMTF Update registry 1.0 (openbmc/bmcweb, update_message_registry.hpp)"
_ILO = "HPE iLO registry 2.34 with iLO 6 1.70 (HPEDevCom/redfishdocs, ilo6_msgregs170.md)"
_LIBREDFISH = "captured tree of a Dell in NVIDIA/libredfish, tests/mockups/dell"
_ANSIBLE = "dell/dellemc-openmanage-ansible-modules"
_SMC = "bmclib, recorded answers of Supermicro X11 and later: SMC.1.0, Base.1.0"
_CARBIDE = "NVIDIA/infra-controller (carbide), recorded answer of a Supermicro: SMC.v1_0_0"
_AMI = "recorded answer of AMI's MegaRAC Redfish Service on a ZT Proteus, PATCH of Bios/SD"
_WORDS = "no registry: keys that say it in words"


class Unsourced(Record):
    """A meaning that a vendor has words for, which no public source tells. `instead`: how it is
    found; a message without a meaning is a refusal and no proof that anything is absent.
    """

    meaning: Meaning
    vendor: str
    searched: str
    instead: str


UNSOURCED = (
    Unsourced(
        meaning=Meaning.LOCKED,
        vendor="dell",
        searched="number of a write that a lockdown refuses: iDRAC User's Guide ('an error message "
        "is displayed'), dell/iDRAC-Redfish-Scripting, sushy-oem-idrac, "
        "dellemc-openmanage-ansible-modules, infra-controller#1498 (the words alone)",
        instead="the attribute, by the quirk `lockdown`",
    ),
    *(
        Unsourced(
            meaning=meaning,
            vendor="lenovo",
            searched="keys of XCC's own registry, ExtendedError: only RequestUriNotFound is public "
            "(intel/xpumanager); lenovo/python-redfish-lenovo names none",
            instead="keys of DMTF's registries, which XCC uses besides, and keys in words",
        )
        for meaning in Meaning
    ),
)
# The first row that fits decides.
ROWS = (
    MessageRow(meaning=Meaning.CHANGE_PASSWORD, keys="PasswordChangeRequired", source=_BASE),
    MessageRow(
        meaning=Meaning.CHANGE_PASSWORD,
        registry=_DELL,
        keys="SWC1908",  # "the default password is still in use and must be changed"
        source="dell/iDRAC-Redfish-Scripting#346",
    ),
    MessageRow(
        meaning=Meaning.NOT_READY,
        registry=_DELL,
        keys="SWC0700",  # "iDRAC is not ready. The configuration values cannot be accessed."
        source="quadsproject/badfish#129",
    ),
    MessageRow(
        meaning=Meaning.NOT_READY,
        registry=_DELL,
        keys="SYS518",  # with 500 or 503, and asked again
        source="openstack/sushy, connector.py; bug 2022-07 'retry volume operation on SYS518'",
    ),
    MessageRow(
        meaning=Meaning.REFUSED_PROPERTY,
        registry=_DELL,
        keys="SYS410|SYS444",
        source=f"ansible-collections/community.general#5091; {_ANSIBLE}, idrac_secure_boot.py",
    ),
    MessageRow(
        meaning=Meaning.LICENCE,
        registry=_DELL,
        keys="LIC501",  # "A required license is missing or expired."
        source=f"{_LIBREDFISH}; {_ANSIBLE}, idrac_support_assist.py",
    ),
    MessageRow(
        meaning=Meaning.PENDING_JOB,
        registry=_DELL,
        keys="SYS098",  # "A Remote Diagnostic (ePSA) job already exists."
        source=f"{_ANSIBLE}, idrac_diagnostics.py",
    ),
    MessageRow(
        meaning=Meaning.PENDING_JOB,
        registry=_DELL,
        keys="SYS537",  # "The Generate CSR operation is taking longer duration than expected."
        source=f"{_ANSIBLE}#737, idrac_certificates.py",
    ),
    MessageRow(
        meaning=Meaning.PENDING_JOB,
        registry=_DELL,
        keys="LC068|RAC0679",  # "pending attribute changes or a configuration job is in progress"
        source="openstack/sushy-oem-idrac, constants.py and the answers of its tests",
    ),
    MessageRow(meaning=Meaning.PENDING_JOB, keys="OemFirmwareAlreadyInUpdateMode", source=_SMC),
    MessageRow(
        meaning=Meaning.PENDING_JOB,
        keys="OemBiosSettingFileAlreadyExists",  # a setting waits for the next start of the host
        source=_CARBIDE,
    ),
    MessageRow(meaning=Meaning.LICENCE, keys="OemLicenseNotPassed", source=_SMC),
    MessageRow(
        meaning=Meaning.LICENCE,
        keys="LicenseRequired|LicenseKeyRequired",
        source=f"{_BASE}: LicenseRequired; {_ILO}: LicenseKeyRequired",
    ),
    MessageRow(
        meaning=Meaning.LICENCE,
        keys=r"\w*Licen[sc]e\w*(Required|NotPassed|Missing|NotInstalled|Expired)",
        source=_WORDS,
    ),
    MessageRow(
        meaning=Meaning.NOT_READY,
        keys="ServiceTemporarilyUnavailable|ServiceInUnknownState|ServiceShuttingDown"
        "|ResourceInStandby|SessionLimitExceeded",
        source=_BASE,
    ),
    MessageRow(
        meaning=Meaning.NOT_READY, keys="ServiceTemporarilyUnavailableDueToHostBooting", source=_AMI
    ),
    MessageRow(
        meaning=Meaning.NOT_READY,
        keys="ResourceNotReadyRetry|ResourceTemporarilyUnavailable|UpdateTemporarilyUnavailable"
        "|UnableToModifyDuringSystemPOST|OperationAvailableAfterSystemPOST"
        "|InvalidOperationForSystemState|ResetInProgress|DeviceIsBusy",
        source=_ILO,
    ),
    MessageRow(
        meaning=Meaning.NOT_READY,
        keys=r"\w*(NotReady|TemporarilyUnavailable|DuringSystemPOST|ResetInProgress)\w*",
        source=_WORDS,
    ),
    MessageRow(
        meaning=Meaning.PENDING_JOB,
        keys="UpdateInProgress",
        source=f"{_UPDATE}; Lenovo XCC, AMI and OpenBMC use it",
    ),
    MessageRow(meaning=Meaning.PENDING_JOB, keys="ResourceInUse", source=_BASE),
    MessageRow(
        meaning=Meaning.PENDING_JOB,
        keys="AlreadyInProgress|BundleUpdateAlreadyInProgress|ComponentUploadAlreadyInProgress"
        "|FirmwareFlashAlreadyInProgress|SecureEraseInProgress|CalibrateInProgress"
        "|ResourceBeingFlashed|ResourceInUseWithDetail|DiagsTestAlreadyRunning"
        "|UpdateTaskQueueFull",
        source=_ILO,
    ),
    MessageRow(
        meaning=Meaning.PENDING_JOB, keys=r"\w*(InProgress|ResourceInUse)\w*", source=_WORDS
    ),
    MessageRow(meaning=Meaning.LOCKED, keys="ServerConfigurationLockEnabled", source=_ILO),
    MessageRow(meaning=Meaning.LOCKED, keys=r"\w*(Lockdown|AccountLocked)\w*", source=_WORDS),
    MessageRow(
        meaning=Meaning.NEEDS_RESET,
        keys="ResetRequired|ResetRecommended|SystemResetRequired|DeviceResetRequired"
        "|ChassisResetRequired|InterfaceDisabledResetRequired|iLOResetAndSystemRebootRequired",
        source=f"{_BASE}: the first two; {_ILO}; NVIDIA/libredfish, hpe.rs",
    ),
    MessageRow(
        meaning=Meaning.REFUSED_PROPERTY,
        keys="Property(NotWritable|Unknown|NotUpdated|Value(Conflict|Error|ExternalConflict"
        "|FormatError|Incorrect|Modified|NotInList|OutOfRange|ResourceConflict|TypeError))",
        source=_BASE,
    ),
    MessageRow(
        meaning=Meaning.REFUSED_PROPERTY,
        keys="Property(NotWritableOrUnknown|NotSupported"
        "|Value(BadParam|ExceedsMaxLength|Incompatible|OutOfRange|Required))",
        source=_ILO,
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

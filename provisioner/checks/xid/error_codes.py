"""The actions that NVIDIA publishes for Xids and SXids, and the severity that each has for us.

A code, a bit or a text that no published table has gets the worst severity (`UNKNOWN`); only an
entry that a table calls harmless causes no finding. The tables are `xid_table`, `xid_nvlink`,
`xid_nvlink5` and `sxid_table`. They are our transcription of the facts in NVIDIA's Xid catalogue
(the workbook "Xid-Catalog" that is published with NVSentinel, Apache-2.0) and of the Fabric Manager
guide's appendix on NVSwitch errors; the wording is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.cohort import Severity
from provisioner.model.shipped_tables import read_table


class Family(StrEnum):
    """The driver that reports an error."""

    XID = "xid"  # from a GPU's driver
    SXID = "sxid"  # from an NVSwitch's driver


class Action(StrEnum):
    """The catalogue's "Resolution Bucket (Immediate Action)"; SXids use the same values."""

    IGNORE = "IGNORE"
    RESTART_APP = "RESTART_APP"
    RESET_GPU = "RESET_GPU"
    RESTART_BM = "RESTART_BM"
    RESTART_VM = "RESTART_VM"
    CHECK_MECHANICALS = "CHECK_MECHANICALS"
    UPDATE_SWFW = "UPDATE_SWFW"
    CHECK_UVM = "CHECK_UVM"
    XID_154_EVAL = "XID_154_EVAL"  # as the Xid 154 beside it; without one, restart the application
    XID_154 = "XID_154"  # its own text carries the action
    WORKFLOW_XID_45 = "WORKFLOW_XID_45"
    WORKFLOW_XID_48 = "WORKFLOW_XID_48"
    WORKFLOW_NVLINK_ERR = "WORKFLOW_NVLINK_ERR"  # Xid 74's registers
    WORKFLOW_NVLINK5_ERR = "WORKFLOW_NVLINK5_ERR"  # the status words of Xid 144 to 150
    CONTACT_SUPPORT = "CONTACT_SUPPORT"
    NONE = ""  # the catalogue lists the code and publishes no action


class Part(StrEnum):
    """The part that a decoded NVLink register refers to."""

    LINK = "link"  # the channel between the ends: seating, cable, signal
    UNKNOWN = "unknown"


# A node in maintenance runs only our own tests, so an application restart is a fault to
# investigate. An action whose workflow did not decide gets the worst severity.
SEVERITY: dict[Action, Severity | None] = {
    Action.IGNORE: None,
    Action.RESTART_APP: Severity.MONITOR,
    Action.XID_154_EVAL: Severity.MONITOR,
    Action.WORKFLOW_XID_45: Severity.MONITOR,
    Action.UPDATE_SWFW: Severity.CONFIG,
    Action.RESET_GPU: Severity.RESET_GPU,
    Action.CHECK_UVM: Severity.RESET_GPU,
    Action.RESTART_BM: Severity.RESTART,
    Action.RESTART_VM: Severity.RESTART,
    Action.CHECK_MECHANICALS: Severity.ISOLATE,
    Action.WORKFLOW_XID_48: Severity.ISOLATE,
    Action.WORKFLOW_NVLINK_ERR: Severity.ISOLATE,
    Action.WORKFLOW_NVLINK5_ERR: Severity.ISOLATE,
    Action.XID_154: Severity.ISOLATE,
    Action.CONTACT_SUPPORT: Severity.ISOLATE,
    Action.NONE: Severity.ISOLATE,
}
UNKNOWN = Severity.ISOLATE
_ORDER = (
    *(None, Severity.MONITOR, Severity.CONFIG, Severity.RESET_GPU),
    *(Severity.RESTART, Severity.POWER_CYCLE, Severity.ISOLATE),
)


def rank_severity(severity: Severity | None) -> int:
    """Return a severity's position from mild to severe; 0 for None."""
    return _ORDER.index(severity)


def select_worst(severities: Iterable[Severity | None]) -> Severity | None:
    return max(severities, key=rank_severity, default=None)


class Explanation(Record):
    """The explanation of one Xid or SXid for a person. `severity` None: no action is needed."""

    family: Family
    code: int  # -1: the number could not be read
    mnemonic: str
    meaning: str
    action: Action
    investigate: str  # the catalogue's second bucket: how to find the cause
    severity: Severity | None
    known: bool  # the code is in a published table
    details: tuple[str, ...] = ()  # decoded registers and texts, one sentence each
    source: str


# ------------------------------------------------------------------------------
# NVIDIA's Xid catalogue as rows; the data is in `xid_catalog.csv` beside this module.
#
# Source: the workbook "Xid-Catalog", sheet "XIDs": code, mnemonic, products, and the resolution
# buckets for the immediate and for the investigatory action. Meanings are in our words. Products:
# A
# is the A100, H the H100 and H200, B the B100 and B200, G the GB200; none: the code is not in use.


SOURCE = "NVIDIA Xid catalogue, sheet XIDs"

# Listed without an action, but with texts that say no reset is needed. Code 165 (the lifetime of
# power smoothing is used up) keeps the worst severity.
_POWER_SMOOTHING = (162, 163, 164)


class XidRow(Record):
    code: int
    mnemonic: str
    action: Action
    investigate: str
    products: str
    meaning: str

    @property
    def severity(self) -> Severity | None:
        """The severity before any decoding.

        A code that is harmless only on other products is monitored: according to the catalogue, an
        H100 or B100 cannot send it.
        """
        if self.code in _POWER_SMOOTHING:
            return Severity.MONITOR
        if self.action is Action.IGNORE and not set(self.products) & {"H", "B"}:
            return Severity.MONITOR
        return SEVERITY[self.action]


def data_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of one of the tables that are shipped beside this module."""
    return read_table("provisioner.checks.xid", name)


XIDS: dict[int, XidRow] = {
    int(row["code"]): XidRow.model_validate(row) for row in data_rows("xid_catalog.csv")
}


# ------------------------------------------------------------------------------
# NVSwitch errors by the Fabric Manager guide's tables; data in `sxid_catalog.csv`.
#
# Source: NVIDIA Fabric Manager user guide, appendix on NVSwitch SXid errors (non-fatal, fatal,
# always fatal), by way of leptonai/gpud (Apache-2.0), which transcribed it. The guide describes
# virtual machines; on bare metal every fatal error restarts the host, which resets all GPUs and
# NVSwitches. A fatal error appears on the GPUs as Xid 74: the switch is then the root cause (AWS,
# GPUD).


SXID_TABLE_SOURCE = "NVIDIA Fabric Manager user guide, NVSwitch SXid errors"


class Fatality(StrEnum):
    """The guide's class of an error."""

    NON_FATAL = "non_fatal"
    POTENTIALLY_FATAL = "potentially_fatal"  # one GPU on an access port, more on a trunk port
    ALWAYS_FATAL = "always_fatal"


class SxidRow(Record):
    """One row of the guide's tables."""

    code: int
    name: str
    fatality: Fatality = Field(validation_alias="class")
    action: Action
    advice: str


SXIDS: dict[int, SxidRow] = {
    int(row["code"]): SxidRow.model_validate(row) for row in data_rows("sxid_catalog.csv")
}


def explain_sxid(code: int, *, fatal: bool | None = None) -> Explanation:
    """Return the explanation of an SXid. `fatal` is the message's own level and can only worsen it.

    "Non-fatal" in the message of a code that the guide calls always fatal changes nothing.
    """
    row = SXIDS.get(code)
    if row is None:
        return Explanation(
            family=Family.SXID,
            code=code,
            mnemonic="",
            meaning="not in the published table",
            action=Action.NONE,
            investigate=Action.CONTACT_SUPPORT,
            severity=UNKNOWN,
            known=False,
            source=SXID_TABLE_SOURCE,
        )
    details = [row.fatality.replace("_", " ")]
    severity = SEVERITY[row.action]
    if fatal and row.fatality is Fatality.NON_FATAL:
        severity = select_worst([severity, Severity.RESTART])
        details.append("the message calls it fatal, the table does not: taken as fatal")
    if row.advice:
        details.append(row.advice)
    return Explanation(
        family=Family.SXID,
        code=code,
        mnemonic=row.name,
        meaning=f"NVSwitch: {row.name}",
        action=row.action,
        investigate="",
        severity=severity,
        known=True,
        details=tuple(details),
        source=SXID_TABLE_SOURCE,
    )

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

from provisioner.model.base import Record
from provisioner.model.health import Severity


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
    """Return the most severe; None if there is none."""
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

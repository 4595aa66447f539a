"""What Xids and SXids ask for: NVIDIA's actions as words, and what each means to us.

Rule: a code, a bit or a word that no published table has asks for the worst (`UNKNOWN`); only what
a table calls harmless is no finding. The tables: `xid_table`, `xid_nvlink`, `xid_nvlink5`,
`sxid_table`. They are our transcription of the facts in NVIDIA's Xid catalogue (the workbook
"Xid-Catalog" that is published with NVSentinel, Apache-2.0) and of the Fabric Manager guide's
appendix on NVSwitch errors; the wording is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from provisioner.model.base import Record
from provisioner.model.health import Severity


class Family(StrEnum):
    XID = "xid"  # from a GPU's driver
    SXID = "sxid"  # from an NVSwitch's driver


class Action(StrEnum):
    """The catalogue's "Resolution Bucket (Immediate Action)"; SXids use the same words."""

    IGNORE = "IGNORE"
    RESTART_APP = "RESTART_APP"
    RESET_GPU = "RESET_GPU"
    RESTART_BM = "RESTART_BM"
    RESTART_VM = "RESTART_VM"
    CHECK_MECHANICALS = "CHECK_MECHANICALS"
    UPDATE_SWFW = "UPDATE_SWFW"
    CHECK_UVM = "CHECK_UVM"
    XID_154_EVAL = "XID_154_EVAL"  # as Xid 154 beside it says; without one, restart the application
    XID_154 = "XID_154"  # its own text says it
    WORKFLOW_XID_45 = "WORKFLOW_XID_45"
    WORKFLOW_XID_48 = "WORKFLOW_XID_48"
    WORKFLOW_NVLINK_ERR = "WORKFLOW_NVLINK_ERR"  # Xid 74's registers
    WORKFLOW_NVLINK5_ERR = "WORKFLOW_NVLINK5_ERR"  # the words of Xid 144 to 150
    CONTACT_SUPPORT = "CONTACT_SUPPORT"
    NONE = ""  # the catalogue lists the code and publishes no action


class Part(StrEnum):
    """Which part a decoded NVLink register speaks of."""

    LINK = "link"  # the channel between the ends: seating, cable, signal
    UNKNOWN = "unknown"


# On a node in maintenance no application but our own tests runs: one that had to be restarted is
# a fault to look into. What needs a workflow that did not decide asks for the worst.
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


def rank(severity: Severity | None) -> int:
    """How much a severity asks for: 0 for nothing at all."""
    return _ORDER.index(severity)


def worst(severities: Iterable[Severity | None]) -> Severity | None:
    """The one that asks for most; None if none asks for anything."""
    return max(severities, key=rank, default=None)


class Explained(Record):
    """One Xid or SXid, told to a person. `severity` None: nothing is asked for."""

    family: Family
    code: int  # -1: the number could not be read
    mnemonic: str
    meaning: str
    action: Action
    investigate: str  # the catalogue's second bucket: how to find out why
    severity: Severity | None
    known: bool  # it stands in a published table
    details: tuple[str, ...] = ()  # what registers and words said, one sentence each
    source: str

"""NVSwitch errors by the Fabric Manager guide's tables; data in `sxid_catalog.csv`.

Source: NVIDIA Fabric Manager user guide, appendix on NVSwitch SXid errors (non-fatal, fatal, always
fatal), by way of leptonai/gpud (Apache-2.0), which transcribed it. The guide describes virtual
machines; on bare metal every fatal error restarts the host, which resets all GPUs and NVSwitches.
A fatal error appears on the GPUs as Xid 74: the switch is then the root cause (AWS, GPUD).
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from provisioner.checks.xid.error_codes import SEVERITY, Action, Explanation, Family, select_worst
from provisioner.checks.xid.error_codes import UNKNOWN as WORST
from provisioner.checks.xid.xid_table import data_rows
from provisioner.model.base import Record
from provisioner.model.health import Severity

SOURCE = "NVIDIA Fabric Manager user guide, NVSwitch SXid errors"


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
            severity=WORST,
            known=False,
            source=SOURCE,
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
        source=SOURCE,
    )

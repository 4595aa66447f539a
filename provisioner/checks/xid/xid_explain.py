"""Explains one Xid: the action that it needs, with everything decoded that its text carries.

Xid 154 carries the action itself: "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot
Required)". The last pair counts, and it overrides the catalogue's row of the Xid beside it.
"""

from __future__ import annotations

import re

from provisioner.checks.xid import xid_nvlink, xid_nvlink5, xid_table
from provisioner.checks.xid.error_codes import (
    UNKNOWN,
    Action,
    Explanation,
    Family,
    rank_severity,
    select_worst,
)
from provisioner.checks.xid.xid_table import XIDS
from provisioner.model.base import Record
from provisioner.model.health import Severity

RECOVERY_XID = 154
_CHANGED = re.compile(r"changed from .{1,60}? to 0x([0-9a-fA-F]{1,8}) \(([^()]{1,40})\)\s*$")


class Recovery(Record):
    """One value of the GPU recovery action."""

    number: int  # nvmlDeviceGpuRecoveryAction_t
    words: tuple[str, ...]  # the catalogue's text, then those in newer drivers' logs
    action: Action
    severity: Severity | None


# The catalogue publishes the texts, NVML's header the numbers; "OS Reboot" and "PF FLR" (a reset of
# the PCIe function) are from published logs of drivers from R610 on.
RECOVERIES = (
    Recovery(number=0, words=("None",), action=Action.IGNORE, severity=None),
    Recovery(
        number=1,
        words=("GPU Reset Required", "PF FLR"),
        action=Action.RESET_GPU,
        severity=Severity.RESET_GPU,
    ),
    Recovery(
        number=2,
        words=("Node Reboot Required", "OS Reboot"),
        action=Action.RESTART_BM,
        severity=Severity.RESTART,
    ),
    Recovery(number=3, words=("Drain P2P",), action=Action.RESET_GPU, severity=Severity.RESET_GPU),
    Recovery(
        number=4, words=("Drain and Reset",), action=Action.RESET_GPU, severity=Severity.RESET_GPU
    ),
)


def parse_recovery(message: str) -> Recovery | None:
    """Return the action that an Xid 154 requests; None unless number and text are a known pair."""
    match = _CHANGED.search(message)
    if match is None:
        return None
    return next(
        (r for r in RECOVERIES if r.number == int(match[1], 16) and match[2] in r.words), None
    )


def explain_xid(code: int, message: str = "", registers: tuple[int, ...] = ()) -> Explanation:
    """Return the explanation of an Xid.

    `message` is the text after "Xid (PCI:...): <code>,"; `registers` are its seven registers (Xid
    74) or intrInfo and errorStatus (Xid 144 to 150), for a person who has only these.
    """
    row = XIDS.get(code)
    if row is None or not row.products:
        return Explanation(
            family=Family.XID,
            code=code,
            mnemonic=row.mnemonic if row else "",
            meaning="listed by the catalogue as not in use"
            if row
            else "not in the published catalogue",
            action=row.action if row else Action.NONE,
            investigate=Action.CONTACT_SUPPORT,
            severity=UNKNOWN,
            known=row is not None,
            source=xid_table.SOURCE,
        )
    plain = Explanation(
        family=Family.XID,
        code=code,
        mnemonic=row.mnemonic,
        meaning=row.meaning,
        action=row.action,
        investigate=row.investigate,
        severity=row.severity,
        known=True,
        source=xid_table.SOURCE,
    )
    if not message and not registers:
        return plain
    if code == RECOVERY_XID:
        return _explain_recovery(plain, message)
    if code == xid_nvlink.XID:
        return _explain_nvlink(plain, message, registers)
    if code in xid_nvlink5.XIDS_NVLINK5:
        return _explain_nvlink5(plain, message, registers)
    return plain


def _explain_recovery(plain: Explanation, message: str) -> Explanation:
    recovery_action = parse_recovery(message)
    if recovery_action is None:
        return plain.model_copy(
            update={"details": ("its recovery action is in no published table",)}
        )
    return plain.model_copy(
        update={
            "action": recovery_action.action,
            "severity": recovery_action.severity,
            "details": (f"asks for: {recovery_action.words[0]}",),
        }
    )


def _explain_nvlink(plain: Explanation, message: str, registers: tuple[int, ...]) -> Explanation:
    read = (-1, registers) if registers else xid_nvlink.parse_registers(message)
    if read is None or len(read[1]) != xid_nvlink.REGISTERS:
        return plain.model_copy(update={"details": ("its seven registers cannot be read",)})
    bits = xid_nvlink.decode_registers(read[1])
    severity = xid_nvlink.rate_bits(bits)
    if "fatal error" in message:
        # whatever the bits mean, a link that failed stays down until the GPU is reset
        severity = select_worst([severity, Severity.RESET_GPU])
    ordered = sorted(
        bits, key=lambda bit: (-rank_severity(bit.severity), bit.register_number, bit.bit)
    )
    link = (f"link {read[0]}",) if read[0] >= 0 else ()
    described = tuple(str(bit) for bit in ordered[:8]) or ("no bit of any register is set",)
    return plain.model_copy(
        update={
            "severity": severity,
            "details": link + described,
            "source": xid_nvlink.SOURCE,
        }
    )


def _explain_nvlink5(plain: Explanation, message: str, registers: tuple[int, ...]) -> Explanation:
    if registers:
        decoded = (
            xid_nvlink5.decode_status(plain.code, "", registers[0], registers[1])
            if len(registers) >= 2
            else None
        )
    else:
        decoded = xid_nvlink5.decode_message(plain.code, message)
    if decoded is None:
        return plain.model_copy(update={"details": ("its status words cannot be read",)})
    link = (f"link {decoded.link}",) if decoded.link >= 0 else ()
    return plain.model_copy(
        update={
            "action": decoded.action,
            "investigate": decoded.investigate or plain.investigate,
            "severity": decoded.severity,
            "details": link + decoded.details,
            "source": xid_nvlink5.SOURCE,
        }
    )

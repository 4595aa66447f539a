"""Tells what one Xid asks for, with everything that its words say decoded.

Xid 154 carries the action itself: "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot
Required)"; the last pair counts, and it overrides the catalogue's row of the Xid beside it.
"""

from __future__ import annotations

import re

from provisioner.checks.xid import xid_nvlink, xid_nvlink5, xid_table
from provisioner.checks.xid.error_codes import UNKNOWN, Action, Explained, Family, rank, worst
from provisioner.checks.xid.xid_table import XIDS
from provisioner.model.base import Record
from provisioner.model.health import Severity

RECOVERY_XID = 154
_CHANGED = re.compile(r"changed from .{1,60}? to 0x([0-9a-fA-F]{1,8}) \(([^()]{1,40})\)\s*$")


class Recovery(Record):
    """One value of the GPU recovery action."""

    number: int  # nvmlDeviceGpuRecoveryAction_t
    words: tuple[str, ...]  # the catalogue's; then those of newer drivers' logs
    action: Action
    severity: Severity | None


# The catalogue publishes the words, NVML's header the numbers; "OS Reboot" and "PF FLR" (a reset of
# the PCIe function) stand in logs of drivers from R610 on that people published.
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


def recovery(message: str) -> Recovery | None:
    """What an Xid 154 says is needed now; None if number and words are not one published pair."""
    match = _CHANGED.search(message)
    if match is None:
        return None
    return next(
        (r for r in RECOVERIES if r.number == int(match[1], 16) and match[2] in r.words), None
    )


def explain_xid(code: int, message: str = "", registers: tuple[int, ...] = ()) -> Explained:
    """What an Xid asks for.

    `message` is what follows "Xid (PCI:...): <code>,"; `registers` are its seven registers (Xid
    74) or intrInfo and errorStatus (Xid 144 to 150), for a person who has only these.
    """
    row = XIDS.get(code)
    if row is None or not row.products:
        return Explained(
            family=Family.XID,
            code=code,
            mnemonic=row.mnemonic if row else "",
            meaning="not in use, says the catalogue" if row else "not in the published catalogue",
            action=row.action if row else Action.NONE,
            investigate=Action.CONTACT_SUPPORT,
            severity=UNKNOWN,
            known=row is not None,
            source=xid_table.SOURCE,
        )
    plain = Explained(
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
        return _recovered(plain, message)
    if code == xid_nvlink.XID:
        return _nvlink(plain, message, registers)
    if code in xid_nvlink5.XIDS_NVLINK5:
        return _nvlink5(plain, message, registers)
    return plain


def _recovered(plain: Explained, message: str) -> Explained:
    found = recovery(message)
    if found is None:
        return plain.model_copy(update={"details": ("its words are in no published table",)})
    return plain.model_copy(
        update={
            "action": found.action,
            "severity": found.severity,
            "details": (f"asks for: {found.words[0]}",),
        }
    )


def _nvlink(plain: Explained, message: str, registers: tuple[int, ...]) -> Explained:
    read = (-1, registers) if registers else xid_nvlink.registers_of(message)
    if read is None or len(read[1]) != xid_nvlink.REGISTERS:
        return plain.model_copy(update={"details": ("its seven registers cannot be read",)})
    bits = xid_nvlink.decode_registers(read[1])
    severity = xid_nvlink.severity_of_bits(bits)
    if "fatal error" in message:
        # whatever the bits ask for, a link that failed stays down until the GPU is reset
        severity = worst([severity, Severity.RESET_GPU])
    ordered = sorted(bits, key=lambda bit: (-rank(bit.severity), bit.register_number, bit.bit))
    link = (f"link {read[0]}",) if read[0] >= 0 else ()
    told = tuple(str(bit) for bit in ordered[:8]) or ("no bit of any register is set",)
    return plain.model_copy(
        update={
            "severity": severity,
            "details": link + told,
            "source": xid_nvlink.SOURCE,
        }
    )


def _nvlink5(plain: Explained, message: str, registers: tuple[int, ...]) -> Explained:
    if registers:
        found = (
            xid_nvlink5.decode_words(plain.code, "", registers[0], registers[1])
            if len(registers) >= 2
            else None
        )
    else:
        found = xid_nvlink5.decode_message(plain.code, message)
    if found is None:
        return plain.model_copy(update={"details": ("its words cannot be read",)})
    link = (f"link {found.link}",) if found.link >= 0 else ()
    return plain.model_copy(
        update={
            "action": found.action,
            "investigate": found.investigate or plain.investigate,
            "severity": found.severity,
            "details": link + found.details,
            "source": xid_nvlink5.SOURCE,
        }
    )

"""Explains one Xid: the action that it needs, with everything decoded that its text carries.

Xid 154 carries the action itself: "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot
Required)". The last pair counts, and it overrides the catalogue's row of the Xid beside it.
"""

from __future__ import annotations

import re
from enum import StrEnum

from pydantic import field_validator

from provisioner.checks.xid import error_codes
from provisioner.checks.xid.error_codes import (
    SEVERITY,
    UNKNOWN,
    XIDS,
    Action,
    Explanation,
    Family,
    Part,
    data_rows,
    rank_severity,
    select_worst,
)
from provisioner.model.base import Record
from provisioner.model.cohort import Severity

# ------------------------------------------------------------------------------
# Xid 74 on Hopper: seven registers, of which four are valid, decoded bit by bit.
#
# Source: NVIDIA Xid catalogue, bucket WORKFLOW_NVLINK_ERR. A bit that the workflow does not name,
# or a register that Hopper does not have, gets the worst severity.


XID = 74
REGISTERS = 7
SOURCE = "NVIDIA Xid catalogue, WORKFLOW_NVLINK_ERR"
# "fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"
_MESSAGE = re.compile(
    r"link\s+(\d{1,3})\s*\(\s*((?:0x[0-9a-fA-F]{1,8}\s*,\s*){6}0x[0-9a-fA-F]{1,8})\s*\)"
)


class NvlinkMeaning(StrEnum):
    """The meaning of a bit, in the workflow's order."""

    HARMLESS = "can be ignored"
    SYMPATHETIC = "follows another error; alone, report it"
    RESET_FABRIC = "follows another error, and the fabric must be reset"
    ECC = "hardware, ECC or parity: more than twice on one link is a fault of the part"
    SEATING = "perhaps hardware: check the link's seating, then field diagnosis"
    SIGNAL = "marginal signal: check the link's seating, field diagnosis"
    REPEATED = "report it if it is seen again and again"
    REPEATED_DIAG = "if it is seen again and again: field diagnosis"
    NOT_EXPECTED = "never expected in production: report it"
    THRESHOLD = "many corrected ECC errors: operation continues; run field diagnosis"
    UNLISTED = "in no published table"


SEVERITIES: dict[NvlinkMeaning, Severity | None] = {
    NvlinkMeaning.HARMLESS: None,
    NvlinkMeaning.SYMPATHETIC: Severity.MONITOR,
    NvlinkMeaning.RESET_FABRIC: Severity.RESET_GPU,
    NvlinkMeaning.ECC: Severity.RESET_GPU,
    NvlinkMeaning.SEATING: Severity.ISOLATE,
    NvlinkMeaning.SIGNAL: Severity.ISOLATE,
    NvlinkMeaning.REPEATED: Severity.MONITOR,
    NvlinkMeaning.REPEATED_DIAG: Severity.MONITOR,
    NvlinkMeaning.NOT_EXPECTED: Severity.ISOLATE,
    NvlinkMeaning.THRESHOLD: Severity.MONITOR,
    NvlinkMeaning.UNLISTED: UNKNOWN,
}
# The workflow names a part for these two only; for ECC and parity it does not name the faulty end.
PARTS: dict[NvlinkMeaning, Part] = {
    NvlinkMeaning.SEATING: Part.LINK,
    NvlinkMeaning.SIGNAL: Part.LINK,
}

# register (from 1, as the workflow counts) -> meaning -> bits
BITS: dict[int, dict[NvlinkMeaning, tuple[int, ...]]] = {
    1: {
        NvlinkMeaning.HARMLESS: (0, 23, 30),
        NvlinkMeaning.SYMPATHETIC: (1, 20),
        NvlinkMeaning.ECC: (4, 5),
        NvlinkMeaning.SEATING: (8, 9, 12, 16, 17, 24, 28),
        NvlinkMeaning.SIGNAL: (21, 22),
        NvlinkMeaning.REPEATED: (27, 29),
    },
    3: {
        NvlinkMeaning.ECC: (0, 1, 2, 6),
        NvlinkMeaning.NOT_EXPECTED: (13,),
        NvlinkMeaning.REPEATED_DIAG: (16, 19),
        NvlinkMeaning.REPEATED: (17, 18),
    },
    4: {NvlinkMeaning.SYMPATHETIC: (16, 17), NvlinkMeaning.RESET_FABRIC: (18,)},
    5: {
        NvlinkMeaning.ECC: (18, 19, 21, 22, 24, 25, 27, 28),
        NvlinkMeaning.THRESHOLD: (20, 23, 26, 29),
    },
}


class NvlinkBit(Record):
    register_number: int
    bit: int
    meaning: NvlinkMeaning

    @property
    def severity(self) -> Severity | None:
        return SEVERITIES[self.meaning]

    @property
    def part(self) -> Part:
        return PARTS.get(self.meaning, Part.UNKNOWN)

    def __str__(self) -> str:
        where = "" if self.part is Part.UNKNOWN else f" ({self.part})"
        return f"register {self.register_number} bit {self.bit}: {self.meaning.value}{where}"


def decode_registers(registers: tuple[int, ...]) -> tuple[NvlinkBit, ...]:
    bits_found = []
    for number, value in enumerate(registers[:REGISTERS], start=1):
        named = {b: m for m, bits in BITS.get(number, {}).items() for b in bits}
        bits_found += [
            NvlinkBit(
                register_number=number, bit=bit, meaning=named.get(bit, NvlinkMeaning.UNLISTED)
            )
            for bit in range(32)
            if value >> bit & 1
        ]
    return tuple(bits_found)


def rate_bits(bits: tuple[NvlinkBit, ...]) -> Severity | None:
    """Return the severity of all bits together; registers without a set bit get the worst.

    Bits that only follow another error count for little beside it, and are never harmless alone.
    """
    if not bits:
        return UNKNOWN
    return select_worst(bit.severity for bit in bits)


def parse_registers(message: str) -> tuple[int, tuple[int, ...]] | None:
    """Return link number and registers from the text of an Xid 74; None if it cannot be read."""
    match = _MESSAGE.search(message)
    if match is None:
        return None
    return int(match[1]), tuple(int(cell, 16) for cell in match[2].split(","))


# ------------------------------------------------------------------------------
# Xid 144 to 150 on Blackwell (NVLink 5): decodes interrupt information and error status.
#
# The message is "UNIT Fatal|Nonfatal XC<n> i<n> Link <n> (intrInfo errorStatus debug...)". Its
# layout of intrInfo changed with driver R575: before (V1) bits 9:5 name the unit and bits 4:0 the
# Xid, since (V2) bits 6:0 name the unit; in both, bits 25:20 are the reason of a link that went
# down. Source: NVIDIA Xid catalogue, sheet "XID 144-150 Decode"; data in `xid_nvlink5_catalog.csv`.
# A unit, reason or status that is in no row gets the worst severity.


XIDS_NVLINK5 = range(144, 151)
_XID_NVLINK5_MESSAGE = re.compile(
    r"(?P<unit>[A-Za-z][A-Za-z0-9_ ]{0,30}?)\s+(?P<level>Link Fatal|Fatal|Non-?[Ff]atal)\s+"
    r"XC\s?\d+\s+i\s?\d+\s+Link\s+(?P<link>-?\d{1,3})\s+"
    r"[(\[]\s*(?P<words>0x[0-9a-fA-F]{1,8}(?:[\s,]+0x[0-9a-fA-F]{1,8}){1,7})\s*[)\]]"
)
# RLW_RXPIPE's mark that it was promoted to fatal
_PROMOTED_V1 = 1 << 10
_PROMOTED_V2 = 1 << 7


class Nvlink5Row(Record):
    """One rule: Xid, unit (both names), its number in V1 and V2, reason or statuses, actions."""

    xid: int
    unit: str
    v1: int
    v2: int
    reason: int | None
    status: tuple[int, ...]
    action: Action
    promoted: Action | None  # the action if the promotion bit is set
    investigate: str
    severity: str
    local: str
    remote: str

    @field_validator("reason", "promoted", mode="before")
    @classmethod
    def _empty(cls, cell: str) -> str | None:
        return cell or None

    @field_validator("status", mode="before")
    @classmethod
    def _statuses(cls, cell: str) -> tuple[int, ...]:
        return tuple(int(word, 16) for word in cell.split())


ROWS = tuple(Nvlink5Row.model_validate(row) for row in data_rows("xid_nvlink5_catalog.csv"))


class Nvlink5Decoding(Record):
    """The decoded content of one message."""

    unit: str
    link: int  # -1: no single link
    fatal: bool  # by the message's own level
    severity: Severity | None
    action: Action
    investigate: str
    details: tuple[str, ...]


def decode_message(xid: int, message: str) -> Nvlink5Decoding | None:
    """Return the decoded message of an Xid 144 to 150; None if it cannot be read."""
    match = _XID_NVLINK5_MESSAGE.search(message)
    if match is None:
        return None
    values = [int(w, 16) for w in re.findall(r"0x[0-9a-fA-F]+", match["words"])]
    unit = match["unit"].strip().rpartition(", ")[2]
    return decode_status(
        xid, unit, values[0], values[1], link=int(match["link"]), fatal="on" not in match["level"]
    )


def decode_status(
    xid: int, unit: str, information: int, status: int, *, link: int = -1, fatal: bool = False
) -> Nvlink5Decoding:
    """Decode intrInfo and errorStatus of one unit; a unit of "" is identified by its number."""
    rows = [row for row in ROWS if _fits(row, xid, unit, information)]
    reason = information >> 20 & 0x3F
    matches = []
    for row in rows:
        if row.reason is not None:
            matches += [row] if row.reason == reason else []
        elif not row.status or status in row.status:
            matches.append(row)
    unexplained_bits = 0
    if rows and not matches and all(row.reason is None for row in rows):
        # several errors at once: one bit each
        matches = [row for row in rows if any(_is_one_bit(s) and s & status for s in row.status)]
        unexplained_bits = status & ~sum({s for row in rows for s in row.status if _is_one_bit(s)})
    severities = [_rate_row(row, information) for row in matches]
    details = [_describe_row(row, information) for row in matches]
    if not matches or unexplained_bits:
        severities.append(UNKNOWN)
        subject = f"unit {unit or '?'}, reason {reason}, status {status:#x}"
        details.append(f"{subject}: in no published row")
    if fatal:
        severities.append(Severity.RESET_GPU)
    top = max(matches, key=lambda r: _actions.index(_select_action(r, information)), default=None)
    return Nvlink5Decoding(
        unit=unit or (top.unit if top else ""),
        link=link,
        fatal=fatal,
        severity=select_worst(severities),
        action=_select_action(top, information) if top else Action.NONE,
        investigate=", ".join(dict.fromkeys(row.investigate for row in matches)),
        details=tuple(details[:8]),
    )


_actions = (Action.IGNORE, Action.XID_154_EVAL, Action.RESET_GPU)


def _fits(row: Nvlink5Row, xid: int, unit: str, information: int) -> bool:
    """Return whether Xid and unit match a row, and its number in one of the two layouts."""
    if row.xid != xid or (unit and unit not in row.unit.split("/")):
        return False
    v1 = information & 0x3FF == (row.v1 << 5 | (0 if xid == 150 else xid - 143))
    return v1 or information & 0x7F == row.v2


def _is_one_bit(status: int) -> bool:
    return status.bit_count() == 1


def _select_action(row: Nvlink5Row, information: int) -> Action:
    if row.promoted is None:
        return row.action
    old = information & 0x3FF == (row.v1 << 5 | (row.xid - 143))
    return row.promoted if information & (_PROMOTED_V1 if old else _PROMOTED_V2) else row.action


def _rate_row(row: Nvlink5Row, information: int) -> Severity | None:
    return SEVERITY[_select_action(row, information)]


def _describe_row(row: Nvlink5Row, information: int) -> str:
    reason = "" if row.reason is None else f" reason {row.reason}"
    sides = f"here: {row.local or 'nothing'}; at the other end: {row.remote or 'nothing'}"
    return f"{row.unit}{reason}, {row.severity}: {_select_action(row, information).value} ({sides})"


RECOVERY_XID = 154
_CHANGED = re.compile(r"changed from .{1,60}? to 0x([0-9a-fA-F]{1,8}) \(([^()]{1,40})\)\s*$")


class Recovery(Record):
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
            source=error_codes.SOURCE,
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
        source=error_codes.SOURCE,
    )
    if not message and not registers:
        return plain
    if code == RECOVERY_XID:
        return _explain_recovery(plain, message)
    if code == XID:
        return _explain_nvlink(plain, message, registers)
    if code in XIDS_NVLINK5:
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
    read = (-1, registers) if registers else parse_registers(message)
    if read is None or len(read[1]) != REGISTERS:
        return plain.model_copy(update={"details": ("its seven registers cannot be read",)})
    bits = decode_registers(read[1])
    severity = rate_bits(bits)
    if "fatal error" in message:
        # whatever the bits mean, a link that failed stays down until the GPU is reset
        severity = select_worst([severity, Severity.RESET_GPU])
    ordered = sorted(
        bits, key=lambda bit: (-rank_severity(bit.severity), bit.register_number, bit.bit)
    )
    link = (f"link {read[0]}",) if read[0] >= 0 else ()
    described = tuple(str(bit) for bit in ordered[:8]) or ("no bit of any register is set",)
    return plain.model_copy(
        update={"severity": severity, "details": link + described, "source": SOURCE}
    )


def _explain_nvlink5(plain: Explanation, message: str, registers: tuple[int, ...]) -> Explanation:
    if registers:
        decoded = (
            decode_status(plain.code, "", registers[0], registers[1])
            if len(registers) >= 2
            else None
        )
    else:
        decoded = decode_message(plain.code, message)
    if decoded is None:
        return plain.model_copy(update={"details": ("its status words cannot be read",)})
    link = (f"link {decoded.link}",) if decoded.link >= 0 else ()
    return plain.model_copy(
        update={
            "action": decoded.action,
            "investigate": decoded.investigate or plain.investigate,
            "severity": decoded.severity,
            "details": link + decoded.details,
            "source": SOURCE,
        }
    )

"""The SNMP tables of outlets, by vendor. Each object stands in the vendor's own MIB.

`index` is the number of arcs that name an outlet: 1 is the outlet's number, 2 is PDU/outlet, 3 is
unit/cord/outlet. All values are INTEGER.
"""

from __future__ import annotations

from provisioner.model.base import Record
from provisioner.model.location import OutletState


class OutletTable(Record):
    """How outlets are read and switched: two columns and their values."""

    source: str
    state: tuple[int, ...]  # column that is read
    is_on: int
    is_off: int
    command: tuple[int, ...]  # column that is written
    turn_on: int
    turn_off: int
    index: int


_APC = (1, 3, 6, 1, 4, 1, 318, 1, 1)
_RARITAN = (1, 3, 6, 1, 4, 1, 13742, 6)
_SENTRY4 = (1, 3, 6, 1, 4, 1, 1718, 4, 1)

TABLES = {
    "apc_rpdu2": OutletTable(
        source="PowerNet-MIB: rPDU2OutletSwitchedStatusState off(1) on(2), "
        "rPDU2OutletSwitchedControlCommand immediateOn(1) immediateOff(2)",
        state=(*_APC, 26, 9, 2, 3, 1, 5),
        is_on=2,
        is_off=1,
        command=(*_APC, 26, 9, 2, 4, 1, 5),
        turn_on=1,
        turn_off=2,
        index=1,
    ),
    "apc_rpdu": OutletTable(
        source="PowerNet-MIB: rPDUOutletStatusOutletState outletStatusOn(1) outletStatusOff(2), "
        "rPDUOutletControlOutletCommand immediateOn(1) immediateOff(2)",
        state=(*_APC, 12, 3, 5, 1, 1, 4),
        is_on=1,
        is_off=2,
        command=(*_APC, 12, 3, 3, 1, 1, 4),
        turn_on=1,
        turn_off=2,
        index=1,
    ),
    "raritan_pdu2": OutletTable(
        source="Raritan PDU2-MIB: outletSwitchingState on(7) off(8), switchingOperation off(0) "
        "on(1), both indexed by pduId and outletId",
        state=(*_RARITAN, 4, 1, 2, 1, 3),
        is_on=7,
        is_off=8,
        command=(*_RARITAN, 4, 1, 2, 1, 2),
        turn_on=1,
        turn_off=0,
        index=2,
    ),
    "sentry4": OutletTable(
        source="Server Technology Sentry4-MIB: st4OutletState unknown(0) on(1) off(2), "
        "st4OutletControlAction on(1) off(2), indexed by unit, input cord and outlet",
        state=(*_SENTRY4, 8, 3, 1, 1),
        is_on=1,
        is_off=2,
        command=(*_SENTRY4, 8, 5, 1, 2),
        turn_on=1,
        turn_off=2,
        index=3,
    ),
}


def parse_index(table: OutletTable, outlet: str) -> tuple[int, ...] | None:
    """Return the arcs of an outlet written as numbers with slashes; None if it is none."""
    parts = outlet.split("/")
    if len(parts) != table.index or not all(p.isascii() and p.isdecimal() for p in parts):
        return None
    arcs = tuple(int(p) for p in parts if len(p) <= 5)
    return arcs if len(arcs) == table.index and all(1 <= a <= 65535 for a in arcs) else None


def parse_state(table: OutletTable, value: object) -> OutletState:
    """Return the state of a value as read; every other value is unknown."""
    try:
        number = int(value)  # type: ignore[call-overload]  # what is no number raises
    except (TypeError, ValueError, OverflowError):
        return OutletState.UNKNOWN
    return {table.is_on: OutletState.ON, table.is_off: OutletState.OFF}.get(
        number, OutletState.UNKNOWN
    )

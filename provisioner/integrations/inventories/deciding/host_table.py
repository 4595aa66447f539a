"""Read a table of serving hosts from CSV (RFC 4180), with a header, for an adoption. Pure.

| column | content |
|---|---|
| `name` | the node's name; the only column that each row needs |
| `bmc`, `bmc_mac`, `serial` | its BMC's address or URL, the BMC's MAC, the system's serial |
| `tenant`, `site`, `rack` | its tenant and its place |
| `ports` | its leaf ports: `leaf01/swp1=NIC_0 leaf02/swp1=NIC_1`; the card may be left out |
| `username`, `password_env`, `password_file` | its BMC's login; a password has no column |

Lines that are empty or begin with `#` are left out. A fault of the header refuses the file, one of
a row refuses this row alone.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

from provisioner.integrations.inventories.deciding.belief import Belief, SourceRow
from provisioner.integrations.inventories.deciding.belief_comparison import (
    bracket_address,
    format_address,
)
from provisioner.model.input_error import InputError
from provisioner.model.location import Port
from provisioner.model.outcome import Blocker, Reason

COLUMNS = (
    "name",
    "bmc",
    "bmc_mac",
    "serial",
    "tenant",
    "site",
    "rack",
    "ports",
    "username",
    "password_env",
    "password_file",
)
ROWS_MAX = 65_536
CELL_MAX = 4_096  # characters
_RAIL = re.compile(r"NIC_(\d{1,2})(?:\.\d+)?")
_PORT = re.compile(r"(?P<switch>[^/=\s]+)/(?P<interface>[^=\s]+)(?:=(?P<slot>[^=\s]+))?")


@dataclass(frozen=True)
class HostTable:
    """The rows of a table, and the refusals of rows that cannot be read."""

    rows: tuple[SourceRow, ...]
    refused: tuple[Blocker, ...]


def read_table(source: str, text: str) -> HostTable:
    """Return the hosts of a table. Raises InputError for a file or header that cannot be read."""
    lines = ["" if line.startswith("#") else line for line in io.StringIO(text, newline="")]
    reader = csv.reader(lines, strict=True)
    rows: list[SourceRow] = []
    refused: list[Blocker] = []
    header: list[str] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = _read_header(source, cells)
                continue
            if len(rows) + len(refused) >= ROWS_MAX:
                remedy = "Split it into several files."
                raise InputError(source, "", f"it has more than {ROWS_MAX} rows", remedy)
            read = _read_row(f"row {reader.line_num}", header, cells)
            if isinstance(read, Blocker):
                refused.append(read)
            else:
                rows.append(read)
    except csv.Error as error:
        problem = f"line {reader.line_num} is no CSV: {error}"
        raise InputError(source, "", problem, "Write it as RFC 4180 says.") from None
    if not header:
        raise InputError(source, "", "it has no header", f"Begin with: {','.join(COLUMNS)}")
    return HostTable(tuple(rows), tuple(refused))


def find_rail(slot: str) -> int:
    """Return the rail of a card's slot: 3 for NIC_3, -1 for others."""
    match = _RAIL.fullmatch(slot)
    return int(match[1]) if match else -1


def _read_header(source: str, cells: list[str]) -> list[str]:
    header = [cell.strip().lower().lstrip("\ufeff") for cell in cells]
    for name in header:
        if name not in COLUMNS or header.count(name) > 1:
            problem = f"{name!r:.40} is no column, or stands twice"
            raise InputError(source, "header", problem, f"Columns are: {', '.join(COLUMNS)}.")
    if "name" not in header:
        raise InputError(source, "header", "it has no column `name`", "Add it.")
    return header


def _read_row(where: str, header: list[str], cells: list[str]) -> SourceRow | Blocker:
    if len(cells) != len(header):
        return _refuse(where, f"it has {len(cells)} cells, and the header has {len(header)}")
    if any(len(cell) > CELL_MAX or not cell.isprintable() for cell in cells):
        return _refuse(where, f"a cell has unprintable text, or more than {CELL_MAX} characters")
    row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
    ports = []
    for text in row.get("ports", "").split():
        match = _PORT.fullmatch(text)
        if match is None:
            return _refuse(where, f"{text!r:.60} is no port; write it like leaf01/swp1=NIC_0")
        slot = match["slot"] or ""
        ports.append(
            Port(
                switch=match["switch"],
                interface=match["interface"],
                rail=find_rail(slot),
                nic_slot=slot,
            )
        )
    belief = Belief(
        key=where,
        name=row["name"],
        address=format_address(bracket_address(row.get("bmc", ""))),
        serial=row.get("serial", ""),
        tenant=row.get("tenant", ""),
        site=row.get("site", ""),
        rack=row.get("rack", ""),
    )
    if row.get("bmc") and not belief.address:
        return _refuse(where, f"{row['bmc']!r:.60} is no address of a BMC")
    return SourceRow(
        belief=belief,
        mac=row.get("bmc_mac", ""),
        ports=tuple(ports),
        username=row.get("username", ""),
        password_env=row.get("password_env", ""),
        password_file=row.get("password_file", ""),
    )


def _refuse(where: str, detail: str) -> Blocker:
    unblock = "Correct the row; the others go on without it."
    return Blocker(reason=Reason.MALFORMED, subject=where, detail=detail, unblock=unblock)

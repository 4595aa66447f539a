r"""Read the lease file of ISC's dhcpd. Pure.

Source: dhcpd.leases(5) of 4.4.3: free-form declarations, of which the last one of an address is the
current one; dates in UTC (`weekday year/month/day hour:minute:second`), as `epoch SECONDS`, or
`never`; binding states; the vendor class in the variable `vendor-class-identifier`. Strings have
octal escapes (`\001`). Other declarations (hosts, groups, failover states, leases of DHCPv6) are
passed over. A declaration that did not end is left out: the server was writing it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from provisioner.model.integrations.dhcp_lease import DhcpLease, LeaseFile
from provisioner.planning.intake.lease_values import (
    DHCPV6,
    NO_MAC,
    UNREADABLE,
    LeaseRows,
    clean_name,
    normalize_lease_address,
    normalize_mac,
    read_seconds,
)

ACTIVE = "active"
VERSION_6 = frozenset({"ia-na", "ia-ta", "ia-pd"})
STATEMENTS_MAX = 64  # of a lease; dhcpd writes some fifteen
# a quote without an end takes the rest of its line, so that no character is passed over often
_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\[^\n]){0,1024}"|"[^\n]*|#[^\n]*|[{};]|[^\s{};"#]{1,1024}', re.ASCII
)
_DATE = re.compile(
    r"[0-6] ([0-9]{4})/([0-9]{1,2})/([0-9]{1,2}) ([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})"
)
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")

Statement = list[str]


def read_dhcpd_leases(source: str, text: str) -> LeaseFile:
    """Return the last lease of each address. Declarations that cannot be read are counted."""
    rows = LeaseRows(source, "dhcpd")
    for line, head, statements in _split_declarations(text):
        if head[0] in VERSION_6:
            rows.add(DHCPV6, line)
        if head[0] != "lease":
            continue
        rows.add(_read_lease(head, statements), line)
    return rows.build_file()


def _split_declarations(text: str) -> Iterator[tuple[int, Statement, list[Statement]]]:
    """Yield each block at the top: its line, the words before its brace, its own statements."""
    head: Statement = []
    statement: Statement = []
    statements: list[Statement] = []
    depth = 0
    line = 1
    position = 0
    for match in _TOKEN.finditer(text):
        word = match.group()
        if word.startswith("#"):
            continue
        if word == "{":
            depth += 1
            if depth == 1:
                line += text.count("\n", position, match.start())
                position = match.start()
                head = statement
            statement = []
        elif word == "}":
            depth = max(0, depth - 1)
            if depth == 0 and head:
                yield line, head, statements
                head = []
                statements = []
            statement = []
        elif word == ";":
            if depth == 1 and statement and len(statements) < STATEMENTS_MAX:
                statements.append(statement)
            statement = []
        elif len(statement) < STATEMENTS_MAX:
            statement.append(word)


def _read_lease(head: Statement, statements: Sequence[Statement]) -> DhcpLease | str:
    """Return the lease of a declaration, or the reason to leave it out."""
    values = {name: rest for name, rest in map(_split_name, statements) if name}
    address = normalize_lease_address(head[1]) if len(head) > 1 else ""
    began = _read_date(values.get("cltt") or values.get("starts", ""))
    ends = _read_date(values.get("ends", ""))
    if not address or (ends is None and values.get("ends") != "never"):
        return UNREADABLE
    mac = normalize_mac(values.get("hardware ethernet", ""))
    if not mac:
        return NO_MAC
    return DhcpLease(
        address=address,
        mac=mac,
        active=values.get("binding state") == ACTIVE,
        began_at=began or 0.0,
        ends_at=ends,
        hostname=clean_name(_read_string(values.get("client-hostname", ""))),
        vendor_class=clean_name(_read_string(values.get("set vendor-class-identifier", ""))),
    )


def _split_name(statement: Statement) -> tuple[str, str]:
    """Return the name of a statement, of one word or two, and the rest of it."""
    match statement:
        case ["binding", "state", state]:
            return "binding state", state
        case ["hardware", kind, mac]:
            return f"hardware {kind}", mac
        case ["set", name, "=", value]:
            return f"set {name}", value
        case [("starts" | "ends" | "cltt" | "client-hostname") as name, *rest]:
            return name, " ".join(rest)
    return "", ""


def _read_date(text: str) -> float | None:
    """Return the seconds since the epoch; None for `never` and anything else."""
    if text.startswith("epoch "):
        return read_seconds(text.removeprefix("epoch "))
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.groups())
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _read_string(token: str) -> str:
    """Return the text of a quoted string; "" for anything else."""
    if len(token) < len('""') or not token.startswith('"') or not token.endswith('"'):
        return ""
    return _ESCAPE.sub(_read_escape, token[1:-1])


def _read_escape(match: re.Match[str]) -> str:
    escaped = match.group(1)
    return chr(int(escaped, 8)) if escaped.isdigit() and len(escaped) == 3 else escaped

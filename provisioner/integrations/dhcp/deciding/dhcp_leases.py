"""Read a file with leases of Kea, dnsmasq or ISC's dhcpd, recognized by its first line. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from provisioner.integrations.dhcp.deciding.dhcp_lease import DhcpLease, LeaseFile
from provisioner.model.input_error import InputError

# ------------------------------------------------------------------------------
# Values that all lease files have: MACs, addresses, seconds, names. Pure; nothing raises.
#
# Readers split a file at line feeds alone: a client chooses its host name, and must not begin a row
# with another character that Python takes for the end of a line.


TEXT_MAX = 255  # bytes of an option of DHCPv4 (RFC 2132): names, vendor classes
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_SECONDS = re.compile(r"[0-9]{1,12}")


class LeaseRows:
    """Collects the last lease of each address of a file, and counts the rows that have none."""

    def __init__(self, source: str, server: str) -> None:
        self._source = source
        self._server = server
        self._leases: dict[str, DhcpLease] = {}
        self._left_out: dict[str, tuple[int, int]] = {}  # by reason: the first line, and how many

    def add(self, row: DhcpLease | str, line: int) -> None:
        """Take the lease of a row, or count the reason to leave it out."""
        if isinstance(row, DhcpLease):
            self._leases[row.address] = row
            return
        first, count = self._left_out.get(row, (line, 0))
        self._left_out[row] = (first, count + 1)

    def build_file(self) -> LeaseFile:
        """Return all of it; the notes have one sentence for each reason."""
        return LeaseFile(
            source=self._source,
            server=self._server,
            leases=tuple(self._leases.values()),
            notes=tuple(
                f"{self._source}: {count} left out: {reason}; the first at line {first}"
                for reason, (first, count) in self._left_out.items()
            ),
        )


UNREADABLE = "the row cannot be read"
NO_MAC = "it has no Ethernet MAC"
DHCPV6 = "a row of DHCPv6 without a MAC"


def normalize_mac(text: str) -> str:
    """Return an Ethernet MAC in lower case with colons; "" for anything else."""
    return text.lower() if _MAC.fullmatch(text) else ""


def normalize_lease_address(text: str) -> str:
    """Return an IP address in its one form; "" for anything else."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def read_seconds(text: str) -> float | None:
    """Return a count of seconds; None for anything else."""
    return float(text) if _SECONDS.fullmatch(text) else None


def clean_name(text: str) -> str:
    """Return a client's own text without control characters, bounded."""
    return "".join(c if c.isprintable() else "?" for c in text[:TEXT_MAX])


# ------------------------------------------------------------------------------
# Read the lease file of ISC's dhcpd. Pure.
#
# Source: dhcpd.leases(5) of 4.4.3: free-form declarations, of which the last one of an address is
# the current one; dates in UTC (`weekday year/month/day hour:minute:second`), as `epoch SECONDS`,
# or
# `never`; binding states; the vendor class in the variable `vendor-class-identifier`. Strings have
# octal escapes (`\001`). Other declarations (hosts, groups, failover states, leases of DHCPv6) are
# passed over. A declaration that did not end is left out: the server was writing it.


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


# ------------------------------------------------------------------------------
# Read the lease file of dnsmasq (`--dhcp-leasefile`). Pure.
#
# dnsmasq(8) of 2.90 names the file, its contents (MAC, address, host name, client id, expiry) and
# the form of a MAC of another network type ("06-01:23:…"); the order in a line is that of files
# which Debian's dnsmasq 2.90 wrote: expiry (0: never), MAC, address, host name or `*`, client id or
# `*`. A line `duid …` begins the leases of DHCPv6, which have an IAID in place of the MAC. The file
# is written anew at each change, and has neither the vendor class nor the time of the last contact.


FIELDS = 5
NOTHING = "*"


def read_dnsmasq_leases(source: str, text: str) -> LeaseFile:
    """Return the leases of DHCPv4. Lines that cannot be read are counted in the notes."""
    rows = LeaseRows(source, "dnsmasq")
    version_6 = False
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.removesuffix("\r").split(" ")
        if fields == [""]:
            continue
        if fields[0] == "duid":
            version_6 = True
            continue
        if version_6:
            rows.add(DHCPV6, number)
            continue
        rows.add(_read_line(fields), number)
    return rows.build_file()


def _read_line(fields: list[str]) -> DhcpLease | str:
    """Return the lease of a line, or the reason to leave it out."""
    if len(fields) < FIELDS:
        return UNREADABLE
    ends_at = read_seconds(fields[0])
    address = normalize_lease_address(fields[2])
    if ends_at is None or not address:
        return UNREADABLE
    mac = normalize_mac(fields[1])
    if not mac:
        return NO_MAC
    return DhcpLease(
        address=address,
        mac=mac,
        active=True,
        ends_at=ends_at or None,
        hostname="" if fields[3] == NOTHING else clean_name(fields[3]),
    )


# ------------------------------------------------------------------------------
# Read the notes of the lease script that dnsmasq runs (`lease_script.sh`). Pure.
#
# A line is one event with fields between tabs: `note1`, the time, `add`, `old` or `del`, MAC,
# address, end (seconds since 1970; 0: never), host name, vendor class, and the relay's circuit and
# remote id. After a restart dnsmasq repeats its leases as `old` without the vendor class and the
# relay's ids: those of an earlier note of the same card stay.


VERSION = "note1"
DNSMASQ_NOTES_FIELDS = 10
ACTIONS = frozenset({"add", "old", "del"})


def read_dnsmasq_notes(source: str, text: str) -> LeaseFile:
    """Return the last lease of each address. Lines that cannot be read are counted."""
    rows = LeaseRows(source, "dnsmasq")
    noted: dict[str, DhcpLease] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.startswith("#"):
            continue
        lease = _read_line_dnsmasq_notes(line.split("\t"))
        if isinstance(lease, DhcpLease):
            lease = _remember(noted.get(lease.address), lease)
            noted[lease.address] = lease
        rows.add(lease, number)
    return rows.build_file()


def _read_line_dnsmasq_notes(fields: list[str]) -> DhcpLease | str:
    """Return the lease of a line, or the reason to leave it out."""
    if len(fields) != DNSMASQ_NOTES_FIELDS or fields[0] != VERSION or fields[2] not in ACTIONS:
        return UNREADABLE
    at = read_seconds(fields[1])
    ends_at = read_seconds(fields[5])
    address = normalize_lease_address(fields[4])
    if at is None or ends_at is None or not address:
        return UNREADABLE
    mac = normalize_mac(fields[3])
    if not mac:
        return DHCPV6 if ":" in address else NO_MAC
    ids = zip(("circuit", "remote"), fields[8:10], strict=True)
    return DhcpLease(
        address=address,
        mac=mac,
        active=fields[2] != "del",
        began_at=at,
        ends_at=ends_at or None,
        hostname=clean_name(fields[6]),
        vendor_class=clean_name(fields[7]),
        relay=clean_name(", ".join(f"{name} {value}" for name, value in ids if value)),
    )


def _remember(before: DhcpLease | None, lease: DhcpLease) -> DhcpLease:
    """Return a lease with what an earlier note of the same card has and this one lacks."""
    if before is None or before.mac != lease.mac:
        return lease
    changes = {
        "vendor_class": lease.vendor_class or before.vendor_class,
        "relay": lease.relay or before.relay,
    }
    return lease.model_copy(update=changes)


# ------------------------------------------------------------------------------
# Read the lease file of Kea's memfile backend: CSV with a header. Pure.
#
# Source: "Memfile - Basic Storage for Leases" and "Why Is Lease File Cleanup Necessary?" of the Kea
# Administrator Reference Manual 2.2.0 (updates are appended, the latest row of a lease is the valid
# one, a row that cannot be read is discarded), and files that Debian's kea-dhcp4 2.2.0 wrote.
# Columns are taken by the header's names, since versions differ in the last ones. Commas inside of
# a value are written as `&#x2c`, so cells are never quoted. `expire` is the client's last contact
# plus
# `valid_lifetime`; a row with `valid_lifetime` 0 is read as a lease that was given back.


COLUMNS = ("address", "hwaddr", "valid_lifetime", "expire", "state")
IN_USE = "0"  # state; 1: declined, 2: expired and reclaimed; later versions have more
INFINITE = 2**32 - 1  # valid_lifetime: RFC 2131, 3.3
_COMMA = "&#x2c"


def read_kea_leases(source: str, text: str) -> LeaseFile:
    """Return the last lease of each address. Raises InputError for a header without columns."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    header = lines[0].split(",")
    lacks = [name for name in COLUMNS if name not in header]
    if lacks or len(set(header)) < len(header):
        problem = f"the header lacks {', '.join(lacks)}" if lacks else "a column is named twice"
        raise InputError(source, "line 1", problem, "Name a lease file of Kea's memfile backend.")
    rows = LeaseRows(source, "kea")
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split(",")
        if not line.strip() or line == lines[0]:  # files may be joined
            continue
        if len(cells) != len(header):
            rows.add(UNREADABLE, number)
            continue
        row = dict(zip(header, cells, strict=True))
        rows.add(_read_row(row), number)
    return rows.build_file()


def _read_row(row: dict[str, str]) -> DhcpLease | str:
    """Return the lease of a row, or the reason to leave it out."""
    address = normalize_lease_address(row["address"])
    expire = read_seconds(row["expire"])
    lifetime = read_seconds(row["valid_lifetime"])
    if not address or expire is None or lifetime is None:
        return UNREADABLE
    mac = normalize_mac(row["hwaddr"])
    if not mac:
        return DHCPV6 if "duid" in row else NO_MAC
    return DhcpLease(
        address=address,
        mac=mac,
        active=row["state"] == IN_USE and lifetime > 0,
        began_at=max(0.0, expire - lifetime),
        ends_at=None if lifetime == INFINITE else expire,
        hostname=clean_name(row.get("hostname", "").replace(_COMMA, ",")),
    )


# a lease has some 100 to 400 bytes, and a file some renewals of each until it is cleaned up
SIZE_MAX = 64 * 1024 * 1024
LINES_MAX = 1_000_000
_KEA = "address,"
_NOTES = f"{VERSION}\t"
_DNSMASQ = re.compile(r"duid [^ ]|[0-9]{1,12} [^ ]+ [^ ]+ [^ ]+ [^ ]")
# dhcpd.leases(5): the declarations and statements that a file may begin with
_DHCPD = re.compile(
    r"(lease|host|group|subgroup|failover|ia-na|ia-ta|ia-pd|server-duid|authoring-byte-order)\b"
)
_REMEDY = "Name kea-leases4.csv of Kea, dnsmasq.leases of dnsmasq or dhcpd.leases of dhcpd."


def read_leases(source: str, text: str) -> LeaseFile:
    """Return the leases of a file. Raises InputError if it is no lease file, or too large."""
    if len(text) > SIZE_MAX or text.count("\n") > LINES_MAX:
        problem = f"it has more than {SIZE_MAX} characters or {LINES_MAX} lines"
        raise InputError(source, "", problem, "Have the server clean it up (Kea: lfc-interval).")
    first = _find_first_line(text)
    if not first:
        return LeaseFile(source=source, server="", notes=(f"{source}: it has no lease",))
    if first.startswith(_KEA):
        return read_kea_leases(source, text[text.index(first) :])
    if first.startswith(_NOTES):
        return read_dnsmasq_notes(source, text)
    if _DNSMASQ.match(first):
        return read_dnsmasq_leases(source, text)
    if _DHCPD.match(first):
        return read_dhcpd_leases(source, text)
    problem = "it is no lease file of Kea, dnsmasq or dhcpd"
    raise InputError(source, "", problem, _REMEDY)


def _find_first_line(text: str) -> str:
    """Return the first line that is neither empty nor a comment."""
    lines = (line.strip() for line in text.split("\n"))
    return next((line for line in lines if line and not line.startswith("#")), "")

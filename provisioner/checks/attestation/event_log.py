"""The TCG event log of a boot: parsed, replayed into PCR values, and read for Secure Boot.

Source of the format: TCG PC Client Platform Firmware Profile 1.05, "Event Logging" (the
crypto-agile form with TCG_PCR_EVENT2) and UEFI_VARIABLE_DATA. Linux shows it as
/sys/kernel/security/tpm0/binary_bios_measurements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.checks.attestation.certificate_chains import parse_certificates
from provisioner.checks.attestation.spdm_messages import ByteReader, malformed_at
from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import Resources, parse_json, read_resources
from provisioner.model.certificate import Unacceptable

# ------------------------------------------------------------------------------
# Secure Boot as a BMC shows it: the state of each system, and a digest of each key database.
#
# The digest covers the entries as a sorted set: SHA-256 of each certificate, type and text of each
# other signature. Order, ids of members and the owner's GUID are left out, because a BMC makes them
# anew at a boot. This is the BMC's word: a quote of the board's TPM proves more (PCR 7).


NAMES = ("PK", "KEK", "db", "dbx")
_ENTRIES = ("Certificates", "Signatures")
SYSTEMS_MAX = 8


@dataclass(frozen=True)
class BootDatabase:
    """One database: how many entries it has, and the digest over them."""

    entries: int
    sha256: str


@dataclass(frozen=True)
class BootState:
    """Secure Boot of one system."""

    source: str  # path of its resource
    running: bool | None  # of this boot; None: not shown
    mode: str  # SetupMode, UserMode, AuditMode, DeployedMode; "" if not shown
    databases: Mapping[str, BootDatabase] = field(default_factory=dict)


def read_boot_states(text: str) -> tuple[BootState, ...]:
    """Return the state of each system that has Secure Boot. Raises `Unreadable`.

    A database whose entries the BMC does not show is left out: it is not an empty one.
    """
    resources = read_resources(text)
    missing = tuple(_list_missing(text))
    states = [path for path in resources if path.rstrip("/").endswith("/SecureBoot")]
    return tuple(_read_state(path, resources, missing) for path in states[:SYSTEMS_MAX])


def digest_entries(entries: Mapping[str, Mapping[str, Any]]) -> BootDatabase:
    """Return count and digest of the entries of one database. Raises `Unreadable`."""
    lines = sorted({line for path, body in entries.items() for line in _describe(path, body)})
    return BootDatabase(len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest())


def _read_state(path: str, resources: Resources, missing: tuple[str, ...]) -> BootState:
    body = resources[path]
    running = {"Enabled": True, "Disabled": False}.get(str(body.get("SecureBootCurrentBoot")))
    mode = body.get("SecureBootMode")
    databases = {}
    for name in NAMES:
        at = f"{path.rstrip('/')}/SecureBootDatabases/{name}"
        shown = resources.get(at, {})
        links = [link for kind in _ENTRIES if (link := _link(shown, kind))]
        if not links or any(gap.startswith(link) for gap in missing for link in links):
            continue
        entries = {
            p: b for p, b in resources.items() if any(p.startswith(f"{link}/") for link in links)
        }
        databases[name] = digest_entries(entries)
    return BootState(path, running, mode if isinstance(mode, str) else "", databases)


def _link(body: Mapping[str, Any], name: str) -> str:
    target = body.get(name)
    path = target.get("@odata.id") if isinstance(target, dict) else None
    return path.rstrip("/") if isinstance(path, str) else ""


def _list_missing(text: str) -> Iterator[str]:
    """Return the paths that the BMC did not serve; `read_resources` has checked their form."""
    for gap in parse_json(text, "Redfish").get("gaps", []):
        yield str(gap[0]).rstrip("/")


def _describe(path: str, body: Mapping[str, Any]) -> Iterator[str]:
    """Return a line for each certificate of an entry, or one for a signature of another kind."""
    pem = body.get("CertificateString")
    signature = body.get("SignatureString")
    if isinstance(pem, str):
        try:
            certificates = parse_certificates(pem.encode())
        except Unacceptable as refused:
            raise Unreadable(f"{path[-80:]}: {refused.finding}") from None
        for certificate in certificates:
            der = certificate.public_bytes(Encoding.DER)
            yield f"certificate {hashlib.sha256(der).hexdigest()}"
    elif isinstance(signature, str) and signature.strip():
        yield f"signature {str(body.get('SignatureType', ''))[:80]} {signature.strip()}"
    else:
        raise Unreadable(f"{path[-80:]}: an entry without a certificate or a signature")


SIZE_MAX = 1024 * 1024  # bytes; logs of servers have 30,000 to 100,000
EVENTS_MAX = 4096
PCRS = 24
SHA256 = 0x000B
_SIZES = {0x0004: 20, 0x000B: 32, 0x000C: 48, 0x000D: 64, 0x0012: 32}  # TPM_ALG_ID -> bytes
_NO_ACTION = 0x00000003
_VARIABLE = 0x80000001  # EV_EFI_VARIABLE_DRIVER_CONFIG
_SPEC_ID = b"Spec ID Event03\0"
_LOCALITY = b"StartupLocality\0"
_SECURE_BOOT_PCR = 7


@dataclass(frozen=True)
class BootEvent:
    """One measured event with its SHA-256 digest; `data` is not measured for every type."""

    pcr: int
    kind: int
    digest: bytes
    data: bytes


@dataclass(frozen=True)
class EventLog:
    """The events in their order, and the locality that the TPM was started from."""

    events: tuple[BootEvent, ...]
    locality: int = 0


def parse_event_log(raw: bytes) -> EventLog:
    """Parse a crypto-agile log. Raises Unacceptable."""
    if len(raw) > SIZE_MAX:
        raise malformed_at(SIZE_MAX, f"{len(raw)} bytes are more than any log has")
    reader = ByteReader(raw)
    sizes = _read_header(reader)
    events: list[BootEvent] = []
    locality = 0
    while reader.left:
        if len(events) >= EVENTS_MAX:
            raise malformed_at(reader.offset, f"more than {EVENTS_MAX} events")
        event = _read_event(reader, sizes)
        if event.kind == _NO_ACTION:
            if event.data.startswith(_LOCALITY) and len(event.data) == len(_LOCALITY) + 1:
                locality = event.data[-1]
            continue
        events.append(event)
    return EventLog(tuple(events), locality)


def replay_events(log: EventLog) -> dict[int, bytes]:
    """Return the SHA-256 PCR values that the events lead to."""
    values = {n: b"\xff" * 32 if 17 <= n <= 22 else bytes(32) for n in range(PCRS)}
    values[0] = bytes(31) + bytes([log.locality])
    for event in log.events:
        values[event.pcr] = hashlib.sha256(values[event.pcr] + event.digest).digest()
    return values


def digest_pcrs(values: dict[int, bytes], selection: Iterable[int]) -> bytes:
    """Return the digest that a quote of these PCRs carries, in ascending order."""
    return hashlib.sha256(b"".join(values[n] for n in sorted(selection))).digest()


def read_secure_boot(log: EventLog) -> bool | None:
    """Return whether the firmware measured Secure Boot as on; None if the log does not say.

    Event data stand beside the digest and can be edited without effect on the PCR: the variable
    counts only if its own digest is the measured one.
    """
    for event in log.events:
        if event.pcr != _SECURE_BOOT_PCR or event.kind != _VARIABLE:
            continue
        if hashlib.sha256(event.data).digest() == event.digest:
            name, content = _read_variable(event.data)
            if name == "SecureBoot":
                return content == b"\x01"
    return None


def find_edited_variables(log: EventLog) -> tuple[int, ...]:
    """Return the places of variable events whose data are not those that were measured."""
    return tuple(
        place
        for place, event in enumerate(log.events)
        if event.pcr == _SECURE_BOOT_PCR
        and event.kind == _VARIABLE
        and hashlib.sha256(event.data).digest() != event.digest
    )


def _read_variable(data: bytes) -> tuple[str, bytes]:
    if len(data) < 32:
        return "", b""
    characters = int.from_bytes(data[16:24], "little")
    size = int.from_bytes(data[24:32], "little")
    if 32 + 2 * characters + size != len(data):
        return "", b""
    name = data[32 : 32 + 2 * characters].decode("utf-16-le", errors="replace")
    return name, data[32 + 2 * characters :]


def _read_header(reader: ByteReader) -> dict[int, int]:
    """Read the first event, which has the old form; return algorithm -> size of its digests."""
    if reader.take_little(4, "PCR") != 0 or reader.take_little(4, "event type") != _NO_ACTION:
        raise malformed_at(0, "the log does not begin with its specification")
    reader.take(20, "SHA-1 digest")
    size = reader.take_little(4, "event size")
    start = reader.offset
    header = ByteReader(reader.take(size, "specification"), base=start)
    if header.take(16, "signature") != _SPEC_ID:
        raise malformed_at(start, "it is not a crypto-agile log")
    header.take(8, "platform and version")
    sizes: dict[int, int] = {}
    for _ in range(header.take_little(4, "number of algorithms")):
        algorithm = header.take_little(2, "algorithm")
        length = header.take_little(2, "digest size")
        if _SIZES.get(algorithm) != length:
            raise malformed_at(header.offset - 4, f"algorithm 0x{algorithm:04x} of {length} bytes")
        sizes[algorithm] = length
    if SHA256 not in sizes:
        raise malformed_at(start, "the log has no SHA-256 digests")
    return sizes


def _read_event(reader: ByteReader, sizes: dict[int, int]) -> BootEvent:
    at = reader.offset
    pcr = reader.take_little(4, "PCR")
    kind = reader.take_little(4, "event type")
    if pcr >= PCRS:
        raise malformed_at(at, f"PCR {pcr}")
    digests: dict[int, bytes] = {}
    for _ in range(min(reader.take_little(4, "number of digests"), len(sizes) + 1)):
        algorithm = reader.take_little(2, "algorithm")
        if algorithm not in sizes or algorithm in digests:
            raise malformed_at(reader.offset - 2, f"algorithm 0x{algorithm:04x}")
        digests[algorithm] = reader.take(sizes[algorithm], "digest")
    if SHA256 not in digests:
        raise malformed_at(at, "an event without a SHA-256 digest")
    data = reader.take(reader.take_little(4, "event size"), "event data")
    return BootEvent(pcr, kind, digests[SHA256], data)

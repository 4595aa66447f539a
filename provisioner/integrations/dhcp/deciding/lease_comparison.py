"""Compare the leases of DHCP servers with the expected-hardware list. Pure.

A MAC that the list has decides before an address. A MAC has one row for each version of IP, with
its latest lease in force; its further addresses stand beside it. Leases outside of the networks
that a person named are dropped before anything else, since a server may serve tenants too.
"""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from provisioner.integrations.dhcp.deciding.dhcp_lease import (
    Candidate,
    DhcpLease,
    LeaseComparison,
    LeaseFile,
    MissingEntry,
    Standing,
)
from provisioner.integrations.dhcp.deciding.dhcp_leases import (
    NO_MAC,
    UNREADABLE,
    clean_name,
    normalize_lease_address,
    normalize_mac,
)
from provisioner.model.base import Record
from provisioner.model.expected import Expected, ExpectedNode
from provisioner.model.input_error import InputError
from provisioner.model.node import NodeKind
from provisioner.model.times.instant import format_instant

# ------------------------------------------------------------------------------
# Read the answers of Kea's control socket to `lease4-get-page`. Pure.
#
# The hook library `libdhcp_lease_cmds.so` answers with result 0 and the leases of a page in the
# order of their addresses, and with result 3 after the last one; without the library the result is
# 2. The form is that of Debian's Kea 2.2.0. A lease ends `valid-lft` seconds after the client's
# last contact (`cltt`). A lease has no vendor class there.


OK = 0
UNSUPPORTED = 2
EMPTY = 3
IN_USE = 0  # state; 1: declined, 2: expired and reclaimed; later versions have more
INFINITE = 2**32 - 1  # valid-lft: RFC 2131, 3.3
SECONDS_MAX = 10**12
_TEXT_MAX = 200  # characters of a refusal


class LeasePage(Record):
    """The leases of one answer. `last`: the address after which the next page begins."""

    leases: tuple[DhcpLease, ...] = ()
    last: str = ""  # "": this was the last page
    unreadable: int = 0
    without_mac: int = 0


def read_page(source: str, text: str) -> LeasePage:
    """Return the leases of an answer. Raises InputError if it is none, or a refusal."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or type(answer.get("result")) is not int:
        problem = "its answer cannot be read"
        raise InputError(source, "", problem, "Name the control socket of kea-dhcp4.")
    result = answer["result"]
    if result == EMPTY:
        return LeasePage()
    if result == UNSUPPORTED:
        problem = "this server does not know `lease4-get-page`"
        remedy = "Load libdhcp_lease_cmds.so in its `hooks-libraries`, or read its lease file."
        raise InputError(source, "", problem, remedy)
    if result != OK:
        problem = f"it refused: {clean_name(str(answer.get('text', '')))[:_TEXT_MAX]}"
        raise InputError(source, "", problem, "See the log of kea-dhcp4.")
    arguments = answer.get("arguments")
    rows = arguments.get("leases") if isinstance(arguments, dict) else None
    if not isinstance(rows, list):
        problem = "its answer has no leases"
        raise InputError(source, "", problem, "Name the control socket of kea-dhcp4.")
    return _read_rows(rows)


def _read_rows(rows: Sequence[object]) -> LeasePage:
    leases: list[DhcpLease] = []
    reasons: list[str] = []
    last = ""
    for row in rows:
        if not isinstance(row, dict):
            reasons.append(UNREADABLE)
            continue
        last = normalize_lease_address(str(row.get("ip-address", ""))) or last
        lease = _read_lease(row)
        if isinstance(lease, str):
            reasons.append(lease)
        else:
            leases.append(lease)
    return LeasePage(
        leases=tuple(leases),
        last=last,
        unreadable=reasons.count(UNREADABLE),
        without_mac=reasons.count(NO_MAC),
    )


def _read_lease(row: Mapping[str, Any]) -> DhcpLease | str:
    """Return the lease of a row, or the reason to leave it out."""
    address = normalize_lease_address(str(row.get("ip-address", "")))
    began_at = _read_count(row.get("cltt"))
    lifetime = _read_count(row.get("valid-lft"))
    if not address or began_at is None or lifetime is None:
        return UNREADABLE
    mac = normalize_mac(str(row.get("hw-address", "")))
    if not mac:
        return NO_MAC
    name = row.get("hostname")
    return DhcpLease(
        address=address,
        mac=mac,
        active=row.get("state", IN_USE) == IN_USE and lifetime > 0,
        began_at=began_at,
        ends_at=None if lifetime == INFINITE else began_at + lifetime,
        hostname=clean_name(name) if isinstance(name, str) else "",
    )


def _read_count(value: object) -> float | None:
    """Return a count of seconds; None for anything else."""
    if type(value) is not int or not 0 <= value <= SECONDS_MAX:
        return None
    return float(value)


# Option 60 of DHCP, as NVIDIA's bare-metal controller knows it
# (github.com/NVIDIA/bare-metal-manager-core, crates/dhcp-server/src/vendor_class.rs).
# Of other BMCs the vendor class is unknown.
VENDOR_CLASSES: Mapping[str, str] = {
    "iDRAC": "BMC (Dell iDRAC)",
    "CPQRIB3": "BMC (HPE iLO)",
    "NVIDIA/BF/BMC": "BMC of a BlueField",
    "NVIDIA/BF/OOB": "BlueField, out-of-band port",
    "BF2Client": "BlueField-2",
}
NETWORK_BOOTS = "boots from the network"
NETWORK_BOOT = ("PXEClient", "HTTPClient")  # UEFI 2.10, 24.3 and 24.7
PREFIX = len("5c:25:73")
OTHERS_MAX = 16  # further addresses of a MAC
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class _Claim:
    """The MAC and the address that the list has for a BMC or card; either may be empty."""

    entry: str
    mac: str
    address: str


@dataclass(frozen=True)
class _List:
    """The list, ordered for the comparison."""

    macs: Mapping[str, _Claim]
    addresses: Mapping[str, _Claim]
    prefixes: Counter[str]  # of the MACs of BMCs


def compare_leases(
    files: Sequence[LeaseFile],
    expected: Expected | None,
    networks: Sequence[Network],
    now: float,
    prefixes: Collection[str] = (),
) -> LeaseComparison:
    """Return the candidates by address, and the listed hosts whose BMC has no lease in force.

    The last lease of an address counts, in the order of the files. No `networks`: all addresses.
    `prefixes` are MAC prefixes of BMCs that a person named.
    """
    last = {lease.address: lease for file in files for lease in file.leases}
    leases = [lease for lease in last.values() if _is_inside(lease.address, networks)]
    notes = [note for file in files for note in file.notes]
    if dropped := len(last) - len(leases):
        notes.append(f"leases outside of the named networks, dropped: {dropped}")
    by_card: dict[tuple[str, int], list[DhcpLease]] = {}
    for lease in sorted(leases, key=lambda item: _rank_lease(item, now), reverse=True):
        by_card.setdefault((lease.mac, _read_version(lease.address)), []).append(lease)
    claims = _read_list(expected) if expected else None
    candidates = [
        _judge_lease(of_card[0], of_card[1:], claims, prefixes)
        for of_card in by_card.values()
        if _is_in_force(of_card[0], now)
    ]
    ordered = sorted(candidates, key=lambda row: _order_address(row.address))
    ended = {of_card[0].mac: of_card[0] for of_card in by_card.values()}
    missing = list(_find_missing(expected, ended, ordered)) if expected else []
    return LeaseComparison(candidates=tuple(ordered), missing=tuple(missing), notes=tuple(notes))


def _is_inside(address: str, networks: Sequence[Network]) -> bool:
    place = ipaddress.ip_address(address)
    return not networks or any(place in network for network in networks)


def _is_in_force(lease: DhcpLease, now: float) -> bool:
    return lease.active and (lease.ends_at is None or lease.ends_at > now)


def _rank_lease(lease: DhcpLease, now: float) -> tuple[bool, float, float]:
    ends_at = float("inf") if lease.ends_at is None else lease.ends_at
    return _is_in_force(lease, now), lease.began_at, ends_at


def _read_version(address: str) -> int:
    return ipaddress.ip_address(address).version


def _order_address(address: str) -> tuple[int, int]:
    place = ipaddress.ip_address(address)
    return place.version, int(place)


def _read_list(expected: Expected) -> _List:
    macs: dict[str, _Claim] = {}
    addresses: dict[str, _Claim] = {}
    for node in expected.nodes:
        if node.kind is NodeKind.SWITCH:
            switch = _Claim(node.name, node.bmc.mac.lower(), _read_address(node.address))
            macs[switch.mac] = switch
            addresses[switch.address] = switch
            continue
        claim = _claim_of(node)
        macs[claim.mac] = claim
        addresses[claim.address] = claim
        for dpu in node.dpus:
            card = _Claim(f"{node.name}/{dpu.slot}", dpu.base_mac.lower(), "")
            macs[card.mac] = card
    prefixes = Counter(n.bmc.mac.lower()[:PREFIX] for n in expected.nodes if n.bmc.mac)
    macs.pop("", None)
    addresses.pop("", None)
    return _List(macs, addresses, prefixes)


def _claim_of(node: ExpectedNode) -> _Claim:
    return _Claim(node.name, node.bmc.mac.lower(), _read_address(node.bmc.url))


def _read_address(url: str) -> str:
    """Return the IP address of a URL; "" if it has a name, or none."""
    try:
        return normalize_lease_address(urlsplit(url).hostname or "")
    except ValueError:
        return ""


def _judge_lease(
    lease: DhcpLease,
    others: Sequence[DhcpLease],
    claims: _List | None,
    prefixes: Collection[str],
) -> Candidate:
    row = Candidate(
        address=lease.address,
        mac=lease.mac,
        hint=_describe_device(lease, claims, prefixes),
        vendor_class=lease.vendor_class,
        relay=lease.relay,
        hostname=lease.hostname,
        lease_ends="never" if lease.ends_at is None else format_instant(lease.ends_at),
        other_addresses=tuple(other.address for other in others[:OTHERS_MAX]),
    )
    return row.model_copy(update=_place_lease(lease, claims)) if claims else row


def _describe_device(lease: DhcpLease, claims: _List | None, prefixes: Collection[str]) -> str:
    if hint := VENDOR_CLASSES.get(lease.vendor_class):
        return hint
    if lease.vendor_class.startswith(NETWORK_BOOT):
        return NETWORK_BOOTS
    if lease.mac[:PREFIX] in prefixes:
        return "BMC by its MAC prefix"
    alike = claims.prefixes[lease.mac[:PREFIX]] if claims else 0
    return f"MAC prefix of {alike} listed BMCs" if alike else ""


def _place_lease(lease: DhcpLease, claims: _List) -> dict[str, object]:
    """Return standing, entry, detail and remedy of a lease."""
    by_mac = claims.macs.get(lease.mac)
    holder = claims.addresses.get(lease.address)
    if by_mac and holder and holder.entry != by_mac.entry:
        detail = f"the list has this address for {holder.entry}"
        remedy = "Compare the labels of both machines before either is taken in."
        return _place(Standing.CONFLICT, by_mac.entry, detail, remedy)
    if by_mac and _is_moved(by_mac.address, lease.address):
        detail = f"the list has {by_mac.address}"
        remedy = (
            "Correct `bmc.url`, or leave it out: `intake --range` matches by serial or MAC. Of a "
            "node that was taken in: `provisioner node follow-bmc`."
        )
        return _place(Standing.MOVED, by_mac.entry, detail, remedy)
    if by_mac:
        return _place(Standing.LISTED, by_mac.entry)
    if holder and holder.mac:
        detail = f"the list has {holder.mac} for this address"
        remedy = "Was the board exchanged? Compare the label, then correct `bmc.mac`."
        return _place(Standing.CONFLICT, holder.entry, detail, remedy)
    if holder:
        return _place(Standing.BY_ADDRESS, holder.entry, "the list has no MAC for it")
    remedy = "Add it to the list by its serial if it is a BMC of this site."
    return _place(Standing.NOT_LISTED, "", "", remedy)


def _is_moved(listed: str, leased: str) -> bool:
    """Return whether a lease contradicts the listed address; versions of IP are apart."""
    return bool(listed) and _read_version(listed) == _read_version(leased) and listed != leased


def _place(standing: Standing, entry: str, detail: str = "", remedy: str = "") -> dict[str, object]:
    return {"standing": standing, "entry": entry, "detail": detail, "remedy": remedy}


def _find_missing(
    expected: Expected,
    ended: Mapping[str, DhcpLease],
    candidates: Sequence[Candidate],
) -> Iterator[MissingEntry]:
    """Yield the hosts without a candidate, in the order of the list."""
    present = {row.entry for row in candidates}
    for node in expected.nodes:
        if node.kind is NodeKind.SWITCH or node.name in present:
            continue
        claim = _claim_of(node)
        if lease := ended.get(claim.mac):
            at = f" at {format_instant(lease.ends_at)}" if lease.ends_at else ""
            detail = f"its lease of {lease.address} is no longer in force, it ended{at}"
            remedy = "Check the power and the management cable of the host."
        elif claim.mac or claim.address:
            detail = "it has no lease in these files"
            remedy = "Check power and cable, or whether its address is static or of another server."
        else:
            detail = "the list has neither the MAC nor an IP address of its BMC"
            remedy = "Add `mac` to its `bmc`: a lease has no serial."
        yield MissingEntry(
            entry=node.name, mac=claim.mac, address=claim.address, detail=detail, remedy=remedy
        )


def select_bmcs(result: LeaseComparison) -> LeaseComparison:
    """Return the candidates that are listed, or that vendor class or MAC prefix show as BMCs."""
    listed = (Standing.NOT_LISTED, None)
    rows = tuple(
        row
        for row in result.candidates
        if row.standing not in listed or row.hint not in ("", NETWORK_BOOTS)
    )
    left_out = len(result.candidates) - len(rows)
    notes = (*result.notes, *([f"leases of no BMC, left out: {left_out}"] if left_out else []))
    return result.model_copy(update={"candidates": rows, "notes": notes})

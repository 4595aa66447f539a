"""Make an adoption's list from the hosts of another system and a base list. Pure.

The base has what no such system records: logins, tenants, switches. Its hosts are entries to lay
over the other system's rows, matched by serial, BMC address, then name; a field that the entry
has counts. A row that cannot be used is refused with its reason, and the others go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provisioner.integrations.inventories.deciding.belief import SourceRow
from provisioner.integrations.inventories.deciding.belief_comparison import format_address
from provisioner.model.base import Record
from provisioner.model.expected import Expected, ExpectedBmc, ExpectedNode
from provisioner.model.input_error import InputError
from provisioner.model.location import Location
from provisioner.model.names import resolve_system
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.intake import expected_text

HTTPS = "443"


class MergedList(Record):
    """The list that is sent, each node's tenant as the other system records it, and refusals."""

    expected: Expected
    tenants: Mapping[str, str]
    refused: tuple[Blocker, ...]


def merge_rows(
    base: Expected, rows: Sequence[SourceRow], tenants: Mapping[str, str], source: str
) -> MergedList:
    """Return the list of the rows that can be adopted. `tenants`: their name there -> ours."""
    switches = {n.name: n for n in base.nodes if n.kind is NodeKind.SWITCH}
    entries = [n for n in base.nodes if n.kind is NodeKind.HOST]
    refused: list[Blocker] = []
    built: list[tuple[SourceRow, ExpectedNode]] = []
    used: set[str] = set()
    for row in rows:
        entry = _find_entry(row, entries)
        used |= {entry.name} if entry else set()
        problem = _find_obstacle(row, entry, source)
        node = problem or _build_node(row, entry, switches, base.site)
        if isinstance(node, Blocker):
            refused.append(node)
        else:
            built.append((row, node))
    claims: dict[tuple[str, str], list[str]] = {}
    for node in switches.values():
        for claim in _list_claims(node):
            claims.setdefault(claim, []).append(node.name)
    for row, node in built:
        for claim in _list_claims(node):
            claims.setdefault(claim, []).append(row.belief.key or node.name)
    nodes = []
    for row, node in built:
        shared = [(claim, claims[claim]) for claim in _list_claims(node) if len(claims[claim]) > 1]
        if shared:
            (kind, value), owners = shared[0]
            detail = f"{kind} {value} is of {' and '.join(sorted(owners))}"
            refused.append(_refuse(row, Reason.DUPLICATE, detail, "One identity is one node."))
        else:
            nodes.append((row, node))
    for entry in (e for e in entries if e.name not in used):
        detail = f"the list names it, and {source} has no record of it"
        unblock = "Record it there, or adopt it by a list of its own, without --from."
        reason = Reason.NOT_EXPECTED
        refused.append(Blocker(reason=reason, subject=entry.name, detail=detail, unblock=unblock))
    recorded = {
        node.name: tenants.get(row.belief.tenant, row.belief.tenant)
        for row, node in nodes
        if row.belief.tenant
    }
    listed = (*switches.values(), *(node for _, node in nodes))
    merged = base.model_copy(update={"nodes": listed})
    return MergedList(expected=merged, tenants=recorded, refused=tuple(refused))


def _find_entry(row: SourceRow, entries: Sequence[ExpectedNode]) -> ExpectedNode | None:
    belief = row.belief
    for entry in entries:
        if belief.serial and entry.bmc.serial.lower() == belief.serial.lower():
            return entry
    for entry in entries:
        if belief.address and format_address(entry.bmc.url) == belief.address:
            return entry
    name = belief.name.lower()
    return next((e for e in entries if name and e.name.lower() == name), None)


def _find_obstacle(row: SourceRow, entry: ExpectedNode | None, source: str) -> Blocker | None:
    """Return why a row is refused by what the other system says of it, and by its entry."""
    belief = row.belief
    if belief.busy:
        unblock = "Wait until that has ended there, or end it; then ask again."
        return _refuse(row, Reason.BUSY, f"{source} works on it: {belief.busy}", unblock)
    if belief.serves is False:
        detail = f"{source} has it as {belief.state}: it serves no tenant"
        unblock = "Take it in with `provisioner intake`, or correct the record there."
        return _refuse(row, Reason.PRECONDITION, detail, unblock)
    if belief.serves is None and belief.state:
        detail = f"{source} has it as {belief.state}, which does not say that it serves"
        unblock = "Settle its state there; then ask again."
        return _refuse(row, Reason.PRECONDITION, detail, unblock)
    if entry is None and not belief.name:
        unblock = "Name it there, or give the list an entry with its serial or BMC address."
        return _refuse(row, Reason.PRECONDITION, "it has no name", unblock)
    serial = entry.bmc.serial if entry else ""
    if serial and belief.serial and serial.lower() != belief.serial.lower():
        detail = f"the list has serial {serial}, and {source} {belief.serial}"
        return _refuse(row, Reason.DUPLICATE, detail, "Read its label; correct the other.")
    return None


def _build_node(
    row: SourceRow, entry: ExpectedNode | None, switches: Mapping[str, ExpectedNode], site: str
) -> ExpectedNode | Blocker:
    """Return a row as an entry of the list, checked as if it were the list's only host."""
    belief = row.belief
    own = entry or ExpectedNode.model_construct(name=belief.name, kind=NodeKind.HOST)
    url = _format_url(belief.address)
    place = Location(site=belief.site or site, rack=belief.rack)
    login = own if own.username else row
    known = set(switches)
    ports = [
        p.model_copy(update={"switch": resolve_system(p.switch, known)}) if p.switch else p
        for p in own.ports or row.ports
    ]
    fields: dict[str, Any] = {
        "name": own.name,
        "kind": NodeKind.HOST,
        "bmc": ExpectedBmc(
            url=own.bmc.url or url,
            mac=own.bmc.mac or row.mac,
            serial=own.bmc.serial or belief.serial,
        ).model_dump(),
        "location": (place if own.location == Location() else own.location).model_dump(),
        "ports": [p.model_dump() for p in ports],
        "dpus": [d.model_dump() for d in own.dpus or row.cards],
        "username": login.username,
        "password": own.password if own.username else "",
        "password_env": login.password_env,
        "password_file": login.password_file,
        "address": own.address,
        "outlets": [o.model_dump() for o in own.outlets],
        "os_disk": own.os_disk,
    }
    if not fields["ports"]:
        unblock = "Name its leaf ports by --ports FILE, or in an entry of the list."
        return _refuse(row, Reason.PRECONDITION, "no source has its leaf ports", unblock)
    absent = sorted({p["switch"] for p in fields["ports"] if not p["guid"]} - set(switches))
    if absent:
        detail = f"its port is at {absent[0]}, which is no switch of the list"
        return _refuse(row, Reason.NOT_EXPECTED, detail, "Add the switch to the list.")
    named = {p["switch"] for p in fields["ports"]} & set(switches)
    stubs = [switches[name].model_dump(mode="json") for name in sorted(named)]
    text = json.dumps({"nodes": [{**fields, "kind": "host"}, *stubs]})
    try:
        return expected_text.parse("row", text).nodes[0]
    except InputError as error:
        problem = f"{error.where}: {error.problem}".lstrip(": ")
        return _refuse(row, Reason.MALFORMED, problem, error.remedy)


def _format_url(address: str) -> str:
    """Return "https://[2001:db8::1]:8443" of "2001:db8::1:8443", without the usual port."""
    host, _, port = address.rpartition(":")
    literal = f"[{host}]" if ":" in host else host
    return f"https://{literal}{'' if port == HTTPS else f':{port}'}" if host else ""


def _list_claims(node: ExpectedNode) -> Iterator[tuple[str, str]]:
    """Yield everything that one node alone may have."""
    yield "name", node.name
    for kind, value in (
        ("serial", node.bmc.serial),
        ("MAC", node.bmc.mac.lower()),
        ("BMC", format_address(node.bmc.url)),
    ):
        if value:
            yield kind, value
    for card in node.dpus:
        if card.serial:
            yield "serial", card.serial
        if card.base_mac:
            yield "MAC", card.base_mac.lower()
    for port in node.ports:
        yield "port", f"{port.switch}/{port.interface}"


def _refuse(row: SourceRow, reason: Reason, detail: str, unblock: str) -> Blocker:
    label = row.belief.name or row.belief.key
    return Blocker(reason=reason, subject=label, detail=detail, unblock=unblock)

"""Adopt nodes that serve: identified by readings, entered as they are, untouched.

Switches come first, because the ports of hosts are read at them. A login is stored before its row,
so that a daemon that ends in between leaves a sealed login without a node, and never half a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from provisioner import quirks
from provisioner.adapters.redfish.discovery import Probe
from provisioner.execution.actions.once import blocked
from provisioner.execution.observe.discover import Found, introduce_bmcs
from provisioner.execution.observe.intake import Secrets, name_listed_ports, select_complete
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.events.node_events import NodeAdopted
from provisioner.model.expected import Expected
from provisioner.model.node import Node, NodeKind, Origin
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import PortPlacement, Tenant
from provisioner.planning.intake.pairing import assemble_nodes
from provisioner.planning.release.adoption import Owners, adopt_host, compare_tenant, serve_adopted
from provisioner.ports import BmcAddress, BmcTransport, Credentials, PortError
from provisioner.store.sql_store import SqlStore

GROUP = 32  # hosts whose ports are read together: a scalable unit's, of eight leaves
Leaves = Mapping[str, tuple[PortPlacement, ...] | Blocker]  # readings by leaf, of UFM with ""


@dataclass(frozen=True)
class Adopted:
    """The result: rows that were stored (or would be), nodes stored before, and refusals."""

    nodes: tuple[Node, ...]
    known: tuple[str, ...]
    blockers: tuple[Blocker, ...]


@dataclass(frozen=True)
class AdoptionSite:
    """The parts that adoption reads and stores with. `credentials` seal the site's own logins."""

    transport: BmcTransport
    store: SqlStore
    credentials: Credentials
    tenancy: Tenancy


async def adopt_nodes(
    site: AdoptionSite,
    expected: Expected,
    secrets: Secrets,
    probes: Sequence[Probe],
    *,
    by: str,
    now: float,
    keep: bool,
    recorded_tenants: Mapping[str, str] = MappingProxyType({}),
) -> Adopted:
    """Adopt the nodes of a list; without `keep`, return what would be adopted and store nothing.

    `recorded_tenants`: tenants of nodes as another system records them.
    """
    store = site.store
    stored = list(await store.nodes.list())
    detached = {n.id: n for n in stored if n.origin is Origin.DETACHED}
    before = {n.id for n in stored} - set(detached)
    already = tuple(sorted(before))
    fresh = tuple(n for n in expected.nodes if n.name not in before)
    listed = expected.model_copy(update={"nodes": fresh})
    listed = await name_listed_ports(store, listed, stored)
    endpoints, silent = await _introduce(site.transport, listed, secrets, probes)
    assembly = assemble_nodes(listed, [f.endpoint for f in endpoints], now)
    refused = [*silent, *assembly.blockers]
    tenants = {t.name: t for t in (*expected.tenants, *await store.tenants.list())}
    if keep:
        for tenant in expected.tenants:
            await store.tenants.put(tenant)
    logins = {f.endpoint.url: f for f in endpoints}
    adopted = list[Node]()
    owners = Owners(stored)
    for group in _group(select_complete(listed, assembly)):
        leaves = await _read_leaves(site, group, before)
        for node in group:
            if conflicts := owners.find_conflicts(node):
                refused += conflicts
                continue
            readable = {*before, *(n.id for n in adopted)}
            row = await _judge(site, node, list(tenants.values()), leaves, readable, now)
            if isinstance(row, Node):
                row = compare_tenant(row, recorded_tenants.get(row.id, ""))
            if isinstance(row, Blocker):
                refused.append(row)
                continue
            if keep:
                await _keep(site, row, detached.get(row.id), secrets, logins, by, now)
                before.add(row.id)
            adopted.append(row)
            owners.add(row)
    return Adopted(tuple(adopted), already, tuple(refused))


def _group(nodes: Sequence[Node]) -> Iterator[Sequence[Node]]:
    """Yield all switches, then the hosts, so many at a time that are read together."""
    yield [n for n in nodes if n.kind is NodeKind.SWITCH]
    hosts = [n for n in nodes if n.kind is not NodeKind.SWITCH]
    for start in range(0, len(hosts), GROUP):
        yield hosts[start : start + GROUP]


async def _read_leaves(site: AdoptionSite, nodes: Sequence[Node], stored: set[str]) -> Leaves:
    """Read the ports of these hosts, each leaf and UFM once."""
    hosts = (n for n in nodes if n.kind is not NodeKind.SWITCH)
    groups = site.tenancy.group_ports([port for node in hosts for port in node.ports])
    ports = {device: mine for device, mine in groups.items() if device in {"", *stored}}
    readings = await asyncio.gather(*(site.tenancy.read_group(mine) for mine in ports.values()))
    return dict(zip(ports, readings, strict=True))


async def _introduce(
    transport: BmcTransport, listed: Expected, secrets: Secrets, probes: Sequence[Probe]
) -> tuple[tuple[Found, ...], tuple[Blocker, ...]]:
    """Log in once to each BMC, with the login of its own entry or of its vendor; change nothing."""
    own = {
        n.bmc.url.rstrip("/"): secrets.switches[n.name]
        for n in listed.nodes
        if n.bmc.url and n.name in secrets.switches
    }
    found, silent = await introduce_bmcs(
        transport, None, [p for p in probes if p.url.rstrip("/") not in own], secrets.factory
    )
    alone = [p for p in probes if p.url.rstrip("/") in own]
    for more, refused in await asyncio.gather(
        *(
            introduce_bmcs(transport, None, [p], dict.fromkeys(quirks.ALL, own[p.url.rstrip("/")]))
            for p in alone
        )
    ):
        found += more
        silent += refused
    return found, silent


async def _judge(
    site: AdoptionSite,
    node: Node,
    tenants: Sequence[Tenant],
    leaves: Leaves,
    readable: set[str],
    now: float,
) -> Node | Blocker:
    """Return the row of a node as its ports were read, or why it is refused."""
    if node.kind is NodeKind.SWITCH:
        return await _pin(site.transport, serve_adopted(node, now))
    if unjudged := site.tenancy.find_unjudged(node.ports):
        return unjudged.model_copy(update={"subject": node.id})
    groups = site.tenancy.group_ports(node.ports)
    if absent := sorted(set(groups) - set(leaves)):
        pending = absent[0] in readable
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=node.id,
            detail=f"its ports at {absent[0]} cannot be read "
            + ("before that switch is adopted" if pending else "without that switch"),
            unblock="Adopt the switches of its ports first, by a list of their own.",
        )
    own = {(p.switch, p.interface) for p in node.ports}
    read: list[PortPlacement] = []
    for device in groups:
        reading = leaves[device]
        if isinstance(reading, Blocker):
            return reading
        read += [p for p in reading if (p.switch, p.interface) in own]
    return adopt_host(node, read, tenants, now)


async def _pin(transport: BmcTransport, node: Node) -> Node | Blocker:
    """Return a switch with the certificate of its API pinned; one behind SSH pins its host key."""
    if not node.address.startswith("https://"):
        return node
    try:
        pin = await transport.fingerprint(BmcAddress(node.address))
    except PortError as error:
        return blocked(error, f"{node.id}/api")
    bmcs = tuple(b.model_copy(update={"pin": pin}) for b in node.bmcs)
    return node.model_copy(update={"bmcs": bmcs})


async def _keep(
    site: AdoptionSite,
    row: Node,
    detached: Node | None,
    secrets: Secrets,
    logins: dict[str, Found],
    by: str,
    now: float,
) -> None:
    """Store a row with its logins; `detached`: the row of the same node, which it replaces."""
    for bmc in (b for b in row.bmcs if b.kind != "switch"):
        login = logins[bmc.url]
        await site.credentials.put(f"{row.id}/{bmc.name}", login.username, login.secret)
    if row.kind is NodeKind.SWITCH and row.id in secrets.switches:
        await site.credentials.put(f"{row.id}/api", *secrets.switches[row.id])
    if detached is None:
        await site.store.nodes.add(row)
    else:
        again = {"generation": detached.generation, "tags": detached.tags}
        await site.store.nodes.save(row.model_copy(update=again))
    event = NodeAdopted(
        about=row.id,
        bmcs=tuple(b.url for b in row.bmcs),
        node_kind=row.kind,
        tenant=row.tenant,
        vrf=row.vrf,
        by=by,
    )
    await site.store.journal.append(event, now)

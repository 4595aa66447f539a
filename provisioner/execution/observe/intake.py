"""Automatic intake: probe addresses, log in once where it is expected, pair, and store the nodes.

Only a BMC that shows nothing before its factory password is changed gets a new one here. A device
that cannot be placed is reported with the action that would unblock it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from provisioner.adapters.redfish.discovery import Probe
from provisioner.adapters.redfish.upkeep.bmc_time import set_clock
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.collector import read_port_names
from provisioner.execution.observe.discover import Found, introduce_bmcs
from provisioner.model.events.node_events import NodeDiscovered
from provisioner.model.expected import Expected
from provisioner.model.names import short_name
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.planning.intake.pairing import (
    Assembly,
    assemble_nodes,
    find_missing_cards,
    name_ports,
)
from provisioner.ports import BmcTransport, Credentials, PortError, Secret, StaleWrite
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Gives the BMCs of a new host the site's time servers; one that refuses does not hold it up.


_LOG = logging.getLogger(__name__)


async def set_times(site: Site, node: Node) -> tuple[Blocker, ...]:
    """Set the time of every BMC of a node; return why it was not set at some.

    Their skew is an alert while the host serves, so that a refusal here is not lost.
    """
    refusals = []
    for bmc in node.bmcs:
        name = f"{node.id}/{bmc.name}"
        try:
            client = await site.reach.redfish(node, bmc.name)
            if not isinstance(client, Blocker):
                servers = site.settings.bmc_ntp_servers
                refused = await set_clock(client.service, servers, site.clock.now)
            else:
                refused = client
        except PortError as error:
            refused = blocked(error, name)
        if refused is not None:
            _LOG.warning("the time of %s was not set: %s", name, refused)
            refusals.append(refused)
    return tuple(refusals)


TAKEN_AT_ONCE = 32  # nodes: their writes share commits
SAVES_MAX = 8  # a node's driver writes its row every few seconds, never eight times in a row


@dataclass(frozen=True)
class Secrets:
    """Passwords that the expected-hardware list points to: by vendor, and by switch name."""

    factory: Mapping[str, tuple[str, Secret]]
    switches: Mapping[str, tuple[str, Secret]]


@dataclass(frozen=True)
class Taken:
    """The result of an intake run: nodes stored now, nodes stored before, and the blockers."""

    new: tuple[Node, ...]
    known: tuple[str, ...]
    blockers: tuple[Blocker, ...]


async def find_nodes(
    transport: BmcTransport,
    store: SqlStore,
    credentials: Credentials | None,
    expected: Expected,
    secrets: Secrets,
    probes: Sequence[Probe],
    now: float,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> tuple[Assembly, tuple[Found, ...], tuple[Blocker, ...]]:
    """Return the devices behind the probed addresses, and the nodes that they make up. Stores no
    node.

    Without `credentials` nothing is changed on any BMC (a dry run).
    """
    nodes = await store.nodes.list()
    have = {b.url for n in nodes for b in n.bmcs}
    strangers = [p for p in probes if p.url not in have]
    endpoints, silent = await introduce_bmcs(
        transport, credentials, strangers, secrets.factory, progress
    )
    stored = {n.id for n in await store.nodes.list()}
    missing = expected.model_copy(
        update={"nodes": tuple(n for n in expected.nodes if n.name not in stored)}
    )
    missing = await name_listed_ports(store, missing, nodes)
    # a third of a millisecond for each node: beside the loop
    assembly = await asyncio.to_thread(
        assemble_nodes, missing, [f.endpoint for f in endpoints], now
    )
    return assembly, endpoints, silent


async def name_listed_ports(
    store: SqlStore, expected: Expected, stored: Sequence[Node]
) -> Expected:
    """Return the list with its leaf ports under their own names, as far as switches were read."""
    named = {short_name(p.switch) for n in expected.nodes for p in n.ports}
    leaves = [n.id for n in stored if n.kind is NodeKind.SWITCH and short_name(n.id) in named]
    listed = {n.name for n in expected.nodes}
    taken = {(p.switch, p.interface) for n in stored if n.id not in listed for p in n.ports}
    return name_ports(expected, await read_port_names(store, leaves), taken)


def select_complete(expected: Expected, assembly: Assembly) -> tuple[Node, ...]:
    """Return the nodes whose every card was found: only these are taken in."""
    expected_of = {n.name: n for n in expected.nodes}
    return tuple(n for n in assembly.nodes if not find_missing_cards(expected_of[n.id], n))


async def take_in(
    store: SqlStore,
    credentials: Credentials,
    expected: Expected,
    secrets: Secrets,
    assembly: Assembly,
    found: Sequence[Found],
    now: float,
) -> Taken:
    """Store the complete nodes with their credentials; they start as `discovered`."""
    before = dict.fromkeys(n.id for n in await store.nodes.list())
    logins = {f.endpoint.url: f for f in found}
    await update_outlets(store, expected)
    places = asyncio.Semaphore(TAKEN_AT_ONCE)

    async def take(node: Node) -> Node:
        async with places:
            for bmc in (b for b in node.bmcs if b.kind != "switch"):
                login = logins[bmc.url]
                await credentials.put(f"{node.id}/{bmc.name}", login.username, login.secret)
            if node.kind is NodeKind.SWITCH and node.id in secrets.switches:
                await credentials.put(f"{node.id}/api", *secrets.switches[node.id])
            added = await store.nodes.add(node)
            event = NodeDiscovered(
                about=node.id, bmcs=tuple(b.url for b in node.bmcs), node_kind=node.kind
            )
            await store.journal.append(event, now)
            return added

    strangers = [n for n in select_complete(expected, assembly) if n.id not in before]
    new = await asyncio.gather(*map(take, strangers))
    for tenant in expected.tenants:
        await store.tenants.put(tenant)
    return Taken(new=tuple(new), known=tuple(before), blockers=assembly.blockers)


async def update_outlets(store: SqlStore, expected: Expected) -> None:
    """Store the listed outlets of nodes that were taken in before: cords are moved at any time."""
    listed = {n.name: n.outlets for n in expected.nodes}
    for name in [
        n.id for n in await store.nodes.list() if listed.get(n.id, n.outlets) != n.outlets
    ]:
        for _ in range(SAVES_MAX):
            node = await store.nodes.get(name)
            if node is None or node.outlets == listed[name]:
                break
            with suppress(StaleWrite):
                await store.nodes.save(node.model_copy(update={"outlets": listed[name]}))

"""Compare every node's row with its leaves while nothing may be written, until all is settled.

This only reads leaves. A person's decisions wait in the store; a node outside of any customer's
network is settled by the rule that it is erased before the next tenant gets it. Each leaf is also
read as a whole: a node that was taken in after the backup has no row, and its ports may serve.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from provisioner.control.watch.port_owners import PortOwners, UnownedPorts
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.campaign import CampaignState
from provisioner.model.events.fleet_events import describe_change
from provisioner.model.host_filter import DatabaseMark, PortLabel
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import Difference, DifferenceKind, Settlement
from provisioner.model.tenant import PortPlacement
from provisioner.planning.release import entitlement
from provisioner.planning.watch.high_water import (
    compare,
    describe_stranger,
    describe_unread_leaf,
    find_newer_labels,
    settle_by_rule,
)
from provisioner.ports import Clock, StaleWrite
from provisioner.settings import Settings
from provisioner.store.repositories.campaigns import SqlCampaignRepository
from provisioner.store.repositories.recovery import SqlRecoveryRepository
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Look for ports whose description is newer than the rows: a restore that no file remembers.
#
# The high-water mark lies in the data directory. Where that was restored together with the
# database, only the leaves record the moves since. This reads each leaf once, before a daemon acts.


log = logging.getLogger(__name__)

LEAVES_MAX = 64  # at once, one request each
LIMIT_S = 60.0  # of the whole look: a dead leaf must not keep the daemon from fencing at others


async def find_lost_moves(store: SqlStore, tenancy: Tenancy, mark: DatabaseMark) -> str:
    """Return why the database lacks writes, by the descriptions at the leaves' ports; or ""."""
    leaves = sorted(
        n.id
        for n in await store.nodes.list()
        if n.kind is NodeKind.SWITCH and n.state is not State.RETIRED
    )
    slots = asyncio.Semaphore(LEAVES_MAX)
    labels: dict[str, PortLabel] = {}
    silent = set(leaves)

    async def look(leaf: str) -> None:
        async with slots:
            read: Mapping[str, PortLabel] | Blocker = await tenancy.read_labels(leaf)
        if not isinstance(read, Blocker):
            silent.discard(leaf)
            labels.update({f"{leaf}/{port}": label for port, label in read.items()})

    try:
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*map(look, leaves))
    except TimeoutError:
        pass
    if silent:
        names = ", ".join(sorted(silent)[:8])
        log.warning("%d leaves gave no port descriptions: %s", len(silent), names)
    # rows are read after the ports: a row is written before its ports move
    epochs = {n.id: n.generation for n in await store.nodes.list()}
    epochs |= {n.id: n.generation for n in await store.nodes.list_set_aside()}
    return find_newer_labels(labels, epochs, mark)


ROUND_S = 60.0  # a leaf that was silent is asked again; a person takes longer to decide
LOOKS_MAX = 64  # nodes at once; nodes on the same leaves share a look
PROGRESS_S = 2.0  # how often it is looked whether the restore is settled
SURVEYOR = "the daemon"


class Recovery:
    """`run` returns once a person says that everything is settled."""

    def __init__(
        self,
        store: SqlStore,
        book: SqlRecoveryRepository,
        clock: Clock,
        tenancy: Tenancy,
        campaigns: SqlCampaignRepository | None = None,
        unowned: UnownedPorts | None = None,
    ) -> None:
        """`unowned` judges ports without a node; None: by the default settings."""
        self._store = store
        self._book = book
        self._clock = clock
        self._tenancy = tenancy
        self._campaigns = campaigns
        self._unowned = unowned or UnownedPorts(Settings(), tenancy)

    async def run(self) -> None:
        """Survey again and again, until nothing keeps the daemon from acting."""
        await self._pause_campaigns()
        due = 0.0
        while await self._book.get_look_only():
            if self._clock.now() >= due:
                waiting = await self.survey()
                log.warning("nothing is written to any device: %d differences wait", waiting)
                due = self._clock.now() + ROUND_S
            await self._clock.sleep(PROGRESS_S)

    async def survey(self) -> int:
        """Compare every host and every leaf once; return how many differences wait for a word."""
        tenants = {t.vrf: t.name for t in await self._store.tenants.list()}
        decisions = {
            d.subject: d for d in await self._book.list_differences() if d.settled is not None
        }
        nodes = await self._store.nodes.list()
        hosts = [n for n in nodes if n.kind is NodeKind.HOST and n.id not in decisions]
        differences: list[Difference] = []
        for start in range(0, len(hosts), LOOKS_MAX):
            batch = hosts[start : start + LOOKS_MAX]
            read = await asyncio.gather(*(self._tenancy.read(n.ports) for n in batch))
            for node, reading in zip(batch, read, strict=True):
                difference = await self._compared(node, reading, tenants)
                if difference is not None:
                    differences.append(difference)
        for stranger in await self._find_strangers(nodes):
            word = decisions.get(stranger.subject)
            if word is None or word.world != stranger.world:
                differences.append(stranger)
        await self._book.put_survey(differences, self._clock.now())
        return len(differences)

    async def _find_strangers(self, nodes: Sequence[Node]) -> list[Difference]:
        """Return the ports in customers' networks that no node in service owns, and silent leaves.

        The ports of a damaged row are that node's, which `doctor` names.
        """
        owners = PortOwners()
        tenants = await self._store.tenants.list()
        owners.take([*nodes, *await self._store.nodes.list_set_aside()])
        leaves = sorted(owners.leaves)
        now = self._clock.now()
        strangers: dict[tuple[str, str], Difference] = {}
        for start in range(0, len(leaves), LEAVES_MAX):
            batch = leaves[start : start + LEAVES_MAX]
            vrfs = entitlement.SITE_VRFS
            read = await asyncio.gather(*(self._tenancy.tenant_ports(n, vrfs) for n in batch))
            for leaf, reading in zip(batch, read, strict=True):
                if isinstance(reading, Blocker):
                    strangers[leaf, ""] = describe_unread_leaf(leaf, reading, now)
                    continue
                for interface, port in reading.items():
                    mine = owners.find_owners(leaf, interface)
                    if any(n.state is not State.RETIRED for n in mine):
                        continue  # that node is compared as a whole
                    if any(n.origin is Origin.DETACHED for n in mine):
                        continue  # its ports are another system's
                    if self._unowned.why_not_ours(leaf, interface, port, tenants):
                        continue
                    retired = mine[0].id if mine else ""
                    names = {t.vrf: t.name for t in tenants}
                    strangers[leaf, interface] = describe_stranger(
                        leaf, interface, port.vrfs, retired, names, now
                    )
        ports = [key for key, d in strangers.items() if d.kind is DifferenceKind.STRANGER]
        linked = await self._unowned.find_switch_links(ports, owners.leaves)
        return [strangers[key] for key in sorted(strangers) if key not in linked]

    async def _pause_campaigns(self) -> None:
        """Let no campaign go on by itself: whom it gave notice since is not known."""
        if self._campaigns is None:
            return
        for campaign in await self._campaigns.list():
            if campaign.state in (CampaignState.STARTED, CampaignState.ROLLING_BACK):
                paused = {"state": CampaignState.PAUSED, "reason": "writes were lost"}
                changed = campaign.model_copy(update=paused)
                await self._campaigns.save(
                    changed, describe_change(changed, SURVEYOR), self._clock.now()
                )

    async def _compared(
        self, node: Node, seen: Sequence[PortPlacement] | Blocker, tenants: dict[str, str]
    ) -> Difference | None:
        """Return the difference for a person; None where rows and leaves agree, or where the rule
        settles it.
        """
        now = self._clock.now()
        difference = compare(node, seen, tenants, now)
        if difference is None or difference.kind is not DifferenceKind.OUTSIDE:
            return difference
        word = {"settled": Settlement.RULE, "settled_by": SURVEYOR, "settled_at": now}
        try:
            await self._book.settle(
                difference.model_copy(update=word), settle_by_rule(node, difference, now)
            )
        except StaleWrite:
            return difference  # a foreign change just now: the next survey sees it
        return None

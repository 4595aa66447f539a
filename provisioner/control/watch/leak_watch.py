"""Looks at the leak detectors of serving hosts, at each glance, along the paths of an inventory.

A host without detectors costs no request: they are looked for with its parts, now and then.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.execution.actions.leak_gate import SOURCE
from provisioner.execution.observe.watch import OutOfBand
from provisioner.model.inventory import Inventory, LeakDetector
from provisioner.model.node import BmcRef, Node
from provisioner.planning.watch.leaks import carry_detectors, drop_accepted, list_signals
from provisioner.ports import Clock, Store


class LeakWatch:
    """`keeper` takes in the alerts; the store has the inventories of before."""

    def __init__(self, eyes: OutOfBand, keeper: AlertKeeper, store: Store, clock: Clock) -> None:
        self._eyes = eyes
        self._keeper = keeper
        self._store = store
        self._clock = clock
        self._seen: dict[str, tuple[LeakDetector, ...]] = {}

    async def check_detectors(self, node: Node) -> None:
        """Read the detectors of a host, and report those that are not dry."""
        host = next((bmc for bmc in node.bmcs if bmc.kind == "host"), None)
        if host is None:
            return
        if node.id not in self._seen:
            stored = await self._store.evidence.get_inventory(node.id)
            self._seen[node.id] = () if stored is None else stored.leaks
        if known := self._seen[node.id]:
            detectors = await self._eyes.read_leaks(node, host, [d.source for d in known])
            if detectors is not None:
                await self._report(node, detectors)

    async def take(self, node: Node, bmc: BmcRef, read: Inventory) -> None:
        """Take in a reading of all parts, which lists the detectors of the host."""
        if bmc.kind == "host":
            await self._report(node, read.leaks)

    async def _report(self, node: Node, detectors: Sequence[LeakDetector]) -> None:
        """Report those that are not dry, and those that were seen once and are not shown."""
        carried = carry_detectors(self._seen.get(node.id, ()), detectors)
        alerts = await self._keeper.book.list(node.id)
        self._seen[node.id] = carried = drop_accepted(carried, alerts)
        now = self._clock.now()
        await self._keeper.report(node.id, list_signals(node.id, carried, SOURCE, now))

    def forget(self, node: str) -> None:
        """Discard the detectors of a node that no longer serves."""
        self._seen.pop(node, None)

"""Looks at the leak detectors of serving hosts, at each glance, along the paths of an inventory.

A host without detectors costs no request: they are looked for with its parts, now and then.
"""

from __future__ import annotations

from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.execution.actions.leak_gate import SOURCE
from provisioner.execution.observe.watch import OutOfBand
from provisioner.model.inventory import Inventory
from provisioner.model.node import BmcRef, Node
from provisioner.planning.watch.leaks import list_signals
from provisioner.ports import Clock, Store


class LeakWatch:
    """`keeper` takes in the alerts; the store has the inventories of before."""

    def __init__(self, eyes: OutOfBand, keeper: AlertKeeper, store: Store, clock: Clock) -> None:
        self._eyes = eyes
        self._keeper = keeper
        self._store = store
        self._clock = clock
        self._places: dict[str, tuple[str, ...]] = {}

    async def check_detectors(self, node: Node) -> None:
        """Read the detectors of a host, and report those that are not dry."""
        host = next((bmc for bmc in node.bmcs if bmc.kind == "host"), None)
        if host is None:
            return
        if node.id not in self._places:
            stored = await self._store.evidence.get_inventory(node.id)
            self._places[node.id] = _places_of(stored)
        if places := self._places[node.id]:
            detectors = await self._eyes.read_leaks(node, host, places)
            now = self._clock.now()
            await self._keeper.report(node.id, list_signals(node.id, detectors, SOURCE, now))

    async def take(self, node: Node, bmc: BmcRef, read: Inventory) -> None:
        """Take in a reading of all parts, which lists the detectors of the host."""
        if bmc.kind != "host":
            return
        self._places[node.id] = _places_of(read)
        signals = list_signals(node.id, read.leaks, SOURCE, self._clock.now())
        await self._keeper.report(node.id, signals)

    def forget(self, node: str) -> None:
        """Discard the paths of a node that no longer serves."""
        self._places.pop(node, None)


def _places_of(inventory: Inventory | None) -> tuple[str, ...]:
    return () if inventory is None else tuple(d.source for d in inventory.leaks)

"""Looks at a node that serves, through its BMCs alone, within a budget of requests.

Rule: nothing here changes anything in the node or asks its host: it is the tenant's.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence

from provisioner.adapters.redfish import accounts
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.eventing import subscriptions
from provisioner.adapters.redfish.eventing.events import (
    Metric,
    Pushed,
    RedfishEvent,
    list_related,
    read_conditions,
    read_entry,
)
from provisioner.adapters.redfish.eventing.registries import Registry, RegistryShelf, fetch_registry
from provisioner.adapters.redfish.eventing.subscriptions import Offer
from provisioner.adapters.redfish.upkeep.bmc_time import read_clock
from provisioner.adapters.redfish.upkeep.leaks import read_places
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.reach import HOST, Reach
from provisioner.execution.observe import inband
from provisioner.model.cohort import Evidence
from provisioner.model.inventory import BmcClock, Component, DeviceKind, Inventory, LeakDetector
from provisioner.model.node import BmcRef, Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.watch.watch_rules import fatal_counters
from provisioner.ports import BmcAddress, BmcTransport, Call, Clock, PortError, Reply

BURST_S = 2.0  # unused requests are saved up for so long


class Budget:
    """Requests per second for the whole fleet. Those that are urgent come first, always.

    `extra_per_s` is for urgent ones alone: those of a first round, beside the budget.
    """

    def __init__(self, clock: Clock, per_s: float) -> None:
        self._clock = clock
        self.per_s = per_s
        self.extra_per_s = 0.0
        self._left = 1.0
        self._extra = 0.0
        self._at = clock.now()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._asked = 0
        self._pump: asyncio.Task[None] | None = None
        self.spent = 0

    async def take_slot(self, *, urgent: bool) -> None:
        """Wait until one request is within the budget."""
        if self._pump is None:  # nobody waits
            self._fill(self._clock.now())
            if self._take(urgent=urgent):
                return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked += 1
        heapq.heappush(self._waiting, (0 if urgent else 1, self._asked, turn))
        if self._pump is None:
            self._pump = asyncio.create_task(self._give())
        await turn

    async def _give(self) -> None:
        try:
            while self._waiting:
                self._fill(self._clock.now())
                urgent = self._waiting[0][0] == 0
                if self._waiting[0][2].done():  # the waiting caller is gone
                    heapq.heappop(self._waiting)
                elif self._take(urgent=urgent):
                    heapq.heappop(self._waiting)[2].set_result(None)
                else:
                    left = self._left + (self._extra if urgent else 0.0)
                    per_s = self.per_s + (self.extra_per_s if urgent else 0.0)
                    await self._clock.sleep((1.0 - left) / per_s)
        finally:
            self._pump = None

    def _take(self, *, urgent: bool) -> bool:
        """Take one request out of what is left; return False if there is none."""
        left = self._left + (self._extra if urgent else 0.0)
        if left < 0.999:  # sums of fractions fall short of one by a hair
            return False
        extra = min(1.0, self._extra) if urgent else 0.0
        self._extra -= extra
        self._left -= 1.0 - extra
        self.spent += 1
        return True

    def _fill(self, now: float) -> None:
        passed_s = now - self._at
        self._at = now
        most = max(1.0, BURST_S * self.per_s)
        self._left = min(most, self._left + passed_s * self.per_s)
        most = BURST_S * self.extra_per_s
        self._extra = min(most, self._extra + passed_s * self.extra_per_s)

    def close(self) -> None:
        if self._pump is not None:
            self._pump.cancel()


class BudgetedTransport:
    """A `BmcTransport` whose requests wait for the budget. Closing it closes nothing."""

    def __init__(self, inner: BmcTransport, budget: Budget, *, urgent: bool) -> None:
        self._inner = inner
        self._budget = budget
        self._urgent = urgent

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        await self._budget.take_slot(urgent=self._urgent)
        return await self._inner.request(bmc, call)

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return await self._inner.fingerprint(bmc)

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return await self._inner.password_change(bmc)

    async def forget(self, bmc: BmcAddress) -> None:
        await self._inner.forget(bmc)

    async def close(self) -> None:
        return None


class OutOfBand:
    """Glances (one request a BMC) and sweeps (all versions, or parts too) at one node's BMCs."""

    def __init__(self, reach: Reach, clock: Clock, requests_per_s: float) -> None:
        self.reach = reach
        self._clock = clock
        self.budget = Budget(clock, requests_per_s)
        self._urgent = self._reach(urgent=True)
        self._patient = self._reach(urgent=False)
        # by node, so that one that leaves costs no walk over all, and by the BMC's URL
        self._offers: dict[str, dict[str, Offer]] = {}
        self.shelf = RegistryShelf()
        self._reports: dict[str, dict[str, tuple[str, ...]]] = {}  # paths of metric reports

    def _reach(self, *, urgent: bool) -> Reach:
        transport = BudgetedTransport(self.reach.transport, self.budget, urgent=urgent)
        return Reach(transport, self.reach.switches, self.reach.credentials, pause=self.reach.pause)

    async def open_client(self, node: Node, bmc: BmcRef) -> Redfish | Blocker:
        """Return a client whose requests come first in the budget. Raises `PortError`."""
        return await self._urgent.redfish(node, bmc.name)

    async def read_log(self, node: Node, bmc: BmcRef) -> tuple[RedfishEvent, ...] | Blocker:
        """The entries at a BMC in its system's log: one request, once its path is recorded."""
        try:
            client = await self._urgent.redfish(node, bmc.name)
            if isinstance(client, Blocker):
                return client
            system = await client.service.read_system(alone=True)
            if system is None:
                return ()
            bodies = []
            if related := list_related(system.data):
                walk = client.service.walk(apart=True)
                bodies = [one.data for one in await walk.read_several(related)]
        except PortError as error:
            return blocked(error, f"{node.id}/{bmc.name}")
        return tuple(event for body in (system.data, *bodies) for event in read_conditions(body))

    async def read_entries(
        self, node: Node, bmc: BmcRef, paths: Sequence[str]
    ) -> tuple[Pushed, ...]:
        """Return the log entries or events at these paths of a BMC, as far as it shows them."""
        try:
            client = await self._urgent.redfish(node, bmc.name)
            if isinstance(client, Blocker):
                return ()
            entries = await client.service.walk().read_several(paths)
        except PortError:
            return ()
        return tuple(read_entry(entry.data) for entry in entries if entry.data)

    def find_registries(self, node: str, bmc: str, names: Sequence[str]) -> dict[str, Registry]:
        kept = {name: self.shelf.find(f"{node}/{bmc}", name) for name in names}
        return {name: registry for name, registry in kept.items() if registry is not None}

    async def fetch_registries(self, node: Node, bmc: BmcRef, names: Sequence[str]) -> None:
        """Fetch message registries from a BMC; one that is not served is not asked for again."""
        of_bmc = f"{node.id}/{bmc.name}"
        for name in names:
            if self.shelf.find(of_bmc, name) is not None or not self.shelf.has_room(of_bmc):
                continue
            try:
                client = await self._patient.redfish(node, bmc.name)
                if isinstance(client, Blocker):
                    return
                walk = client.service.walk()
                registry = await fetch_registry(walk, name)
            except PortError:
                return
            if registry or not any(g.reason is not Reason.NOT_OFFERED for g in walk.gaps):
                self.shelf.keep(node.id, of_bmc, name, registry)

    async def read_leaks(
        self, node: Node, bmc: BmcRef, places: Sequence[str]
    ) -> tuple[LeakDetector, ...] | None:
        """Return the leak detectors at these paths; None if the BMC is silent."""
        try:
            client = await self._urgent.redfish(node, bmc.name)
            if isinstance(client, Blocker):
                return None
            return await read_places(client.service.walk(), places)
        except PortError:
            return None

    async def read_skew(self, node: Node, bmc: BmcRef) -> BmcClock | None:
        """Return the clock of a BMC; None if the BMC is silent or has none."""
        try:
            client = await self._patient.redfish(node, bmc.name)
            if isinstance(client, Blocker):
                return None
            return await read_clock(client.service, self._clock.now)
        except PortError:
            return None

    async def ask_roots(self, node: Node, patterns: Sequence[str]) -> Evidence | Blocker:
        """Return the signed measurements of the roots of trust whose names match."""
        try:
            client = await self._patient.redfish(node, HOST)
            if isinstance(client, Blocker):
                return client
            return await inband.ask_roots(client, patterns, self._clock)
        except PortError as error:
            return blocked(error, f"{node.id}/{HOST}")

    async def read_resets(self, node: Node) -> dict[str, str]:
        """Return when systems and managers were last reset, by path; {} without an answer."""
        try:
            client = await self._patient.redfish(node, HOST)
            return {} if isinstance(client, Blocker) else await inband.read_resets(client)
        except PortError:
            return {}

    async def read_offer(self, node: Node, bmc: BmcRef) -> Offer | None:
        """Return the event service that this BMC offers, read once; None: it did not answer now."""
        offers = self._offers.setdefault(node.id, {})
        if bmc.url not in offers:
            try:
                client = await self._urgent.redfish(node, bmc.name)
                if isinstance(client, Blocker):
                    return None
                offers[bmc.url] = await subscriptions.read_offer(client.service)
            except PortError:
                return None
        return offers[bmc.url]

    async def read_versions(self, node: Node, bmc: BmcRef, *, parts: bool) -> Inventory | Blocker:
        """Return the versions behind one BMC, with parts if requested, named as in the node's
        inventory.
        """
        try:
            client = await self._patient.redfish(node, bmc.name)
            if isinstance(client, Blocker):
                return client
            if parts:
                inventory = await client.collect(node.id, bmc.name)
            else:
                inventory = await client.read_firmware(node.id, bmc.name)
        except PortError as error:
            return blocked(error, f"{node.id}/{bmc.name}")
        return rename_parts(inventory, bmc)

    async def read_telemetry(self, node: Node, bmc: BmcRef, *, anew: bool) -> tuple[Metric, ...]:
        """Return the values of a BMC's metric reports; `anew`: their list is read again.

        A report without a counter that a rule reads is not requested again until then. No answer is
        an empty result.
        """
        reports = self._reports.setdefault(node.id, {})
        metrics: list[Metric] = []
        try:
            client = await self._patient.redfish(node, bmc.name)
            if isinstance(client, Blocker):
                return ()
            if anew or bmc.url not in reports:
                reports[bmc.url] = await accounts.list_reports(client.service)
            for path in reports[bmc.url]:
                report = await accounts.read(client.service, path)
                metrics += report.metrics
                counted = fatal_counters((m.name, m.value) for m in report.metrics)
                if report.too_large or (report.metrics and not counted):
                    reports[bmc.url] = tuple(p for p in reports[bmc.url] if p != path)
        except PortError:
            return tuple(metrics)
        return tuple(metrics)

    def count_reports(self, node: str, url: str) -> int:
        """Return how many metric reports of one of a node's BMCs are polled."""
        return len(self._reports.get(node, {}).get(url, ()))

    def forget_node(self, node: str) -> None:
        """Discard the state of a node that no longer serves: its BMCs may be others when it
        returns.
        """
        self._offers.pop(node, None)
        self._reports.pop(node, None)


def rename_parts(seen: Inventory, bmc: BmcRef) -> Inventory:
    """Return components and devices under the names that the whole node's inventory has for
    them.
    """
    if bmc.kind == "host":
        return seen
    kind = DeviceKind.DPU if bmc.kind == "dpu" else DeviceKind.NIC
    devices = [
        d.model_copy(
            update={"kind": kind if d.kind is DeviceKind.DPU else d.kind, "slot": bmc.name}
        )
        for d in seen.devices
        if d.kind in (DeviceKind.DPU, DeviceKind.BMC)
    ]
    return seen.model_copy(
        update={
            "system_serial": None,  # the card's, which is a device here
            "devices": tuple(devices),
            "components": tuple(_of_card(seen.components, bmc)),
        }
    )


def _of_card(components: Sequence[Component], bmc: BmcRef) -> Sequence[Component]:
    return [c.model_copy(update={"slot": bmc.name}) for c in components]

"""A simulated host whose BMC cycles no standby power, its two PDUs, and an executor."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.power import Feeds, LeakGate
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site as Effects
from provisioner.execution.executor import Executor
from provisioner.integrations.outlets.redfish_pdu import RedfishPdu
from provisioner.integrations.sim.hardware.machine import Cords, PowerUnit
from provisioner.integrations.sim.redfish.bmc import make_service
from provisioner.integrations.sim.redfish.redfish_pdu import PduService
from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.twin.hosts import MemoryRunner, MemoryShell
from provisioner.integrations.twin.loop import VirtualClock, run
from provisioner.integrations.twin.wires import MemoryBmcs, MemorySwitches, Wire
from provisioner.model.inventory import Activation, Inventory
from provisioner.model.location import Outlet
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.ports import BmcAddress, Secret
from provisioner.runtime.integrations import find_outlet_users
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

NODE, OTHER = "su0-n00", "su0-n01"
STAGED = ("host", "CPLDMB_0")  # waits for an AC cycle
NEW = "9.9.9.9"
LOGIN = ("pdu", "secret-of-the-pdu")
STEP = Step(
    kind=StepKind.ACTIVATE,
    activation=Activation.AC_CYCLE,
    activates=(),
    disruption=Disruption.HOST,
    duration_s=1200,
    expected=(),
    reason="a test",
)
Result = TypeVar("Result")


@dataclass
class Bench:
    """One host on outlets 1 of both PDUs, another one on outlets 2."""

    site: Site
    units: dict[str, PowerUnit]
    effects: Effects
    node: Node
    store: Any

    @property
    def log(self) -> list[str]:
        """Return the losses and returns of power of the host."""
        machine = self.site.machines[NODE]
        return [e.detail for e in machine.log if e.kind == "ac"]

    async def hold(self) -> Hold:
        """Return the hold of a driver: a new one, or that of the last one's successor."""
        opened = await self.store.operations.open(NODE, "test", 0.0)
        active = (await self.store.operations.list_active())[0] if opened is None else opened
        taken = await self.store.operations.take(active.id)
        return Hold(self.store, self.effects.clock, taken)

    async def cycle(self) -> tuple[Blocker, ...]:
        """Carry out the step; return the problems."""
        empty = Inventory(node=NODE, vendor="x")
        return await Executor(self.effects, {}).execute(await self.hold(), self.node, STEP, empty)

    async def resume(self, entry: LedgerEntry) -> Blocker | None:
        """Take up an open ledger row as the next driver does."""
        empty = Inventory(node=NODE, vendor="x")
        executor = Executor(self.effects, {})
        return await executor.resume(await self.hold(), self.node, entry, empty)

    async def entries(self) -> list[LedgerEntry]:
        """Return the ledger of the node."""
        return list(await self.store.operations.list_entries(NODE))


async def build(
    vendor: str = "ami_dgx", *, outlets: tuple[str, ...] = ("a/A1", "b/A1"), **more: Any
) -> Bench:
    """Return a bench with a certified-to-be host that is up and has a staged version."""
    clock = VirtualClock()
    site = Site(2, clock=clock, sleep=clock.sleep, vendor=vendor)
    units = {name: PowerUnit(name, ("A1", "A2", "A3")) for name in ("a", "b")}
    for number, name in enumerate((NODE, OTHER), 1):
        Cords(site.machines[name], [(u, f"A{number}") for u in units.values()])
    services: dict[str, Any] = {
        f"https://{name}.host": make_service(machine, "host", clock)
        for name, machine in site.machines.items()
    }
    for name, unit in units.items():
        services[f"https://{name}.pdu"] = PduService(unit, clock, *LOGIN)
    wire = Wire(random.Random(0), 0.0)
    transport = MemoryBmcs(services, wire)
    store = open_store(":memory:", inline=True)
    vault = Vault(store, MasterKey.generate())
    bmc = site.machines[NODE].bmcs["host"]
    await vault.put(f"{NODE}/host", bmc.username, Secret(bmc.password))
    node = await store.nodes.add(
        Node(
            id=NODE,
            kind=NodeKind.HOST,
            state=State.CONVERGING,
            placement=Placement.MAINTENANCE,
            bmcs=(BmcRef(name="host", url=f"https://{NODE}.host"),),
            outlets=tuple(Outlet(pdu=p, outlet=o) for p, o in (x.split("/") for x in outlets)),
        )
    )
    pdus = {
        name: RedfishPdu(transport, BmcAddress(f"https://{name}.pdu", LOGIN[0], Secret(LOGIN[1])))
        for name in units
    }
    reach = Reach(
        transport,
        MemorySwitches(site, wire),
        vault,
        pause=clock.sleep,
        gate=LeakGate(clock, store.alerts),
    )
    settings = Settings.model_validate({"site": "test", **more})
    users = partial(find_outlet_users, settings)
    effects = Effects(
        clock,
        settings,
        reach,
        MemoryRunner(site),
        MemoryShell(site),
        None,  # type: ignore[arg-type]  (no maintenance agent takes part)
        None,  # type: ignore[arg-type]  (no file takes part)
        feeds=Feeds(pdus, store.nodes.list, reach.find_recorded_leak, users),
    )
    machine = site.machines[NODE]
    if STAGED in machine.firmware:
        machine.stage_version(machine.firmware[STAGED], NEW, clock.now())
    return Bench(site, units, effects, node, store)


def play(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a story under virtual time."""
    return run(main)

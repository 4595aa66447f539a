"""One simulated host BMC, and all of the daemon's Redfish layers, in virtual time.

The cut is below the transport's sessions and governor: what a socket would carry goes through the
simulator's front door. Faults of the sockets themselves are tried in `test_faults_wire`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fault_exchange import CARD_URL, NAME, NODE, URL, MemoryExchange
from virtual_time import VirtualClock

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.governor import LoginGovernor
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site as Effects
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.executor import Executor
from provisioner.execution.observe.collector import Collector
from provisioner.execution.observe.rotation import rotate
from provisioner.integrations.sim.hardware.build import make_image
from provisioner.integrations.sim.site.serve import Front
from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.twin.hosts import MemoryRunner, MemoryShell
from provisioner.model.inventory import Activation
from provisioner.model.node import BmcRef, Node, NodeKind, Placement
from provisioner.model.operation import ActionStatus
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.ports import (
    BmcAddress,
    PortError,
    Secret,
)
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

NEW = "9.9"
TURNS_MAX = 4
TURN_S = 120.0  # between two turns of a node with a passing blocker
PASSING = (Reason.BUSY, Reason.UNREACHABLE, Reason.ACCOUNT_LOCKED, Reason.PRECONDITION)
UNSEEN = (Reason.MALFORMED, Reason.TOO_LARGE, Reason.UNREACHABLE)
ISO = "http://images.test/maintenance.iso"


class Drill:
    """A host of one BMC; `play` does one act turn by turn, as the scheduler would."""

    def __init__(self, directory: Path) -> None:
        self.seen: Any = None  # the last inventory
        self.unseen = ""  # why something is missing in it
        self.stuck = False  # an ejected image is still told
        self.clock = VirtualClock()
        self.site = Site(1, 7, clock=self.clock, sleep=self.clock.sleep)
        self.machine = self.site.machines[NODE]
        self.front = Front(self.site)
        self.exchange = MemoryExchange(self.front)
        self.transport = RedfishTransport(governor=LoginGovernor(clock=self.clock.now))
        self.transport._http = self.exchange
        self.store = open_store(":memory:", inline=True)
        self.vault = Vault(self.store, MasterKey.generate())
        self.image = make_image("host.bios", {"BIOS": NEW, "HostBIOS_0": NEW})
        (directory / "bios.bin").write_bytes(self.image)
        self.effects = Effects(
            clock=self.clock,
            settings=Settings(site="test"),
            reach=Reach(self.transport, None, self.vault),
            runner=MemoryRunner(self.site),
            shell=MemoryShell(self.site),
            agents=None,
            artifacts=Artifacts(directory, "http://artifacts.test"),
        )
        self.executor = Executor(self.effects, {})
        self.collector = Collector(self.effects, {})
        self.node = Node(
            id=NODE,
            kind=NodeKind.HOST,
            address=self.site.build_expected()["nodes"][0].get("address", NODE),
            bmcs=(BmcRef(name="host", url=URL),),
            placement=Placement.MAINTENANCE,
            fenced_at=1.0,
        )

    async def open(self) -> Drill:
        self.node = await self.store.nodes.add(self.node)
        bmc = self.machine.bmcs["host"]
        await self.vault.put(NAME, bmc.username, Secret(bmc.password))
        opened = await self.store.operations.open(NODE, "test", 0.0)
        assert opened is not None
        self.hold = Hold(self.store, self.clock, await self.store.operations.take(opened.id))
        return self

    async def play(self, act: str) -> list[str]:
        """What came of each turn: "done", or a reason; a passing one leads to another turn."""
        told = []
        for _ in range(TURNS_MAX):
            try:
                problem = await ACTS[act](self)
            except PortError as error:
                problem = blocked(error, NAME)
            told.append("done" if problem is None else problem.reason.value)
            self.last = problem
            if problem is None or problem.reason not in PASSING:
                break
            await self.clock.sleep(TURN_S)
        return told

    async def client(self) -> Redfish:
        found = await self.effects.reach.redfish(self.node, "host")
        assert isinstance(found, Redfish)
        return found

    async def wrong(self) -> list[str]:
        """What must not be, whatever the fault: repeated pushes, failed logins, sessions left."""
        await self.transport.close()
        rows = await self.store.operations.list_entries(NODE)
        sent = [r for r in rows if r.status is not ActionStatus.ABSENT]
        pushes = sum(e.kind == "push" for e in self.machine.log)
        updates = sum(r.before["step"]["kind"] == "update" for r in sent)
        found = [f"{pushes} pushes, {updates} accounted for"] if pushes > updates else []
        failed = sum(e.kind == "login_failed" for e in self.machine.log)
        found += [f"{failed} failed logins"] if failed else []
        left = len(self.front.redfish[NAME].sessions.sessions)
        return found + ([f"{left} sessions left"] if left else [])


def step(kind: StepKind, running: str) -> Step:
    """Write the BIOS, or the cold boot that makes it run."""
    update = kind is StepKind.UPDATE
    return Step(
        kind=kind,
        component="host.bios" if update else "",
        slots=("",) if update else (),
        from_version=running,
        to_version=NEW,
        method="redfish_push" if update else "",
        artifact="bios.bin" if update else "",
        activation=Activation.COLD_BOOT,
        activates=() if update else (("host.bios/", NEW),),
        disruption=Disruption.HOST,
        duration_s=60,
        expected=(),
        reason="a drill",
    )


async def read(drill: Drill) -> Blocker | None:
    """A whole inventory, with the BIOS version in it."""
    seen, problems = await drill.collector.collect(drill.node)
    if seen is None:
        return problems[0]
    bios = seen.find_component("host.bios", "") or next(iter(seen.of_kind("host.bios")), None)
    version = bios.version if bios is not None else None
    drill.seen = seen
    unseen = next((g for g in seen.gaps if g.reason in UNSEEN), None)
    drill.unseen = str(unseen.reason) if unseen is not None else ""
    if version is None:  # as the planner's: a pin without a component is a blocker
        return Blocker(
            reason=Reason.VERSION_MISSING, subject="host.bios", detail="no version", unblock="-"
        )
    return None


async def update(drill: Drill) -> Blocker | None:
    """Write the BIOS, cold-boot the host, see the new version run."""
    if (problem := await read(drill)) is not None:
        return problem
    bios = drill.seen.of_kind("host.bios")[0]
    rows = await drill.store.operations.list_entries(NODE)
    for row in rows:
        if row.status in (ActionStatus.INTENDED, ActionStatus.SENT):  # as the reconciler: first
            found = await drill.executor.resume(drill.hold, drill.node, row, drill.seen)
            if found is not None:
                return found
    rows = await drill.store.operations.list_entries(NODE)
    written = any(
        r.status is ActionStatus.CONFIRMED and r.before["step"]["kind"] == "update" for r in rows
    )
    for kind in (StepKind.UPDATE, StepKind.ACTIVATE):
        if kind is StepKind.UPDATE and written:
            continue
        wanted = step(kind, bios.version)
        if kind is StepKind.UPDATE:
            wanted = wanted.model_copy(update={"slots": (bios.slot,)})
        else:
            now_runs = ((f"host.bios/{bios.slot}", NEW),)
            wanted = wanted.model_copy(update={"activates": now_runs})
        found = await drill.executor.execute(drill.hold, drill.node, wanted, drill.seen)
        if found:
            return found[0]
    return None


async def power(drill: Drill) -> Blocker | None:
    """A cold boot, seen: off, on, and a system with another boot id."""
    if (problem := await read(drill)) is not None:
        return problem
    wanted = step(StepKind.ACTIVATE, "").model_copy(update={"activates": ()})
    found = await drill.executor.execute(drill.hold, drill.node, wanted, drill.seen)
    return found[0] if found else None


async def media(drill: Drill) -> Blocker | None:
    """Insert an image, see it, take it out, see that it is out."""
    client = await drill.client()
    if (problem := await client.insert_media(ISO)) is not None:
        return problem
    assert await client.media_inserted(ISO)
    if (problem := await client.eject_media()) is not None:
        return problem
    drill.stuck = await client.media_inserted(ISO)
    return None


async def boot(drill: Drill) -> Blocker | None:
    """Have the host boot from the network once."""
    return await (await drill.client()).boot_override("Pxe")


async def password(drill: Drill) -> Blocker | None:
    """Replace the factory password by one of our own."""
    known = await drill.vault.current(NAME)
    assert known is not None
    address = BmcAddress(URL, *known)
    quirk = await drill.effects.reach.quirk(address)
    told = await rotate(drill.transport, drill.vault, quirk, NAME, address)
    return told if isinstance(told, Blocker) else None


async def card(drill: Drill) -> Blocker | None:
    """Cold-boot the host for what is staged in a card, and see it run there."""
    machine, name = drill.machine, "DPU_0"
    account = next(iter(drill.front.redfish[f"{NODE}/{name}"].accounts.accounts.values()))
    account.change_required = False
    await drill.vault.put(f"{NODE}/{name}", account.username, Secret(account.password))
    bmcs = (*drill.node.bmcs, BmcRef(name=name, url=CARD_URL, kind="dpu"))
    node = drill.node.model_copy(update={"bmcs": bmcs})
    machine.stage_version(machine.firmware[name, "DPU_NIC"], NEW, drill.clock.now())
    wanted = step(StepKind.ACTIVATE, "").model_copy(
        update={"activates": ((f"bluefield.nic/{name}", NEW),)}
    )
    if (problem := await read(drill)) is not None:
        return problem
    found = await drill.executor.execute(drill.hold, node, wanted, drill.seen)
    return found[0] if found else None


ACTS: dict[str, Callable[[Drill], Awaitable[Blocker | None]]] = {
    "read": read,
    "update": update,
    "power": power,
    "media": media,
    "boot": boot,
    "password": password,
    "card": card,
}

"""A case that waits for people, on a store of its own, and the loop that tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from provisioner.control.context import Context
from provisioner.control.repairs.case_service import CaseService
from provisioner.control.repairs.repair_shop import Ticketing
from provisioner.execution.actions.reach import Reach
from provisioner.execution.repair.case_evidence import Bundler
from provisioner.model.case import (
    Case,
    Origin,
    PartClass,
    Service,
    Stage,
    Suspect,
    Ticket,
)
from provisioner.model.location import Location, Port
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.ports import BmcTransport, Secret, Switches
from provisioner.ports.tickets import TicketSystem
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey, open_signer
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import SqlStore, open_store

NODE = Node(
    id="n7",
    kind=NodeKind.HOST,
    state=State.REPAIRING,
    location=Location(site="site", rack="r12", index=7),
    ports=(Port(switch="leaf-3", interface="swp7s0", rail=3, nic_slot="NIC_3"),),
    bmcs=(BmcRef(name="host", url="https://bmc.test"),),
)
CASE = Case(
    id="n7-c0001",
    node="n7",
    origin=Origin.CHECK,
    reason="link errors",
    service=Service.CUT_OFF,
    stage=Stage.HARDWARE,
    suspects=(
        Suspect(part="NIC_3", kind=PartClass.NIC, confidence=0.8, rule="r", why="w", serial="S1"),
    ),
    ticket=Ticket(opened_at=1.0, work="Replace the NIC in NIC_3."),
    opened_at=1.0,
)


@dataclass
class HandClock:
    """Time passes when a test says so."""

    at: float = 1_000_000.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Telling:
    """`loop` makes a new one, as after a restart of the daemon."""

    def __init__(self, store: SqlStore, clock: HandClock, bundler: Bundler) -> None:
        self.store, self.clock, self._bundler = store, clock, bundler
        self.book = store.cases
        self.settings = Settings.model_validate({"repair_led": False})
        self.case_service = CaseService(Context(store, clock, self.settings), self.book, None)

    def loop(self, system: TicketSystem | None) -> Ticketing:
        none = cast("BmcTransport", None)  # no LED is switched here
        reach = Reach(none, cast("Switches", None), self._vault())
        context = Context(self.store, self.clock, self.settings)
        return Ticketing(context, self.book, reach, self._bundler, system)

    def _vault(self) -> Vault:
        return Vault(self.store, MasterKey.generate())

    async def case(self) -> Case:
        found = await self.book.get(CASE.id)
        assert found is not None
        return found


async def telling(_directory: Path) -> Telling:
    """The case above in a store in memory, with a login that must not leave the house."""
    store, clock = open_store(":memory:", inline=True), HandClock()
    key = MasterKey.generate()
    vault = Vault(store, key)
    await vault.put("n7/host", "root", Secret("hunter2-of-n7"))
    signer = await open_signer(store, key, clock.now())
    await store.nodes.add(NODE)
    digest = await store.evidence.put_output("login root with hunter2-of-n7 at 10:00\n")
    case = CASE.model_copy(update={"evidence": {"logs host": digest}})
    await store.cases.add(case, now=clock.now())
    bundler = Bundler(store, store.cases, vault, signer, "site")
    return Telling(store, clock, bundler)

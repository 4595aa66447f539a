"""The world of a journey whose tenants have shared storage: it judges leaves and storage together.

Leaves and storage are compared by their own state at each change of either: whoever may read has
all ports in that tenant's network.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hurt_world import HurtWorld
from returned import HOST, node_of

from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.integrations.sim.storage.lctl import SimulatedMgs
from provisioner.integrations.sim.storage.vms import SimulatedVms
from provisioner.model.node import State
from provisioner.model.storage import Export, FileStorage, SpaceState
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.storage import SpaceWish, list_client_addresses, plan_space
from provisioner.ports.storage import Spaces
from provisioner.settings.fabric import StorageSystem

sys.path.append(str(Path(__file__).parents[1] / "storage"))
import lctl_rig
from vms_rig import open_simulated

WAY_S = 0.05
# an await within these is one of its leg's "NAME, storage"
STORAGE = ("tenancy/spaces.py", "integrations/vast/", "integrations/lustre/")
# others in these states are of "NAME, handover": its ports and addresses enter or leave a tenant
HANDOVER = (State.CERTIFIED, State.RELEASED, State.DRAINING)


class StorageWorld(HurtWorld):
    """`half` grows: what the devices show that must never be."""

    system = StorageSystem(provider="vast", address="https://vms.test", username="admin")
    storage = FileStorage(exports=(Export(name="scratch", path="/scratch", quota_bytes=1000),))

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more, storage=self.system)
        self.half: list[str] = []
        self.addresses: tuple[str, ...] = ()
        self.make_device().append(lambda: self.look("a change of the storage"))
        for switch in self.site.switches.values():
            self.hear(switch)

    def find_part(self, place: tuple[str, ...]) -> str:
        """Return which part of a handover waits there."""
        if any(name in line for line in place for name in STORAGE):
            return ", storage"
        return ", handover" if place[1].startswith(HANDOVER) else ""

    def hear(self, switch: Any) -> None:
        noted = switch.log_event

        def note(now: float, kind: str, subject: str, detail: str = "") -> None:
            noted(now, kind, subject, detail)
            if kind == "vrf":
                self.look(f"a move of {subject}")

        switch.log_event = note

    def look(self, when: str) -> None:
        """Judge the devices as they are at this moment."""
        interface = self.site.places[HOST].interface
        vrfs = {leaf.get_vrf(interface) for leaf in self.judge.leaves()}
        for address in self.addresses:
            read = self.list_readers(address)
            if read and vrfs != {tenant.upper() for tenant in read}:
                self.half.append(f"{when}: {address} reads of {read}, its ports are in {vrfs}")

    def judge_moments(self) -> list[str]:
        return [*super().judge_moments(), *self.half]

    async def take_in(self) -> None:
        """The site has a space for both tenants."""
        await super().take_in()
        spaces = self.open(near=True)
        for tenant in await self.store.tenants.list():
            state = SpaceState()
            for _ in range(10):
                read = await spaces.read([tenant.name])
                assert isinstance(read, dict)
                state = read[tenant.name]
                acts = plan_space(SpaceWish(tenant.name, self.storage, state.handle), state).acts
                if not acts:
                    break
                assert await spaces.apply(acts[0]) is None
            stored = {"file_storage": self.storage, "space_handle": state.handle}
            await self.store.tenants.put(tenant.model_copy(update=stored))
        listed = list_client_addresses(await node_of(self))
        assert isinstance(listed, tuple)
        self.addresses = listed

    async def build(self) -> Any:
        """A daemon has connections of its own, and none of a dead one's."""
        self.fabrics = Fabrics(AddressPlan(), spaces=self.open(near=False))
        return await super().build()

    def make_device(self) -> list[Callable[[], None]]:
        """Return those who hear of each change."""
        self.vms = SimulatedVms()
        return self.vms.on_change

    def list_readers(self, address: str) -> set[str]:
        """Return whose exports a client of this address may read."""
        return {tenant for tenant, _ in self.vms.list_readable(address)}

    def open(self, *, near: bool) -> Spaces:
        spaces, wire = open_simulated(self.vms, self.clock)
        if not near:
            wire.send = self.far(wire.send)  # type: ignore[method-assign]
        return spaces

    def far(self, send: Any) -> Any:
        """A request takes its time there and back: a daemon may be dead when the answer comes."""

        async def slowly(*given: Any) -> Any:
            await self.clock.sleep(WAY_S)
            answer = await send(*given)
            await self.clock.sleep(WAY_S)
            return answer

        return slowly

    async def violations(self) -> list[str]:
        node = await node_of(self)
        found = await super().violations()
        owner = {node.tenant} if node.state is State.RELEASED else set()
        for address in self.addresses:
            read = self.list_readers(address)
            if read != owner:
                found.append(f"at rest {address} reads of {read}, and {HOST} is {node.state}")
        return found


class LustreWorld(StorageWorld):
    system = StorageSystem(provider="lustre", address="mgs.test")
    storage = FileStorage(exports=(Export(name="scratch", path="/scratch"),))

    def make_device(self) -> list[Callable[[], None]]:
        self.mgs = SimulatedMgs()
        return self.mgs.on_change

    def list_readers(self, address: str) -> set[str]:
        return {path.split("/")[2] for path in self.mgs.list_readable(address)}

    def open(self, *, near: bool) -> Spaces:
        spaces = lctl_rig.open_simulated(self.mgs, self.clock)
        if not near:
            shell: Any = spaces._calls._shell
            shell.run = self.far(shell.run)
        return spaces


WORLDS: dict[str, type[StorageWorld]] = {"vast": StorageWorld, "lustre": LustreWorld}

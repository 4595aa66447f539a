"""Takes a discovered node over: pins, credentials, inventory, parts, profile.

Credentials are rotated so that a crash at any point leaves a password that we know: the new one is
stored as pending before the BMC hears of it, and afterwards either one is tried.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from provisioner.execution.collector import Collector
from provisioner.execution.hold import Hold
from provisioner.execution.work import Site
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.matrix import Matrix, Profile
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.profiles import choose_profile
from provisioner.ports import BmcAddress, LoginRefused, Secret
from provisioner.redfish.client import Redfish

PASSWORD_LENGTH = 16  # DGX accepts 20 at most, some BMCs refuse more than 16 (facts: redfish 2.1)
_ALPHABETS = ("ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz", "23456789", "-_.+")


@dataclass(frozen=True)
class Identified:
    """The node as it is after a successful take-over, or what stood in the way."""

    node: Node
    inventory: Inventory | None = None
    blockers: tuple[Blocker, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def new_password() -> Secret:
    """A password of four classes of characters, without look-alikes."""
    chosen = [secrets.choice(alphabet) for alphabet in _ALPHABETS]
    everything = "".join(_ALPHABETS[:3])
    chosen += [secrets.choice(everything) for _ in range(PASSWORD_LENGTH - len(chosen))]
    secrets.SystemRandom().shuffle(chosen)
    return Secret("".join(chosen))


class Identifier:
    """Works on one node at a time; `matrix` names the profiles."""

    def __init__(self, site: Site, collector: Collector, matrix: Matrix) -> None:
        self._site = site
        self._collector = collector
        self._matrix = matrix

    async def identify(self, node: Node, hold: Hold) -> Identified:
        """Pins and credentials of every BMC, then the full inventory, parts and profile."""
        bmcs = []
        for bmc in node.bmcs:
            if bmc.rotated:
                bmcs.append(bmc)
                continue
            rotated = await self._take_over(node, bmc)
            if isinstance(rotated, Blocker):
                return Identified(node=node, blockers=(rotated,))
            bmcs.append(rotated)
            # each BMC is kept at once: a restart goes on with the next one
            remaining = node.bmcs[len(bmcs) :]
            stored = await hold.record(
                node=node.model_copy(update={"bmcs": (*bmcs, *remaining)}),
                journal=[("credential", {"bmc": bmc.name, "pin": rotated.pin})],
            )
            assert stored is not None
            node = stored
        inventory, problems = await self._collector.collect(node)
        if inventory is None or problems:
            return Identified(node=node, blockers=problems)
        return self._judge(node, inventory)

    def _judge(self, node: Node, inventory: Inventory) -> Identified:
        release = self._matrix.releases.get(node.release)
        if release is None:
            blocker = Blocker(
                reason=Reason.NO_PROFILE,
                subject=node.id,
                detail=f"the matrix has no release {node.release!r}",
                unblock="Set `release` in the expected-hardware list to a release of the matrix.",
            )
            return Identified(node=node, blockers=(blocker,))
        profile = choose_profile(inventory, release, node.kind)
        if isinstance(profile, Blocker):
            return Identified(node=node, blockers=(profile,))
        blockers = bill_of_materials(node, inventory, release.profiles[profile])
        if blockers:
            return Identified(node=node, blockers=blockers)
        return Identified(
            node=node.model_copy(update={"profile": profile}),
            inventory=inventory,
            facts={"profile": profile, "serial": inventory.system_serial},
        )

    async def _take_over(self, node: Node, bmc: BmcRef) -> BmcRef | Blocker:
        """Pin the certificate, then make the credential ours and unique."""
        if not bmc.pin:
            bare = BmcAddress(url=bmc.url)
            pin = await self._site.reach.transport.fingerprint(bare)
            bmc = bmc.model_copy(update={"pin": pin})
        if node.kind is NodeKind.SWITCH:
            return bmc.model_copy(update={"rotated": True})
        return await self._rotate(node, bmc)

    async def _rotate(self, node: Node, bmc: BmcRef) -> BmcRef | Blocker:
        credentials = self._site.reach.credentials
        name = f"{node.id}/{bmc.name}"
        ours = bmc.model_copy(update={"rotated": True})
        pending = await credentials.pending(name)
        if pending is not None and await self._accepts(bmc, *pending):
            await credentials.confirm(name)  # a crash came between the BMC's yes and our note
            return ours
        address = await self._site.reach.address(node, bmc)
        if isinstance(address, Blocker):
            return address
        new = pending[1] if pending is not None else new_password()
        await credentials.begin(name, address.username, new)
        client = Redfish(self._site.reach.transport, address, await self._site.reach.quirk(address))
        problem = await client.set_password(address.username, new)
        if problem is not None:
            return problem
        await self._site.reach.transport.forget(address)
        if not await self._accepts(bmc, address.username, new):
            return Blocker(
                reason=Reason.LOGIN_REFUSED,
                subject=name,
                detail="the BMC took a new password, but does not accept it",
                unblock="Reset the BMC's account by hand, then retry the node.",
            )
        await credentials.confirm(name)
        return ours

    async def _accepts(self, bmc: BmcRef, username: str, secret: Secret) -> bool:
        address = BmcAddress(url=bmc.url, username=username, secret=secret, pin=bmc.pin)
        client = Redfish(self._site.reach.transport, address, await self._site.reach.quirk(address))
        try:
            await client.power()
        except LoginRefused:
            return False
        return True


def bill_of_materials(node: Node, inventory: Inventory, profile: Profile) -> tuple[Blocker, ...]:
    """Parts that are counted differently from the profile, and system serials that differ."""
    blockers = []
    for name, wanted in sorted(profile.match.devices.items()):
        found = len(inventory.devices_of(DeviceKind(name)))
        if found != wanted:
            blockers.append(
                Blocker(
                    reason=Reason.BILL_OF_MATERIALS,
                    subject=f"{node.id}/{name}",
                    detail=f"{found} found, {wanted} wanted",
                    unblock="Seat or replace the missing part, or correct the profile.",
                )
            )
    return tuple(blockers)

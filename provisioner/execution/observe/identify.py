"""Take a discovered node over: pins, credentials, inventory, parts, profile.

A node that cannot be taken over is examined as far as it permits, so that the person who has to
remove the blockers sees its parts. Such an inventory is always returned with the blockers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.reach import turn
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.collector import Collector
from provisioner.execution.observe.inband import run_commands
from provisioner.execution.observe.intake import set_times
from provisioner.execution.observe.rotation import new_password, rotate
from provisioner.model.cohort import Evidence
from provisioner.model.events.node_events import CredentialReplaced, NodeIdentified
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.matrix import Matrix, Profile
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import LoginCheck
from provisioner.planning.erasure.erasure import record_drives
from provisioner.planning.intake import host_tools
from provisioner.planning.lifecycle.decide import PASSING
from provisioner.planning.path.profiles import choose_profile
from provisioner.ports import BmcAddress, PortError, Secret, SwitchAddress

# ------------------------------------------------------------------------------
# Takes a switch over that still has its factory password: a new one, ours, before anything else.
#
# The API does nothing until the password was changed, and cannot change it itself. As with a BMC,
# the new one is stored as pending before the switch hears of it; afterwards either one is tried, so
# that a crash at any point leaves one that we know.


async def take_over(site: Site, node: Node, pin: str) -> Blocker | None:
    """Ensure that the API accepts a credential of ours; None if it does.

    A password from the list that is no factory password is not changed: it is the site's own.
    Raises `PortError` while the switch does not answer; the next try continues from the stored
    state.
    """
    name = f"{node.id}/api"
    credentials = site.reach.credentials
    current = await credentials.current(name)
    pending = await credentials.pending(name)
    if current is None:
        return _no(name, "no credential is stored for it", "Add it to the list.")
    if pending is not None and (await _check(site, node, pin, *pending)).status == "accepted":
        await credentials.confirm(name)  # a crash came between the switch's yes and our note
        return None
    check = await _check(site, node, pin, *current)
    if check.status == "accepted":
        return None
    if check.status != "must_change":
        detail = f"its API does not accept the credential of the list: {check.detail}"
        return _no(name, detail, "Correct the password on the list, then take it in again.")
    if site.reach.passwords is None:
        detail = "it has its factory password, and its API does nothing until that was changed"
        remedy = "Log in to it, choose a new password, put that on the list, take it in again."
        return _no(name, detail, remedy)
    username, old = current
    new = pending[1] if pending is not None else new_password()
    await credentials.begin(name, username, new)
    address = urlsplit(node.address).hostname or ""
    async with turn(node.id):
        await site.reach.passwords.change(node.id, address, username, old, new)
    if (await _check(site, node, pin, username, new)).status != "accepted":
        detail = "it took a new password, and its API does not accept it"
        return _no(name, detail, "Reset the account at its console, then take it in again.")
    await credentials.confirm(name)
    return None


async def _check(site: Site, node: Node, pin: str, username: str, secret: Secret) -> LoginCheck:
    address = SwitchAddress(node.address, username, secret, pin, node.os)
    switch = site.reach.switches.open(node.id, address, site.clock, site.settings)
    return await switch.check_login()


def _no(subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=Reason.LOGIN_REFUSED, subject=subject, detail=detail, unblock=unblock)


@dataclass(frozen=True)
class Identified:
    """The node as it is after a successful take-over, or what stood in the way.

    With `blockers`, `node` is unchanged and `inventory` is what could be seen in spite of them.
    """

    node: Node
    inventory: Inventory | None = None
    blockers: tuple[Blocker, ...] = ()
    event: NodeIdentified | None = None


class Identifier:
    """Works on one node at a time; `matrix` names the profiles."""

    def __init__(self, site: Site, collector: Collector, matrix: Matrix) -> None:
        self._site = site
        self._collector = collector
        self._matrix = matrix

    async def identify(self, node: Node, hold: Hold) -> Identified:
        """Pin every BMC and ensure its credential, then read the full inventory, parts and
        profile.
        """
        bmcs = []
        for bmc in node.bmcs:
            if bmc.rotated:
                bmcs.append(bmc)
                continue
            try:
                rotated = await self._take_over(node, bmc)
            except PortError as error:
                rotated = blocked(error, f"{node.id}/{bmc.name}")
            if isinstance(rotated, Blocker):
                return await self._survey(node, (rotated,))
            bmcs.append(rotated)
            # each BMC is kept at once: a restart goes on with the next one
            remaining = node.bmcs[len(bmcs) :]
            stored = await hold.record(
                node=node.model_copy(update={"bmcs": (*bmcs, *remaining)}),
                events=[CredentialReplaced(bmc=bmc.name, pin=rotated.pin)],
            )
            assert stored is not None
            node = stored
        if node.kind is NodeKind.HOST and self._site.settings.bmc_ntp_servers:
            await set_times(self._site, node)
        (inventory, problems), tools = await asyncio.gather(
            self._collector.collect(node), self._list_tools(node)
        )
        if inventory is None or problems:
            return await self._survey(node, problems)
        identified = self._judge(node, inventory)
        if identified.event is None or tools is None:
            return identified
        lacks, refused = self._examine_system(identified.node, tools)
        if refused is not None:
            return Identified(node=node, inventory=inventory, blockers=(refused,))
        return replace(identified, event=identified.event.model_copy(update={"lacks": lacks}))

    async def _survey(self, node: Node, blockers: tuple[Blocker, ...]) -> Identified:
        """Return the partial inventory of a node that was not taken over, with all further
        blockers.

        Transient failures repeat the whole turn; then only a profile that cannot fit, regardless of
        the host's own report, is named from the BMCs alone.
        """
        if all(b.reason in PASSING for b in blockers):
            return Identified(node=node, blockers=(*self._unfit(node), *blockers))
        inventory = await self._collector.survey(node)
        if inventory is None:
            return Identified(node=node, blockers=blockers)
        more = self._judge(node, inventory).blockers
        return Identified(node=node, inventory=inventory, blockers=(*blockers, *more))

    def _unfit(self, node: Node) -> tuple[Blocker, ...]:
        """Return the blocker of a machine that no profile fits, by what its BMCs gave just now."""
        inventory = self._collector.last_of_bmcs(node)
        if inventory is None:
            return ()
        blockers = self._judge(node, inventory).blockers
        return tuple(b for b in blockers if b.reason is Reason.NO_PROFILE)

    def _judge(self, node: Node, inventory: Inventory) -> Identified:
        release = self._matrix.releases.get(node.release)
        if release is None:
            blocker = Blocker(
                reason=Reason.NO_PROFILE,
                subject=node.id,
                detail=f"the matrix has no release {node.release!r}",
                unblock="Set `release` in the expected-hardware list to a release of the matrix.",
            )
            return Identified(node=node, inventory=inventory, blockers=(blocker,))
        profile = choose_profile(inventory, release, node.kind)
        if isinstance(profile, Blocker):
            return Identified(node=node, inventory=inventory, blockers=(profile,))
        blockers = bill_of_materials(node, inventory, profile, release.profiles[profile])
        if blockers:
            return Identified(node=node, inventory=inventory, blockers=blockers)
        return Identified(
            node=record_drives(node.model_copy(update={"profile": profile}), inventory),
            inventory=inventory,
            event=NodeIdentified(profile=profile, serial=inventory.system_serial or ""),
        )

    async def _list_tools(self, node: Node) -> Mapping[str, Evidence] | Blocker | None:
        """Ask a host for its tools and its system; None for a switch, which has no checks."""
        if node.kind is not NodeKind.HOST:
            return None
        return await run_commands(
            self._site, node, [("tools", host_tools.HOST_TOOLS_LOOK, host_tools.HOST_TOOLS_LIMIT_S)]
        )

    def _examine_system(
        self, node: Node, outputs: Mapping[str, Evidence] | Blocker
    ) -> tuple[tuple[str, ...], Blocker | None]:
        """Return the tools that the host's checks lack, and why no play works on its system.

        A host that is not reached says so, and is not refused.
        """
        if isinstance(outputs, Blocker):
            return (f"its tools could not be listed: {outputs.detail}",), None
        pins = self._matrix.releases[node.release].profiles[node.profile].pins
        refused = host_tools.refuse_system(outputs["tools"].text, node.id, pins)
        return host_tools.find_lacks(outputs["tools"]), refused

    async def _take_over(self, node: Node, bmc: BmcRef) -> BmcRef | Blocker:
        """Pin the certificate, then make the credential ours and unique."""
        if node.kind is NodeKind.SWITCH and self._has_key_login(node):
            # the SSH host key is pinned when it is first seen
            return bmc.model_copy(update={"rotated": True})
        if not bmc.pin:
            bare = BmcAddress(url=bmc.url)
            pin = await self._site.reach.transport.fingerprint(bare)
            bmc = bmc.model_copy(update={"pin": pin})
        if node.kind is NodeKind.SWITCH:
            refused = await take_over(self._site, node, bmc.pin)
            return refused or bmc.model_copy(update={"rotated": True})
        address = await self._site.reach.address(node, bmc)
        if isinstance(address, Blocker):
            return address
        ours = await rotate(
            self._site.reach.transport,
            self._site.reach.credentials,
            await self._site.reach.quirk(address),
            f"{node.id}/{bmc.name}",
            address,
        )
        return ours if isinstance(ours, Blocker) else bmc.model_copy(update={"rotated": True})

    def _has_key_login(self, node: Node) -> bool:
        facts = self._site.reach.switches.get_facts(node.os, node.address)
        return facts is not None and not facts.stored_login


def bill_of_materials(
    node: Node, inventory: Inventory, name: str, profile: Profile
) -> tuple[Blocker, ...]:
    """Return a blocker for each kind of part that is counted differently from the profile.

    It is a question for a person: the machine may lack a part, or be another one than the profile.
    """
    blockers = []
    for kind, expected in sorted(profile.match.devices.items()):
        count = len(inventory.devices_of(DeviceKind(kind)))
        if count != expected:
            blockers.append(
                Blocker(
                    reason=Reason.BILL_OF_MATERIALS,
                    subject=f"{node.id}/{kind}",
                    detail=f"{count} found, {expected} wanted by profile {name}",
                    unblock="Decide which is wrong: seat or replace the part, or correct the "
                    f"profile; then `provisioner node retry {node.id}`.",
                )
            )
    return tuple(blockers)

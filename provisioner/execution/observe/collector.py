"""One node's inventory, merged from all its sources.

A source that does not answer makes the inventory incomplete. An incomplete inventory is never
planned from: blockers are returned instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.settings.reading import read_host_settings
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.power import LeakGate
from provisioner.execution.actions.reach import HOST
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import run_commands
from provisioner.execution.observe.rotation import ask, open_switch
from provisioner.model.cohort import Evidence
from provisioner.model.inventory import BackgroundCopy, Component, Device, DeviceKind, Inventory
from provisioner.model.location import list_rail_paths
from provisioner.model.matrix import Matrix
from provisioner.model.node import BmcRef, Boots, Node, NodeKind, State
from provisioner.model.outcome import Blocker, Gap, Reason
from provisioner.planning.certification.host_settings import NO_SETS, HostSets, select_sets
from provisioner.planning.intake import host_tools, inband_facts
from provisioner.planning.intake.inband_facts import InbandFacts, is_pinned_somewhere
from provisioner.planning.machine_settings import running_sets
from provisioner.planning.machine_settings.pinned_sets import (
    BIOS,
    BMC,
    CARD,
    SWITCH,
    PinnedSets,
    find_card_kind,
)
from provisioner.planning.machine_settings.running_sets import build_components
from provisioner.ports import PortError, Secret
from provisioner.ports.switch import Switch
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# The pinned settings of a host's BIOS and BMC, read through its BMC as components.


async def add_settings(
    client: Redfish, inventory: Inventory, sets: PinnedSets, bmc: str = "host"
) -> Inventory:
    """Return the inventory with the sets that run; as it is where none is pinned for this BMC."""
    kinds = (BIOS, BMC) if bmc == "host" else (CARD, find_card_kind(bmc))
    if not any(sets.get(kind) for kind in kinds):
        return inventory
    settings = await read_host_settings(client.service)
    components = build_components(settings, sets, client.quirk.meanings, bmc)
    return inventory.model_copy(
        update={
            "components": (*inventory.components, *components),
            "gaps": (*inventory.gaps, *settings.gaps),
        }
    )


# ------------------------------------------------------------------------------
# The pinned settings of a switch as a component, and the key of its TACACS+ servers.
#
# A switch shows no key, so that the daemon compares the site's file with the key that it gave to
# this switch last, which is in the encrypted store.


_FILE_MAX = 4096
APPLIED = "applied"
STARTUP = "startup"


async def read_switch_settings(site: Site, node: Node, switch: Switch) -> tuple[Component, ...]:
    """Return the component; () where no set is pinned. Raises `PortError`."""
    sets = site.machine_sets.get(SWITCH)
    if not sets:
        return ()
    shown = (await switch.read_services(APPLIED), await switch.read_services(STARTUP))
    source = f"{switch.facts.name}: configuration"
    key = await read_key(site)
    has_key = not switch.facts.takes_tacacs_key or await is_current_key(site, node, key)
    return (running_sets.build_component(shown, sets, source, has_key=has_key),)


def name_key(node: Node) -> str:
    """Return the name under which the key that a switch was given is stored."""
    return f"{node.id}/tacacs"


async def is_current_key(site: Site, node: Node, key: Secret | None) -> bool:
    stored = await site.reach.credentials.current(name_key(node))
    return key is not None and stored is not None and stored[1].reveal() == key.reveal()


async def read_key(site: Site) -> Secret | None:
    """Return the key of the site's TACACS+ servers; None: no file has one."""
    path = site.settings.switch_tacacs_key_file
    if not path:
        return None

    def read() -> str:
        with Path(path).open("rb") as file:
            return file.read(_FILE_MAX).decode("utf-8", "replace").strip("\r\n")

    try:
        text = await asyncio.to_thread(read)
    except OSError:
        return None  # then the step that needs it names the file
    return Secret(text) if text else None


Collected = tuple[Inventory | None, tuple[Blocker, ...]]

# in NIC mode a BlueField's Arm side does not run, and its BMC gives these no version
# (docs/sources/redfish.md#bf-nic-mode); the NIC firmware is then read in-band as `supernic.nic`
_ABSENT_IN_NIC_MODE = frozenset(
    {
        "bluefield.bundle",
        "bluefield.nic",
        "bluefield.uefi",
        "bluefield.atf",
        "bluefield.bsp",
        "bluefield.ofed",
        "bluefield.golden",
    }
)

# card firmware in a host BMC's list -> kinds under which the same cards are shown elsewhere
_CARDS = {
    "nic.cx7": frozenset({"nic.cx7"}),
    "nic.cx8": frozenset({"nic.cx8"}),
    "bluefield.nic": frozenset({"bluefield.nic", "supernic.nic"}),
}

# an answer that did not come, as against a resource that the service does not have
NO_FACTS = InbandFacts(boot_id=None, components=(), devices=(), gaps=())
_SILENT = frozenset(
    {
        Reason.UNREACHABLE,
        Reason.LOGIN_REFUSED,
        Reason.ACCOUNT_LOCKED,
        Reason.CERTIFICATE_CHANGED,
        Reason.CERTIFICATE_UNTRUSTED,
        Reason.HOST_KEY_UNKNOWN,
        Reason.BUSY,
    }
)


class Collector:
    """`nic_profiles`, `host_sets` are the matrix's: configuration is named by what it equals.

    `drives`: the firmware of NVMe drives is read too, because a profile pins it.
    """

    def __init__(
        self,
        site: Site,
        nic_profiles: Mapping[str, Mapping[str, str]],
        host_sets: HostSets = NO_SETS,
        *,
        drives: bool = False,
    ) -> None:
        self._site = site
        self._host_sets = host_sets
        self._drives = drives
        self._nic_profiles = nic_profiles
        self._seen: dict[tuple[str, str], tuple[float, Inventory]] = {}  # (node, BMC) -> when, what

    async def collect(self, node: Node) -> Collected:
        """Read all parts and versions, from every BMC and the host itself."""
        return await self._gather(node, None, fresh_s=0.0)

    async def refresh(
        self, node: Node, last: Inventory | None, *, fresh_s: float = 0.0
    ) -> Collected:
        """Read the versions; parts as in `last`, if there is one.

        A BMC that was read within `fresh_s`, and that was not changed since, is not asked again:
        most steps touch one of a node's eleven BMCs.
        """
        return await self._gather(node, last, fresh_s=fresh_s)

    async def without_system(self, node: Node, last: Inventory | None) -> Collected:
        """Return the inventory from the BMCs alone, for a host without a running system."""
        results = await asyncio.gather(*(self._fresh(node, bmc, last, 0.0) for bmc in node.bmcs))
        problems = [r for r in results if isinstance(r, Blocker)]
        if problems:
            return None, tuple(problems)
        return merge(node, [r for r in results if isinstance(r, Inventory)], NO_FACTS, last), ()

    def forget(self, node: str, bmcs: Sequence[str] = ()) -> None:
        """Discard the readings of BMCs that were changed (of all, if none is named)."""
        for key in [k for k in self._seen if k[0] == node and (not bmcs or k[1] in bmcs)]:
            del self._seen[key]

    async def survey(self, node: Node) -> Inventory | None:
        """Return a partial inventory for people; it is never planned from.

        Every source without an answer is a gap. None: even the host's BMC did not answer, or the
        node is a switch, whose API is its only source.
        """
        if node.kind is NodeKind.SWITCH:
            return None
        results = await asyncio.gather(*(self._read(node, bmc, None) for bmc in node.bmcs))
        by_bmc = tuple(zip(node.bmcs, results, strict=True))
        inventories = [(b, r) for b, r in by_bmc if isinstance(r, Inventory)]
        if not any(bmc.kind == "host" for bmc, _ in inventories):
            return None
        outputs = await self._ask_host(node)
        silent = [r for r in (*results, outputs) if isinstance(r, Blocker)]
        gaps = tuple(Gap(reason=b.reason, source=b.subject, detail=b.detail) for b in silent)
        facts = NO_FACTS
        if outputs and not isinstance(outputs, Blocker):
            facts = self._read_host(node, outputs)
        heard = node.model_copy(update={"bmcs": tuple(bmc for bmc, _ in inventories)})
        merged = merge(heard, [inventory for _, inventory in inventories], facts, None)
        return merged.model_copy(update={"gaps": (*merged.gaps, *gaps)})

    def last_of_bmcs(self, node: Node) -> Inventory | None:
        """Return the BMCs' part of the last reading, without asking them again.

        It lacks everything that only the host itself shows. None: the host's BMC did not answer.
        """
        read = [(b, self._seen.get((node.id, b.name))) for b in node.bmcs]
        heard = [(bmc, last[1]) for bmc, last in read if last is not None]
        if not any(bmc.kind == "host" for bmc, _ in heard):
            return None
        bmcs = tuple(bmc for bmc, _ in heard)
        only = node.model_copy(update={"bmcs": bmcs})
        return merge(only, [inventory for _, inventory in heard], NO_FACTS, None)

    async def _gather(self, node: Node, last: Inventory | None, *, fresh_s: float) -> Collected:
        if node.kind is NodeKind.SWITCH:
            return await self._switch(node)
        bmcs = asyncio.gather(*(self._fresh(node, bmc, last, fresh_s) for bmc in node.bmcs))
        results, outputs = await asyncio.gather(bmcs, self._ask_host(node))
        problems = [r for r in (*results, outputs) if isinstance(r, Blocker)]
        if problems:
            return None, tuple(problems)
        inventories = [r for r in results if isinstance(r, Inventory)]
        assert not isinstance(outputs, Blocker)
        facts = self._read_host(node, outputs) if outputs else NO_FACTS
        return merge(node, inventories, facts, last), ()

    async def _ask_host(self, node: Node) -> Mapping[str, Evidence] | Blocker:
        """Return the host's own report; {} if the daemon's login was removed at the handover."""
        if node.boots is Boots.HANDED_OVER:
            return {}
        return await run_commands(self._site, node, self._list_commands(node))

    def _list_commands(self, node: Node) -> Sequence[tuple[str, str, float]]:
        to_other_leaf = self._site.settings.rail_proof == "other_leaf"
        rails = list_rail_paths(node.ports, to_other_leaf=to_other_leaf)
        look = host_tools.build_look(self._host_sets, rails)
        looks = [look] if look is not None else []
        looks += [inband_facts.COMMAND] if self._drives else []
        return (*inband_facts.COMMANDS, *looks)

    def _read_host(self, node: Node, outputs: Mapping[str, Evidence]) -> InbandFacts:
        facts = inband_facts.read(outputs, node.bmcs, self._nic_profiles)
        if inband_facts.LOOK in outputs:
            drives, gaps = inband_facts.read_drives(outputs[inband_facts.LOOK])
            both = {"components": (*facts.components, *drives), "gaps": (*facts.gaps, *gaps)}
            facts = facts.model_copy(update=both)
        if host_tools.HOST_LOOK not in outputs:
            return facts
        slots = {p.nic_slot for p in node.ports if p.rail >= 0}
        cards = [d.pci for d in facts.devices if d.slot in slots and d.pci]
        mtu = self._site.settings.rail_mtu
        sets = host_tools.read_sets(outputs[host_tools.HOST_LOOK], self._host_sets, cards, mtu)
        return facts.model_copy(update={"components": (*facts.components, *sets)})

    async def _fresh(
        self, node: Node, bmc: BmcRef, last: Inventory | None, fresh_s: float
    ) -> Inventory | Blocker:
        key = (node.id, bmc.name)
        now = self._site.clock.now()
        if last is not None and key in self._seen:
            read_at, stored = self._seen[key]
            if now - read_at <= fresh_s and not _copying(stored):
                return stored
        reading = await self._bmc(node, bmc, last)
        if isinstance(reading, Blocker):
            self._seen.pop(key, None)
        else:
            self._seen[key] = (now, reading)
        return reading

    async def _bmc(self, node: Node, bmc: BmcRef, last: Inventory | None) -> Inventory | Blocker:
        """Return the inventory of one BMC; a blocker if it omitted an expected part."""
        reading = await self._read(node, bmc, last)
        if isinstance(reading, Blocker):
            return reading
        silent = [g for g in reading.gaps if g.reason in _SILENT]
        return reading if not silent else _incomplete(node, bmc, silent[0])

    async def _read(self, node: Node, bmc: BmcRef, last: Inventory | None) -> Inventory | Blocker:
        """Return one BMC's inventory, with its gaps.

        A BMC that reported an obstacle to writes is read whole until the obstacle is gone.
        """
        try:
            client = await self._site.reach.redfish(node, bmc.name)
            if isinstance(client, Blocker):
                return client
            sets = self._site.machine_sets
            if last is None or any(o.bmc == bmc.name for o in last.obstacles):
                inventory = await client.collect(node.id, bmc.name)
                if (gate := self._site.reach.gate) is not None:
                    inventory = await _complete_leaks(gate, node, bmc, inventory)
                return await add_settings(client, inventory, sets, bmc.name)
            inventory = await client.read_firmware(node.id, bmc.name)
            return await add_settings(client, inventory, sets, bmc.name)
        except PortError as error:
            return blocked(error, f"{node.id}/{bmc.name}")

    async def _switch(self, node: Node) -> Collected:
        try:
            switch = await open_switch(self._site, node)
            if isinstance(switch, Blocker):
                return None, (switch,)
            images = await ask(node, switch.read_images())
            platform = await ask(node, switch.read_platform())
            settings = await ask(node, read_switch_settings(self._site, node, switch))
        except PortError as error:
            return None, (blocked(error, node.id),)
        if isinstance(images, Blocker):
            return None, (images,)
        if isinstance(platform, Blocker):
            return None, (platform,)
        if isinstance(settings, Blocker):
            return None, (settings,)
        os = Component(
            kind="switch.os",
            slot="switch",
            version=images.running,
            staged=images.next if images.next != images.running else None,
            updateable=True,
            source=f"{switch.facts.name}: images",
        )
        inventory = Inventory(
            node=node.id,
            vendor=switch.facts.name,
            system_serial=platform.serial,
            model=platform.model,
            port_names=platform.port_names,
            gaps=tuple(
                Gap(source=switch.facts.name, reason=Reason.MALFORMED, detail=f"lost: {where}")
                for where in platform.damaged
            ),
            components=(os, *settings),
        )
        return inventory, ()


def _copying(inventory: Inventory) -> bool:
    """Return whether anything behind this BMC is being copied: then only a new reading is valid."""
    finished = (None, BackgroundCopy.COMPLETED)
    return any(c.background_copy not in finished for c in inventory.components)


def _incomplete(node: Node, bmc: BmcRef, gap: Gap) -> Blocker:
    return Blocker(
        reason=gap.reason,
        subject=f"{node.id}/{bmc.name}",
        detail=f"{gap.source} did not answer: {gap.detail}",
        unblock="It is tried again by itself; look at the BMC if it lasts.",
    )


def merge(
    node: Node, seen: Sequence[Inventory], facts: inband_facts.InbandFacts, last: Inventory | None
) -> Inventory:
    """Merge the inventories of all sources into one; cards' components get the card's slot."""
    host = next(i for i, bmc in zip(seen, node.bmcs, strict=True) if bmc.kind == "host")
    components: dict[tuple[str, str], Component] = {}
    gaps: list[Gap] = list(facts.gaps)
    for inventory, bmc in zip(seen, node.bmcs, strict=True):
        for component in inventory.components:
            if bmc.kind == "supernic" and component.kind in _ABSENT_IN_NIC_MODE:
                continue
            if bmc.kind == "host" and _is_listed_by_itself(component, seen, node, facts):
                continue
            placed = _placed(component, bmc)
            components[placed.kind, placed.slot] = placed
        gaps += [g for g in inventory.gaps if bmc.kind != "supernic"]
    for component in facts.components:
        components.setdefault((component.kind, component.slot), component)
        if component.staged is not None:
            # burned is not activated: only the host shows the staged firmware of a BlueField's NIC
            shown = components[component.kind, component.slot]
            components[component.kind, component.slot] = shown.model_copy(
                update={"staged": component.staged, "pending": component.pending}
            )
    parts = last.devices if last is not None else _devices(node, seen)
    inband = {d.slot: d for d in facts.devices}
    devices = tuple(
        d.model_copy(update={"pci": inband[d.slot].pci, "mac": d.mac or inband[d.slot].mac})
        if d.slot in inband and d.kind is not DeviceKind.BMC
        else d
        for d in parts
    )
    return Inventory(
        node=node.id,
        vendor=host.vendor,
        system_serial=(last or host).system_serial,
        system_uuid=(last or host).system_uuid,
        model=(last or host).model,
        power=host.power,
        boot_state=host.boot_state,
        boot_id=facts.boot_id,
        drives=facts.drives,
        components=tuple(components[key] for key in sorted(components)),
        devices=devices,
        leaks=host.leaks if last is None or host.leaks else last.leaks,
        obstacles=tuple(obstacle for inventory in seen for obstacle in inventory.obstacles),
        gaps=tuple(gaps),
    )


async def _complete_leaks(
    gate: LeakGate, node: Node, bmc: BmcRef, inventory: Inventory
) -> Inventory:
    """Report what is not dry; a host keeps the detectors that it ever had, until intake."""
    leaks = inventory.leaks
    if bmc.name == HOST and node.state not in (State.DISCOVERED, State.INTAKE):
        leaks = await gate.complete(node.id, leaks)
    await gate.record_leaks(node.id, leaks)
    return inventory.model_copy(update={"leaks": leaks})


def _is_listed_by_itself(
    component: Component, seen: Sequence[Inventory], node: Node, facts: inband_facts.InbandFacts
) -> bool:
    """Return whether a card's firmware in the host BMC's list is shown by a better source too.

    A host's BMC lists network cards under slots and versions of its own ("NIC1", 28.37.10.14), and
    cannot write them; the host's tools and the card's own BMC show the same cards.
    """
    if component.kind not in _CARDS:
        return False
    own = [i for i, bmc in zip(seen, node.bmcs, strict=True) if bmc.kind != "host"]
    better = {c.kind for inventory in own for c in inventory.components}
    better |= {c.kind for c in facts.components}
    return bool(better & _CARDS[component.kind])


def _placed(component: Component, bmc: BmcRef) -> Component:
    if bmc.kind == "host":
        return component.model_copy(update={"bmc": bmc.name})
    return component.model_copy(update={"bmc": bmc.name, "slot": bmc.name})


def _devices(node: Node, seen: Sequence[Inventory]) -> tuple[Device, ...]:
    """Return the parts without doubles: a card is reported by the host's BMC and, in more detail,
    by its own.
    """
    own_serials = {bmc.serial for bmc in node.bmcs if bmc.kind != "host" and bmc.serial}
    # a card that was exchanged has no serial of before: what its own BMC says counts
    for inventory, bmc in zip(seen, node.bmcs, strict=True):
        if bmc.kind != "host":
            own_serials |= {d.serial for d in inventory.devices if d.serial and _is_dpu(d)}
    devices = []
    for inventory, bmc in zip(seen, node.bmcs, strict=True):
        if bmc.kind == "host":
            devices += [d for d in inventory.devices if not _is_card(d, own_serials)]
            continue
        kind = DeviceKind.DPU if bmc.kind == "dpu" else DeviceKind.NIC
        for device in inventory.devices:
            if _is_dpu(device):
                devices.append(device.model_copy(update={"kind": kind, "slot": bmc.name}))
            elif device.kind is DeviceKind.BMC:
                devices.append(device.model_copy(update={"slot": bmc.name}))
    return tuple(devices)


def _is_dpu(device: Device) -> bool:
    """Return whether a card's own BMC reports this device as its card."""
    return device.kind is DeviceKind.DPU


def _is_card(device: Device, own_serials: set[str]) -> bool:
    return device.kind in (DeviceKind.NIC, DeviceKind.DPU) and device.serial in own_serials


# ------------------------------------------------------------------------------
# The collector of a daemon: it reads in the hosts what a matrix pins, and nothing beyond.


def build_collector(site: Site, matrix: Matrix) -> Collector:
    drives = is_pinned_somewhere(matrix)
    return Collector(site, matrix.nic_profiles, select_sets(matrix), drives=drives)


async def read_port_names(store: SqlStore, switches: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """Return the names of ports of those switches whose LLDP calls them otherwise."""
    seen = {name: await store.evidence.get_inventory(name) for name in sorted(switches)}
    return {n: i.port_names for n, i in seen.items() if i is not None and i.port_names is not None}

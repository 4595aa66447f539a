"""The operations of one BMC. Devices fail as values; only `PortError` is ever raised.

Each operation first reads its links and action targets from the service, since vendors place them
differently: no path below the service root is assumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from provisioner.adapters.redfish import (
    accounts,
    boot,
    collect,
    hardware_tree,
    obstacles,
    tasks,
    updates,
)
from provisioner.adapters.redfish.hardware_tree import HardwareTree, read_tree
from provisioner.adapters.redfish.parsing import at, link, mac, number, objects, path_of, text
from provisioner.adapters.redfish.parts import power_of
from provisioner.adapters.redfish.service import (
    Pause,
    Service,
    action_of,
    raise_silence,
    raise_unread,
    target_of,
)
from provisioner.adapters.redfish.settings import bios_writes
from provisioner.adapters.redfish.tasks import TaskRef, TaskView, of_hpe, read_view
from provisioner.adapters.redfish.upkeep import bmc_time
from provisioner.adapters.redfish.upkeep.leaks import LeakReader
from provisioner.adapters.redfish.walk import Allowance, Resource, Walk
from provisioner.model.inventory import Inventory, LeakDetector, Power
from provisioner.model.machine.settings import BiosState, BmcRemainders, SecureBootKeys
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.watch.leaks import find_refusal
from provisioner.ports import BmcAddress, BmcTransport, Call, PortError, Secret, Unreachable
from provisioner.quirks import Quirk

# ------------------------------------------------------------------------------
# What only a visit to the maintenance image asks of a BMC: its drives, and the host's addresses.
#
# Kept out of the inventory: a service needs a request for each drive, and nothing else asks.


DRIVES_MAX = 128


async def drive_serials(service: Service) -> tuple[str, ...]:
    """Serials of the drives that the host's system lists, sorted; () if it lists none.

    Raises `Unreachable` when a drive or the list does not come, or is shorter than it says: silence
    is no absence.
    """
    system = await service.read_system()
    if system is None:
        raise Unreachable("no system is listed", maybe_executed=False)
    walk = service.walk()
    storages = await walk.read_child(system, "Storage")
    if storages is None:
        return ()
    drives: list[str] = []
    for storage in await walk.read_members(storages.path):
        listed = [p for d in objects(at(storage.data, "Drives")) if (p := path_of(d)) is not None]
        counted = number(storage.data.get("Drives@odata.count"))
        if counted is not None and len(listed) < min(counted, DRIVES_MAX):
            detail = f"{storage.path}: {counted:g} drives are counted, {len(listed)} are listed"
            raise Unreachable(detail, maybe_executed=False)
        drives += listed
    serials = []
    found = await walk.read_several(list(dict.fromkeys(drives))[:DRIVES_MAX])
    for some in [one for one in found if "Members" in one.data]:  # a link to a list of them
        found += await walk.read_members(some.path)
    for drive in found:
        state = text(at(drive.data, "Status", "State"))
        serial = text(drive.data.get("SerialNumber"))
        if serial is not None and state != "Absent":
            serials.append(serial)
    raise_unread(walk.gaps)
    return tuple(sorted(serials))


async def host_macs(service: Service) -> tuple[str, ...]:
    """Addresses of the host's own Ethernet interfaces, sorted; many services list none."""
    return tuple(sorted(await host_interfaces(service)))


async def host_interfaces(service: Service) -> dict[str, str]:
    """MAC of each of the host's own Ethernet interfaces -> the service's name for it."""
    system = await service.read_system()
    path = link(system.data, "EthernetInterfaces") if system is not None else None
    names: dict[str, str] = {}
    walk = service.walk()
    for interface in await walk.read_members(path):
        for field in ("MACAddress", "PermanentMACAddress"):
            if (address := mac(interface.data.get(field))) is not None:
                names[address] = text(interface.data.get("Id")) or ""
    raise_unread(walk.unread)
    return names


Admit = Callable[[], Awaitable[Blocker | None]]
# a BMC that is up serves its root within seconds (docs/sources/redfish.md#silence)
SILENCE_S = 10.0
_REMOVING = frozenset({"ForceOff", "GracefulShutdown", "PushPowerButton", "Nmi"})
_WANTED = {
    "On": Power.ON,
    "ForceOn": Power.ON,
    "ForceOff": Power.OFF,
    "GracefulShutdown": Power.OFF,
}


class Redfish:
    """A client of one BMC as the given address logs in; cheap to make, keeps nothing open.

    `admit` is asked before each act that energises the host: power on, a boot, an image. Without
    one, the detectors behind this BMC decide alone. `allowance` holds for all operations together;
    without one each has its own.
    """

    def __init__(
        self,
        transport: BmcTransport,
        address: BmcAddress,
        quirk: Quirk,
        pause: Pause = asyncio.sleep,
        admit: Admit | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self.address = address
        self._kept = Service(transport, address, quirk, pause)
        self._kept.allowance = allowance
        self._leaks = LeakReader(self._kept)
        self._admit = admit  # not our own method: a cycle keeps all that was read until it is found

    @property
    def service(self) -> Service:
        """Return the service behind this client, for one operation of a part with functions."""
        return self._kept.begin()

    @property
    def _service(self) -> Service:
        return self._kept.begin()

    @property
    def quirk(self) -> Quirk:
        """Return the declaration of the software that answers, as far as it is known by now."""
        return self._kept.quirk

    async def learn(self) -> None:
        """Make sure which software answers, before `quirk` is relied on."""
        await self._service.learn()

    # readings

    async def collect(self, node: str, bmc: str) -> Inventory:
        """Versions and parts behind this BMC; `bmc` is its name within the node."""
        await self.learn()
        return _spoken(await collect.read_everything(self._walk(), self.quirk, node, bmc))

    async def collect_tree(self, node: str, bmc: str) -> tuple[Inventory, HardwareTree]:
        """Return the inventory, and every part that the service lists with its values."""
        service = self._service
        await self.learn()
        bodies = dict[str, Resource]()
        walks = [
            Walk(
                service.transport,
                service.address,
                self.quirk,
                shared=bodies,
                allowance=service.allowance,
                sightings=service.sightings,
            )
            for _ in range(2)
        ]
        inventory = _spoken(await collect.read_everything(walks[0], self.quirk, node, bmc))
        return inventory, await read_tree(walks[1])

    async def read_firmware(self, node: str, bmc: str) -> Inventory:
        """Versions, background copies and power only."""
        await self.learn()
        return _spoken(await collect.read_versions(self._walk(charted=True), self.quirk, node, bmc))

    async def read_leak_detectors(self) -> tuple[LeakDetector, ...]:
        """Return the leak detectors behind this BMC as they read now."""
        return await self._leaks.read_detectors()

    async def read_resources(self, what: str) -> hardware_tree.Reading:
        """Whole resources for health checks; `what` is a key of `readings.READINGS`."""
        return await hardware_tree.READINGS[what](self._walk())

    async def serves_tree(self) -> bool:
        """Whether the BMC serves its tree again, not only its root: one request."""
        walk = self._walk(charted=True)
        systems = await walk.read_links(link(await walk.read_root(), "Systems"))
        return bool(systems) and not walk.gaps

    async def read_identity(self) -> Inventory:
        """Serial, UUID and model; of a BlueField's BMC, the card instead of the system."""
        await self.learn()
        return _spoken(await collect.read_identity(self._walk(), self.quirk))

    def _walk(self, *, charted: bool = False) -> Walk:
        return self._service.walk(charted=charted, apart=True)

    async def power(self) -> Power:
        return power_of(await self._service.read_system())

    async def boot_progress(self) -> str | None:
        """How far the system has booted: `OemLastState` (BlueField), else `LastState`."""
        system = await self._service.read_system()
        progress = at(system.data, "BootProgress") if system is not None else None
        return text(at(progress, "OemLastState")) or text(at(progress, "LastState"))

    # resets

    async def admit_act(self) -> Blocker | None:
        """Return why no power, boot or image may be sent to the host; None if it may.

        Each such act here asks it again; an act that begins by switching the host off asks before.
        """
        return await (self._admit or self._admit_by_detectors)()

    async def reset_system(self, kind: str) -> Blocker | None:
        """`ComputerSystem.Reset` with this ResetType. Already being there is no error."""
        system = await self._service.read_system()
        action = action_of(system.data, "ComputerSystem.Reset") if system is not None else {}
        target = target_of(action)
        if system is None or target is None:
            return self._service.not_offered("host", "ComputerSystem.Reset")
        allowed = await self._service.reset_types(action)
        if allowed and kind not in allowed:
            return self._service.not_offered("host", f"{kind}; it has {', '.join(allowed[:16])}")
        if kind not in _REMOVING and (wet := await self.admit_act()) is not None:
            return wet
        reply = await self._service.post(target, {"ResetType": kind}, "host")
        if not isinstance(reply, Blocker):
            return None
        # 400 and 409 also mean that there is nothing to do (docs/sources/bmc-faults.md#p1)
        return None if _WANTED.get(kind) is await self.power() else reply

    async def reset_bmc(self) -> Blocker | None:
        """`Manager.Reset` of the BMC itself. A connection that dies of it is not an error."""
        manager = await self._service.read_manager()
        action = action_of(manager.data, "#Manager.Reset") if manager is not None else {}
        target = target_of(action)
        if target is None:
            return self._service.not_offered("bmc", "Manager.Reset")
        allowed = await self._service.reset_types(action)
        reset_types = [t for t in self.quirk.bmc_reset_types if not allowed or t in allowed]
        if not reset_types:
            return self._service.not_offered(
                "bmc", f"usable reset; it has {', '.join(allowed[:16])}"
            )
        try:
            reply = await self._service.post(target, {"ResetType": reset_types[0]}, "bmc")
        except Unreachable as error:
            if not error.maybe_executed:
                raise
            return None
        return reply if isinstance(reply, Blocker) else None

    async def find_ac_cycle(self) -> str | Blocker:
        """Return the target of the action that removes standby power, before it is needed."""
        return await boot.find_target(self._service)

    async def ac_cycle(self) -> Blocker | None:
        """Remove standby power and restore it, by the vendor's action."""
        return await self.admit_act() or await boot.remove_standby(self._service)

    async def is_silent(self) -> bool:
        """Return whether nothing answers at the BMC's address now: its root, without a login."""
        a = self.address
        bare = BmcAddress(url=a.url, pin=a.pin, insecure=a.insecure)
        try:
            await self._service.transport.request(
                bare, Call("GET", "/redfish/v1", timeout_s=SILENCE_S)
            )
        except Unreachable:
            return True
        except PortError:
            pass  # another certificate, or no HTTP: something has power there
        return False

    # booting

    async def boot_override(
        self, target: str, *, once: bool = True, http_uri: str = ""
    ) -> Blocker | None:
        """Boot from `target` ("Pxe", "UefiHttp", "Cd", "Hdd"), next time or always."""
        if (wet := await self.admit_act()) is not None:
            return wet
        return await boot.set_override(self._service, target, once=once, http_uri=http_uri)

    async def boot_virtual_cd(self) -> Blocker | None:
        """Boot from the virtual CD next time, by the way of the vendor."""
        return await self.admit_act() or await boot.override_virtual_cd(self._service)

    async def find_obstacle(self, needed_for: str) -> Blocker | None:
        """Return why the BMC refuses "push", "media" or "boot" now, as it reports it itself."""
        return await obstacles.find_obstacle(self._service, needed_for)

    async def boot_disk(self) -> Blocker | None:
        return await self.admit_act() or await boot.override_disk(self._service)

    async def enable_media(self) -> Blocker | None:
        """Make the virtual drives appear, where the vendor hides them."""
        return await boot.enable_media(self._service)

    async def insert_media(self, image: str) -> Blocker | None:
        """Insert an image as virtual CD, by URL."""
        return await boot.insert_image(self._service, image)

    async def media_inserted(self, image: str) -> bool:
        return await boot.is_inserted(self._service, image)

    async def drive_serials(self) -> tuple[str, ...]:
        """Serials of the drives that the host's system lists."""
        return await drive_serials(self._service)

    async def host_macs(self) -> tuple[str, ...]:
        """Addresses of the host's own Ethernet interfaces, as far as they are listed."""
        return await host_macs(self._service)

    async def eject_media(self) -> Blocker | None:
        """Eject whatever virtual CD is inserted."""
        return await boot.eject_image(self._service)

    # firmware

    async def push(
        self, kind: str, slots: Sequence[str], file: Path, *, force: bool = False
    ) -> TaskRef | Blocker:
        """Send a package for these slots of a component kind."""
        if (wet := await self.admit_act()) is not None:
            return wet
        return await updates.push(self._service, kind, slots, file, force=force)

    async def simple_update(self, uri: str, kind: str) -> TaskRef | Blocker:
        """Let the BMC fetch an image for a component kind from `uri`.

        A BlueField's BMC writes it through rshim, which is enabled first.
        """
        if (wet := await self.admit_act()) is not None:
            return wet
        if kind == "bluefield.bundle" and (blocker := await self.enable_rshim()) is not None:
            return blocker
        return await updates.pull(self._service, uri, kind)

    async def enable_rshim(self) -> Blocker | None:
        """Give the BlueField's rshim to its BMC, and read back that it has it."""
        return await updates.enable_on_bmc(self._service)

    async def end_push(self) -> Blocker | None:
        """Give the upload reservation back once the push's task has ended (Lenovo)."""
        return await updates.end_claim(self._service)

    def ends_staged(self, kind: str) -> bool:
        """Return whether a push of this kind ends when its job waits for the host's reset."""
        return updates.find_apply_time(self.quirk, kind) == "OnReset"

    async def read_task(self, ref: TaskRef) -> TaskView:
        if not ref.path:
            update = await self._service.find_part("UpdateService")
            if self.quirk.push == "form":
                return of_hpe(update.data)
            return TaskView(state="unknown", vanished=True)
        task = read_view(await self._service.call("GET", ref.path), ref.path)
        job = await tasks.read_job(self._service, ref.path) if task.vanished else None
        return job or task

    async def task_paths(self) -> tuple[str, ...]:
        """Every task that the service lists; none if it has no task service."""
        return await tasks.list_tasks(self._service)

    async def read_tasks(self) -> tuple[str, ...]:
        """Tasks that run, by path. One that cannot be read counts as running, unless it is gone."""
        return await tasks.list_running_tasks(self._service)

    # accounts and events

    async def admits(self) -> bool:
        """Return whether the BMC accepts this login. Its root is readable without one.

        Raises `Unreachable` while the answer is open: the BMC restarts, or answers nonsense.
        """
        walk = self._service.walk()
        systems = link(await walk.read_root(), "Systems")
        if systems is not None and (await walk.read(systems)).data:
            return True
        if any(g.reason is Reason.LOGIN_REFUSED for g in walk.gaps):
            return False
        raise Unreachable("it does not show its systems now", maybe_executed=False)

    async def set_password(self, username: str, new: Secret) -> Blocker | None:
        """Change the password of an account, with the credential of this client's address."""
        return await accounts.set_password(self._service, username, new)

    async def reset_bios(self) -> Blocker | None:
        """Have the BIOS's factory defaults run from the next boot on."""
        return await bios_writes.reset_bios(self._service)

    async def read_bios_state(self) -> BiosState | None:
        """Return a digest of each BIOS attribute that runs; None if none is shown."""
        return await bios_writes.read_bios_state(self._service)

    async def read_secure_boot_keys(self) -> SecureBootKeys | None:
        """Return the databases of Secure Boot; None if the service shows none."""
        return await bios_writes.read_secure_boot_keys(self._service)

    async def reset_secure_boot_keys(self) -> Blocker | None:
        """Have the factory's keys of Secure Boot in force from the next boot on."""
        return await bios_writes.reset_secure_boot_keys(self._service)

    async def read_remainders(self) -> BmcRemainders:
        """Return the accounts, subscriptions and waiting settings that the BMC shows."""
        return await bmc_time.read_remainders(self._service)

    async def subscribe(self, destination: str, context: str) -> str | Blocker:
        """Have events posted to `destination`; the subscription's path."""
        return await accounts.subscribe(self._service, destination, context)

    async def _admit_by_detectors(self) -> Blocker | None:
        return find_refusal("host", await self.read_leak_detectors(), ())


def _spoken(inventory: Inventory) -> Inventory:
    """The inventory, unless the BMC said nothing at all: then its silence is raised."""
    if not (inventory.components or inventory.devices):
        raise_silence(inventory.gaps)
    return inventory


__all__ = ["Redfish", "TaskRef", "TaskView"]

"""The resources that a push names in `Targets`, read from the service and never assumed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from provisioner.adapters.redfish import collect
from provisioner.adapters.redfish.parsing import Json, link, name_of, text
from provisioner.adapters.redfish.parts import read_id
from provisioner.adapters.redfish.service import Service, list_actions, not_offered
from provisioner.components import ALL
from provisioner.model.inventory import Component
from provisioner.model.outcome import Blocker, Reason

_BASEBOARD = "HGX_"  # Ids of the baseboard's own resources begin so, on every recorded tree
_NVIDIA = re.compile(r"nvidia|^DGX", re.IGNORECASE)


async def find_targets(
    service: Service, update: Json, kind: str, slots: Sequence[str], file_name: str
) -> list[str] | Blocker:
    """Return the paths to write to; none where the package itself names its targets."""
    if kind.startswith("hgx."):
        return await _find_baseboard(service, update, kind)
    declared = service.quirk.targets.get(kind)
    if declared and declared != "*":
        return await _find_declared(service, declared)
    own = ALL[kind].target if kind in ALL else ""
    if own:
        return await _find_listed(service, update, kind, own)
    installed = await collect.read_versions(service.walk(), service.quirk, "", "")
    packages = service.quirk.package_files
    package = packages and re.search(packages, file_name, re.IGNORECASE)
    components = installed.of_kind(kind)
    usable = (c.slot for c in components if package and c.updateable is not False)
    chosen = _select_sources(kind, components, slots or usable)
    return chosen if isinstance(chosen, Blocker) or not (package or declared) else []


async def _find_listed(service: Service, update: Json, kind: str, own: str) -> list[str] | Blocker:
    """Return the declared item of a kind if the inventory lists it."""
    inventory = link(update, "FirmwareInventory")
    target = f"{inventory.rstrip('/')}/{own}" if inventory is not None else ""
    if target and target in await service.walk().read_links(inventory):
        return [target]
    return not_offered(kind, f"update target {own}")


def _select_sources(
    kind: str, components: Sequence[Component], slots: Iterable[str]
) -> list[str] | Blocker:
    by_slot = {c.slot: c for c in components}
    chosen = list(slots) if len(components) != 1 else [components[0].slot]
    missing = [slot for slot in chosen if slot not in by_slot]
    if by_slot and not chosen:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=f"{kind}/?",
            detail=f"the BMC lists several such components, {', '.join(by_slot)}: none is named",
            unblock=f"Name one, as {kind}/{next(iter(by_slot))}.",
        )
    if missing or not chosen:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=f"{kind}/{missing[0] if missing else '?'}",
            detail=f"the BMC lists no such component now; it has {', '.join(by_slot) or 'none'}",
            unblock="Nothing to do: it is planned again from the present versions.",
        )
    fixed = [slot for slot in chosen if by_slot[slot].updateable is False]
    if fixed:
        return Blocker(
            reason=Reason.NOT_UPDATEABLE,
            subject=f"{kind}/{fixed[0]}",
            detail=f"{by_slot[fixed[0]].source} reports Updateable: false",
            unblock="Push the package that holds this component, for example the bundle.",
        )
    return [by_slot[slot].source for slot in chosen]


async def _find_declared(service: Service, declared: str) -> list[str] | Blocker:
    """Return the path of "@manager" or "@bios"."""
    if declared == "@manager":
        manager = await service.read_manager()
        return [manager.path] if manager is not None else not_offered(declared, "manager")
    system = await service.read_system()
    bios = link(system.data, "Bios") if system is not None else None
    return [bios] if bios is not None else not_offered(declared, "Bios resource")


async def _find_baseboard(service: Service, update: Json, kind: str) -> list[str] | Blocker:
    """Return the target of an HGX baseboard's bundle, by the tree that is asked.

    The baseboard's own BMC takes the whole package; asked for Chassis/HGX_Chassis_0 it answers 400
    InvalidObject (bmcweb.md 12). A BMC that aggregates it lists the target, or is one of NVIDIA's
    own systems, whose guides document a target that is not listed (DGX H100, B200, B300).
    """
    walk = service.walk()
    root = await walk.read_root()
    managers = await walk.read_links(link(root, "Managers"))
    if managers and all(name_of(path).startswith(_BASEBOARD) for path in managers):
        return []
    collection, _, name = service.quirk.targets.get(kind, "").partition("/")
    owner = root if collection == "Chassis" else update
    members = link(owner, collection or "FirmwareInventory")
    if members is not None:
        target = f"{members.rstrip('/')}/{name or ALL['hgx.bundle'].target}"
        documented = collection == "FirmwareInventory" and await _is_nvidia_system(service)
        if documented or _is_allowed(update, target) or target in await walk.read_links(members):
            return [target]
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=kind,
        detail="this BMC lists no update target of the HGX baseboard, and none is documented",
        unblock="Update the baseboard through its own BMC, or as the server's maker documents.",
    )


def _is_allowed(update: Json, target: str) -> bool:
    """Return whether an action of the update service lists the target (Lenovo's tree does so)."""
    listed = [a.get("Targets@Redfish.AllowableValues") for _, a in list_actions(update)]
    return any(isinstance(values, list) and target in values for values in listed)


async def _is_nvidia_system(service: Service) -> bool:
    """Return whether NVIDIA made the host's system: a DGX, and no server maker's HGX host."""
    system = await service.read_system()
    if system is None:
        return False
    names = (text(system.data.get("Manufacturer")), read_id(system))
    return any(_NVIDIA.search(name) for name in names if name)

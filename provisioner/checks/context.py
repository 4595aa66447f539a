"""What one node's outputs are held against, from its record, its inventory and the matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.checks.check import CheckContext
from provisioner.checks.readers.reading import pci
from provisioner.checks.threshold_data import MODELS, Limits
from provisioner.checks.xid.xid_events import slots_of
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node

NIC_CONFIG_KIND = "nic.config"  # its pinned "version" is the name of an NV-config profile


def context_of(
    node: Node,
    inventory: Inventory,
    matrix: Matrix,
    *,
    overrides: Mapping[str, Limits] | None = None,
    learned: Mapping[str, tuple[float, str]] | None = None,
    grammars: Mapping[str, str] | None = None,
    harmless_lines: Sequence[str] = (),
    port_owners: Mapping[str, str] | None = None,
) -> CheckContext:
    """The context of a node under its release and profile. A missing release pins nothing.

    `overrides`: the site's own thresholds; `learned`: what the fleet taught (checks/check.py);
    `grammars`: component kind -> grammar of its versions; what has none is compared as text;
    `harmless_lines`: the site's patterns of kernel messages that mean nothing; `port_owners`:
    whose the other ports of its leaves are.
    """
    release = matrix.releases.get(node.release)
    profile = release.profiles.get(node.profile) if release else None
    pins = (
        {kind: (pin.version, *pin.also) for kind, pin in profile.pins.items() if pin.known}
        if profile
        else {}
    )
    parameters: dict[str, str] = {}
    runtime: dict[str, str] = {}
    for name in pins.get(NIC_CONFIG_KIND, ())[:1]:
        parameters = dict(matrix.nic_profiles.get(name, {}))
        runtime = dict(matrix.nic_runtime.get(name, {}))
    counted = profile.match.devices if profile else {}
    slots = {d.slot: pci(d.pci) for d in inventory.devices if d.pci}
    gpus = inventory.devices_of(DeviceKind.GPU)
    return CheckContext(
        gpu_model=gpu_model(inventory, node.profile),
        profile=node.profile,
        gpus=counted.get(DeviceKind.GPU.value) or 8,
        sockets=counted.get(DeviceKind.CPU.value) or len(inventory.devices_of(DeviceKind.CPU)),
        drives=counted.get(DeviceKind.STORAGE.value, 0),
        gpu_serials=tuple(sorted(d.serial for d in gpus if d.serial)),
        pins=pins,
        nic_parameters=parameters,
        nic_runtime=runtime,
        rails=sum(p.rail >= 0 for p in node.ports),
        dpu_pci=_dpu_pci(node, inventory),
        neighbours=tuple((p.switch, p.interface) for p in node.ports),
        cabled_pci={f"{p.switch}/{p.interface}": slots.get(p.nic_slot, "") for p in node.ports},
        rail_pci=tuple(
            sorted(slots[p.nic_slot] for p in node.ports if p.rail >= 0 and p.nic_slot in slots)
        ),
        bundled=_bundled(pins, matrix),
        grammars=grammars or {},
        slot_of_pci=slots_of(
            (d.pci, d.slot) for d in (*gpus, *inventory.devices_of(DeviceKind.NVSWITCH))
        ),
        overrides=overrides or {},
        learned=learned or {},
        harmless_lines=tuple(harmless_lines),
        port_owners=port_owners or {},
    )


def _bundled(pins: Mapping[str, tuple[str, ...]], matrix: Matrix) -> dict[str, tuple[str, ...]]:
    """Component kind -> versions that the approved bundles bring."""
    found: dict[str, tuple[str, ...]] = {}
    for kind, versions in pins.items():
        for version in versions:
            for part, brought in matrix.bundles.get(kind, {}).get(version, {}).items():
                found[part] = (*found.get(part, ()), brought)
    return found


def gpu_model(inventory: Inventory, profile: str = "") -> str:
    """The GPU model that every GPU of the inventory has; "" if they differ or none is known.

    An inventory whose GPUs carry no model is known by its profile's name ("hgx-h100-bf3").
    """
    names = {d.model.upper() for d in inventory.devices_of(DeviceKind.GPU) if d.model}
    found = {model for name in names for model in MODELS if model in name}
    if not names:
        found = {model for model in MODELS if model in profile.upper().split("-")}
    return found.pop() if len(found) == 1 else ""


def _dpu_pci(node: Node, inventory: Inventory) -> tuple[str, ...]:
    """Cards that carry no rail: their NV-config is not the SuperNICs'."""
    rails = {p.nic_slot for p in node.ports if p.rail >= 0}
    cards = inventory.devices_of(DeviceKind.DPU) + inventory.devices_of(DeviceKind.NIC)
    return tuple(sorted(pci(d.pci) for d in cards if d.pci and d.slot not in rails))

"""Builds a node's check context from its record, its inventory and the matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.checks.check import CheckContext
from provisioner.checks.threshold_data import MODELS, Limits
from provisioner.checks.xid.xid_events import index_slots
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.location import list_rail_paths
from provisioner.model.matrix import AttestationRule, Matrix, Profile, Reference
from provisioner.model.names import normalize_pci
from provisioner.model.node import Node

NIC_CONFIG_KIND = "nic.config"  # its pinned "version" is the name of an NV-config profile


def build_context(
    node: Node,
    inventory: Inventory,
    matrix: Matrix,
    *,
    overrides: Mapping[str, Limits] | None = None,
    learned: Mapping[str, tuple[float, str]] | None = None,
    grammars: Mapping[str, str] | None = None,
    harmless_lines: Sequence[str] = (),
    port_owners: Mapping[str, str] | None = None,
    port_names: Mapping[str, Mapping[str, str]] | None = None,
    to_other_leaf: bool = True,
) -> CheckContext:
    """Return the context of a node under its target release and profile.

    A release that the matrix does not have pins nothing. `overrides` are the site's own thresholds,
    `learned` those learned from the fleet (checks/check.py), `grammars` maps a component kind to
    the grammar of its versions (a kind without one is compared as text), `harmless_lines` are the
    site's patterns of harmless kernel messages, and `port_owners` names the other nodes' ports on
    this node's leaves; `port_names` are the leaves' own (`read_port_names`). `to_other_leaf`: the
    fabric connects its rails with each other.
    """
    release = matrix.releases.get(node.release)
    profile = release.profiles.get(node.profile) if release else None
    pins = (
        {kind: (pin.version, *pin.also) for kind, pin in profile.pins.items() if pin.known}
        if profile
        else {}
    )
    nic_profile = next(iter(pins.get(NIC_CONFIG_KIND, ())), "")
    counted = profile.match.devices if profile else {}
    slots = {d.slot: normalize_pci(d.pci) for d in inventory.devices if d.pci}
    gpus = inventory.devices_of(DeviceKind.GPU)
    return CheckContext(
        gpu_model=identify_gpu_model(inventory, node.profile),
        profile=node.profile,
        gpus=counted.get(DeviceKind.GPU.value) or 8,
        sockets=counted.get(DeviceKind.CPU.value) or len(inventory.devices_of(DeviceKind.CPU)),
        drives=counted.get(DeviceKind.STORAGE.value, 0),
        gpu_serials=tuple(sorted(d.serial for d in gpus if d.serial)),
        pins=pins,
        nic_parameters=dict(matrix.nic_profiles.get(nic_profile, {})),
        nic_runtime=dict(matrix.nic_runtime.get(nic_profile, {})),
        rails=sum(p.rail >= 0 for p in node.ports),
        dpu_pci=_find_dpu_addresses(node, inventory),
        link_layer="InfiniBand" if any(p.guid for p in node.ports if p.rail >= 0) else "Ethernet",
        rail_paths=list_rail_paths(node.ports, to_other_leaf=to_other_leaf),
        # InfiniBand switches announce nothing by LLDP
        neighbours=tuple(p.plug for p in node.ports if not p.guid),
        cabled_pci={"/".join(p.plug): slots.get(p.nic_slot, "") for p in node.ports},
        rail_pci=tuple(
            sorted(slots[p.nic_slot] for p in node.ports if p.rail >= 0 and p.nic_slot in slots)
        ),
        attestation=profile.attestation if profile else AttestationRule(),
        boot_contradiction=node.tpm.contradiction if node.tpm else "",
        references=_find_references(profile),
        nvswitches=counted.get("nvswitch") or len(inventory.devices_of(DeviceKind.NVSWITCH)),
        bundled=_find_bundled_versions(pins, matrix),
        grammars=grammars or {},
        slot_of_pci=index_slots(
            (d.pci, d.slot) for d in (*gpus, *inventory.devices_of(DeviceKind.NVSWITCH))
        ),
        overrides=overrides or {},
        learned=learned or {},
        harmless_lines=tuple(harmless_lines),
        port_owners=port_owners or {},
        port_names=port_names or {},
    )


def _find_references(profile: Profile | None) -> dict[str, Reference]:
    """Return component kind -> the manifest that its pin names."""
    pins = profile.pins if profile else {}
    return {kind: pin.reference for kind, pin in pins.items() if pin.reference is not None}


def _find_bundled_versions(
    pins: Mapping[str, tuple[str, ...]], matrix: Matrix
) -> dict[str, tuple[str, ...]]:
    """Return component kind -> versions that the approved bundles contain."""
    versions_of: dict[str, tuple[str, ...]] = {}
    for kind, versions in pins.items():
        for version in versions:
            for part, brought in matrix.bundles.get(kind, {}).get(version, {}).items():
                versions_of[part] = (*versions_of.get(part, ()), brought)
    return versions_of


def identify_gpu_model(inventory: Inventory, profile: str = "") -> str:
    """Return the GPU model that all GPUs of the inventory have; "" if they differ or it is unknown.

    Where the GPUs report no model, the profile's name gives it ("hgx-h100-bf3").
    """
    names = {d.model.upper() for d in inventory.devices_of(DeviceKind.GPU) if d.model}
    models = {model for name in names for model in MODELS if model in name}
    if not names:
        models = {model for model in MODELS if model in profile.upper().split("-")}
    return models.pop() if len(models) == 1 else ""


def _find_dpu_addresses(node: Node, inventory: Inventory) -> tuple[str, ...]:
    """Return the cards that carry no rail: the SuperNICs' NV-config does not apply to them."""
    rails = {p.nic_slot for p in node.ports if p.rail >= 0}
    cards = inventory.devices_of(DeviceKind.DPU) + inventory.devices_of(DeviceKind.NIC)
    return tuple(sorted(normalize_pci(d.pci) for d in cards if d.pci and d.slot not in rails))

"""Build the objects that represent the fleet in a NetBox, and the changes that create them there.

Objects without the daemon's tag belong to someone else: they are neither changed nor deleted, only
reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from provisioner.integrations.inventories.deciding.netbox_places import (
    format_interface_key,
    normalize_address,
)
from provisioner.integrations.inventories.deciding.netbox_records import (
    NetBoxChange,
    NetBoxKind,
    NetBoxObject,
    Verb,
)
from provisioner.model.inventory import Inventory
from provisioner.model.names import PortNames, spell_port
from provisioner.model.node import Node, NodeKind, Origin, State

K = NetBoxKind
# dcim/choices.py of NetBox, DeviceStatusChoices
STATUS = {
    State.DISCOVERED: "planned",
    State.INTAKE: "staged",
    State.CONVERGING: "staged",
    State.VALIDATING: "staged",
    State.CERTIFIED: "staged",
    State.RELEASED: "active",
    State.DRAINING: "active",
    State.QUARANTINED: "failed",
    State.REPAIRING: "failed",
    State.RETIRED: "decommissioning",
}
ONCE = {"type"}  # of an interface: "other" until a person says better
NAME_MAX = 64  # of devices and interfaces in NetBox


def build_objects(
    nodes: Iterable[Node], inventories: Mapping[str, Inventory], roles: Mapping[NodeKind, str]
) -> tuple[NetBoxObject, ...]:
    """Return the objects that represent these nodes. `roles`: the slug of each kind's role."""
    objects: dict[tuple[K, str], NetBoxObject] = {}

    def add(kind: K, key: str, **fields: str) -> str:
        objects.setdefault((kind, key), NetBoxObject(kind=kind, key=key, fields=fields))
        return key

    ordered = sorted(nodes, key=lambda n: n.id)
    for node in ordered:
        inventory = inventories.get(node.id)
        site = add(K.SITE, format_slug(node.location.site), name=node.location.site)
        maker = (inventory and inventory.vendor) or "unknown"
        model = (inventory and inventory.model) or f"unknown {node.kind}"
        vendor = add(K.MANUFACTURER, format_slug(maker), name=maker)
        kind = f"{vendor}/{format_slug(model)}"
        fields = {
            "site": site,
            "role": add(K.ROLE, roles[node.kind], name=roles[node.kind]),
            "device_type": add(K.DEVICE_TYPE, kind, manufacturer=vendor, model=model),
            "serial": ((inventory and inventory.system_serial) or "")[:50],
            "status": "active" if node.origin is Origin.DETACHED else STATUS[node.state],
            "description": f"{node.state}, tenant {node.tenant}" if node.tenant else node.state,
        }
        if node.location.rack:
            rack = node.location.rack
            fields["rack"] = add(K.RACK, f"{site}/{rack}", site=site, name=rack)
        add(K.DEVICE, node.id, **fields)
    names = {node.id for node in ordered}
    for node in ordered:
        for interface, address, management in _own_addresses(node):
            key = _interface(add, node.id, interface, management=management)
            add(K.ADDRESS, address, interface=key)
        for key, (leaf, leaf_interface), leaf_address in _cables(node, names):
            here = _interface(add, node.id, key)
            far = _interface(add, leaf, leaf_interface)
            first, second = sorted((here, far))
            add(K.CABLE, f"{first}--{second}", a=first, b=second)
            if leaf_address:
                add(K.ADDRESS, leaf_address, interface=far)
    return tuple(objects.values())


def format_slug(name: str) -> str:
    """Return a name in the form that NetBox uses in URLs."""
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")[:100] or "unnamed"


def _interface(add: object, device: str, name: str, *, management: bool = False) -> str:
    assert callable(add)
    key = format_interface_key(device, name)
    add(K.INTERFACE, key, type="other", mgmt_only=str(management).lower())
    return key


def _own_addresses(node: Node) -> Iterable[tuple[str, str, bool]]:
    """Yield (interface, address with prefix length, whether it is for management only)."""
    name = "mgmt" if node.kind is NodeKind.SWITCH else "host"
    interfaces = [(name, node.address, node.kind is NodeKind.SWITCH)]
    interfaces += [("bmc" if b.name == "host" else f"bmc-{b.name}", b.url, True) for b in node.bmcs]
    for interface, text, management in interfaces:
        host = urlsplit(text).hostname if "://" in text else text
        address = normalize_address(host or "")
        if address:
            yield interface[:NAME_MAX], address, management


def _cables(node: Node, names: set[str]) -> Iterable[tuple[str, tuple[str, str], str]]:
    """Yield (interface, (leaf, its interface), the leaf's address) of ports on known leaves."""
    times: dict[str, int] = {}
    for port in sorted(node.ports, key=lambda p: (p.nic_slot, p.switch, p.interface)):
        times[port.nic_slot] = number = times.get(port.nic_slot, 0) + 1
        if port.switch in names and port.nic_slot and port.interface:
            here = port.nic_slot if number == 1 else f"{port.nic_slot}.{number}"
            yield here, (port.switch, port.interface), normalize_address(port.address)


def spell_ports(
    wanted: Sequence[NetBoxObject], there: Iterable[NetBoxObject], names: PortNames
) -> tuple[NetBoxObject, ...]:
    """Return the objects with each leaf port as NetBox calls it: by its own name, or, where it has
    that one alone, by the alias that the switch gives it.
    """
    known = {
        (device, interface)
        for o in there
        if o.kind is K.INTERFACE
        for device, _, interface in (o.key.partition("/"),)
    }

    def spell(key: str) -> str:
        device, _, interface = key.partition("/")
        return format_interface_key(*spell_port(device, interface, names, known))

    renamed = {o.key: spell(o.key) for o in wanted if o.kind is K.INTERFACE}
    if all(key == new for key, new in renamed.items()):
        return tuple(wanted)
    spelt = []
    for item in wanted:
        key = renamed.get(item.key, item.key) if item.kind is K.INTERFACE else item.key
        fields = dict(item.fields)
        for end in ("a", "b", "interface"):
            if end in fields:
                fields[end] = renamed.get(fields[end], fields[end])
        if item.kind is K.CABLE:
            fields["a"], fields["b"] = sorted((fields["a"], fields["b"]))
            key = f"{fields['a']}--{fields['b']}"
        spelt.append(item.model_copy(update={"key": key, "fields": fields}))
    return tuple(spelt)


def plan_changes(
    wanted: Sequence[NetBoxObject], there: Sequence[NetBoxObject], *, prune: bool
) -> tuple[NetBoxChange, ...]:
    """Return the changes in order. `prune` deletes tagged objects that are no longer needed."""
    present = {(o.kind, o.key): o for o in there}
    ends = {o.fields[end]: o for o in there if o.kind is K.CABLE for end in ("a", "b")}
    wanted_keys = {(o.kind, o.key) for o in wanted}
    made: list[NetBoxChange] = []
    for item in wanted:
        now = present.get((item.kind, item.key))
        if now is None:
            made.append(_plan_creation(item, ends, wanted_keys, prune=prune))
            continue
        differs = {
            name: value
            for name, value in item.fields.items()
            if now.fields.get(name, "") != value and name not in ONCE
        }
        if differs:
            verb = Verb.UPDATE if now.ours else Verb.LEAVE
            made.append(
                NetBoxChange(
                    verb=verb,
                    kind=item.kind,
                    key=item.key,
                    wanted=differs,
                    there={name: now.fields.get(name, "") for name in differs},
                    number=now.number,
                    why="" if now.ours else "it does not carry our tag",
                )
            )
    tagged = [o for o in there if o.ours and o.kind is not K.MODULE]
    stale = [o for o in tagged if (o.kind, o.key) not in wanted_keys]
    verb, why = (Verb.DELETE, "") if prune else (Verb.LEAVE, "it is stale: --prune deletes it")
    order = list(K)
    deleted = [
        NetBoxChange(verb=verb, kind=o.kind, key=o.key, there=o.fields, number=o.number, why=why)
        for o in sorted(stale, key=lambda o: (-order.index(o.kind), o.key))
    ]
    # cables first, since an end must be free for another cable; other objects once unreferenced
    first = [d for d in deleted if d.kind is K.CABLE]
    made.sort(key=lambda c: order.index(c.kind))
    return (*first, *made, *(d for d in deleted if d.kind is not K.CABLE))


def _plan_creation(
    item: NetBoxObject, ends: Mapping[str, NetBoxObject], asked: set[tuple[K, str]], *, prune: bool
) -> NetBoxChange:
    change = NetBoxChange(verb=Verb.CREATE, kind=item.kind, key=item.key, wanted=item.fields)
    if item.kind is not K.CABLE:
        return change
    for end in (item.fields["a"], item.fields["b"]):
        cable = ends.get(end)
        freed = cable is not None and cable.ours and prune and (K.CABLE, cable.key) not in asked
        if cable is not None and not freed:
            why = f"{end} has another cable: {cable.key}"
            return change.model_copy(update={"verb": Verb.LEAVE, "why": why})
    return change

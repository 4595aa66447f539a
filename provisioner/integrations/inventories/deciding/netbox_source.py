"""Build the list of expected hardware from a NetBox: devices, racks, addresses, cards and cables.

The caller names the roles of hosts and switches; every other device is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.integrations.inventories.deciding.netbox_records import NetBoxKind, NetBoxObject
from provisioner.model.node import NodeKind

K = NetBoxKind
_SLOT = re.compile(r"(NIC|DPU)_(\d{1,2})(?:\.\d+)?")
_NUMBERS = ("pod", "scalable_unit", "index")  # custom fields of a device; 0 where there are none


def build_expected(
    there: Sequence[NetBoxObject],
    roles: Mapping[str, NodeKind],
    switch_login: tuple[str, str],
) -> dict[str, Any]:
    """Return the list in the form that `provisioner intake` reads; that reader checks it.

    `switch_login` is the user, and the environment variable with the password, of the switches'
    API.
    """
    devices = [o for o in there if o.kind is K.DEVICE and o.fields.get("role") in roles]
    kinds = {o.key: roles[o.fields["role"]] for o in devices}
    addresses = {
        o.fields["interface"]: o.key
        for o in there
        if o.kind is K.ADDRESS and o.fields.get("interface")
    }
    sites = {o.key: o.fields.get("name", o.key) for o in there if o.kind is K.SITE}
    cards = _by_device(there, K.MODULE)
    cables = _by_device(there, K.CABLE)
    nodes = []
    for device in sorted(devices, key=lambda o: o.key):
        name = device.key
        fields = device.fields
        location: dict[str, Any] = {
            "site": sites.get(fields.get("site", ""), fields.get("site", ""))
        }
        if fields.get("rack"):
            location["rack"] = fields["rack"].partition("/")[2]
        location |= {n: int(fields[n]) for n in _NUMBERS if fields.get(n, "").isdigit()}
        node: dict[str, Any] = {"name": name, "kind": str(kinds[name]), "location": location}
        own = addresses.get(f"{name}/mgmt") or addresses.get(f"{name}/host") or ""
        if kinds[name] is NodeKind.SWITCH:
            node["address"] = f"https://{_literal(own)}:8765" if own else ""  # NVUE's port
            node["username"], node["password_env"] = switch_login
        else:
            node |= {"address": _bare(own)} if own else {}
            bmc = addresses.get(f"{name}/bmc")
            serial = {"serial": fields["serial"]} if fields.get("serial") else {}
            node["bmc"] = ({"url": f"https://{_literal(bmc)}"} if bmc else {}) | serial
            node["dpus"] = _cards(cards.get(name, ()))
            node["ports"] = _ports(name, cables.get(name, ()), kinds, addresses)
        nodes.append(node)
    return {"nodes": nodes}


def _bare(address: str) -> str:
    return address.partition("/")[0]


def _literal(address: str) -> str:
    bare = _bare(address)
    return f"[{bare}]" if ":" in bare else bare


def _by_device(there: Sequence[NetBoxObject], kind: K) -> dict[str, list[NetBoxObject]]:
    """Return the objects of a kind by the device, or the devices, that they belong to."""
    objects_of: dict[str, list[NetBoxObject]] = {}
    for item in there:
        if item.kind is kind:
            keys = (item.fields["a"], item.fields["b"]) if kind is K.CABLE else (item.key,)
            for device in {key.partition("/")[0] for key in keys}:
                objects_of.setdefault(device, []).append(item)
    return objects_of


def _cards(modules: Sequence[NetBoxObject]) -> list[dict[str, str]]:
    """Return the modules with a serial in bays that are named like the daemon's slots."""
    cards = []
    for item in modules:
        slot = item.key.partition("/")[2]
        serial = item.fields.get("serial", "")
        if serial and _SLOT.fullmatch(slot):
            cards.append({"slot": slot, "serial": serial})
    return sorted(cards, key=lambda c: c["slot"])


def _ports(
    device: str,
    cables: Sequence[NetBoxObject],
    kinds: Mapping[str, NodeKind],
    addresses: Mapping[str, str],
) -> list[dict[str, Any]]:
    ports = []
    for cable in cables:
        ends = [cable.fields["a"], cable.fields["b"]]
        if not ends[0].startswith(f"{device}/"):
            ends.reverse()
        here, far = (end.partition("/") for end in ends)
        slot = _SLOT.fullmatch(here[2])
        if here[0] != device or slot is None or kinds.get(far[0]) is not NodeKind.SWITCH:
            continue
        rail = int(slot.group(2)) if slot.group(1) == "NIC" else -1
        port = {
            "rail": rail,
            "switch": far[0],
            "interface": far[2],
            "nic_slot": here[2].partition(".")[0],
        }
        address = addresses.get("/".join((far[0], far[2])))
        ports.append(port | ({"address": address} if address else {}))
    return sorted(ports, key=lambda p: (-1 if p["rail"] < 0 else p["rail"], p["switch"]))

"""The output of Mellanox's tools and of the kernel for the NICs of a simulated host."""

from __future__ import annotations

import json
from typing import Any

from provisioner.sim.hardware.parts import Bluefield, Device
from provisioner.sim.outputs.host import HostView, Output

# parameter -> (default value, names of its values); without names it prints as a number
_ON_OFF = {"0": "False", "1": "True"}
PARAMETERS: dict[str, tuple[str, dict[str, str]]] = {
    "LINK_TYPE_P1": ("1", {"1": "IB", "2": "ETH"}),
    "SRIOV_EN": ("0", _ON_OFF),
    "NUM_OF_VFS": ("16", {}),
    "INTERNAL_CPU_MODEL": ("1", {"0": "SEPARATED_HOST", "1": "EMBEDDED_CPU"}),
    "INTERNAL_CPU_OFFLOAD_ENGINE": ("0", {"0": "ENABLED", "1": "DISABLED"}),
    "ROCE_ADAPTIVE_ROUTING_EN": ("0", _ON_OFF),
    "USER_PROGRAMMABLE_CC": ("0", _ON_OFF),
    "TX_SCHEDULER_LOCALITY_MODE": ("0", {"0": "DEVICE_DEFAULT"}),
    "ROCE_CC_STEERING_EXT": ("0", {"0": "DEVICE_DEFAULT"}),
    "MULTIPATH_DSCP": ("0", {"0": "DEVICE_DEFAULT"}),
    "ROCE_RTT_RESP_DSCP_P1": ("0", {}),
    "ROCE_RTT_RESP_DSCP_MODE_P1": ("0", {"0": "DEVICE_DEFAULT"}),
}


def print_mlxfwmanager(view: HostView, _command: str) -> Output:
    """`--query-format xml`: FW is the burned version; FW_Running appears only if it differs."""
    devices = "".join(_device(view, card) for card in view.cards)
    failed = any(card.traits.get("locked") for card in view.cards)
    return Output(1 if failed else 0, f"<Devices>\n{devices}</Devices>\n")


def _device(view: HostView, card: Device) -> str:
    if card.traits.get("locked"):  # the host cannot open a DPU in restricted mode
        return (
            f'    <Device pciName="{card.pci}" type="BlueField3" psid="" partNumber="--">\n'
            '      <Versions>\n        <FW current="--" available=""/>\n      </Versions>\n'
            '      <MACs Base_Mac="N/A" />\n      <Status>Failed to open device</Status>\n'
            "      <Description></Description>\n    </Device>\n"
        )
    item = view.machine.firmware[card.slot, "DPU_NIC"]
    versions = [("FW", item.staged or item.running)]
    if item.staged is not None and item.staged != item.running:
        versions.append(("FW_Running", item.running))
    versions += [("PXE", "3.7.0500"), ("UEFI", "14.36.0016")]
    lines = "".join(f'        <{tag} current="{v}" available="N/A"/>\n' for tag, v in versions)
    about = "DPU; 200GbE" if card.kind == "dpu" else "SuperNIC; 400GbE / NDR IB (default mode)"
    return (
        f'    <Device pciName="{card.pci}" type="BlueField3" psid="{card.traits["psid"]}"'
        f' partNumber="{card.part}">\n      <Versions>\n{lines}      </Versions>\n'
        f'      <MACs Base_Mac="{card.mac.replace(":", "")}" />\n'
        "      <Status>No matching image found</Status>\n"
        f"      <Description>NVIDIA BlueField-3 {about}; PCIe Gen5.0 x16</Description>\n"
        "    </Device>\n"
    )


def print_mlxconfig(view: HostView, _command: str) -> Output:
    """`-e -j /dev/stdout q`: default, current and next-boot value of every parameter."""
    document: dict[str, Any] = {}
    for number, card in enumerate(view.cards, start=1):
        document[f"Device #{number}"] = {
            "description": f"NVIDIA {card.model}",
            "device": card.pci.removeprefix("0000:"),
            "device_type": "BlueField3",
            "name": card.part,
            "tlv_configuration": _parameters(view.machine.bluefields[card.slot]),
        }
    return Output(0, json.dumps(document, indent=2) + "\n")


def _parameters(card: Bluefield) -> dict[str, Any]:
    shown = {}
    for name in sorted({*PARAMETERS, *card.nv_config, *card.nv_config_next}):
        default, _ = PARAMETERS.get(name, ("0", {}))
        current = card.nv_config.get(name, default)
        following = card.nv_config_next.get(name, default)
        shown[name] = {
            "current_value": format_value(name, current),
            "default_value": format_value(name, default),
            "modified": following != default,
            "next_value": format_value(name, following),
            "read_only": False,
        }
    return shown


def format_value(name: str, value: str) -> str | int:
    """A value in mlxconfig's format: "True(1)", "ETH(2)", or a bare number."""
    named = PARAMETERS.get(name, ("0", {}))[1].get(value)
    if named is not None:
        return f"{named}({value})"
    return int(value) if value.isdecimal() else value


def interface_name(card: Device) -> str:
    """The kernel's predictable name of a card's port: bus 0x1a is enp26."""
    return f"enp{int(card.pci.split(':')[1], 16)}s0np0"


def print_rdma_links(view: HostView, _command: str) -> Output:
    """`grep -H .` over sysfs: all states, then all rates, and so on; the MTUs come last."""
    lines = []
    for attribute in ("state", "phys_state", "rate", "link_layer"):
        for number, card in enumerate(view.cards):
            path = f"/sys/class/infiniband/mlx5_{number}/ports/1/{attribute}"
            lines.append(f"{path}:{_port(view, card)[attribute]}")
    for number, card in enumerate(view.cards):
        path = f"/sys/class/infiniband/mlx5_{number}/device/net/{interface_name(card)}/mtu"
        lines.append(f"{path}:{card.traits.get('mtu', 9216)}")
    return Output(0, "".join(line + "\n" for line in lines))


def _port(view: HostView, card: Device) -> dict[str, str]:
    up = view.link_up(card)
    rate = card.traits.get("rate", "400 Gb/sec (4X NDR)") if up else "40 Gb/sec (4X QDR)"
    return {
        "state": "4: ACTIVE" if up else "1: DOWN",
        "phys_state": "5: LinkUp" if up else "3: Disabled",
        "rate": str(rate),
        "link_layer": str(card.traits.get("link_layer", "Ethernet")),
    }


def _lldp_port(interface: str) -> dict[str, Any]:
    """How a leaf names its port: Cumulus by the name, SONiC by the alias, the name described.

    sonic-net/sonic-buildimage: dockers/docker-lldp/lldpmgrd (portidsubtype local ALIAS), and the
    aliases of Mellanox's port_config.ini: etp1 for the first, letters for its parts.
    """
    if not interface.startswith("Ethernet"):
        return {"id": {"type": "ifname", "value": interface}, "descr": interface}
    return {"id": {"type": "local", "value": name_sonic_alias(interface)}, "descr": interface}


def name_sonic_alias(interface: str) -> str:
    """Return the alias of a port of a SN5600 that is split in two: Ethernet4 is etp1b."""
    number = int(interface.removeprefix("Ethernet"))
    return f"etp{number // 8 + 1}{'ab'[number % 8 // 4]}"


def print_lldpctl(view: HostView, _command: str) -> Output:
    """`lldpctl -f json`: one entry for each interface that hears a neighbour."""
    heard = []
    for cable in view.cables:
        card = view.machine.devices[cable.nic_slot]
        if not view.link_up(card) or cable.interface in cable.switch.planted.silent:
            continue
        chassis = {
            cable.switch.name: {
                "id": {"type": "mac", "value": cable.switch.mac},
                "descr": f"Cumulus Linux version {cable.switch.version} running on SN5600",
                "capability": [
                    {"type": "Bridge", "enabled": True},
                    {"type": "Router", "enabled": True},
                ],
            }
        }
        port = _lldp_port(cable.interface)
        entry = {"via": "LLDP", "rid": "1", "age": "0 day, 00:12:00", "chassis": chassis}
        heard.append({interface_name(card): entry | {"port": port | {"ttl": "120"}}})
    return Output(0, json.dumps({"lldp": {"interface": heard}}, indent=2) + "\n")

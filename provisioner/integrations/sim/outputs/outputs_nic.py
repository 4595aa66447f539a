"""The output of Mellanox's tools and of the kernel for the NICs of a simulated host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from provisioner.integrations.sim.hardware.parts import Bluefield, Device
from provisioner.integrations.sim.outputs.host import HostView, Output

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


# ------------------------------------------------------------------------------
# The link state of a simulated host's NIC ports, and the kernel's counters.


LONG_AGO = 1_700_000_000.0  # before the start of every simulated site
_LANES = 4
_NO_LANE_IS_BAD = (
    "Rx CDR LOL [per lane]",
    "Rx LOS [per lane]",
    "Tx CDR LOL [per lane]",
    "Tx Fault [per lane]",
    "Tx LOS [per lane]",
)
_COUNTERS = (
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "port_xmit_discards",
    "symbol_error",
)
_HW_COUNTERS = (
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "rnr_nak_retry_err",
    "roce_slow_restart",
    "rx_icrc_encapsulated",
)


def get_uptime(view: HostView) -> float:
    """Seconds since the last boot; a large number if no boot was simulated."""
    boots = [e.time for e in view.machine.log if e.kind == "boot"]
    return view.now - (boots[-1] if boots else LONG_AGO)


def print_mlxlink(view: HostView, _command: str) -> Output:
    """`mlxlink -d ... -m -c --rx_fec_histogram --show_histogram --json` of every card."""
    ports = []
    for card in view.cards:
        ports.append(f"device {card.pci}\n")
        if card.traits.get("locked"):
            failed = {"result": {"output": {}}, "status": {"code": 1, "message": "Failed to open"}}
            ports.append(json.dumps(failed, indent=1) + "\n")
            continue
        body = {"result": {"output": _output(view, card)}}
        ports.append(json.dumps(body | {"status": {"code": 0, "message": "success"}}) + "\n")
    return Output(0, "".join(ports))


def _output(view: HostView, card: Device) -> dict[str, Any]:
    up = view.link_up(card)
    infiniband = card.traits.get("link_layer") == "InfiniBand"
    slow = "200" in str(card.traits.get("rate", ""))
    names = ("IB-HDR", "IB-NDR") if infiniband else ("200G", "400G")  # mstflint, mlxlink_maps.cpp
    speed = names[0] if slow else names[1]
    light = float(card.traits.get("rx_power_dbm", view.vary_level(2.8, 0.1, 3)))
    tail = int(card.traits.get("fec_tail", 0))
    bins = {0: 22_858_119_037_881, 1: 65_755_507, 2: 7970, 3: 177, 15: tail}
    return {
        "Operational Info": {
            "State": "Active" if up else "Polling",
            "Physical state": "ETH_AN_FSM_ENABLE",
            "Speed": speed if up else "N/A",
            "Width": "4x" if up else "N/A",
            "FEC": "Standard_RS-FEC - (544,514)" if up else "N/A",
            "Loopback Mode": "No Loopback",
        },
        "Troubleshooting Info": {
            "Status Opcode": "0" if up else "1023",
            "Recommendation": "No issue was observed" if up else "The cable is unplugged",
        },
        "Physical Counters and BER Info": {
            "Effective Physical BER": str(card.traits.get("effective_ber", "15E-255")),
            "Effective Physical Errors": "0",
            "Link Down Counter": "0",
            "Link Error Recovery Counter": "0",
            "Raw Physical BER": "5E-10",
        },
        "Module Info": {
            "Cable Type": "Optical Module (separated)",
            "Temperature [C]": f"{view.vary_level(58, 0.05, 0)} [-10..80]",
            "Voltage [mV]": "3235.5 [2970..3630]",
            "Bias Current [mA]": "265.5,265.5,248.4,248.4 [40..480]",
            "Rx Power Current [dBm]": f"{light},3.253,3.233,2.658 [-9.914..6.999]",
            "Tx Power Current [dBm]": "2.193,1.202,1.708,1.274 [-6.904..6.999]",
            "Module State": "Ready state",
            "DataPath state [per lane]": {"values": ["DPActivated"] * _LANES},
            **{name: {"values": ["0"] * _LANES} for name in _NO_LANE_IS_BAD},
        },
        "Histogram of FEC Errors": {
            "Header": {"values": ["Range", "Occurrences"]},
            **{f"Bin {n}": {"values": [f"[{n}]", str(bins.get(n, 0))]} for n in range(16)},
        },
    }


def print_binding(view: HostView, _command: str) -> Output:
    """Firmware, operational state and PCI address of every RDMA device, from sysfs."""
    firmware = []
    states = []
    slots = []
    for number, card in enumerate(view.cards):
        path = f"/sys/class/infiniband/mlx5_{number}"
        version = view.machine.firmware[card.slot, "DPU_NIC"].running
        state = "up" if view.link_up(card) else "down"
        firmware.append(f"{path}/fw_ver:{version}")
        states.append(f"{path}/device/net/{interface_name(card)}/operstate:{state}")
        slots.append(f"{path}/device/uevent:PCI_SLOT_NAME={card.pci}")
    return _lines(firmware + states + slots)


def print_netdevs(view: HostView, _command: str) -> Output:
    """Network interface and PCI address of every card, from sysfs."""
    return _lines(
        f"/sys/class/net/{interface_name(card)}/device/uevent:PCI_SLOT_NAME={card.pci}"
        for card in view.cards
    )


def print_flaps(view: HostView, _command: str) -> Output:
    """Each port's carrier losses since the boot."""
    lines = [f"/proc/sys/kernel/random/boot_id:{view.machine.host.boot_id}"]
    for number, card in enumerate(view.cards):
        path = f"/sys/class/infiniband/mlx5_{number}/device/net/{interface_name(card)}"
        lines.append(f"{path}/carrier_down_count:{card.traits.get('flaps', 0)}")
    return _lines(lines)


def print_rdma_counters(view: HostView, _command: str) -> Output:
    """Boot id, uptime, and every counter of every port."""
    up = get_uptime(view)
    lines = [
        f"/proc/sys/kernel/random/boot_id:{view.machine.host.boot_id}",
        f"/proc/uptime:{up:.2f} {up * 90:.2f}",
    ]
    for folder, names in (("counters", _COUNTERS), ("hw_counters", _HW_COUNTERS)):
        for number, card in enumerate(view.cards):
            for name in names:
                # a trait with a counter's name is its increase per second
                value = int(float(card.traits.get(name, 0)) * up)
                lines.append(f"/sys/class/infiniband/mlx5_{number}/ports/1/{folder}/{name}:{value}")
    return _lines(lines)


def print_ethtool(view: HostView, _command: str) -> Output:
    """`ethtool -S` of every port."""
    up = get_uptime(view)
    lines = []
    for card in view.cards:
        lost = int(float(card.traits.get("rx_discards_phy", 0)) * up)
        lines += [f"device {interface_name(card)}", "NIC statistics:"]
        lines += [
            f"     rx_packets: {int(up * 40)}",
            f"     rx_discards_phy: {lost}",
            "     rx_prio3_pause: 0",
            "     tx_prio3_pause: 0",
            "     rx_prio3_discards: 0",
            "     tx_pause_storm_warning_events: 0",
            "     tx_pause_storm_error_events: 0",
        ]
    return _lines(lines)


def print_devlink(view: HostView, _command: str) -> Output:
    """`devlink -j health show`, then `diagnose ... reporter tx` of the port of every card."""
    lines = [f"card {card.pci}" for card in view.cards]
    firmware = {"reporter": "fw", "state": "healthy", "error": 0, "recover": 0}
    shown: dict[str, list[dict[str, object]]] = {
        f"pci/{card.pci}": [firmware] for card in view.cards
    }
    shown |= {f"pci/{card.pci}/1": [firmware | {"reporter": "tx"}] for card in view.cards}
    lines.append(json.dumps({"health": shown}))
    for card in view.cards:
        queues = [{"sqn": 138, "HW state": 1, "stopped": bool(card.traits.get("queue_stuck"))}]
        lines += [f"device pci/{card.pci}/1", json.dumps({"SQs": queues})]
    return _lines(lines)


def _lines(lines: Iterable[str]) -> Output:
    return Output(0, "".join(f"{line}\n" for line in lines))


# ------------------------------------------------------------------------------
# Run-time settings of a simulated host's SuperNICs: the play that sets them, and their readers.
#
# They are in the card's volatile memory: `Machine` clears them at every boot.


_FIELDS = {
    "roce_adp_retrans_en": "adaptive-retransmission",
    "roce_tx_window_en": "tx-window",
    "roce_slow_restart_en": "slow-restart",
    "roce_slow_restart_idle_en": "slow-restart-idle",
    "adaptive_routing_forced_en": "adaptive-routing-force",
}


def apply_settings(
    view: HostView, variables: Mapping[str, Any], cards: Mapping[str, str]
) -> dict[str, Any]:
    """Set the play's variables on the cards (PCI address to slot); return its facts."""
    listed = [*variables.get("routing", ()), *variables.get("congestion", ())]
    interfaces = {}
    for pci, slot in cards.items():
        card = view.machine.bluefields[slot]
        if "runtime_is_forgotten" not in view.machine.faults:
            card.runtime.update({str(s["path"]): str(s["value"]) for s in listed})
            card.algorithm = True
        device = next(c for c in view.cards if c.pci == pci.lower())
        interfaces[interface_name(device)] = dict(card.runtime)
    return {"interfaces": interfaces, "algorithm": sorted(interfaces)}


def print_roce_runtime(view: HostView, _command: str) -> Output:
    """For every card: the state of its algorithm, mlxreg's register, mlnx_qos of its port."""
    parts = [_card(card, view.machine.bluefields[card.slot]) for card in view.cards]
    return Output(0, "".join(parts))


def _card(device: Device, card: Bluefield) -> str:
    short = {path.rpartition("/")[2]: value for path, value in card.runtime.items()}
    on = {field: int(short.get(word) == "true") for field, word in _FIELDS.items()}
    register = "".join(f"{field:<46} | 0x{value:08x}\n" for field, value in on.items())
    pfc = "   ".join(short.get("pfc", "00000000"))
    return (
        f"device {device.pci}\n{'active' if card.algorithm else 'inactive'}\n"
        "Sending access register...\n\nField Name                                     | Data\n"
        f"{'=' * 60}\n{register}{'=' * 60}\n"
        "DCBX mode: OS controlled\n"
        f"Priority trust state: {short.get('trust-mode', 'pcp')}\n"
        "PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n"
        f"\tenabled     {pfc}   \n"
    )

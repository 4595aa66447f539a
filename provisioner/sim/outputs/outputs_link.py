"""The link state of a simulated host's NIC ports, and the kernel's counters."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from provisioner.sim.hardware.parts import Device
from provisioner.sim.outputs.host import HostView, Output
from provisioner.sim.outputs.outputs_nic import interface_name

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

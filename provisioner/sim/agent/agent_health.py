"""The hardware manager's reports in a simulated ramdisk: facts and first checks of its machine.

The shapes are those of the maintenance image's own hardware manager (docs/maintenance-image.md);
a bare ramdisk has no vendor's driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.sim.agent.agent_work import Json, Ramdisk, Work
from provisioner.sim.hardware.machine import Machine

PCI_KINDS = {
    "gpu": "gpu",
    "nvswitch": "bridge",
    "nic": "ethernet",
    "dpu": "ethernet",
    "storage": "nvme",
}
SPEED = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}


def report_inventory(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    """`provisioner_inventory`."""
    return Work(1.0, lambda _now: _facts(ramdisk.machine))


def report_checks(ramdisk: Ramdisk, args: Mapping[str, Any]) -> Work:
    """`provisioner_checks`."""
    expected = args.get("expected")
    expected_kinds = expected if isinstance(expected, dict) else {}
    return Work(5.0, lambda _now: {"checks": _verdicts(ramdisk.machine, expected_kinds)})


def _facts(machine: Machine) -> Json:
    present = [d for d in machine.devices.values() if d.present and d.pci and d.kind in PCI_KINDS]
    pci = [
        {
            "address": d.pci,
            "kind": PCI_KINDS[d.kind],
            "vendor": "",
            "device": "",
            "subsystem_vendor": "",
            "subsystem_device": "",
            "numa_node": "",
            "current_link_speed": SPEED.get(d.link_gen, ""),
            "current_link_width": str(d.link_width),
            "max_link_speed": SPEED.get(d.link_gen_max, ""),
            "max_link_width": str(d.link_width_max),
        }
        for d in present
    ]
    ports = [
        {
            "name": f"eth{n}",
            "mac": d.mac,
            "pci": d.pci,
            "speed_mbps": "400000",
            "carrier": "0" if d.traits.get("link_down") else "1",
        }
        for n, d in enumerate(d for d in present if d.mac)
    ]
    return {
        "boot_id": machine.host.boot_id,
        "kernel": "6.1.0-simulated",
        "image": "simulated",
        "ssh_host_key": "",
        "firmware": "uefi",
        "dmi": {"product_serial": machine.host.serial, "product_uuid": machine.host.uuid},
        "memory_kib": _memory_gib(machine) << 20,
        "cpus": "0-223",
        "numa_nodes": "0-1",
        "tpm": "2",
        "pci": pci,
        "ports": ports,
        "rdma": [],
    }


def _memory_gib(machine: Machine) -> int:
    return 64 * sum(d.kind == "memory" and d.present for d in machine.devices.values())


def _verdicts(machine: Machine, expected: Mapping[str, Any]) -> list[Json]:
    pci = _facts(machine)["pci"]
    counted = {k: sum(d["kind"] == k for d in pci) for k in {d["kind"] for d in pci}}
    counted["memory_gib"] = _memory_gib(machine)
    missing = [
        f"{counted.get(k, 0)} of {n} {k}" for k, n in expected.items() if counted.get(k, 0) < int(n)
    ]
    slow = [d["address"] for d in pci if d["current_link_width"] != d["max_link_width"]]
    xids = [d.slot for d in machine.devices.values() if d.traits.get("xids")]
    faults = {"devices": missing, "pcie_links": slow, "kernel_log": xids}
    return [
        {"check": name, "verdict": "fail" if bad else "pass", "detail": "; ".join(bad)}
        for name, bad in faults.items()
    ]

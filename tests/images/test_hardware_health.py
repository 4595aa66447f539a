"""What the ramdisk says of the machine: inventory from the kernel's files, and first health."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hardware_machine import Machine, device
from provisioner_hardware_manager import health, inventory
from provisioner_hardware_manager.commands import Output


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")
    return root


GPU = "sys/bus/pci/devices/0000:1b:00.0"


@pytest.fixture
def machine_tree(tmp_path):
    """A machine with one H100 (10de:2330), as its kernel's files show it."""
    return tree(
        tmp_path,
        {
            "proc/sys/kernel/random/boot_id": "0c4a1f7e-5a0e-4d0c-9d4e-0f5b8a1c2d3e",
            "proc/meminfo": "MemTotal:       2113539072 kB\nMemFree: 1 kB",
            "sys/class/dmi/id/product_name": "PowerEdge XE9680",
            "sys/class/dmi/id/product_serial": "ABC1234",
            "run/provisioner/ssh_host_ed25519_key.pub": "ssh-ed25519 AAAAC3Nza",
            f"{GPU}/class": "0x030200",
            f"{GPU}/vendor": "0x10de",
            f"{GPU}/device": "0x2330",
            f"{GPU}/current_link_speed": "2.5 GT/s PCIe",
            f"{GPU}/current_link_width": "16",
            f"{GPU}/max_link_speed": "32.0 GT/s PCIe",
            f"{GPU}/max_link_width": "16",
            "sys/bus/pci/devices/0000:00:00.0/class": "0x060000",
        },
    )


def test_the_inventory_has_what_only_the_inside_can_see(machine_tree):
    found = inventory.collect(machine_tree)

    assert found["boot_id"] == "0c4a1f7e-5a0e-4d0c-9d4e-0f5b8a1c2d3e"
    assert found["ssh_host_key"] == "ssh-ed25519 AAAAC3Nza"
    assert found["dmi"]["product_serial"] == "ABC1234"
    assert found["memory_kib"] == 2113539072
    assert [(p["address"], p["kind"], p["device"]) for p in found["pci"]] == [
        ("0000:1b:00.0", "gpu", "0x2330")
    ]


def test_an_empty_machine_has_an_inventory_too(tmp_path):
    found = inventory.collect(tmp_path)

    assert (found["pci"], found["ports"], found["memory_kib"], found["boot_id"]) == ([], [], 0, "")


def verdicts(read: dict[str, Any], expected: dict[str, int], machine: Machine) -> dict[str, str]:
    return {c["check"]: c["verdict"] for c in health.run_checks(read, expected, machine.run)}


def healthy() -> Machine:
    machine = Machine(device("sda", tran="sata"))
    machine.says["dmesg"] = Output(0, "[ 1.0] usb 1-1: new device\n")
    machine.says["smartctl"] = Output(0, '{"smart_status": {"passed": true}}')
    return machine


def test_a_good_machine_passes(machine_tree):
    facts = inventory.collect(machine_tree)

    found = verdicts(facts, {"gpu": 1, "memory_gib": 2048}, healthy())

    assert set(found.values()) == {"pass"}


def test_silence_is_never_a_pass(tmp_path):
    found = verdicts(inventory.collect(tmp_path), {}, Machine())

    assert set(found.values()) == {"unknown"}


def test_what_is_missing_is_named(machine_tree):
    facts = inventory.collect(machine_tree)

    listed = health.run_checks(facts, {"gpu": 8, "infiniband": 8}, healthy().run)

    devices = next(c for c in listed if c["check"] == "devices")
    assert devices["verdict"] == "fail"
    assert devices["detail"] == "1 of 8 gpu; 0 of 8 infiniband"


def test_a_gpu_that_idles_slowly_is_well_and_a_narrow_one_is_not(machine_tree):
    facts = inventory.collect(machine_tree)
    assert verdicts(facts, {}, healthy())["pcie_links"] == "pass"

    facts["pci"][0]["current_link_width"] = "8"

    assert verdicts(facts, {}, healthy())["pcie_links"] == "fail"


def test_a_link_is_measured_by_the_weaker_of_its_ends(machine_tree):
    facts = inventory.collect(machine_tree)
    card = facts["pci"][0] | {"kind": "infiniband", "current_link_speed": "16.0 GT/s PCIe"}
    facts["pci"] = [card]
    assert verdicts(facts, {}, healthy())["pcie_links"] == "fail"

    card |= {"port_max_link_speed": "16.0 GT/s PCIe", "port_max_link_width": "16"}

    assert verdicts(facts, {}, healthy())["pcie_links"] == "pass"


@pytest.mark.parametrize(("speed", "width"), [("Unknown", "255"), ("", ""), ("x", "0")])
def test_a_link_that_the_kernel_does_not_know_is_no_pass(machine_tree, speed, width):
    facts = inventory.collect(machine_tree)
    facts["pci"][0] |= {"current_link_speed": speed, "current_link_width": width}

    assert verdicts(facts, {}, healthy())["pcie_links"] == "unknown"


def test_too_little_memory_fails(machine_tree):
    facts = inventory.collect(machine_tree)

    assert verdicts(facts, {"memory_gib": 2176}, healthy())["memory"] == "fail"


@pytest.mark.parametrize(
    "line",
    [
        "mce: [Hardware Error]: Machine check: Uncorrected error",
        "pcieport 0000:00:01.0: AER: Uncorrectable (Fatal) error message received",
        "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
        "I/O error, dev nvme0n1, sector 12345 op 0x0:(READ)",
        "EDAC MC0: 1 UE memory read error",
    ],
)
def test_a_kernel_message_of_failed_hardware_fails(machine_tree, line):
    machine = healthy()
    machine.says["dmesg"] = Output(0, f"[   12.3] {line}\n")

    assert verdicts(inventory.collect(machine_tree), {}, machine)["kernel_log"] == "fail"


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Output(8, '{"smart_status": {"passed": false}}'), "fail"),
        (Output(2, ""), "unknown"),
        (Output(0, "{}"), "unknown"),
        (Output(0, "no json"), "unknown"),
        (Output(None, "", "timed out"), "unknown"),
    ],
)
def test_smart_is_believed_as_far_as_it_speaks(machine_tree, answer, verdict):
    machine = healthy()
    machine.says["smartctl"] = answer

    assert verdicts(inventory.collect(machine_tree), {}, machine)["disk_health"] == verdict

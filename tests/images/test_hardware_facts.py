"""What the ramdisk says of the machine: disks, inventory, first health, proof by reading back."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from ironic_python_agent import hardware
from provisioner_hardware_manager import (
    disks,
    health,
    inventory,
    plugin,
    reading,
    redaction,
    tpm,
)
from provisioner_hardware_manager.commands import Output, words
from provisioner_hardware_manager.plugin import ARGUMENTS, ProvisionerHardwareManager

# `hdparm -I` of hdparm 9.65, the section that matters
SECURITY = """\
Commands/features:
\tEnabled\tSupported:
\t   *\tSMART feature set
Security: 
\tMaster password revision code = 65534
\t\tsupported
\tnot\tenabled
\tnot\tlocked
\t%s\tfrozen
\tnot\texpired: security count
\t%s\tsupported: enhanced erase
\t2min for SECURITY ERASE UNIT. 2min for ENHANCED SECURITY ERASE UNIT.
Logical Unit WWN Device Identifier: 5002538e00000000
"""  # noqa: W291


def device(name: str, **more: Any) -> dict[str, Any]:
    """An entry of `lsblk --json`."""
    return {"name": name, "type": "disk", "size": 480103981056, "serial": f"S-{name}",
            "wwn": None, "model": "MODEL  ", "tran": None, "ro": False} | more  # fmt: skip


class Machine:
    """Tools that print what the real ones print."""

    def __init__(self, *listed: dict[str, Any]) -> None:
        self.listed = list(listed)
        self.says: dict[str, Output] = {}

    def run(self, *command: str, timeout_s: float = 60.0) -> Output:
        assert timeout_s > 0
        if command[0] == "lsblk":
            return Output(0, json.dumps({"blockdevices": self.listed}))
        return self.says.get(command[0], Output(None, "", "No such file or directory"))


def test_only_what_can_hold_data_is_a_disk():
    machine = Machine(
        device("sda", tran="sata"),
        device("nvme0n1", tran="nvme"),
        device("sr0", type="rom"),
        device("zram0"),
        device("loop0", type="loop"),
        device("nbd0"),
        device("mmcblk0boot0"),
        device("sdb", size=0, tran="usb"),  # a BMC's virtual floppy
    )

    assert [d["name"] for d in disks.listed(machine.run)] == ["/dev/sda", "/dev/nvme0n1"]


def test_a_disk_is_described_as_the_daemon_reads_it():
    machine = Machine(device("nvme0n1", tran="nvme", wwn="eui.0025385b71b0aaaa"))
    machine.says["nvme"] = Output(0, json.dumps({"sanicap": 3, "oacs": 23, "fna": 4, "mn": "x"}))

    assert disks.listed(machine.run) == [
        {
            "name": "/dev/nvme0n1",
            "serial": "S-nvme0n1",
            "wwn": "eui.0025385b71b0aaaa",
            "model": "MODEL",
            "size": 480103981056,
            "transport": "nvme",
            "read_only": False,
            "nvme": {"sanicap": 3, "oacs": 23, "fna": 4},
            "ata": None,
        }
    ]


@pytest.mark.parametrize(
    ("frozen", "enhanced", "expected"),
    [
        ("not", "", {"supported": True, "frozen": False, "enhanced": True}),
        ("", "", {"supported": True, "frozen": True, "enhanced": True}),
        ("not", "not", {"supported": True, "frozen": False, "enhanced": False}),
    ],
)
def test_abilities_of_an_ata_drive_are_read_from_its_security_section(frozen, enhanced, expected):
    machine = Machine(device("sda", tran="sata"))
    machine.says["hdparm"] = Output(0, SECURITY % (frozen, enhanced))

    assert disks.listed(machine.run)[0]["ata"] == expected


@pytest.mark.parametrize("text", ["", "Security:\n", "garbage \x00\xff", "{"])
def test_a_disk_that_says_nothing_of_itself_offers_nothing(text):
    machine = Machine(device("sda", tran="sata"), device("nvme0n1", tran="nvme"))
    machine.says = {"hdparm": Output(0, text), "nvme": Output(0, text)}

    sata, nvme = disks.listed(machine.run)

    assert sata["ata"] in (None, {"supported": False, "frozen": True, "enhanced": False})
    assert nvme["nvme"] is None


def test_two_disks_of_one_serial_are_none():
    machine = Machine(device("nvme0n1", serial="X"), device("nvme0n2", serial="X"))

    assert disks.one("X", machine.run) is None
    assert disks.one("", machine.run) is None


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


def verdicts(facts: dict[str, Any], expected: dict[str, int], machine: Machine) -> dict[str, str]:
    return {c["check"]: c["verdict"] for c in health.checks(facts, expected, machine.run)}


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

    listed = health.checks(facts, {"gpu": 8, "infiniband": 8}, healthy().run)

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


@pytest.mark.parametrize(("offset", "length"), [(0, 1), (0, 9 << 20), (5, 100), ((4 << 20) - 1, 2)])
def test_reading_back_gives_the_digest_of_exactly_that_range(tmp_path, offset, length):
    content = bytes(i % 251 for i in range(9 << 20))
    disk = tmp_path / "disk"
    disk.write_bytes(content)

    digest = reading.of_device(str(disk), offset, length)

    assert digest == hashlib.sha256(content[offset : offset + length]).hexdigest()


def test_reading_past_the_end_is_refused(tmp_path):
    disk = tmp_path / "disk"
    disk.write_bytes(b"short")

    with pytest.raises(OSError, match=r"disk ends|nothing to read"):
        reading.of_device(str(disk), 0, 100)
    with pytest.raises(ValueError, match="out of bounds"):
        reading.digest("S", -1, 5, Machine().run)
    with pytest.raises(ValueError, match="the disk ends"):
        reading.digest("S-sda", 0, 10, Machine(device("sda", size=5)).run)


def test_the_tokens_of_requests_never_reach_a_handler(caplog):
    before = logging.getLogRecordFactory()
    try:
        redaction.install()
        redaction.install()
        log = logging.getLogger("ironic_python_agent.api")
        with caplog.at_level(logging.INFO):
            log.info("%(ip)s - POST %(path)s - 200", {"ip": "192.0.2.1",
                     "path": "/v1/commands/?wait=true&agent_token=s3cret&x=1"})  # fmt: skip
            log.info("body %s", {"agent_token": "s3cret", "callback_url": "https://192.0.2.9"})
    finally:
        logging.setLogRecordFactory(before)

    assert "s3cret" not in caplog.text
    assert "agent_token=***&x=1" in caplog.text
    assert "callback_url" in caplog.text


def test_a_tpm_that_refuses_is_asked_for_through_the_firmware(tmp_path):
    machine, present = Machine(), tmp_path / "tpmrm0"
    present.touch()
    request = tmp_path / "request"

    unsupported = tpm.clear(machine.run, device=tmp_path / "none", request=request)
    refused = tpm.clear(machine.run, device=present, request=request)
    machine.says["tpm2_clear"] = Output(0, "")
    done = tpm.clear(machine.run, device=present, request=request)

    assert [r["result"] for r in (unsupported, refused, done)] == [
        "unsupported",
        "not_done",
        "done",
    ]
    assert request.read_text() == "5"


def test_every_step_is_a_method_and_none_runs_by_itself():
    manager = ProvisionerHardwareManager()
    steps = manager.get_clean_steps({}, [])

    assert {s["step"] for s in steps} == set(ARGUMENTS)
    assert all(s["priority"] == 0 and callable(getattr(manager, s["step"])) for s in steps)
    assert "provisioner_erase_device" not in {s["step"] for s in manager.get_deploy_steps({}, [])}


@pytest.mark.parametrize("step", sorted(ARGUMENTS))
def test_no_argument_of_a_step_is_one_of_the_agents_own(step):
    """`execute_clean_step` passes them on as keywords, beside those of its dispatcher."""
    own = set(inspect.signature(hardware.dispatch_to_managers).parameters)

    assert not own & set(ARGUMENTS[step])
    assert set(ARGUMENTS[step]) <= set(
        inspect.signature(getattr(ProvisionerHardwareManager, step)).parameters
    )


def test_a_job_that_was_done_is_not_done_twice(monkeypatch):
    asked = []

    def once(device: str, serial: str, method: str, *, generic: Any) -> dict[str, str]:
        asked.append(serial)
        return {"result": "done" if len(asked) > 1 else "not_done", "serial": serial}

    monkeypatch.setattr(plugin.erasure, "erase", once)
    manager = ProvisionerHardwareManager()

    answers = [
        manager.provisioner_erase_device({}, [], "/dev/sda", "S", "overwrite", job="j")["result"]
        for _ in range(3)
    ]

    assert answers == ["not_done", "done", "done"]
    assert asked == ["S", "S"]


def test_the_agent_finds_the_plug_in_before_its_generic_one():
    before = logging.getLogRecordFactory()
    try:
        support = ProvisionerHardwareManager().evaluate_hardware_support()
    finally:
        logging.setLogRecordFactory(before)

    assert support > hardware.HardwareSupport.GENERIC


def test_words_are_one_printable_line():
    assert words("a\n\x1b[2Jb\t" + "x" * 999).startswith("a ?[2Jb xxx")
    assert len(words("y" * 999)) == 300

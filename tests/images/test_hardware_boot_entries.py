"""UEFI boot entries: a tenant's are removed, and the written disk is the first, as read back."""

from __future__ import annotations

import json

import pytest
from hardware_machine import device
from provisioner_hardware_manager import boot_entries
from provisioner_hardware_manager.commands import Output

GUID = "7f2c1f0a-4a3c-4b61-9d0e-2f8a5d0c1e11"
FOREIGN = "11111111-2222-3333-4444-555555555555"
FIRMWARE = "UEFI PXEv4 (MAC:525400AA0001)"
NETWORK = "PciRoot(0x0)/Pci(0x2,0x0)/MAC(525400aa0001,1)/IPv4(0.0.0.00.0.0.0,0,0)N.....YM....R,Y."


class Firmware:
    """Variables behind efibootmgr 17, and a disk behind lsblk."""

    def __init__(self) -> None:
        self.entries = {
            "0000": ("UiApp", "FvVol(7cb8bdc9-f8eb-4f34-aaea-3ee4af6516a1)/FvFile(462caa21)"),
            "0001": (FIRMWARE, NETWORK),
            "0007": ("backdoor", rf"HD(1,GPT,{FOREIGN},0x800,0x1000)/File(\EFI\evil\grubx64.efi)"),
        }
        self.order = ["0007", "0001", "0000"]
        kind = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
        self.part = {"name": "nvme0n1p1", "parttype": kind, "partuuid": GUID}
        self.failing: set[str] = set()
        self.asked: list[tuple[str, ...]] = []

    def run(self, *words: str, timeout_s: float = 60.0) -> Output:
        assert timeout_s > 0
        if words[0] == "lsblk":
            shown = [self.part] if "--list" in words else [device("nvme0n1", serial="S")]
            return Output(0, json.dumps({"blockdevices": shown}))
        if words[0] != "efibootmgr":
            return Output(0, "{}")
        self.asked.append(words)
        option = words[-1] if "--create" not in words else "--create"
        if option in self.failing:
            return Output(5, "", "Could not prepare Boot variable: Operation not permitted")
        return self.act(option, words)

    def act(self, option: str, words: tuple[str, ...]) -> Output:
        if option == "--delete-bootnum":
            number = words[2]
            del self.entries[number]
            self.order = [n for n in self.order if n != number]
        elif option == "--create":
            disk, part, label, loader = words[3::2]
            assert (disk, part) == ("/dev/nvme0n1", "1")
            kind = "MBR,0xaabbccdd" if self.part["parttype"] == "0xef" else f"GPT,{GUID}"
            self.entries["0002"] = (label, f"HD(1,{kind},0x800,0x6000)/File({loader})")
            self.order.insert(0, "0002")
        elif option == "--verbose":
            lines = [f"Boot{n}* {label}\t{path}" for n, (label, path) in self.entries.items()]
            head = ["BootCurrent: 0001", "Timeout: 3 seconds", f"BootOrder: {','.join(self.order)}"]
            return Output(0, "\n".join([*head, *lines]) + "\n")
        return Output(0, "")


@pytest.fixture(autouse=True)
def _x86(monkeypatch):
    monkeypatch.setattr(boot_entries.platform, "machine", lambda: "x86_64")


def test_entries_of_disks_are_removed_and_those_of_the_firmware_stay(tmp_path):
    firmware = Firmware()

    answer = boot_entries.clear(firmware.run, tmp_path)

    assert answer == {"result": "done", "detail": "1 boot entries of disks were removed"}
    assert list(firmware.entries) == ["0000", "0001"]


def test_an_entry_of_an_address_on_the_network_is_removed(tmp_path):
    """A path as iPXE's own tests have it; the firmware's entry for HTTP names no address."""
    firmware = Firmware()
    network = "PciRoot(0x0)/Pci(0x1c,0x2)/Pci(0x0,0x1)/MAC(525400ac9c41,0)/IPv4(0.0.0.00.0.0.0,0,0)"
    firmware.entries["0008"] = ("UEFI HTTPv4", f"{network}/Uri()")
    firmware.entries["0009"] = ("rescue", f"{network}/Uri(http://boot.ipxe.org/ipxe.efi)")
    firmware.order = ["0009", "0008", "0007"]

    answer = boot_entries.clear(firmware.run, tmp_path)

    assert answer["result"] == "done"
    assert "1 of addresses on the network were removed" in answer["detail"]
    assert list(firmware.entries) == ["0000", "0001", "0008"]


@pytest.mark.parametrize("number", ["0007", "0009"])
def test_an_entry_that_cannot_be_removed_is_not_done(tmp_path, number):
    firmware = Firmware()
    firmware.entries = {number: ("kept", firmware.entries["0007"][1])}
    if number == "0009":
        firmware.entries = {
            number: ("kept", "IPv4(0.0.0.0)/Uri(http://assets.example.com/ipxe.efi)")
        }
    firmware.failing.add("--delete-bootnum")

    answer = boot_entries.clear(firmware.run, tmp_path)

    assert answer["result"] == "not_done"
    assert "kept" in answer["detail"]


@pytest.mark.parametrize("parttype", ["gpt", "0xef"])
def test_the_written_disk_is_the_first_entry_and_the_only_one_of_a_disk(parttype):
    firmware = Firmware()
    if parttype == "0xef":
        firmware.part |= {"parttype": "0xef", "partuuid": "aabbccdd-01"}

    answer = boot_entries.choose_disk("S", firmware.run)

    assert answer["result"] == "done", answer
    assert firmware.order == ["0002", "0001", "0000"]
    assert r"File(\EFI\BOOT\BOOTX64.EFI)" in firmware.entries["0002"][1]


@pytest.mark.parametrize("option", ["--create", "--delete-bootnum"])
def test_a_firmware_that_refuses_is_not_done(option):
    firmware = Firmware()
    firmware.failing.add(option)

    assert boot_entries.choose_disk("S", firmware.run)["result"] == "not_done"


def test_a_firmware_that_keeps_its_own_order_is_not_done():
    firmware = Firmware()
    act = firmware.act

    def keep_order(option, words):
        answer = act(option, words)
        firmware.order.sort(key=lambda n: n == "0002")
        return answer

    firmware.act = keep_order

    answer = boot_entries.choose_disk("S", firmware.run)

    assert answer["result"] == "not_done"
    assert "UEFI PXEv4" in answer["detail"]


def test_a_disk_without_an_efi_system_partition_gets_no_entry():
    firmware = Firmware()
    firmware.part["parttype"] = "0fc63daf-8483-4772-8e79-3d69d8477de4"

    assert boot_entries.choose_disk("S", firmware.run)["result"] == "not_done"
    assert "0007" in firmware.entries


def test_a_machine_without_uefi_variables_is_unsupported():
    firmware = Firmware()
    firmware.failing.add("--verbose")

    assert boot_entries.clear(firmware.run)["result"] == "unsupported"
    assert boot_entries.choose_disk("S", firmware.run)["result"] == "unsupported"

"""UEFI boot entries: a tenant's are removed, and the written disk is the first, as read back."""

from __future__ import annotations

import json
import re
import struct
import uuid
from pathlib import Path

import pytest
from hardware_machine import device
from provisioner_hardware_manager import boot_entries, owner_keys, tpm, uefi_variables
from provisioner_hardware_manager.commands import Output

GUID = "7f2c1f0a-4a3c-4b61-9d0e-2f8a5d0c1e11"
FOREIGN = "11111111-2222-3333-4444-555555555555"
GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
FIRMWARE = "UEFI PXEv4 (MAC:525400AA0001)"


def path_of(*nodes: bytes) -> bytes:
    return b"".join(nodes) + END


END = bytes([0x7F, 0xFF, 4, 0])
ACPI = bytes([2, 1, 12, 0]) + struct.pack("<II", 0x0A0341D0, 0)
NETWORK = ACPI + bytes([3, 11, 37, 0]) + bytes(33)


def node(kind: int, subkind: int, body: bytes) -> bytes:
    return struct.pack("<BBH", kind, subkind, 4 + len(body)) + body


def drive(identity: str, *, is_gpt: bool = True) -> bytes:
    """UEFI 2.10, 10.3.5.1."""
    raw = uuid.UUID(identity).bytes_le if is_gpt else bytes.fromhex(identity)[::-1] + bytes(12)
    return node(
        4, 1, struct.pack("<IQQ", 1, 0x800, 0x1000) + raw + bytes([2, 2] if is_gpt else [1, 1])
    )


def file_path(text: str) -> bytes:
    return node(4, 4, text.encode("utf-16-le") + b"\0\0")


def uri(text: str) -> bytes:
    return node(3, 24, text.encode())


class Firmware:
    """Variables as efivarfs shows them (UEFI 2.10, 3.1.3), with efibootmgr 17 and lsblk beside."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.add("0000", "UiApp", path_of(node(4, 7, bytes(16))))
        self.add("0001", FIRMWARE, path_of(NETWORK))
        self.add("0007", "backdoor", path_of(drive(FOREIGN), file_path(r"\EFI\evil\grubx64.efi")))
        self.set_order(["0007", "0001", "0000"])
        kind = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
        self.part = {"name": "nvme0n1p1", "parttype": kind, "partuuid": GUID}
        self.failing: set[str] = set()
        self.status = 5
        self.sorts = False

    def write(self, name: str, value: bytes) -> None:
        (self.root / f"{name}-{GLOBAL}").write_bytes(struct.pack("<I", 7) + value)

    def add(self, number: str, label: str, path: bytes) -> None:
        head = struct.pack("<IH", 1, len(path)) + label.encode("utf-16-le") + b"\0\0"
        self.write(f"Boot{number}", head + path)

    def set_order(self, order: list[str]) -> None:
        self.write("BootOrder", b"".join(struct.pack("<H", int(n, 16)) for n in order))

    @property
    def order(self) -> list[str]:
        value = (self.root / f"BootOrder-{GLOBAL}").read_bytes()[4:]
        return [f"{n:04X}" for (n,) in struct.iter_unpack("<H", value)]

    @property
    def entries(self) -> list[str]:
        names = (f.name for f in self.root.iterdir())
        return sorted(m[1] for n in names if (m := re.match(r"Boot([0-9A-F]{4})-", n)))

    def run(self, *words: str, timeout_s: float = 60.0) -> Output:
        assert timeout_s > 0
        if words[0] == "lsblk":
            shown = [self.part] if "--list" in words else [device("nvme0n1", serial="S")]
            return Output(0, json.dumps({"blockdevices": shown}))
        if words[0] != "efibootmgr":
            return Output(0, "{}")
        option = words[-1] if "--create" not in words else "--create"
        if option in self.failing:
            return Output(
                self.status, "", "Could not prepare Boot variable: Operation not permitted"
            )
        return self.act(option, words)

    def act(self, option: str, words: tuple[str, ...]) -> Output:
        if option == "--delete-bootnum":
            (self.root / f"Boot{words[2]}-{GLOBAL}").unlink()
            self.set_order([n for n in self.order if n != words[2]])
        elif option == "--create":
            disk, part, label, loader = words[3::2]
            assert (disk, part) == ("/dev/nvme0n1", "1")
            is_gpt = self.part["parttype"] != "0xef"
            where = drive(GUID if is_gpt else "aabbccdd", is_gpt=is_gpt)
            self.add("0002", label, path_of(where, file_path(loader)))
            self.set_order([*self.order, "0002"] if self.sorts else ["0002", *self.order])
        return Output(0, "")


@pytest.fixture
def firmware(tmp_path: Path) -> Firmware:
    return Firmware(tmp_path)


@pytest.fixture(autouse=True)
def _x86(monkeypatch):
    monkeypatch.setattr(boot_entries.platform, "machine", lambda: "x86_64")


def test_entries_of_disks_are_removed_and_those_of_the_firmware_stay(firmware):
    answer = boot_entries.clear(firmware.run, firmware.root)

    assert answer == {"result": "done", "detail": "1 boot entries of disks were removed"}
    assert firmware.entries == ["0000", "0001"]
    assert firmware.order == ["0001", "0000"]


def test_an_entry_of_an_address_on_the_network_is_removed(firmware):
    """A path as iPXE's own tests have it; the firmware's entry for HTTP names no address."""
    firmware.add("0008", "UEFI HTTPv4", path_of(NETWORK, uri("")))
    firmware.add("0009", "rescue", path_of(NETWORK, uri("http://boot.ipxe.org/ipxe.efi")))
    firmware.set_order(["0009", "0008", "0007"])

    answer = boot_entries.clear(firmware.run, firmware.root)

    assert answer["result"] == "done"
    assert "1 of addresses on the network were removed" in answer["detail"]
    assert firmware.entries == ["0000", "0001", "0008"]


# entries that efibootmgr 17 of Debian 12 cannot print, or that nobody can: with any of them it
# lists nothing at all (rhboot/efibootmgr issues 43 and 133, pull request 80)
ODD = {
    "a node of length 3": (ACPI + bytes([3, 0x12, 3, 0]) + END, True),
    "an empty path (Dell)": (b"", False),
    "a vendor node of 10 bytes": (bytes([1, 4, 10, 0, 1, 2, 3, 4, 5, 6]) + END, False),
    "no end node": (ACPI, False),
    "only an end node": (END, False),
    "a node longer than the path": (ACPI + bytes([4, 1, 200, 0]) + END, True),
    "a hard drive node of length 4": (bytes([4, 1, 4, 0]) + END, True),
    "a hard drive behind an end of instance": (
        ACPI + bytes([0x7F, 1, 4, 0]) + drive(FOREIGN) + END,
        True,
    ),
    "an unknown type": (ACPI + bytes([6, 1, 8, 0, 1, 2, 3, 4]) + END, False),
    "a file of any disk": (file_path(r"\EFI\evil.efi") + END, True),
    "an empty address": (NETWORK + uri("") + END, False),
}


@pytest.mark.parametrize(("path", "is_removed"), ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("status", [18, -11])
def test_one_entry_that_no_tool_can_print_hides_no_other(firmware, path, is_removed, status):
    firmware.add("0003", "HDD1-1 vendor entry", path)
    mok = firmware.root / "MokNew-605dab50-e046-4300-abb6-3dd810dd8b23"
    mok.write_bytes(b"\x07\0\0\0a key that the next boot is to enrol")
    firmware.write("BootNext", b"\x07\0")
    firmware.failing = {"--delete-bootnum", "--verbose", "--delete-bootnext"}
    firmware.status = status

    answer = boot_entries.clear(firmware.run, firmware.root)

    assert answer["result"] == "done", answer
    assert firmware.entries == ["0000", "0001"] + ["0003"] * (not is_removed)
    assert firmware.order == ["0001", "0000"]
    assert not mok.exists()
    assert not (firmware.root / f"BootNext-{GLOBAL}").exists()


NVME = node(1, 1, b"\0\x1d") + node(3, 23, struct.pack("<IQ", 1, 5))  # 10.3.2.1, 10.3.4.21
NODES = {
    "a file on a named disk": ("Boot0003", path_of(ACPI, NVME, file_path(r"\EFI\x.efi")), True),
    "a file on any USB drive": (
        "Boot0003", path_of(node(3, 15, bytes(7)), file_path(r"\x.efi")), True),
    "a target of iSCSI": ("Boot0003", path_of(NETWORK, node(3, 19, bytes(14) + b"iqn.x\0")), True),
    "a target of NVMe/TCP": ("Boot0003", path_of(NETWORK, node(3, 34, bytes(17) + b"nqn\0")), True),
    "a drive in a second instance": (
        "Boot0003", NETWORK + bytes([0x7F, 1, 4, 0]) + path_of(drive(FOREIGN)), True),
    "a driver": ("Driver0001", path_of(drive(FOREIGN), file_path(r"\d.efi")), True),
    "a program for preparation": ("SysPrep0001", path_of(drive(FOREIGN)), True),
    "a program that the network gives": ("SYSPREP00AF", path_of(uri("http://192.0.2.1/")), True),
    "a whole disk, as firmware lists it": ("Boot0003", path_of(ACPI, NVME), False),
    "a drive that gives a CD": ("Boot0003", path_of(ACPI, node(4, 2, bytes(20))), False),
    "a disk of a BIOS": ("Boot0003", path_of(node(5, 1, b"\2\0\0\0HD\0")), False),
    "a program of the firmware": (
        "Driver0001", path_of(node(4, 7, bytes(16)), node(4, 6, bytes(16))), False),
    "a drive behind the end": ("Boot0003", path_of(NETWORK) + path_of(drive(FOREIGN)), False),
    "what the firmware recovers by": ("PlatformRecovery0001", path_of(drive(FOREIGN)), False),
}  # fmt: skip


@pytest.mark.parametrize(("name", "path", "is_removed"), NODES.values(), ids=NODES.keys())
def test_whatever_starts_from_a_disk_or_an_address_is_removed(firmware, name, path, is_removed):
    head = struct.pack("<IH", 1, len(path)) + b"x\0\0\0"
    firmware.write(name, head + path)

    assert boot_entries.clear(firmware.run, firmware.root)["result"] == "done"

    assert (firmware.root / f"{name}-{GLOBAL}").exists() is not is_removed
    assert {"0000", "0001"} <= set(firmware.entries)  # a driver's number is not a boot entry's


@pytest.mark.parametrize("value", [b"", b"\1\0", struct.pack("<IH", 1, 9) + b"x\0\0\0ab"])
def test_an_entry_that_is_cut_off_is_taken_for_a_tenants(firmware, value):
    firmware.write("Boot0003", value)

    assert boot_entries.clear(firmware.run, firmware.root)["result"] == "done"
    assert firmware.entries == ["0000", "0001"]


@pytest.mark.parametrize(
    "path", [path_of(drive(FOREIGN)), path_of(NETWORK, uri("http://assets.example.com/ipxe.efi"))]
)
def test_an_entry_that_cannot_be_removed_is_not_done(firmware, path, monkeypatch):
    firmware.add("0009", "kept", path)
    firmware.failing.add("--delete-bootnum")
    monkeypatch.setattr(uefi_variables, "remove_variable", lambda name, _root: "Next" in name)

    answer = boot_entries.clear(firmware.run, firmware.root)

    assert answer["result"] == "not_done"
    assert "cannot be removed" in answer["detail"]


@pytest.mark.parametrize("parttype", ["gpt", "0xef"])
def test_the_written_disk_is_the_first_entry_and_the_only_one_of_a_disk(firmware, parttype):
    if parttype == "0xef":
        firmware.part |= {"parttype": "0xef", "partuuid": "aabbccdd-01"}

    answer = boot_entries.choose_disk("S", firmware.run, firmware.root)

    assert answer["result"] == "done", answer
    assert firmware.order == ["0002", "0001", "0000"]
    written = (firmware.root / f"Boot0002-{GLOBAL}").read_bytes()
    assert r"\EFI\BOOT\BOOTX64.EFI".encode("utf-16-le") in written


def test_an_entry_that_efibootmgr_cannot_print_does_not_stop_a_deployment(firmware):
    firmware.add("0003", "CD/DVD Drive", b"")

    assert boot_entries.choose_disk("S", firmware.run, firmware.root)["result"] == "done"


def test_a_firmware_that_refuses_is_not_done(firmware):
    firmware.failing.add("--create")

    assert boot_entries.choose_disk("S", firmware.run, firmware.root)["result"] == "not_done"


def test_a_firmware_that_keeps_its_own_order_is_not_done(firmware):
    firmware.sorts = True

    answer = boot_entries.choose_disk("S", firmware.run, firmware.root)

    assert answer["result"] == "not_done"
    assert "UEFI PXEv4" in answer["detail"]


def test_a_disk_without_an_efi_system_partition_gets_no_entry(firmware):
    firmware.part["parttype"] = "0fc63daf-8483-4772-8e79-3d69d8477de4"

    assert boot_entries.choose_disk("S", firmware.run, firmware.root)["result"] == "not_done"
    assert "0007" in firmware.entries


def test_only_a_boot_without_uefi_has_no_variables(firmware, tmp_path):
    """/sys/firmware/efi is there in each boot by UEFI; efivars below it may not be mounted."""
    absent, unmounted = tmp_path / "firmware/efi/efivars", tmp_path / "efi/efivars"
    unmounted.parent.mkdir()

    for root, result in ((absent, "unsupported"), (unmounted, "not_done")):
        assert boot_entries.clear(firmware.run, root)["result"] == result
        assert boot_entries.choose_disk("S", firmware.run, root)["result"] == result
        assert owner_keys.read(root)["result"] == result


def test_a_tpm_that_the_kernel_does_not_drive_is_not_absent(tmp_path):
    table, device = tmp_path / "TPM2", tmp_path / "tpmrm0"

    assert tpm.clear(device=device, table=table)["result"] == "unsupported"
    table.write_bytes(b"TPM2")
    assert tpm.clear(device=device, table=table)["result"] == "not_done"

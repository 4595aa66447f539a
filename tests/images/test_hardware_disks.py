"""Which disks there are, what each can do to itself, and proof by reading back."""

from __future__ import annotations

import hashlib
import json

import pytest
from hardware_machine import Machine, device
from provisioner_hardware_manager import disk_reading, disks
from provisioner_hardware_manager.commands import Output

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


# fields of `nvme id-ctrl -o json`, nvme-cli 2.3
ABILITIES = {"sanicap": 3, "oacs": 23, "fna": 4, "mn": "x", "tnvmcap": 1600321314816}


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

    assert [d["name"] for d in disks.list_disks(machine.run)] == ["/dev/sda", "/dev/nvme0n1"]


def test_a_disk_is_described_as_the_daemon_reads_it():
    machine = Machine(device("nvme0n1", tran="nvme", wwn="eui.0025385b71b0aaaa"))
    machine.says["nvme"] = Output(0, json.dumps(ABILITIES))

    assert disks.list_disks(machine.run) == [
        {
            "name": "/dev/nvme0n1",
            "names": ["/dev/nvme0n1"],
            "serial": "S-nvme0n1",
            "wwn": "eui.0025385b71b0aaaa",
            "model": "MODEL",
            "size": 480103981056,
            "transport": "nvme",
            "read_only": False,
            "nvme": {
                "sanicap": 3,
                "oacs": 23,
                "fna": 4,
                "capacity": 1600321314816,
                "unallocated": 0,
                "controller_id": 0,
                "locked": None,
                "namespaces": None,
                "attached": None,
            },
            "ata": None,
            "scsi": None,
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

    plain = {"hidden_area": None, "sanitize": []}
    assert disks.list_disks(machine.run)[0]["ata"] == expected | plain


def test_sanitize_actions_of_an_ata_drive_have_a_star_each():
    # hdparm 9.65: a star for a command that is supported and enabled
    features = (
        "\t   *\tSANITIZE_ANTIFREEZE_LOCK_EXT command\n\t   *\tSANITIZE feature set\n"
        "\t   *\tCRYPTO_SCRAMBLE_EXT command\n\t    \tOVERWRITE_EXT command\n"
        "\t   *\tBLOCK_ERASE_EXT command\n"
    )
    text = SECURITY.replace("Security: ", features + "Security: ") % ("not", "")
    machine = Machine(device("sda", tran="sata"), device("sdb", tran="sata"))
    machine.says["hdparm"] = Output(0, text)

    assert disks.list_disks(machine.run)[0]["ata"]["sanitize"] == ["crypto", "block"]
    machine.says["hdparm"] = Output(0, text.replace("*\tSANITIZE feature", " \tSANITIZE feature"))
    assert disks.list_disks(machine.run)[0]["ata"]["sanitize"] == []


@pytest.mark.parametrize("text", ["", "Security:\n", "garbage \x00\xff", "{"])
def test_a_disk_that_says_nothing_of_itself_offers_nothing(text):
    machine = Machine(device("sda", tran="sata"), device("nvme0n1", tran="nvme"))
    machine.says = {"hdparm": Output(0, text), "nvme": Output(0, text)}

    sata, nvme = disks.list_disks(machine.run)

    assert sata["ata"] in (
        None,
        {
            "supported": False,
            "frozen": True,
            "enhanced": False,
            "hidden_area": None,
            "sanitize": [],
        },
    )
    assert nvme["nvme"] is None


def test_two_disks_of_one_serial_are_none():
    machine = Machine(device("nvme0n1", serial="X"), device("nvme1n1", serial="X"))

    assert disks.find_disk("X", machine.run) is None
    assert disks.find_disk("", machine.run) is None


@pytest.mark.parametrize(("offset", "length"), [(0, 1), (0, 9 << 20), (5, 100), ((4 << 20) - 1, 2)])
def test_reading_back_gives_the_digest_of_exactly_that_range(tmp_path, offset, length):
    content = bytes(i % 251 for i in range(9 << 20))
    disk = tmp_path / "disk"
    disk.write_bytes(content)

    digest = disk_reading.hash_device(str(disk), offset, length)

    assert digest == hashlib.sha256(content[offset : offset + length]).hexdigest()


def test_reading_past_the_end_is_refused(tmp_path):
    disk = tmp_path / "disk"
    disk.write_bytes(b"short")

    with pytest.raises(OSError, match=r"disk ends|nothing to read"):
        disk_reading.hash_device(str(disk), 0, 100)
    with pytest.raises(ValueError, match="out of bounds"):
        disk_reading.hash_range("S", -1, 5, Machine().run)
    with pytest.raises(ValueError, match="the disk ends"):
        disk_reading.hash_range("S-sda", 0, 10, Machine(device("sda", size=5)).run)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (" max sectors   = 586070255/586072368, HPA is enabled\n", True),
        (" max sectors   = 586072368/586072368, HPA is disabled\n", False),
        ("SG_IO: bad/missing sense data", None),
    ],
)
def test_a_host_protected_area_is_read_from_the_drive(text, hidden):
    machine = Machine(device("sda", tran="sata"))
    machine.says["hdparm -N"] = Output(0, text)
    machine.says["hdparm"] = Output(0, SECURITY % ("not", ""))

    assert disks.list_disks(machine.run)[0]["ata"]["hidden_area"] is hidden


def test_namespaces_of_one_drive_are_one_disk_and_another_drive_is_another():
    machine = Machine(
        device("nvme0n1", tran="nvme", serial="A"),
        device("nvme0n2", tran="nvme", serial="A", size=7),
        device("nvme1n1", tran="nvme", serial="B"),
    )

    listed = disks.list_disks(machine.run)

    assert [(d["serial"], d["names"]) for d in listed] == [
        ("A", ["/dev/nvme0n1", "/dev/nvme0n2"]),
        ("B", ["/dev/nvme1n1"]),
    ]


def test_abilities_of_another_drive_behind_the_controllers_name_are_none():
    machine = Machine(device("nvme0n1", tran="nvme", serial="A"))
    machine.says["nvme"] = Output(0, json.dumps({**ABILITIES, "sn": "B"}))

    assert disks.list_disks(machine.run)[0]["nvme"] is None

"""What the collection's parser makes of nvme-cli's output, and the slot that it chooses."""

from __future__ import annotations

import json
import sys

import pytest
from role_lab import ANSIBLE

sys.path.insert(0, str(ANSIBLE / "collections"))

from ansible_collections.provisioner.fleet.plugins.module_utils import nvme, tools

# source: nvme id-ctrl -o json of a Solidigm drive, as tests of NVMe tools on GitHub have it, cut
IDENTITY = {"sn": "X" * 20, "mn": f"{'SOLIDIGM SBFPF2BU153T':40}", "fr": "6CV10100"}
IDENTITY |= {"oacs": 94, "frmw": 24, "fwug": 1, "mtfa": 100}


@pytest.mark.parametrize(
    ("frmw", "slots"),
    [
        (0x18, [1, 2, 3, 4]),  # the drive above
        (0x17, [2, 3]),  # Samsung MZWLL1T6HEHP (Nutanix, manual firmware updates)
        (0x0B, [2, 3, 4, 5]),  # HGST SN200
        (0x02, [1]),
        (0x03, []),
        (0x00, []),
    ],
)
def test_slots_of_a_drive_are_those_that_it_can_write(frmw: int, slots: list[int]):
    assert nvme.list_writable_slots(frmw) == slots


def test_the_slot_that_runs_is_written_only_where_there_is_no_other():
    chosen = [
        nvme.choose_slot({"model": "m", "writable": writable, "active": active})
        for writable, active in (([1, 2, 3], 1), ([2, 3], 2), ([1], 1))
    ]

    assert chosen == [2, 3, 1]
    with pytest.raises(tools.Refused):
        nvme.choose_slot({"model": "m", "writable": [], "active": 1})


def test_a_warning_before_the_document_of_a_newer_nvme_is_no_fault():
    text = "nvme fw-log is deprecated, use nvme log fw\n" + json.dumps(IDENTITY)

    assert nvme.parse_document(text, "/dev/nvme0")["fr"] == "6CV10100"
    for unreadable in ("", "[]", "{", "no such file"):
        with pytest.raises(tools.Unreadable):
            nvme.parse_document(unreadable, "/dev/nvme0")


def test_revisions_in_slots_are_read_with_their_characters():
    log = {"Active Firmware Slot (afi)": 0x21, "Firmware Rev Slot 1": "3832 (5B2QGXA7)"}
    log |= {"Firmware Rev Slot 2": "1 (6B2QGXA7)", "Firmware Rev Slot 3": "0 ()"}

    assert nvme.parse_slots(log) == {1: "5B2QGXA7", 2: "6B2QGXA7"}

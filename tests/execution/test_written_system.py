"""The disk that the running system is on, as lsblk lists it from its root file system down."""

from __future__ import annotations

import pytest

from provisioner.execution.steps.deployment import parse_root_disks

ANSWERS = {
    "a partition": ("part \ndisk S64HNE0R100001\n", ("S64HNE0R100001",)),
    "LVM on md of two disks": (
        "lvm  \nraid1 \npart \ndisk A 1\npart \ndisk B\n",
        ("A 1", "B"),
    ),
    "a file system of no block device": ("", ()),
    "a disk without a serial": ("part\ndisk\n", ()),
    "a serial with control characters": ("disk S\x1b[2J\n", ("S [2J",)),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_disks_below_the_root_file_system_are_read_from(case: str) -> None:
    text, serials = ANSWERS[case]

    assert parse_root_disks(text) == serials

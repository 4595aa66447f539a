"""Which drives of a node are neither the delivered ones nor the erased ones."""

from __future__ import annotations

import pytest

from provisioner.model.erasure import Disk, ErasureReport
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.planning.certification.regression import STRANGER
from provisioner.planning.erasure import erasure as drives


def seen(*bmc: str, host: tuple[str, ...] = ()) -> Inventory:
    listed = tuple(Device(kind=DeviceKind.STORAGE, slot=f"d{s}", serial=s) for s in bmc)
    return Inventory(node="n", vendor="v", devices=listed, drives=host)


STRANGE = {
    "the same drives": (("A", "B"), seen("A", "B"), ()),
    "another one in a bay": (("A", "B"), seen("A", "X"), ("X",)),
    "one more, which only the host lists": (("A",), seen("A", host=("A", "X")), ("X",)),
    "one that is gone is not strange": (("A", "B"), seen("A"), ()),
    "letter case and blanks do not count": (("abC1 ",), seen("ABc1"), ()),
    "no record of earlier ones": (None, seen("A"), ()),
    "a node that was delivered without drives": ((), seen("A"), ("A",)),
}


@pytest.mark.parametrize("sentence", STRANGE)
def test_a_drive_is_strange_unless_it_was_delivered_or_erased(sentence: str) -> None:
    known, inventory, strange = STRANGE[sentence]

    assert drives.find_strange_drives(known, inventory) == strange


def test_an_erasure_covers_the_drives_that_the_agent_saw_last_and_those_of_the_bmc() -> None:
    disks = tuple(Disk(name=f"/dev/{s}", serial=s, size_bytes=1) for s in ("B", "A"))
    report = ErasureReport(node="n", tenant="t", fenced_at=1.0, started_at=1.0, ended_at=2.0,
                           after=disks, expected=("C",))  # fmt: skip

    assert drives.list_erased(report) == ("A", "B", "C")


# tenant, served before, served after a strange drive was seen
OWED = {
    "a clean node": ("", "", STRANGER),
    "one that goes back to its tenant, where policy may skip": ("red", "red", f"red, {STRANGER}"),
    "one that owes an erasure already": ("blue", "red", "red"),
}


@pytest.mark.parametrize("sentence", OWED)
def test_a_node_with_a_strange_drive_owes_an_erasure_under_every_policy(sentence: str) -> None:
    tenant, served, after = OWED[sentence]
    node = Node(id="n", kind=NodeKind.HOST, tenant=tenant, served=served, drives=("A",))

    assert drives.record_drives(node, seen("X")).served == after
    assert drives.record_drives(node, seen("A")).served == served


def test_the_first_reading_of_a_node_is_its_record() -> None:
    node = Node(id="n", kind=NodeKind.HOST)

    assert drives.record_drives(node, seen("B", "A")).drives == ("A", "B")

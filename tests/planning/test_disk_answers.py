"""What an agent says of disks: read with its facts, or refused; never believed half."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.model.erasure import Disk, Method, Result
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.erasure.disk_answers import (
    DISKS_MAX,
    parse_disks,
    read_back,
    record_erasure,
    step_result,
)

NVME = {
    "name": "/dev/nvme0n1",
    "serial": " S64HNE0R100001 ",
    "wwn": "eui.36344830",
    "model": "SAMSUNG MZQL23T8",
    "size": 3_840_755_982_336,
    "transport": "nvme",
    "read_only": False,
    "nvme": {"sanicap": 0xA0000003, "oacs": 0x5F, "fna": 0x4},
    "ata": None,
}
SATA = {
    **NVME,
    "name": "/dev/sda",
    "serial": "Z1",
    "transport": "SATA",
    "nvme": None,
    "ata": {"supported": True, "frozen": False, "enhanced": True},
}
DISK = Disk(name="/dev/nvme0n1", serial="S1", size_bytes=10)


def methods(**changes: Any) -> tuple[Method, ...]:
    found = parse_disks({"disks": [{**NVME, **changes}]}, "n0")
    assert not isinstance(found, Blocker)
    return found[0].methods


def test_disks_are_read_with_their_facts_and_ordered_by_serial() -> None:
    found = parse_disks({"disks": [SATA, NVME]}, "n0")

    assert not isinstance(found, Blocker)
    assert [(d.serial, d.transport) for d in found] == [
        ("S64HNE0R100001", "nvme"),
        ("Z1", "sata"),
    ]


OFFERS = {
    "crypto and block sanitize, crypto format": (
        {},
        (
            Method.SANITIZE_CRYPTO,
            Method.SANITIZE_BLOCK,
            Method.FORMAT_CRYPTO,
            Method.FORMAT_USER_DATA,
            Method.OVERWRITE,
        ),
    ),
    "format without crypto": (
        {"nvme": {"sanicap": 0, "oacs": 2, "fna": 0}},
        (Method.FORMAT_USER_DATA, Method.OVERWRITE),
    ),
    "no format, though it could do so by crypto": (
        {"nvme": {"sanicap": 0, "oacs": 0, "fna": 4}},
        (Method.OVERWRITE,),
    ),
    "capabilities that are no numbers": (
        {"nvme": {"sanicap": "3", "oacs": True, "fna": -1}},
        (Method.OVERWRITE,),
    ),
    "an ATA disk that sanitizes, and whose security the BIOS has frozen": (
        {
            "nvme": None,
            "ata": {
                "supported": True,
                "frozen": True,
                "enhanced": True,
                "sanitize": ["overwrite", "block", "unknown"],
            },
        },
        (Method.ATA_SANITIZE_BLOCK, Method.ATA_SANITIZE_OVERWRITE, Method.OVERWRITE),
    ),
    "an ATA disk whose sanitize actions are no list": (
        {"nvme": None, "ata": {"supported": False, "frozen": False, "sanitize": "block"}},
        (Method.OVERWRITE,),
    ),
    "an ATA disk": (
        {"nvme": None, "ata": SATA["ata"]},
        (Method.ATA_ENHANCED, Method.ATA_SECURE, Method.OVERWRITE),
    ),
    "an ATA disk that the BIOS froze": (
        {"nvme": None, "ata": {"supported": True, "frozen": True, "enhanced": True}},
        (Method.OVERWRITE,),
    ),
    "a SAS disk": (
        {"nvme": None, "scsi": ["overwrite", "crypto", "melt"]},
        (Method.SCSI_SANITIZE_CRYPTO, Method.SCSI_SANITIZE_OVERWRITE, Method.OVERWRITE),
    ),
    "a write-protected disk": ({"nvme": None, "read_only": True}, ()),
}


@pytest.mark.parametrize("case", OFFERS)
def test_a_disk_offers(case: str) -> None:
    changes, wanted = OFFERS[case]

    assert methods(**changes) == wanted


REFUSED: dict[str, tuple[Any, Reason]] = {
    "nothing": (None, Reason.MALFORMED),
    "no list": ({"disks": "many"}, Reason.MALFORMED),
    "too many": ({"disks": [NVME] * (DISKS_MAX + 1)}, Reason.MALFORMED),
    "no mapping in it": ({"disks": [7]}, Reason.MALFORMED),
    "a path that leads elsewhere": (
        {"disks": [{**NVME, "name": "/dev/../etc/passwd"}]},
        Reason.MALFORMED,
    ),
    "a serial that moves the cursor": (
        {"disks": [{**NVME, "serial": "S\x1b[2J"}]},
        Reason.MALFORMED,
    ),
    "no serial": ({"disks": [{**NVME, "serial": ""}]}, Reason.MALFORMED),
    "a size that is no number": ({"disks": [{**NVME, "size": "3T"}]}, Reason.MALFORMED),
    "a size that cannot be": ({"disks": [{**NVME, "size": 1 << 70}]}, Reason.MALFORMED),
    "one serial twice": (
        {"disks": [NVME, {**NVME, "name": "/dev/nvme1n1"}]},
        Reason.DUPLICATE,
    ),
    "one name twice": ({"disks": [NVME, {**NVME, "serial": "S2"}]}, Reason.DUPLICATE),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_list_of_disks_is_refused_with(case: str) -> None:
    answer, reason = REFUSED[case]

    found = parse_disks(answer, "n0")

    assert isinstance(found, Blocker)
    assert found.reason is reason
    assert "\x1b" not in found.detail


ANSWER = {"device": "/dev/nvme0n1", "serial": "S1", "method": "overwrite", "result": "done"}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "done",
        {**ANSWER, "serial": "S2"},
        {**ANSWER, "device": "/dev/nvme1n1"},
        {**ANSWER, "method": "nvme_format_crypto"},
        {**ANSWER, "result": "perhaps"},
        {**ANSWER, "result": None},
    ],
)
def test_an_answer_about_anything_else_is_no_erasure(answer: object) -> None:
    found = record_erasure(answer, DISK, Method.OVERWRITE, 1.0, 2.0)

    assert found.result is Result.NOT_DONE
    assert found.detail


def test_an_answer_about_this_disk_and_method_is_its_record() -> None:
    found = record_erasure({**ANSWER, "detail": "ok\x07"}, DISK, Method.OVERWRITE, 1.0, 2.0)

    assert (found.result, found.detail, found.ended_at) == (Result.DONE, "ok", 2.0)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"serial": "S", "offset": 0, "bytes": 1, "sha256": "short"},
        {"serial": 7, "offset": 0, "bytes": 1, "sha256": "0" * 64},
        {"serial": "S", "offset": "0", "bytes": 1, "sha256": "0" * 64},
        {"serial": "S", "offset": 0, "bytes": True, "sha256": "0" * 64},
    ],
)
def test_a_read_back_that_is_not_described_is_malformed(answer: object) -> None:
    found = read_back(answer, "n0")

    assert isinstance(found, Blocker)
    assert found.reason is Reason.MALFORMED


def test_a_step_about_the_machine_is_done_only_if_it_says_so() -> None:
    assert step_result({"result": "done"}) == (Result.DONE, "")
    assert step_result({"result": True})[0] is Result.NOT_DONE
    assert step_result([])[0] is Result.NOT_DONE

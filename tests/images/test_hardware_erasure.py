"""How the ramdisk erases one disk: the ladder's methods, each with the disk's own word."""

from __future__ import annotations

import inspect

import pytest
from ironic_python_agent import hardware
from nvme_machine import SERIAL, Generic, Machine, erase
from provisioner_hardware_manager import erasure, samples
from provisioner_hardware_manager.samples import Samples


def test_a_sanitize_is_done_when_the_disks_own_log_says_so():
    machine = Machine()
    machine.sstat = [0x0000, 0x0002, 0x0002, 0x0101]

    record = erase(machine, "nvme_sanitize_crypto")

    assert record["result"] == "done"
    assert "SSTAT 0x0101" in record["detail"]
    assert machine.done("sanitize") == [("nvme", "sanitize", "/dev/nvme0", "--sanact=4", "--ause")]


def test_a_block_sanitize_is_another_action():
    machine = Machine()

    assert erase(machine, "nvme_sanitize_block")["result"] == "done"
    assert machine.done("sanitize") == [("nvme", "sanitize", "/dev/nvme0", "--sanact=2", "--ause")]


def test_a_sanitize_of_somebody_else_is_awaited_before_ours_begins():
    machine = Machine()
    machine.sstat = [0x0002, 0x0101, 0x0101]

    erase(machine, "nvme_sanitize_crypto")

    order = [words[1] for words in machine.asked]
    assert order == ["sanitize-log", "sanitize-log", "sanitize", "sanitize-log"]


@pytest.mark.parametrize("status", [0x0003, 0x0000])
def test_a_sanitize_that_failed_or_never_was_is_not_done(status):
    machine = Machine()
    machine.sstat = [0x0101, status]

    assert erase(machine, "nvme_sanitize_crypto")["result"] == "not_done"


def test_a_log_that_cannot_be_read_is_not_done():
    machine = Machine()
    machine.failing["sanitize-log"] = "NVMe status: Invalid Log Page"

    assert erase(machine, "nvme_sanitize_crypto")["result"] == "not_done"


@pytest.mark.parametrize(
    ("method", "ses"), [("nvme_format_crypto", 2), ("nvme_format_user_data", 1)]
)
def test_a_format_uses_the_setting_that_was_asked_for(method, ses):
    machine = Machine()

    assert erase(machine, method)["result"] == "done"
    (command,) = machine.done("format")
    assert command[:5] == ("nvme", "format", "/dev/nvme0", "--namespace-id=1", f"--ses={ses}")


@pytest.mark.parametrize(
    ("method", "lacking"),
    [
        ("nvme_sanitize_crypto", {"sanicap": 2}),
        ("nvme_sanitize_block", {"sanicap": 1}),
        ("nvme_format_crypto", {"fna": 0}),
        ("nvme_format_user_data", {"oacs": 0}),
        ("ata_secure_erase", {}),  # this disk is no ATA drive
        ("degauss", {}),
    ],
)
def test_what_the_disk_does_not_offer_is_unsupported_and_not_tried(method, lacking):
    machine = Machine(**lacking)

    assert erase(machine, method)["result"] == "unsupported"
    assert machine.asked == []


@pytest.mark.parametrize("command", ["sanitize", "format"])
def test_a_command_that_fails_is_not_done_with_its_words(command):
    machine = Machine()
    machine.failing[command] = "NVMe status: Access Denied(0x4286)"
    method = {"sanitize": "nvme_sanitize_crypto", "format": "nvme_format_crypto"}[command]

    record = erase(machine, method)

    assert record["result"] == "not_done"
    assert "Access Denied" in record["detail"]


def test_another_disk_behind_the_name_is_left_alone():
    machine = Machine()
    machine.serial = "ANOTHER"

    assert erase(machine, "nvme_format_crypto")["result"] == "not_done"
    assert machine.asked == []


def test_a_disk_that_changed_its_name_is_left_alone():
    machine = Machine()
    machine.name = "nvme1n1"

    record = erase(machine, "nvme_format_crypto")

    assert (record["result"], machine.asked) == ("not_done", [])
    assert "/dev/nvme1n1 now" in record["detail"]


def test_the_record_repeats_what_was_asked():
    record = erase(Machine(), "nvme_format_crypto")

    assert (record["device"], record["serial"]) == ("/dev/nvme0n1", SERIAL)
    assert record["method"] == "nvme_format_crypto"


def test_samples_of_a_device_are_its_edges_and_one_place_in_each_section(tmp_path):
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0)
        file.write(b"tenant" + bytes(4090))
    size = 1 << 30

    places = samples.list_places(size, "a")
    read = samples.read_samples([str(disk)], "a")

    assert (places[0], places[-1]) == (0, size - 4096)
    assert {p * 1024 // size for p in places} == set(range(1024))
    assert places != samples.list_places(size, "b")
    assert (len(read.data), read.count, read.unreadable) == (1, len(places), 0)
    assert samples.read_samples([str(tmp_path / "none")], "a") == Samples(unreadable=1)


def test_an_overwrite_counts_when_the_disk_reads_as_zeroes(tmp_path, monkeypatch):
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(5 << 20))

    assert erasure.count_zero_samples(str(disk), 5 << 20) == 16


@pytest.mark.parametrize("place", [0, (5 << 20) - 1])
def test_one_byte_that_was_left_at_either_end_is_seen(tmp_path, place):
    disk = tmp_path / "disk"
    content = bytearray(5 << 20)
    content[place] = 1
    disk.write_bytes(content)

    assert erasure.count_zero_samples(str(disk), len(content)) == 0


def test_an_overwrite_that_failed_is_not_done():
    generic = Generic(works=False)

    record = erase(Machine(), "overwrite", agent=generic)

    assert (record["result"], generic.asked) == ("not_done", [("overwrite", "/dev/nvme0n1")])


def test_a_read_only_disk_is_not_overwritten():
    machine, generic = Machine(), Generic()
    machine.read_only = True

    assert erase(machine, "overwrite", agent=generic)["result"] == "unsupported"
    assert generic.asked == []


def test_the_agents_own_methods_are_those_that_we_call():
    """They are private: a new version of the agent may rename them, and this is where we learn."""
    own = hardware.GenericHardwareManager

    assert list(inspect.signature(own._ata_erase).parameters) == ["self", "block_device"]
    assert list(inspect.signature(own._shred_block_device).parameters) == [
        "self",
        "node",
        "block_device",
    ]

"""Erasing all of a drive: namespaces, capacity outside of them, SAS drives; samples as proof."""

from __future__ import annotations

import json
import struct

import pytest
from nvme_machine import SERIAL, TOTAL, Generic, Machine, erase, layout
from provisioner_hardware_manager import disks, erasure
from provisioner_hardware_manager.commands import Output
from provisioner_hardware_manager.samples import Samples


def test_a_shrunk_namespace_is_no_erased_drive_by_format():
    """The tenant's data lies in the capacity that is in no namespace any more."""
    machine = layout((TOTAL // 8, True))

    record = erase(machine, "nvme_format_user_data")

    assert record["result"] == "done"
    assert machine.namespaces == {1: (TOTAL // 4096 * 4096, True)}
    order = [w[1] for w in machine.asked if w[1] != "ns-rescan"]
    assert order == ["format", "delete-ns", "create-ns", "attach-ns", "format"]
    assert "--flbas=1" in machine.done("create-ns")[0]


def test_a_shrunk_namespace_that_cannot_be_made_whole_is_not_tried_by_format():
    machine = layout((TOTAL // 8, True), oacs=2)

    record = erase(machine, "nvme_format_user_data")

    assert (record["result"], machine.asked) == ("unsupported", [])
    assert "in no namespace" in record["detail"]


@pytest.mark.parametrize("command", ["delete-ns", "create-ns", "attach-ns"])
def test_a_layout_that_cannot_be_made_whole_is_no_erasure_by_format(command):
    machine = layout((TOTAL // 8, True))
    machine.failing[command] = "NVMe status: Namespace Insufficient Capacity"

    assert erase(machine, "nvme_format_crypto")["result"] == "not_done"


def test_a_second_namespace_is_formatted_too():
    machine = layout((TOTAL // 2, True), (TOTAL // 2, True), oacs=2)

    assert erase(machine, "nvme_format_user_data")["result"] == "done"
    assert [w[3] for w in machine.done("format")] == ["--namespace-id=1", "--namespace-id=2"]


@pytest.mark.parametrize("fna", [0b01, 0b10])
def test_one_format_is_enough_where_the_controller_then_erases_all_namespaces(fna):
    machine = layout((TOTAL // 2, True), (TOTAL // 2, True), oacs=2, fna=fna)

    assert erase(machine, "nvme_format_user_data")["result"] == "done"
    assert [w[3] for w in machine.done("format")] == ["--namespace-id=1"]


def test_a_detached_namespace_is_attached_read_and_formatted():
    machine = layout((TOTAL // 2, True), (TOTAL // 2, False))
    read: list[list[str]] = []

    def sampler(devices: list[str], seed: str) -> Samples:
        read.append(devices)
        return machine.sampler(devices, seed)

    record = erase(machine, "nvme_format_user_data", sampler=sampler)

    assert record["result"] == "done"
    assert read == [["/dev/nvme0n1", "/dev/nvme0n2"]] * 2
    assert {w[3] for w in machine.done("format")} == {"--namespace-id=1", "--namespace-id=2"}


def test_a_drive_without_a_namespace_is_erased_by_the_name_of_its_controller(tmp_path, monkeypatch):
    folder = tmp_path / "nvme0"
    folder.mkdir()
    for name, text in {"serial": SERIAL, "transport": "pcie", "model": "M"}.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(disks, "CONTROLLERS", tmp_path)
    machine = layout()

    record = erase(machine, "nvme_sanitize_block", device="/dev/nvme0")

    assert record["result"] == "done"
    assert machine.namespaces == {1: (TOTAL // 4096 * 4096, True)}


def test_a_sanitized_drive_gets_one_namespace_with_all_of_its_capacity():
    machine = layout((TOTAL // 4, True), (TOTAL // 4, False))

    record = erase(machine, "nvme_sanitize_crypto")

    assert record["result"] == "done"
    assert machine.namespaces == {1: (TOTAL // 4096 * 4096, True)}
    assert machine.done("format") == []


def test_a_drive_that_does_not_list_its_namespaces_is_sanitized_and_never_formatted():
    machine = Machine()
    machine.unmanaged = True

    assert erase(machine, "nvme_format_crypto")["result"] == "unsupported"
    assert erase(machine, "nvme_sanitize_crypto")["result"] == "done"


def test_a_sanitize_that_failed_is_left_so_that_the_next_method_can_be_tried():
    machine = Machine()
    machine.sstat = [0x0101, 0x0003]

    erase(machine, "nvme_sanitize_crypto")

    assert machine.done("sanitize")[-1][3] == "--sanact=1"


@pytest.mark.parametrize("method", ["nvme_sanitize_crypto", "nvme_format_user_data"])
def test_a_method_that_left_data_is_not_done_whatever_the_drive_says(method):
    machine = Machine()
    same = Samples(frozenset({b"tenant"}), 1026)
    machine.readings = [same, same]

    record = erase(machine, method)

    assert record["result"] == "not_done"
    assert "hold the data that they held before" in record["detail"]


def test_a_drive_that_cannot_be_read_back_is_not_done():
    machine = Machine()
    machine.readings = [Samples(frozenset({b"tenant"}), 9), Samples(frozenset(), 8, unreadable=1)]

    assert erase(machine, "nvme_sanitize_crypto")["result"] == "not_done"


def discovery(locking: int) -> Output:
    """Level 0 Discovery with the TPer and the locking feature."""
    features = bytes([0, 1, 0x10, 12, 0x11]) + bytes(11) + bytes([0, 2, 0x10, 12, locking])
    page = struct.pack(">I", 44 + len(features) + 11) + bytes(44) + features + bytes(11)
    return Output(0, page.decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(("locking", "is_locked"), [(0b1111, True), (0b1011, False)])
def test_a_drive_that_a_key_locks_is_named_with_its_remedy(locking, is_locked):
    machine = Machine()
    machine.discovery = discovery(locking)
    machine.failing["sanitize"] = "NVMe status: Access Denied(0x4286)"

    record = erase(machine, "nvme_sanitize_crypto")

    assert disks.list_disks(machine.run)[0]["nvme"]["locked"] is is_locked
    assert record["result"] == "not_done"
    assert ("PSID of its label" in record["detail"]) is is_locked


@pytest.mark.parametrize("text", ["", "\0\0\0", "\0" * 60, "\x00\x00\x00\x7f" + "\0" * 48])
def test_a_discovery_that_cannot_be_read_says_nothing_of_a_lock(text):
    machine = Machine()
    machine.discovery = Output(0, text)

    assert disks.list_disks(machine.run)[0]["nvme"]["locked"] is None


def test_an_overwrite_of_a_divided_drive_is_refused():
    generic = Generic()
    machine = layout((TOTAL // 8, True))

    assert erase(machine, "overwrite", agent=generic)["result"] == "unsupported"
    assert generic.asked == []


@pytest.mark.parametrize("transport", ["nvme", "sata"])
def test_a_drive_that_tells_nothing_of_itself_is_not_overwritten(transport):
    """Other namespaces, or a host protected area, would keep what is in them."""
    machine, generic = Machine(), Generic()
    name = {"nvme": "nvme0n1", "sata": "sda"}[transport]
    disk = {"name": name, "type": "disk", "size": 1 << 20, "serial": SERIAL, "tran": transport}

    def run(*words, timeout_s=60.0):
        if words[0] == "lsblk":
            return Output(0, json.dumps({"blockdevices": [disk]}))
        return Output(1, "", "it did not end within 60 s")

    machine.run = run
    told = erase(machine, "overwrite", agent=generic, device=f"/dev/{name}")

    assert told["result"] == "unsupported"
    assert generic.asked == []


class SasMachine:
    """A SAS drive, with the words of sg3-utils 1.46."""

    def __init__(self, *actions: int) -> None:
        self.actions = actions
        self.asked: list[tuple[str, ...]] = []
        self.status = {"sg_sanitize": 0, "sg_turs": 0}

    def run(self, *words: str, timeout_s: float = 60.0) -> Output:
        assert timeout_s > 0
        if words[0] == "lsblk":
            disk = {
                "name": "sdb",
                "type": "disk",
                "size": 960197124096,
                "serial": SERIAL,
                "model": "KPM5XRUG960G",
                "tran": "sas",
                "ro": False,
            }
            return Output(0, json.dumps({"blockdevices": [disk]}))
        if words[0] == "sg_opcodes":
            offered = int(words[2].rpartition(",")[2]) in self.actions
            how = "supported [conforming to SCSI standard]" if offered else "NOT supported"
            return Output(0, f"\n  Opcode=0x48  Service_action=0x0003\n  Command is {how}\n")
        self.asked.append(words)
        return Output(self.status[words[0]], "", "sanitize failed")


def erase_sas(machine: SasMachine, method: str) -> str:
    readings = [Samples(frozenset({b"tenant"}), 9), Samples(frozenset(), 9)]
    return erasure.erase(
        "/dev/sdb",
        SERIAL,
        method,
        agent=Generic(),
        run=machine.run,
        sampler=lambda _d, _s: readings.pop(0),
    )["result"]


def test_a_sas_drive_is_sanitized_by_the_action_that_it_offers():
    machine = SasMachine(3)

    assert erase_sas(machine, "scsi_sanitize_block") == "unsupported"
    assert machine.asked == []
    assert erase_sas(machine, "scsi_sanitize_crypto") == "done"
    assert machine.asked[0] == ("sg_sanitize", "--crypto", "--ause", "--quick", "/dev/sdb")


@pytest.mark.parametrize("tool", ["sg_sanitize", "sg_turs"])
def test_a_sas_sanitize_that_failed_or_left_the_drive_not_ready_is_not_done(tool):
    machine = SasMachine(1, 2, 3)
    machine.status[tool] = 2

    assert erase_sas(machine, "scsi_sanitize_overwrite") == "not_done"

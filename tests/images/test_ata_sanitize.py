"""SANITIZE of SATA drives, with the words of hdparm 9.65 (Debian 12), and of a drive that lies."""

from __future__ import annotations

import json

import pytest
from nvme_machine import SERIAL, Generic
from provisioner_hardware_manager import erasure
from provisioner_hardware_manager.commands import Output
from provisioner_hardware_manager.samples import Samples

IDLE = "SD0 Sanitize Idle"
FINISHED = f"{IDLE}\n    Last Sanitize Operation Completed Without Error"
UNDER_WAY = "SD2 Sanitize operation In Process\n    Progress: 0x41c2 (25%)"
FAILED = "SD3 Sanitize Operation Failed"
# Crucial MX500: nothing is carried out, and hdparm ends with 0 (published by its owner, 2024)
NO_SENSE = "SG_IO: bad/missing sense data, sb[]:  f0 00 0b 04 51 40 00 0a a0 72 45 6b 00 00\n"
STARTED = "Operation started in background\nYou may use `--sanitize-status` to check progress\n"
FEATURES = "\t   *\tSANITIZE feature set\n\t   *\tBLOCK_ERASE_EXT command\n"


class SataMachine:
    """One SATA drive whose security the BIOS has frozen; `states` before and after the start."""

    def __init__(self, before: list[str], after: list[str]) -> None:
        self.states, self.after = before, after
        self.started: list[tuple[str, ...]] = []
        self.start = Output(0, f"\n/dev/sda:\nIssuing SANITIZE_BLOCK_ERASE command\n{STARTED}")
        self.slept = 0

    def run(self, *words: str, timeout_s: float = 60.0) -> Output:
        assert timeout_s > 0
        if words[0] == "lsblk":
            disk = {"name": "sda", "type": "disk", "size": 480103981056, "serial": SERIAL}
            more = {"wwn": None, "model": "MODEL", "tran": "sata", "ro": False}
            return Output(0, json.dumps({"blockdevices": [disk | more]}))
        if words[:2] == ("hdparm", "-I"):
            return Output(
                0, f"{FEATURES}Security: \n\t\tsupported\n\t\tfrozen\nChecksum: correct\n"
            )
        if words[:2] == ("hdparm", "-N"):
            return Output(1, "")
        if words[1] == "--sanitize-status":
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            head = "\n/dev/sda:\nIssuing SANITIZE_STATUS command\nSanitize status:\n"
            return Output(0, f"{head}    State:    {state}\n")
        assert words[1] == "--yes-i-know-what-i-am-doing"
        self.started.append(words[2:])
        if self.start.ok:
            self.states = self.after
        return self.start

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept += 1


def erase(
    machine: SataMachine, method: str = "ata_sanitize_block", left: bytes | None = None
) -> tuple[str, str]:
    readings = [Samples(frozenset({b"tenant"}), 9), Samples(frozenset({left} - {None}), 9)]
    record = erasure.erase(
        "/dev/sda",
        SERIAL,
        method,
        agent=Generic(),
        run=machine.run,
        sleep=machine.sleep,
        sampler=lambda _d, _s: readings.pop(0),
    )
    return record["result"], record["detail"]


def test_a_sanitize_is_done_when_the_drive_says_that_it_completed():
    machine = SataMachine([IDLE], [UNDER_WAY, UNDER_WAY, FINISHED])

    result, detail = erase(machine)

    assert (result, machine.slept) == ("done", 2)
    assert machine.started == [("--sanitize-block-erase", "/dev/sda")]
    assert "completed without error" in detail


def test_a_sanitize_of_a_former_owner_is_awaited_before_ours_begins():
    machine = SataMachine([UNDER_WAY, FINISHED], [FINISHED])

    assert erase(machine)[0] == "done"
    assert (machine.slept, len(machine.started)) == (1, 1)


def test_an_action_that_the_drive_lacks_is_unsupported_and_not_tried():
    machine = SataMachine([IDLE], [FINISHED])

    for method in ("ata_sanitize_crypto", "ata_sanitize_overwrite", "ata_secure_erase"):
        assert erase(machine, method)[0] == "unsupported"
    assert machine.started == []


@pytest.mark.parametrize(
    ("before", "after", "start", "reason"),
    [
        ([IDLE], [IDLE], None, "does not report it as completed"),
        ([IDLE], [FAILED], None, "SD3 Sanitize Operation Failed"),
        ([IDLE], ["nothing"], None, "does not report it as completed"),
        (["SD1 Sanitize Frozen"], [], None, "SD1 Sanitize Frozen"),
        ([FINISHED], [FINISHED], Output(0, STARTED, NO_SENSE), "bad/missing sense data"),
        ([FINISHED], [], Output(5, "", "SANITIZE failed: Input/output error"), "Input/output"),
        ([f"{IDLE}\n{NO_SENSE}"], [], None, "not ready"),
    ],
)
def test_whatever_the_drive_does_not_report_as_completed_is_not_done(before, after, start, reason):
    machine = SataMachine(before, after)
    machine.start = start or machine.start

    result, detail = erase(machine)

    assert result == "not_done"
    assert reason in detail


def test_a_drive_that_reports_completion_and_kept_data_is_not_done():
    assert erase(SataMachine([IDLE], [FINISHED]), left=b"tenant")[0] == "not_done"

"""A kernel log is judged only from its boot on, whichever tool printed it and at whatever level."""

from __future__ import annotations

import csv
import json
import re
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from provisioner.checks import kernel_errors, kernel_log
from provisioner.checks.check import CheckContext
from provisioner.checks.readers.kernel_lines import (
    begins_at_boot,
    is_harmless,
    parse_log_line,
    read_level,
)
from provisioner.checks.xid.xid_events import NO_CODE, find_event
from provisioner.model.cohort import CheckResult, Evidence, Severity, Verdict
from provisioner.settings import Settings

GREETING = "Linux version 6.8.0-51-generic (buildd@lcy02) #52-Ubuntu SMP"
NFS = "nfs: server storage1 not responding, timed out"
XID = "NVRM: Xid (PCI:0000:52:00): 79, pid=1234, GPU has fallen off the bus."


def journal(*entries: tuple[str, int]) -> str:
    """`journalctl -k -o json`."""
    return "".join(
        json.dumps(
            {
                "__REALTIME_TIMESTAMP": str(1772359200000000 + at),
                "_BOOT_ID": "0123456789abcdef0123456789abcdef",
                "_TRANSPORT": "kernel",
                "SYSLOG_IDENTIFIER": "kernel",
                "PRIORITY": str(priority),
                "MESSAGE": words,
            }
        )
        + "\n"
        for at, (words, priority) in enumerate(entries)
    )


def judged(check: str, text: str, **context: object) -> CheckResult:
    found = {"kernel_log": kernel_log.CHECK, "kernel_errors": kernel_errors.CHECK}[check]
    evidence = {check: Evidence(source="journalctl", exit_code=0, text=text)}
    return found.judge(evidence, CheckContext.model_validate(context))


@pytest.mark.parametrize(
    ("first", "whole"),
    [
        (f"[    0.000000] {GREETING}", True),
        ("[    0.000000] microcode: microcode updated early to revision 0x2b000590", True),
        ("[    0.000000] Booting Linux on physical CPU 0x0000000000 [0x410fd4f0]", True),
        (f"2026-03-01T10:00:00,000000+00:00 {GREETING}", True),
        (f"Mar 01 10:00:00 gpu17 kernel: {GREETING}", True),
        (f"<5>[    0.000000] {GREETING}", True),
        (f"kern  :notice: [    0.000000] {GREETING}", True),
        ("[  812.120417] mlx5_core 0000:18:00.0 eth0: Link up", False),
        ("2026-03-01T10:00:09,120000+00:00 mlx5_core 0000:18:00.0 eth0: Link up", False),
    ],
)
def test_a_log_begins_at_the_boot_or_it_does_not(first: str, whole: bool) -> None:
    assert begins_at_boot([first]) is whole


@pytest.mark.parametrize("check", ["kernel_log", "kernel_errors"])
def test_a_log_without_its_beginning_is_no_pass_and_says_what_to_do(check: str) -> None:
    result = judged(check, "[  812.120417] usb 1-14: new high-speed USB device number 4\n")

    assert result.verdict is Verdict.FAIL
    assert [f.severity for f in result.findings] == [Severity.CONFIG]
    assert "log_buf_len" in result.findings[0].detail
    assert "journalctl -k" in result.findings[0].detail


@pytest.mark.parametrize("check", ["kernel_log", "kernel_errors"])
def test_a_quiet_journal_passes(check: str) -> None:
    text = journal((GREETING, 5), ("mlx5_core 0000:18:00.0: Link up", 6))

    assert judged(check, text).verdict is Verdict.PASS


def test_a_journal_is_judged_by_the_level_of_each_message() -> None:
    text = journal((GREETING, 5), (NFS, 5), (NFS.replace("1", "2"), 3))

    result = judged("kernel_errors", text)

    assert [f.detail for f in result.findings] == [
        "kernel: nfs: server storage2 not responding, timed out"
    ]


def test_an_xid_is_found_in_a_journal() -> None:
    result = judged("kernel_log", journal((GREETING, 5), (XID, 3)))

    assert result.findings[0].detail.startswith("Xid 79")


def test_the_heads_of_journalctl_are_no_messages() -> None:
    head = "-- Journal begins at Sun 2026-03-01 10:00:00 UTC, ends at Sun 2026-03-01 11:00:00. --\n"

    text = head + f"Mar 01 10:00:00 gpu17 kernel: {GREETING}\n"

    assert judged("kernel_log", text).verdict is Verdict.PASS


def test_a_site_names_its_own_harmless_messages() -> None:
    text = journal((GREETING, 5), (NFS, 3))

    assert judged("kernel_errors", text).verdict is Verdict.FAIL
    assert judged("kernel_errors", text, harmless_lines=["^nfs: server"]).verdict is Verdict.PASS


def test_one_message_with_other_numbers_is_one_finding() -> None:
    text = journal(
        (GREETING, 5), *((f"nfs: server storage{n} not responding", 3) for n in range(9))
    )

    result = judged("kernel_errors", text)

    assert [f.detail for f in result.findings] == [
        "kernel (9 times): nfs: server storage0 not responding"
    ]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("<11>[   12.3] words", 3),
        ("3,812,120417,-;words", 3),
        ("kern  :err   : [   12.300000] words", 3),
        ('{"PRIORITY": "4", "MESSAGE": "words"}', 4),
        ('{"PRIORITY": "", "MESSAGE": "words"}', None),
        ("[   12.300000] words", None),
    ],
)
def test_a_line_tells_its_level_where_its_form_has_one(line: str, level: int | None) -> None:
    assert read_level(line) == level


def test_what_imbue_calls_harmless_is_harmless_and_a_machine_check_is_not() -> None:
    assert is_harmless("ACPI Error: No handler for Region [SYSI]")
    assert is_harmless("No Local Variables are initialized for Method [_GHL]")
    assert not is_harmless("mce: [Hardware Error]: Machine check events logged")
    assert not is_harmless(NFS)


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ValidationError, match="no regular expression"):
        CheckContext(harmless_lines=("nfs: (",))
    with pytest.raises(ValidationError, match="no regular expression"):
        Settings(kernel_lines_harmless=("nfs: (",))


def test_every_harmless_pattern_says_who_says_so() -> None:
    text = resources.files("provisioner.checks.readers").joinpath("kernel_harmless.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))

    assert len(rows) > 10
    assert all(row["pattern"] and row["source"] for row in rows)


# --- lines that are faults of a part, without a code (kernel_faults.csv names the source of each)

OFF_THE_BUS = "NVRM: fallen off the bus and is not responding to commands."
NOT_STARTED = "NVRM: GPU 0000:0b:00.0: RmInitAdapter failed! (0x62:0x40:2028)"
UNWELL = "mlx5_core 0000:3a:00.0: poll_health:737:(pid 0): device's health compromised - reached"
LINK_DOWN = "pcieport 0000:89:02.0: pciehp: Slot(400): Link Down"
GONE = "pcieport 0000:89:02.0: pciehp: Slot(400): Card not present"
LINK_UP = "pcieport 0000:89:02.0: pciehp: Slot(400): Link Up"
OTHER_UP = "pcieport 0000:89:03.0: pciehp: Slot(401): Link Up"
RECOVERED = "pcieport 0000:a9:10.0: pciehp: Slot(272): Link Down/Up ignored (recovered by DPC)"


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ([OFF_THE_BUS], ["host"]),
        ([NOT_STARTED], ["GPU_SXM_3"]),
        ([UNWELL], ["PCI 0000:3a:00.0"]),
        ([LINK_DOWN, GONE], ["PCI 0000:89:02.0"]),
        ([LINK_DOWN, GONE, OTHER_UP], ["PCI 0000:89:02.0"]),
        ([LINK_DOWN, GONE, LINK_UP], []),
        ([LINK_DOWN, LINK_UP, LINK_DOWN], ["PCI 0000:89:02.0"]),
        ([RECOVERED], []),
        (["nvidia-nvswitch: a fan fell off the bus bar"], []),
    ],
)
def test_a_line_that_is_a_fault_isolates_its_part_while_it_stands(
    lines: list[str], parts: list[str]
) -> None:
    text = journal((GREETING, 5), *((line, 4) for line in lines))

    result = judged("kernel_log", text, slot_of_pci={"0000:0b:00.0": "GPU_SXM_3"})

    assert [f.part for f in result.findings] == parts
    assert {f.severity for f in result.findings} <= {Severity.ISOLATE}


def test_a_line_that_is_a_fault_is_judged_once() -> None:
    text = journal((GREETING, 5), (NOT_STARTED, 3), (UNWELL, 3), (NFS, 3))

    result = judged("kernel_errors", text)

    assert [NFS in str(f) for f in result.findings] == [True]


def test_an_xid_is_judged_by_its_code_alone() -> None:
    result = judged("kernel_log", journal((GREETING, 5), (XID, 3)))

    assert len(result.findings) == 1
    assert "Xid 79" in str(result.findings[0])


MIG = [
    "NVRM: Xid (PCI:0000:52:00 GPU-I:05): 95, pid=7062, Uncontained: LTC TAG (0x2,0x0)",
    "NVRM: Xid (PCI:0000:52:00 GPU-I:01 GPU-CI:02): 79, pid=9, GPU has fallen off the bus.",
    "NVRM: Xid (0000:52:00 GPU-I:05): 48, pid=9, name=a, Ch 00000008",
]
UNKNOWN_FORMS = [
    "NVRM: Xid (PCI:0000:52:00 SWIZZ 5): 95, pid=7062, Uncontained",
    "NVRM: Xid [PCI:0000:52:00]: 79, GPU has fallen off the bus.",
    "NVRM: Xid 79 on 0000:52:00",
    "NVRM: Xid",
    "NVRM: Xid (PCI:0000:52:00): , name=NVRM: Xid (PCI:0000:52:00): 13, harmless",
    "nvidia-nvswitch3: SXid (on 0000:52:00): 12028, Non-fatal",
]


@pytest.mark.parametrize("line", MIG)
def test_an_xid_of_a_mig_instance_is_that_of_its_gpu(line: str) -> None:
    """NVIDIA, "GPU Memory Error Management"; leptonai/gpud's tests of Xids."""
    plain = re.sub(r" GPU-C?I:\d+", "", line)
    slots = {"0000:52:00": "GPU_SXM_3"}

    result, same = (
        judged("kernel_log", journal((GREETING, 5), (x, 3)), slot_of_pci=slots)
        for x in (line, plain)
    )

    assert result.verdict is Verdict.FAIL
    assert result.findings == same.findings
    assert {f.part for f in result.findings} == {"GPU_SXM_3"}


@pytest.mark.parametrize("line", UNKNOWN_FORMS)
def test_an_xid_of_an_unknown_form_is_an_unreadable_xid(line: str) -> None:
    result = judged("kernel_log", journal((GREETING, 5), (line, 3)))

    assert [f.severity for f in result.findings] == [Severity.ISOLATE]
    assert "unreadable" in result.findings[0].detail


PIECES = st.sampled_from(
    [
        *("NVRM: ", "Xid ", "SXid ", "(PCI:0000:52:00", " GPU-I:05", " GPU-CI:1", "): ", "(", ")"),
        *("79", ", ", "pid=7", "fallen off the bus", "mlx5_core 0000:0b:00.0: ", "name=Xid"),
        *("ACPI Error", "RmInitAdapter failed", "AER: Uncorrect", "severity=Uncorrect", " words "),
        *("Reset required [NV_ERR_RESET_REQUIRED]", "pcieport 0000:00:01.0: pciehp: Slot(3): "),
        *("Link Down", "unrecoverable hardware error", "device's health compromised"),
    ]
)


@settings(max_examples=400, deadline=None)
@given(line=st.lists(PIECES, min_size=1, max_size=9).map("".join), as_bytes=st.booleans())
def test_no_line_is_left_to_a_check_that_does_not_judge_it(line: str, *, as_bytes: bool) -> None:
    """Whatever `kernel_errors` leaves to `kernel_log` is one of its events or faults there, and a
    line of the driver with the mark of an Xid passes nowhere.
    """
    text = journal((GREETING, 5), (line, 3))
    if as_bytes:  # journalctl -o json shows a message that is not UTF-8 as its bytes
        text = text.replace(json.dumps(line), json.dumps(list(line.encode())))
    left_out = judged("kernel_errors", text).verdict is Verdict.PASS
    listed = is_harmless(line)
    event = find_event(parse_log_line(text.split("\n")[1]))
    is_known = event is not None and event.code != NO_CODE and event.explain().severity is None

    if left_out and not listed and not is_known:
        assert judged("kernel_log", text).verdict is Verdict.FAIL
    if "NVRM: Xid " in line and not is_known:
        assert judged("kernel_log", text).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED]",
        "NVRM: rpcRmApiAlloc_GSP: GspRmAlloc failed: hClient=0xc1d1a616; paramsStatus=0x00000062;",
    ],
)
def test_a_driver_that_refuses_until_a_reset_gets_one(line: str) -> None:
    """scitix/sichek issue 51, kubernetes-sigs/dra-driver-nvidia-gpu issue 982."""
    result = judged("kernel_log", journal((GREETING, 5), (line, 3)))

    assert [f.severity for f in result.findings] == [Severity.RESET_GPU]
    assert judged("kernel_errors", journal((GREETING, 5), (line, 3))).verdict is Verdict.PASS


BMC_DRIVE = (
    ("usb-storage 1-3.1:1.0: USB Mass Storage device detected", 6),
    ("scsi host9: usb-storage 1-3.1:1.0", 6),
    ("scsi 9:0:0:0: CD-ROM            AMI      Virtual CDROM0   1.00 PQ: 0 ANSI: 0 CCS", 5),
    ("sr 9:0:0:0: [sr0] scsi3-mmc drive: 0x/0x cd/rw caddy", 5),
    ("scsi host10: usb-storage 1-3.2:1.0", 6),
    ("scsi 10:0:0:0: Direct-Access     AMI      Virtual HDISK0   1.00 PQ: 0 ANSI: 0 CCS", 5),
    ("sd 10:0:0:0: [sdb] Attached SCSI removable disk", 5),
    ("scsi 2:0:0:0: Direct-Access     ATA      SAMSUNG MZ7L3960 304Q PQ: 0 ANSI: 5", 5),
    ("sd 2:0:0:0: [sda] Attached SCSI disk", 5),
)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        ("I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1", Verdict.PASS),
        ("blk_update_request: I/O error, dev sdb, sector 2048 op 0x0:(READ)", Verdict.PASS),
        ("Buffer I/O error on dev sdb1, logical block 0, async page read", Verdict.PASS),
        ("blk_update_request: critical medium error, dev sr0, sector 4", Verdict.PASS),
        ("sr 9:0:0:0: [sr0] tag#0 FAILED Result: hostbyte=DID_ERROR", Verdict.PASS),
        ("I/O error, dev sda, sector 0 op 0x0:(READ) flags 0x80700", Verdict.FAIL),
        ("I/O error, dev sdbc, sector 0 op 0x0:(READ) flags 0x80700", Verdict.FAIL),
        ("I/O error, dev nvme0n1, sector 0 op 0x0:(READ)", Verdict.FAIL),
        ("EXT4-fs error (device sdb1): ext4_find_entry:1455: reading directory", Verdict.FAIL),
    ],
)
def test_an_io_error_of_a_bmcs_own_drive_is_no_fault_of_the_machine(
    error: str, verdict: Verdict
) -> None:
    """Lines of Linux (drivers/scsi/sd.c, block/blk-core.c); AMI's names of its drives."""
    whole = journal((GREETING, 5), *BMC_DRIVE, (error, 3))
    errors = journal((GREETING, 5), (error, 3))
    plain = "".join(
        f"2026-03-01T10:00:00,000000+00:00 {words}\n"
        for words, _ in ((GREETING, 5), *BMC_DRIVE[1:], (error, 3))
    )

    assert judged("kernel_errors", plain).verdict is verdict
    assert judged("kernel_errors", whole).verdict is verdict
    # without the lines that found the drives, nothing is known of them
    assert judged("kernel_errors", errors).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "lines",
    [
        # not on USB; a model of its own; a name that a real disk had as well
        [line for line in BMC_DRIVE if "scsi host" not in line[0]],
        [(line.replace("Virtual HDISK0", "Ultra Fit"), n) for line, n in BMC_DRIVE],
        [*BMC_DRIVE, ("sd 2:0:1:0: [sdb] Attached SCSI disk", 5)],
    ],
)
def test_a_drive_that_only_looks_like_a_bmcs_is_judged(lines: list[tuple[str, int]]) -> None:
    text = journal((GREETING, 5), *lines, ("I/O error, dev sdb, sector 8 op 0x0:(READ)", 3))

    assert judged("kernel_errors", text).verdict is Verdict.FAIL

"""Xids and SXids: read in every form of a log, decoded, and unknown ones taken for the worst."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.checks.check import CheckContext
from provisioner.checks.kernel_log import CHECK
from provisioner.checks.readers.kernel_lines import parse_log_line
from provisioner.checks.xid.error_codes import Family, rank_severity
from provisioner.checks.xid.xid_events import EVENTS_MAX, ErrorEvent, find_events, index_slots
from provisioner.model.cohort import Evidence, Severity, Verdict

SAMPLES = Path(os.environ.get("PROVISIONER_SAMPLES", "../shared/samples"))
WORDS = "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s"
MANAGER = (
    "detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id 00000000:86:00.0"
    " physical id 3 port 61"
)
AT = 1740327858.0  # 2025-02-23T16:24:18Z


@pytest.mark.parametrize(
    ("line", "at", "boot_s"),
    [
        pytest.param(f"2025-02-23T16:24:18,000000+00:00 {WORDS}", AT, None, id="dmesg iso"),
        pytest.param(f"kern  :warn  : 2025-02-23T16:24:18,000000+00:00 {WORDS}", AT, None, id="-x"),
        pytest.param(f"[Sun Feb 23 16:24:18 2025] {WORDS}", AT, None, id="dmesg -T"),
        pytest.param(f"[449410.332316] {WORDS}", None, 449410.332316, id="dmesg"),
        pytest.param(f"[    4.000001] {WORDS}", None, 4.000001, id="dmesg, early"),
        pytest.param(f"<4>[449410.332316] {WORDS}", None, 449410.332316, id="dmesg -r"),
        pytest.param(f"4,1234,449410332316,-;{WORDS}", None, 449410.332316, id="kmsg"),
        pytest.param(f"Feb 23 16:24:18 node1 kernel: {WORDS}", None, None, id="journal short"),
        pytest.param(
            f"Feb 23 16:24:18 node1 kernel: [12.5] {WORDS}", None, 12.5, id="syslog with seconds"
        ),
        pytest.param(f"2025-02-23T16:24:18+0000 node1 kernel: {WORDS}", AT, None, id="short-iso"),
        pytest.param(f"1740327858.000000 node1 kernel: {WORDS}", AT, None, id="short-unix"),
        pytest.param(
            json.dumps({"__REALTIME_TIMESTAMP": "1740327858000000", "MESSAGE": WORDS}),
            AT,
            None,
            id="journal json",
        ),
        pytest.param(
            json.dumps({"__REALTIME_TIMESTAMP": "x", "MESSAGE": list(WORDS.encode())}),
            None,
            None,
            id="journal json in bytes",
        ),
    ],
)
def test_a_line_is_read_in_every_form(line: str, at: float | None, boot_s: float | None) -> None:
    found = parse_log_line(line)

    assert (found.at, found.boot_s, found.words, found.known) == (at, boot_s, WORDS, True)


@given(st.text(max_size=200))
def test_no_line_is_too_odd(line: str) -> None:
    assert find_events([line, "{" + line, f"[{line}] {line}"]) is not None


def test_an_event_has_its_process_place_link_and_slot() -> None:
    slots = index_slots([("00000000:38:00.0", "GPU_SXM_4"), ("0000:86:00.0", "NVSwitch_2")])
    lines = [
        "[1.5] NVRM: Xid (PCI:0000:38:00): 13, pid=3234, name=a, Exception on (GPC 8, TPC 5, SM 1)",
        "[2.5] nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        f"[Feb 27 2025 15:10:02] [ERROR] [tid 12727] {MANAGER}",
    ]

    found = [
        (e.family, e.code, e.slot, e.link, e.place, e.process, e.fatal)
        for e in find_events(lines, slots)
    ]

    assert found == [
        (Family.XID, 13, "GPU_SXM_4", -1, "GPC 8, TPC 5", "a", None),
        (Family.SXID, 20034, "NVSwitch_2", 30, "", "", True),
        (Family.SXID, 12028, "NVSwitch_2", 61, "", "", False),
    ]


def test_a_process_cannot_hide_an_error_behind_its_name() -> None:
    line = "[1.5] NVRM: Xid (PCI:0000:38:00): 79, pid=1, name=SXid (0): 12028, gone"

    assert [(e.family, e.code) for e in find_events([line])] == [(Family.XID, 79)]


def test_a_flood_is_counted_and_hides_nothing() -> None:
    flood = [
        f"2026-03-01T10:05:00,000000+00:00 NVRM: Xid (PCI:0000:{i % 256:02x}:00): {i % 7},"
        f" pid={i}, name=x, {i}"
        for i in range(EVENTS_MAX * 3)
    ]
    last = "2026-03-01T10:06:00,000000+00:00 NVRM: Xid (PCI:0000:52:00): 79, GPU has fallen off"
    evidence = Evidence(source="dmesg", exit_code=0, text="\n".join([*flood, last]))

    result = CHECK.judge({"kernel_log": evidence}, CheckContext())

    assert len(find_events(flood)) <= EVENTS_MAX + 7
    assert result.verdict is Verdict.FAIL
    ordered = [rank_severity(f.severity) for f in result.findings]
    assert ordered == sorted(ordered, reverse=True)


BEGIN = "2026-03-01T10:00:00,000000+00:00 Linux version 6.8.0-51-generic"


def test_repeated_words_are_one_finding_with_its_count() -> None:
    line = "2026-03-01T10:05:00,000000+00:00 NVRM: Xid (PCI:0000:52:00): 79, GPU has fallen off"
    evidence = Evidence(source="dmesg", exit_code=0, text="\n".join([BEGIN, *[line] * 50]))

    result = CHECK.judge(
        {"kernel_log": evidence}, CheckContext(slot_of_pci={"0000:52:00": "GPU_SXM_5"})
    )

    assert [(f.part, f.severity, f.detail) for f in result.findings] == [
        ("GPU_SXM_5", Severity.RESTART, "Xid 79 (50 times)")
    ]


def test_the_sample_log_is_read() -> None:
    path = SAMPLES / "misc" / "xid74_kmsg.txt"
    if not path.exists():
        pytest.skip("no samples here: set PROVISIONER_SAMPLES")

    found = find_events(path.read_text().splitlines())

    assert [(e.code, e.link, e.place) for e in found] == [
        (74, 14, ""),
        (31, -1, "GPC 2, TPC 2"),
        (48, -1, "GPC 2, TPC 2"),
    ]


def test_an_event_is_plain_json() -> None:
    (event,) = find_events([f"[449410.332316] {WORDS}"])

    assert ErrorEvent.model_validate_json(event.model_dump_json()) == event

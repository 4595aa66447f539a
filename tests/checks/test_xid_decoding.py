"""What each Xid and SXid asks for: decoded, equal to the published tables, unknown the worst."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.checks.xid.error_codes import SEVERITY, SXIDS, XIDS, Action, Fatality, explain_sxid
from provisioner.checks.xid.xid_events import NO_CODE
from provisioner.checks.xid.xid_explain import (
    ROWS,
    NvlinkMeaning,
    decode_registers,
    decode_status,
    explain_xid,
)
from provisioner.model.cohort import Severity

SAMPLES = Path(os.environ.get("PROVISIONER_SAMPLES", "../shared/samples"))


@pytest.mark.parametrize(
    ("code", "message", "severity", "said"),
    [
        (79, "", Severity.RESTART, ""),
        (119, "", Severity.RESET_GPU, ""),
        (43, "", None, ""),
        (162, "", Severity.MONITOR, ""),
        (167, "", Severity.ISOLATE, ""),
        (121, "", Severity.MONITOR, ""),  # harmless on GB200 only
        (5, "", Severity.ISOLATE, ""),
        (NO_CODE, "", Severity.ISOLATE, ""),
        (100000, "", Severity.ISOLATE, ""),
        (
            154,
            "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            Severity.RESET_GPU,
            "GPU Reset Required",
        ),
        (
            154,
            "GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)",
            Severity.RESTART,
            "Node Reboot Required",
        ),
        (154, "GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)", None, "None"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x2 (None)", Severity.ISOLATE, ""),
        (154, "GPU recovery action changed from 0x0 (None) to 0x9 (New)", Severity.ISOLATE, ""),
        (154, "", Severity.ISOLATE, ""),
        (
            74,
            "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
            Severity.RESET_GPU,
            "register 3 bit 16",
        ),
        (
            74,
            "NVLink: fatal error detected on link 1(0x200000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
            Severity.ISOLATE,
            "marginal signal",
        ),
        (74, "NVLink: fatal error detected on link 1(0x0, 0x0)", Severity.ISOLATE, "cannot be"),
        (
            149,
            "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x0)",
            Severity.RESET_GPU,
            "reason 33",
        ),
        (
            149,
            "NETIR_LINK_DOWN Fatal XC0 i0 Link 08 (0x00400011 0x00000000)",
            Severity.RESET_GPU,
            "reason 4",
        ),
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001)", None, "BER"),
        (
            149,
            "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000)",
            Severity.RESET_GPU,
            "NETIR_INT",
        ),
        (
            145,
            "RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x040868e2 0x00000008 0x0)",
            Severity.MONITOR,
            "XID_154_EVAL",
        ),
        (145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1)", None, "RLW_RXPIPE"),
        (
            145,
            "RLW_RXPIPE Fatal XC0 i0 Link 13 (0x0409a4c2 0x00000001 0x1)",
            Severity.RESET_GPU,
            "RESET_GPU",
        ),
        (
            145,
            "RLW_REMAP Nonfatal XC0 i0 Link 1 (0x00000082 0x00001000)",
            Severity.ISOLATE,
            "in no published row",
        ),
        (149, "NETIR_LINK_DOWN Nonfatal XC1 i2 Link 17 (0xdeadbeef)", Severity.ISOLATE, "cannot"),
        (144, "", Severity.ISOLATE, ""),
    ],
)
def test_an_xid_asks_for(code: int, message: str, severity: Severity | None, said: str) -> None:
    told = explain_xid(code, message)

    assert told.severity == severity, told
    assert said in "; ".join(told.details)


def test_several_errors_in_one_status_ask_for_the_worst() -> None:
    told = decode_status(145, "RLW_REMAP", 0x82, 0x1 | 0x40)

    assert told.severity is Severity.RESET_GPU
    assert len(told.details) == 2


@given(st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFF), st.integers(144, 150))
def test_only_published_words_of_nvlink_5_are_harmless(
    information: int, status: int, xid: int
) -> None:
    told = decode_status(xid, "", information, status)

    if told.severity is None:
        assert any(row.xid == xid and status in row.status for row in ROWS) or any(
            row.xid == xid and any(s & status for s in row.status) for row in ROWS
        )
        assert told.action is Action.IGNORE


@given(st.lists(st.integers(0, 0xFFFFFFFF), min_size=7, max_size=7))
def test_every_bit_of_xid_74_is_told(registers: list[int]) -> None:
    bits = decode_registers(tuple(registers))

    assert len(bits) == sum(r.bit_count() for r in registers)
    assert all(
        b.meaning is NvlinkMeaning.UNLISTED for b in bits if b.register_number not in (1, 3, 4, 5)
    )


@pytest.mark.parametrize(
    ("code", "fatal", "severity"),
    [
        (12020, False, Severity.RESTART),  # always fatal, whatever the words say
        (20034, True, Severity.RESTART),
        (12028, False, None),
        (12028, True, Severity.RESTART),
        (20012, False, Severity.MONITOR),
        (99999, False, Severity.ISOLATE),
    ],
)
def test_an_sxid_asks_for(code: int, fatal: bool, severity: Severity | None) -> None:
    assert explain_sxid(code, fatal=fatal).severity == severity


def test_every_always_fatal_sxid_restarts_the_node() -> None:
    fatal = [row for row in SXIDS.values() if row.fatality is Fatality.ALWAYS_FATAL]

    assert len(fatal) == 21
    assert {SEVERITY[row.action] for row in fatal} == {Severity.RESTART}


def test_the_table_of_xids_has_no_holes() -> None:
    assert list(XIDS) == list(range(1, 173))
    assert all(row.meaning and row.mnemonic for row in XIDS.values())


def sample(name: str) -> list[list[str]]:
    """The rows of a published table, without its heading."""
    path = SAMPLES / "xid" / name
    if not path.exists():
        pytest.skip("no samples here: set PROVISIONER_SAMPLES")
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]


def test_the_catalogue_says_the_same() -> None:
    said = {int(row[1]): row[8] for row in sample("xids.csv")}

    assert {c: r.action.value for c, r in XIDS.items()} == said


def test_every_row_of_nvlink_5_asks_for_what_its_table_says() -> None:
    for xid, unit, v1, v2, status, action, *_ in sample("xid_144_150_decode.csv"):
        for version, bits in enumerate((v1, v2)):
            word = int(bits.replace("-", "0"), 2)
            name = unit.split("/")[version if "/" in unit else 0]
            for one in status.split("/"):
                told = decode_status(int(xid), name, word, int(one or "0", 16))
                assert told.action.value == action, (xid, unit, status)


def test_the_switches_table_says_the_same() -> None:
    always = {int(row[0]) for row in sample("sxids_from_gpud.csv") if row[3] == "true"}

    assert {c for c, r in SXIDS.items() if r.fatality is Fatality.ALWAYS_FATAL} == always

"""`provisioner xid`: for people, for machines, and for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import run


def test_an_xid_is_explained(tmp_path: Path) -> None:
    done = run(["xid", "79"], tmp_path)

    assert done.returncode == 0
    assert "fallen off the bus" in done.stdout
    assert "RESTART_BM" in done.stdout


def test_registers_are_decoded(tmp_path: Path) -> None:
    words = "0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0"

    done = run(["xid", "74", "--registers", words, "--json"], tmp_path)

    told = json.loads(done.stdout)
    assert told["details"] == [
        "register 3 bit 16: if it is seen again and again: field diagnosis",
    ]


def test_a_whole_line_of_a_log_is_taken(tmp_path: Path) -> None:
    line = "[1.5] nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 12020, Fatal, Link 28 egress"

    told = json.loads(run(["xid", line, "--json"], tmp_path).stdout)

    assert (told["family"], told["code"], told["severity"]) == ("sxid", 12020, "restart")


@pytest.mark.parametrize(
    "words",
    [
        ["xid", "abc"],
        ["xid", "9" * 400],
        ["xid", "-1"],
        ["xid", "74", "--registers", "zz"],
        ["xid", "74", "--registers", "0x1 " * 50],
        ["xid", "12020", "--switch", "--registers", "0x1"],
    ],
    ids=lambda words: " ".join(words)[:30],
)
def test_bad_input_is_one_line_and_exit_code_2(words: list[str], tmp_path: Path) -> None:
    done = run(words, tmp_path)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr

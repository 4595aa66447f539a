"""The step of the image that quotes the TPM, tried with swtpm and Debian's tpm2-tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from provisioner_hardware_manager import tpm_quote
from provisioner_hardware_manager.commands import Output
from software_tpm import NEEDS_SWTPM, Board

from provisioner.planning.certification.board_identity import judge_board

NOW = 1_800_000_000.0


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[tuple[Board, Board]]:
    pair = (Board(tmp_path / "one"), Board(tmp_path / "other"))
    yield pair
    for board in pair:
        board.stop()


@NEEDS_SWTPM
def test_a_board_keeps_its_key_when_its_tpm_is_cleared_and_another_has_another(
    boards: tuple[Board, Board], tmp_path: Path
) -> None:
    one, other = boards
    first = judge_board(one.quote(b"\x01" * 32, tmp_path), b"\x01" * 32, None, NOW)
    assert first.tpm is not None, first.refused
    one.run("tpm2_clear", "-c", "lockout", timeout_s=60.0)

    again = judge_board(one.quote(b"\x02" * 32, tmp_path), b"\x02" * 32, first.tpm, NOW)
    old = judge_board(one.quote(b"\x02" * 32, tmp_path), b"\x03" * 32, first.tpm, NOW)
    strange = judge_board(other.quote(b"\x02" * 32, tmp_path), b"\x02" * 32, first.tpm, NOW)

    assert again.tpm == first.tpm
    assert "replayed" in old.refused
    assert "ak" in strange.refused


@NEEDS_SWTPM
def test_a_tpm_with_a_tenants_password_is_named(
    boards: tuple[Board, Board], tmp_path: Path
) -> None:
    board, _ = boards
    board.run("tpm2_changeauth", "-c", "endorsement", "secret", timeout_s=60.0)

    answer = board.quote(b"\x01" * 32, tmp_path)

    assert answer["result"] == "not_done"
    assert answer["detail"].startswith("tpm2_createprimary")


def test_a_machine_without_a_tpm_says_so_and_a_false_nonce_reaches_no_tool(tmp_path: Path) -> None:
    def run(*_arguments: str, timeout_s: float) -> Output:
        raise AssertionError(f"a tool was run for {timeout_s} s")

    nothing = tpm_quote.quote("ab" * 32, run, device=tmp_path / "none")
    false = tpm_quote.quote("$(reboot)", run, device=tmp_path)

    assert (nothing["result"], false["result"]) == ("unsupported", "not_done")


def test_the_event_log_comes_with_the_quote(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"events")

    def run(*arguments: str, timeout_s: float) -> Output:
        for option in ("-o", "-m", "-s"):
            if option in arguments:
                Path(arguments[arguments.index(option) + 1]).write_bytes(option.encode())
        return Output(0, f"{timeout_s}")

    answer = tpm_quote.quote("ab" * 32, run, device=tmp_path, log=log)

    assert answer["result"] == "done"
    assert answer["event_log"] == "ZXZlbnRz"
    assert {answer["quote"], answer["signature"], answer["key"]} == {"LW0=", "LXM=", "LW8="}

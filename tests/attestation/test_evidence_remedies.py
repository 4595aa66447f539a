"""Each "no" of `provisioner attest verify` says why, and which step would settle it."""

from __future__ import annotations

from pathlib import Path

import pytest
from attested_devices import NONCE
from test_attest_cli import CHAIN, REPORT, run

from provisioner.checks.attestation.evidence_containers import REMEDIES, list_remedies
from provisioner.model.certificate import FindingName, contradicts, notes, unproves
from provisioner.model.input_error import InputError

ASKED = ("--nonce", NONCE.hex(), "--at", "2026-11-22")


NOTED = {
    FindingName.FWID_NOT_STATED,
    FindingName.ADDED_ANCHOR,
    FindingName.NVDEC_SKIPPED,
    FindingName.RIM_EXPIRED_SINCE,
    FindingName.RESET_UNCOUNTED,
}


def test_each_finding_has_a_step_or_is_only_ever_noted() -> None:
    assert set(REMEDIES) | NOTED == set(FindingName)
    assert not set(REMEDIES) & NOTED
    assert all(step.endswith(".") for step in REMEDIES.values())


def test_each_step_is_named_once_and_none_for_a_note() -> None:
    rows = (
        unproves(FindingName.RIM_DIGEST, "one"),
        contradicts(FindingName.RIM_SIGNATURE, "another"),
        notes(FindingName.REVOCATION),
    )

    assert list_remedies(rows) == (REMEDIES[FindingName.RIM_DIGEST],)


REFUSED = {
    "an empty file": (b"", "it is empty"),
    "lines without a word": (b"\n \r\n", "it is empty"),
    "a manifest": (b"<?xml version='1.0'?><SoftwareIdentity/>", "--rim"),
    "cut JSON": (b'{"evidence": "00"', "no JSON that can be read"),
    "a deep one": (b"[" * 100_000, "no JSON that can be read"),
    "JSON of another kind": (b'{"a": 1}', "there is no report in it"),
    "a chain alone": (CHAIN, "a chain alone proves nothing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_holds_no_report_is_named_with_its_kind(tmp_path: Path, case: str) -> None:
    content, words = REFUSED[case]

    with pytest.raises(InputError, match=words):
        run(tmp_path, (content,), *ASKED)


def test_bytes_of_no_known_form_are_malformed_and_not_a_version(tmp_path: Path) -> None:
    code, row = run(tmp_path, (b"hello, this is a letter",), *ASKED)

    assert code == 1
    assert row["verdict"] == "unproved"
    assert row["findings"] == ["malformed at byte 0: 0x68 begins no SPDM message"]
    assert row["unblock"] == [REMEDIES[FindingName.MALFORMED]]


def test_a_report_without_our_nonce_says_which_option_is_missing(tmp_path: Path) -> None:
    code, row = run(tmp_path, (REPORT, CHAIN), "--at", "2026-11-22")

    assert code == 1
    assert row["unblock"] == [REMEDIES[FindingName.NONCE]]
    assert "--nonce" in row["unblock"][0]

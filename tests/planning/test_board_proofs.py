"""An agent speaks for a node only with the quote of that node's board."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from provisioner.integrations.sim.hardware.device_authority import DeviceAuthority
from provisioner.integrations.sim.hardware.simulated_tpm import SimulatedTpm
from provisioner.model.node import BoardTpm
from provisioner.planning.certification.board_identity import BoardProof, bind_nonce, judge_board

BOUND = b"\x5a" * 32
NOW = 1_800_000_000.0
BOARD = SimulatedTpm("board")


def digest_key(tpm: SimulatedTpm) -> str:
    spki = tpm.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


ENROLLED = BoardTpm(key_sha256=digest_key(BOARD), enrolled_at=NOW - 1000, secure_boot=True)


def answer(tpm: SimulatedTpm, nonce: bytes = BOUND, **changes: bytes) -> dict[str, str]:
    quote, signature = tpm.quote(nonce)
    raw = {
        "quote": quote,
        "signature": signature,
        "key": tpm.key_pem,
        "event_log": tpm.write_log(),
        **changes,
    }
    return {"result": "done"} | {n: base64.b64encode(v).decode() for n, v in raw.items()}


def judge(given: object, enrolled: BoardTpm | None = ENROLLED) -> BoardProof:
    return judge_board(given, BOUND, enrolled, NOW)


def test_the_first_quote_enrols_its_key_and_says_what_was_measured() -> None:
    proof = judge(answer(BOARD), None)

    assert proof == BoardProof(
        tpm=BoardTpm(key_sha256=digest_key(BOARD), enrolled_at=NOW, secure_boot=True)
    )


def test_the_enrolled_board_is_proved_at_every_later_boot() -> None:
    assert judge(answer(BOARD)).tpm == ENROLLED
    switched_off = judge(answer(SimulatedTpm("board", secure_boot=False)))
    assert switched_off.tpm == ENROLLED.model_copy(update={"secure_boot": False})


def edited_log() -> dict[str, str]:
    other = SimulatedTpm("board")
    other.measure(4, 0x80000003, b"another boot loader")
    return answer(BOARD, event_log=other.write_log())


REFUSED: dict[str, tuple[object, str]] = {
    "another board": (answer(SimulatedTpm("other")), "ak"),
    "an old quote": (answer(BOARD, b"\x11" * 32), "replayed"),
    "its key with another's signature": (
        answer(BOARD, signature=SimulatedTpm("other").quote(BOUND)[1]),
        "signature",
    ),
    "a log of another boot": (edited_log(), "log does not replay"),
    "a machine that has no TPM": ({"result": "unsupported", "detail": "no TPM"}, "no TPM"),
    "a tool that failed": ({"result": "not_done", "detail": "\x1b[2Jlocked"}, " [2Jlocked"),
    "a cut quote": (answer(BOARD, quote=BOARD.quote(BOUND)[0][:40]), "malformed"),
    "no key": (answer(BOARD, key=b""), "malformed"),
    "a list": ([], "no object"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_agent_is_refused_with(case: str) -> None:
    given, reason = REFUSED[case]

    proof = judge(given)

    assert proof.tpm is None
    assert reason in proof.refused
    assert "\x1b" not in proof.refused


def test_a_machine_without_a_tpm_is_refused_only_after_one_was_enrolled() -> None:
    assert judge({"result": "unsupported", "detail": "no TPM"}, None) == BoardProof()


def test_a_board_whose_firmware_has_no_log_is_still_that_board() -> None:
    proof = judge(answer(BOARD, event_log=b""))

    assert proof.tpm == ENROLLED.model_copy(update={"secure_boot": None})


@given(st.dictionaries(st.sampled_from(["result", "quote", "signature", "key"]), st.text()))
def test_no_invented_answer_is_a_proof(given: dict[str, Any]) -> None:
    assert judge({"event_log": "", **given, "result": "done"}).refused


def test_a_quote_counts_for_one_certificate_only() -> None:
    one, other = (DeviceAuthority("site", name).root.pem for name in ("one", "other"))

    assert bind_nonce(b"n" * 32, one) == bind_nonce(b"n" * 32, one)
    assert bind_nonce(b"n" * 32, one) != bind_nonce(b"n" * 32, other)
    assert bind_nonce(b"n" * 32, one) != bind_nonce(b"m" * 32, one)

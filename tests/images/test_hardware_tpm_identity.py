"""A TPM proves its maker and its key: swtpm with the certificate that swtpm_setup made for it."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from provisioner_hardware_manager import tpm_identity
from provisioner_hardware_manager.commands import Output
from software_tpm import NEEDS_SWTPM, Board, manufacture

from provisioner.checks.attestation.endorsement_certificates import Makers, parse_makers
from provisioner.checks.attestation.tpm_quotes import (
    make_credential,
    name_template,
    parse_attestation_key,
)
from provisioner.model.certificate import Unacceptable
from provisioner.model.node import BoardTpm, TpmProof
from provisioner.planning.certification.board_identity import (
    Challenge,
    challenge_board,
    judge_board,
    judge_opening,
)

NONCE = b"\x01" * 32
SECRET = b"\x5c" * 32
NOW = 1_800_000_000.0
NEEDS_SETUP = pytest.mark.skipif(
    not shutil.which("swtpm_setup"), reason="swtpm-tools are not installed"
)


@pytest.fixture
def makers_file(tmp_path: Path) -> Path:
    return manufacture(tmp_path / "one", tmp_path / "maker")


@pytest.fixture
def boards(tmp_path: Path, makers_file: Path) -> Iterator[tuple[Board, Board]]:
    """One of a maker, and one without any certificate."""
    assert makers_file.is_file()
    pair = (Board(tmp_path / "one"), Board(tmp_path / "other"))
    yield pair
    for board in pair:
        board.stop()


def open_with(board: Board, challenge: Challenge, folder: Path) -> dict[str, Any]:
    credential = base64.b64encode(challenge.credential).decode()
    return tpm_identity.activate(credential, challenge.endorsement.kind, board.run, device=folder)


@NEEDS_SWTPM
@NEEDS_SETUP
def test_a_genuine_tpm_is_enrolled_by_its_maker_and_no_other_opens_its_credential(
    boards: tuple[Board, Board], makers_file: Path, tmp_path: Path
) -> None:
    one, other = boards
    quoted = judge_board(one.quote(NONCE, tmp_path), NONCE, None, NOW).tpm
    assert isinstance(quoted, BoardTpm)
    answer = tpm_identity.read(one.run, device=tmp_path)
    makers = parse_makers(makers_file.read_bytes())

    challenge = challenge_board(answer, quoted.key_sha256, makers, SECRET, NOW)
    proved = judge_opening(open_with(one, challenge, tmp_path), challenge, quoted)
    strange = open_with(other, challenge, tmp_path)
    bare = tpm_identity.read(other.run, device=tmp_path)

    assert quoted.proof is TpmProof.QUOTE
    assert (proved.proof, proved.maker) == (TpmProof.MAKER, "swtpm-localca")
    assert strange["result"] == "not_done"
    assert strange["detail"].startswith("tpm2_activatecredential")
    assert bare["certificates"] == {}
    with pytest.raises(Unacceptable, match="ek maker is not pinned: 'CN=swtpm-localca'"):
        challenge_board(answer, quoted.key_sha256, Makers(), SECRET, NOW)


@NEEDS_SWTPM
@NEEDS_SETUP
def test_each_key_that_the_maker_certified_opens_the_credential_for_it(
    boards: tuple[Board, Board], makers_file: Path, tmp_path: Path
) -> None:
    board, _ = boards
    answer = tpm_identity.read(board.run, device=tmp_path)
    key = parse_attestation_key(base64.b64decode(str(answer["public"]))).spki_sha256
    makers = parse_makers(makers_file.read_bytes())
    certificates = answer["certificates"]
    assert isinstance(certificates, dict)
    opened = {}

    for index, certificate in certificates.items():
        alone = {**answer, "certificates": {index: certificate}}
        challenge = challenge_board(alone, key, makers, SECRET, NOW)
        secret = open_with(board, challenge, tmp_path).get("secret", "")
        opened[challenge.endorsement.kind] = base64.b64decode(str(secret))

    assert opened == {"rsa": SECRET, "ecc384": SECRET}


@NEEDS_SWTPM
@NEEDS_SETUP
@pytest.mark.parametrize("kind", ["ecc", pytest.param("rsa3072", marks=pytest.mark.long)])
def test_a_genuine_tpm_opens_a_credential_for_its_other_keys(
    kind: str, boards: tuple[Board, Board], tmp_path: Path
) -> None:
    board, _ = boards
    answer = tpm_identity.read(board.run, device=tmp_path)
    name = parse_attestation_key(base64.b64decode(str(answer["public"]))).name
    line = ("tpm2_createek", "-G", kind, "-c", str(tmp_path / "c"), "-f", "pem", "-u")
    assert board.run(*line, str(tmp_path / "ek.pem"), timeout_s=60.0).ok
    key = load_pem_public_key((tmp_path / "ek.pem").read_bytes())
    assert isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey))
    assert name_template(key) == kind

    credential = base64.b64encode(make_credential(key, name, SECRET)).decode()
    opened = tpm_identity.activate(credential, kind, board.run, device=tmp_path)

    assert base64.b64decode(str(opened["secret"])) == SECRET


def test_a_machine_without_a_tpm_says_so_and_false_arguments_reach_no_tool(tmp_path: Path) -> None:
    def run(*_arguments: str, timeout_s: float) -> Output:
        raise AssertionError(f"a tool was run for {timeout_s} s")

    credential = base64.b64encode(b"x").decode()
    answers = [
        tpm_identity.read(run, device=tmp_path / "none"),
        tpm_identity.activate(credential, "rsa", run, device=tmp_path / "none"),
        tpm_identity.activate(credential, "$(reboot)", run, device=tmp_path),
        tpm_identity.activate("no base64", "rsa", run, device=tmp_path),
        tpm_identity.activate(credential * 2000, "rsa", run, device=tmp_path),
    ]

    results = [str(answer["result"]) for answer in answers]
    assert results == ["unsupported"] * 2 + ["not_done"] * 3

"""The site's list of endorsement keys: which board's TPM may speak for which node."""

from __future__ import annotations

import pytest
from test_tpm_credentials import KEY, MAKERS, NOW, SECRET, answer

from provisioner.model.certificate import Unacceptable
from provisioner.model.node import BoardTpm, Node, NodeKind
from provisioner.planning.certification.board_identity import (
    BOARDS_BYTES_MAX,
    challenge_board,
    find_holder,
    judge_opening,
    parse_boards,
)

CHALLENGE = challenge_board(answer(), KEY, MAKERS, SECRET, NOW)
OPENED = {"result": "done", "secret": "XFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFxcXFw="}
PROVED = judge_opening(OPENED, CHALLENGE, BoardTpm(key_sha256=KEY, enrolled_at=NOW))
OWN = PROVED.endorsement_sha256
OTHER = "0f" * 32


def challenge_listed(text: str) -> None:
    boards = parse_boards(text.encode())
    challenge_board(answer(), KEY, MAKERS, SECRET, NOW, node="n1", boards=boards)


def test_the_key_or_the_certificate_that_the_list_names_for_the_node_is_accepted() -> None:
    certificate = CHALLENGE.endorsement.certificate_sha256

    challenge_listed(f"# delivered 2026-11-02\nn1 {OWN}\nn2 {OTHER}\n")
    challenge_listed(f"n1 {OTHER}\r\nn1\t{certificate.upper()}  # its second key")
    pairs = ":".join(certificate[i : i + 2] for i in range(0, 64, 2))
    challenge_listed(f"n1 {pairs}")


UNLISTED = {
    f"n2 {OWN}": "for n2",
    f"n1 {OTHER}\nn2 {OWN}": "for n2",
    f"n1 {OTHER}": "another key for n1",
    f"n2 {OTHER}": "the list has no key for n1, not ",
    "": "the list has no key for n1, not ",
    f"N1 {OWN}": "for N1",
}


@pytest.mark.parametrize("text", UNLISTED)
def test_a_genuine_tpm_that_is_not_listed_for_the_node_does_not_speak_for_it(text: str) -> None:
    with pytest.raises(Unacceptable, match="ek is not this board's") as refused:
        challenge_listed(text)

    assert UNLISTED[text] in str(refused.value)
    assert OWN in str(refused.value)  # so that a person can compare it with the delivery


MALFORMED = {
    f"n1 {OWN}\nn2 {OWN}": "line 2: n1 has this digest already",
    "n1": "1 to 16 digests",
    "n1 " + " ".join(f"{i:064x}" for i in range(17)): "1 to 16 digests",
    "n1 1234": "line 1 is no node with SHA-256 digests",
    f"../n1 {OWN}": "line 1 is no node",
    f"n1 {OWN}\u2028n2 {OTHER}": "line 1 is no node",
    "#" * (BOARDS_BYTES_MAX + 1): "more than",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_a_list_that_is_not_understood_whole_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=MALFORMED[text]):
        parse_boards(text.encode())


def enrol(name: str, tpm: BoardTpm | None) -> Node:
    return Node(id=name, kind=NodeKind.HOST, tpm=tpm)


def test_a_tpm_that_another_node_has_enrolled_is_recognised_by_either_of_its_keys() -> None:
    by_quote = BoardTpm(key_sha256=KEY, enrolled_at=1.0)
    by_maker = PROVED.model_copy(update={"key_sha256": OTHER})
    unlike = BoardTpm(key_sha256=OTHER, enrolled_at=1.0)

    assert find_holder([enrol("n2", None), enrol("n3", by_quote)], "n1", PROVED) == "n3"
    assert find_holder([enrol("n2", unlike), enrol("n3", by_maker)], "n1", PROVED) == "n3"
    assert find_holder([enrol("n1", by_quote), enrol("n2", unlike)], "n1", PROVED) == ""

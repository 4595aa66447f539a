"""A proof is believed only as it was sealed, and only beside its own certificate."""

from __future__ import annotations

import hashlib

import pytest
from release_world import World

from provisioner.model.certificate import Certificate
from provisioner.model.recovery import GateCheck, GateRow, RowVerdict
from provisioner.model.tenant import ReleaseProof
from provisioner.planning.release.release_probes import (
    certificate_digest,
    list_bad_rows,
    list_proof_objections,
    render_canonical,
    seal_proof,
)

CERTIFICATE = Certificate(
    id="c-1", node="n0", release="r", profile="p", serials=("S1",), versions=(), boot_id="b",
    location="l", ports=(), report_digest="", matrix_digest="", issued_at=1.0, expires_at=2.0,
)  # fmt: skip
FAILED = GateRow(check=GateCheck.MTU, subject="leaf-0/swp1", verdict=RowVerdict.FAIL, seen="1500")
UNSAVED = "the leaves did not save the applied configuration"


def proof(**changes: object) -> ReleaseProof:
    made = ReleaseProof(
        node="n0",
        certificate="c-1",
        tenant="red",
        placements=(),
        persisted=True,
        gate=tuple(World().rows().values()),
    )
    return made.model_copy(update=changes)


def test_a_sealed_proof_is_believed_beside_its_certificate() -> None:
    kept = seal_proof(proof(), CERTIFICATE)

    assert list_proof_objections(kept, CERTIFICATE) == ()
    assert kept.version == 2
    assert len(kept.sha256) == len(kept.certificate_digest) == 64
    assert list_bad_rows(kept) == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tenant": "blue"}, "it was changed after it was sealed"),
        ({"confirmed_at": 7.0}, "it was changed after it was sealed"),
        ({"certificate_digest": "0" * 64}, "it was changed after it was sealed"),
        ({"version": 1}, "it is of version 1, which had no gate and no seal"),
    ],
)
def test_a_proof_that_was_changed_is_not_believed(changes: dict[str, object], words: str) -> None:
    kept = seal_proof(proof(), CERTIFICATE).model_copy(update=changes)

    assert list_proof_objections(kept, CERTIFICATE)[0] == words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": "c-2"}, "it belongs to another certificate"),
        ({"node": "n1"}, "it belongs to another certificate"),
        ({"serials": ("S2",)}, "its certificate was changed since"),
    ],
)
def test_a_proof_is_not_believed_beside_another_certificate(
    changes: dict[str, object], words: str
) -> None:
    kept = seal_proof(proof(), CERTIFICATE)

    assert list_proof_objections(kept, CERTIFICATE.model_copy(update=changes)) == (words,)
    assert list_proof_objections(kept, None) == ("its certificate is not there",)


def test_a_proof_of_the_first_version_is_not_held_against_a_digest_that_it_never_had() -> None:
    first = proof(version=1)

    assert list_proof_objections(first, CERTIFICATE) == (
        "it is of version 1, which had no gate and no seal",
    )


def test_what_was_not_saved_and_rows_that_failed_speak_against_a_proof() -> None:
    unsaved = seal_proof(proof(persisted=False), CERTIFICATE)
    failed = seal_proof(proof(gate=(FAILED,)), CERTIFICATE)

    assert list_proof_objections(unsaved, CERTIFICATE) == (UNSAVED,)
    assert list_proof_objections(failed, CERTIFICATE) == ("mtu: leaf-0/swp1: 1500",)
    assert list_bad_rows(failed) == (FAILED,)


def test_a_proof_without_a_certificate_is_sealed_and_bound_to_none() -> None:
    kept = seal_proof(proof(), None)

    assert kept.certificate_digest == ""
    assert list_proof_objections(kept, CERTIFICATE) == ("its certificate was changed since",)


def test_a_default_that_a_later_version_adds_breaks_no_seal() -> None:
    kept = seal_proof(proof(), CERTIFICATE)
    read = ReleaseProof.model_validate_json(kept.model_dump_json(exclude_defaults=True))

    assert list_proof_objections(read, CERTIFICATE) == ()


def test_the_text_that_is_sealed_is_the_same_on_every_machine() -> None:
    small = ReleaseProof(node="n0", certificate="c-1", tenant="r\u00f6t", placements=())
    digest = hashlib.sha256(
        b'{"boot_id":"b","expires_at":2.0,"id":"c-1","issued_at":1.0,"location":"l",'
        b'"matrix_digest":"","node":"n0","ports":[],"profile":"p","release":"r",'
        b'"report_digest":"","serials":["S1"],"versions":[]}'
    ).hexdigest()

    assert render_canonical(small) == (
        '{"certificate":"c-1","node":"n0","placements":[],"tenant":"r\\u00f6t"}'
    )
    assert certificate_digest(CERTIFICATE) == digest

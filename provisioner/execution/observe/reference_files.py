"""Files of references: manifests (RIM) and OCSP answers, as a bundle carries them to a site.

A connected machine fetches them; here they are read from a folder, each time anew.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from provisioner.checks.attestation.certificate_chains import (
    ANSWER_BYTES_MAX,
    ANSWERS_MAX,
    parse_answer,
    parse_certificates,
)
from provisioner.checks.attestation.evidence_containers import read_manifest_file
from provisioner.checks.attestation.reference_manifests import SIZE_MAX, read_manifest
from provisioner.checks.attestation.trust_anchors import TrustStore
from provisioner.model.agent import BundleReference, ReferenceKind
from provisioner.model.certificate import Unacceptable
from provisioner.model.cohort import Evidence
from provisioner.model.input_error import InputError

ANSWER = ".ocsp"  # the suffix of OCSP answers; every other file of a folder is a manifest
FILES_MAX = 4096


def list_references(directory: Path) -> list[Path]:
    """Return the files of a folder of references, by name. Raises InputError."""
    try:
        paths = sorted(path for path in directory.iterdir() if path.is_file())
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error})"
        raise InputError(str(directory), "", problem, "Name a folder of references.") from None
    if len(paths) > FILES_MAX:
        raise InputError(str(directory), "", f"it has over {FILES_MAX} files", "Use several.")
    return paths


def read_reference(path: Path) -> bytes:
    """Return the content of one file. Raises InputError."""
    largest = ANSWER_BYTES_MAX if path.suffix == ANSWER else 2 * SIZE_MAX
    try:
        with path.open("rb") as file:
            raw = file.read(largest + 1)
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error})"
        raise InputError(str(path), "", problem, "Check it.") from None
    if len(raw) > largest:
        raise InputError(str(path), "", f"it has more than {largest} bytes", "Check it.")
    return raw


def describe_reference(path: Path, at: float) -> BundleReference:
    """Return what a bundle's list says of a reference. Raises InputError for any other file, and
    for an answer that has ended already.
    """
    raw = read_reference(path)
    name = f"references/{path.name}"
    if path.suffix != ANSWER:
        rows = read_manifest_file(raw, path.stem)
        manifests = [read_manifest(r, i, TrustStore().references, at, at) for i, r in rows]
        if not manifests or not manifests[0].version:
            remedy = f"Take manifests (RIM), and OCSP answers in DER named *{ANSWER}."
            raise InputError(str(path), "", "it is no manifest", remedy)
        first = manifests[0]
        subject = f"{first.product} {first.version}"
        return BundleReference(
            path=name, kind=ReferenceKind.RIM, subject=subject, until=first.signed_until
        )
    try:
        answer = parse_answer(raw)
    except ValueError as error:
        remedy = "Fetch it with `openssl ocsp -respout`."
        raise InputError(str(path), "", f"it is no OCSP answer: {error}", remedy) from None
    ends = answer.next_update_utc
    until = ends.timestamp() if ends else 0.0
    if until < at:
        raise InputError(str(path), "", "the answer has ended", "Fetch a new one.")
    subject = f"{answer.serial_number:x}"
    since = answer.this_update_utc.timestamp()
    return BundleReference(
        path=name, kind=ReferenceKind.OCSP, subject=subject, since=since, until=until
    )


def attach_answers(evidence: Evidence, directory: str) -> Evidence:
    """Return evidence of roots of trust with the answers about their certificates.

    They are stored with it, so that an auditor judges by the same ones. A folder or a file that
    cannot be read gives no answer.
    """
    if not directory or evidence.truncated:
        return evidence
    document = json.loads(evidence.text)
    answers = select_answers(directory, _list_serials(document.get("components", ())))
    if not answers:
        return evidence
    document["ocsp"] = [base64.b64encode(raw).decode() for raw in answers]
    return evidence.model_copy(update={"text": json.dumps(document)})


def select_answers(directory: str, serials: Iterable[int]) -> list[bytes]:
    """Return the OCSP answers of a folder about certificates with these serial numbers."""
    asked = set(serials)
    if not directory or not asked:
        return []
    answers = [raw for number, raw in _read_answers(directory) if number in asked]
    return answers[:ANSWERS_MAX]


def select_manifests(directory: str, digests: Collection[str]) -> list[tuple[str, bytes]]:
    """Return the manifests of a folder with these digests (SHA-256), each with its id."""
    if not directory or not digests:
        return []
    manifests = []
    for path in _list_files(directory):
        if path.suffix == ANSWER:
            continue
        try:
            rows = read_manifest_file(read_reference(path), path.stem)
        except InputError:
            continue
        manifests += [row for row in rows if hashlib.sha256(row[1]).hexdigest() in digests]
    return manifests


def _list_files(directory: str) -> list[Path]:
    """Return the files of a folder; none if it cannot be read."""
    try:
        return list_references(Path(directory))
    except InputError:
        return []


def _list_serials(rows: Iterable[Any]) -> Iterable[int]:
    for row in rows:
        try:
            chain = parse_certificates(str(row.get("certificates") or "").encode())
        except Unacceptable:
            continue
        yield from (certificate.serial_number for certificate in chain)


def _read_answers(directory: str) -> Iterable[tuple[int, bytes]]:
    for path in _list_files(directory):
        if path.suffix != ANSWER:
            continue
        try:
            raw = read_reference(path)
            yield parse_answer(raw).serial_number, raw
        except (InputError, ValueError):
            continue

"""`provisioner attest`: signed evidence of devices, judged from files alone.

Nothing is needed but the files and the pinned keys of this package: no daemon, no data directory,
no network. An auditor can repeat every verdict of a certificate with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography.x509.ocsp import OCSPResponse
from rich.table import Table

from provisioner.checks.attestation.device_reports import (
    Evidence,
    Expectation,
    find_shared_identities,
    verify_report,
)
from provisioner.checks.attestation.evidence_containers import (
    SIZE_MAX,
    Contents,
    pair_evidence,
    read_evidence_file,
    read_manifest_file,
)
from provisioner.checks.attestation.finding_remedies import list_remedies
from provisioner.checks.attestation.reference_manifests import ReferenceManifest, read_manifest
from provisioner.checks.attestation.revocation_answers import parse_answer
from provisioner.checks.attestation.tpm_quotes import QuoteEvidence, verify_quote
from provisioner.checks.attestation.trust_anchors import TrustStore, read_anchors
from provisioner.cli.offline.admitted_evidence import admit
from provisioner.cli.offline.admitted_manifests import admit_rim
from provisioner.cli.options.expected_evidence import (
    ExpectedEvidence,
    add_pins,
    parse_expected,
)
from provisioner.cli.options.matrix_files import MatrixOption, read_matrix
from provisioner.cli.options.showing import JsonOption, open_console
from provisioner.cli.options.times import parse_time
from provisioner.execution.observe.reference_files import ANSWER, list_references
from provisioner.model.attestation import Attestation, Verdict
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Profile
from provisioner.runtime.wall_clock import WallClock

app = typer.Typer(help="Attestation: signed evidence of devices, verified.", no_args_is_help=True)
app.command()(admit)
app.command("admit-rim")(admit_rim)


class RevocationPolicy(StrEnum):
    """The effect of a certificate without a good OCSP answer of this time."""

    REQUIRE = "require"
    RECORD = "record"
    OFF = "off"


_NONCE = re.compile(r"[0-9a-f]{64}")


@app.command()
def verify(
    files: Annotated[list[Path], typer.Argument(help="Reports and chains, in any order.")],
    nonce: Annotated[str, typer.Option(help="The nonce that was sent, 64 hex digits.")] = "",
    at: Annotated[str, typer.Option(help="Time to verify at: 2026-11-22, or with T12:00Z.")] = "",
    rim: Annotated[list[Path] | None, typer.Option(help="A signed RIM; repeatable.")] = None,
    admitted: Annotated[
        str, typer.Option(help="When the RIMs were admitted; otherwise the time of --at.")
    ] = "",
    expect: Annotated[
        list[str] | None,
        typer.Option(
            help="driver=VERSION, vbios=VERSION, rim=SHA256; of a TPM's quote ak=SHA256, pcr7=HEX,"
            " resets=NUMBER, secure_boot=on; repeatable."
        ),
    ] = None,
    anchor: Annotated[
        list[Path] | None, typer.Option(help="Trust this certificate or key too; repeatable.")
    ] = None,
    ocsp: Annotated[
        list[Path] | None, typer.Option(help="An OCSP answer (DER) on the chain; repeatable.")
    ] = None,
    matrix: MatrixOption = None,
    release: Annotated[str, typer.Option(help="Take versions and RIMs from its pins.")] = "",
    profile: Annotated[str, typer.Option(help="The profile of --release.")] = "",
    references: Annotated[
        Path | None, typer.Option(help="Folder of RIMs and OCSP answers, as in a bundle.")
    ] = None,
    revocation: Annotated[
        RevocationPolicy, typer.Option(help="Whether a missing OCSP answer leaves it unproved.")
    ] = RevocationPolicy.RECORD,
    as_json: JsonOption = False,
) -> None:
    """Verify reports of GPUs, NVSwitches and roots of trust. Exit code 0: all are proved.

    Without --nonce nothing is proved: a report has no date, so only our nonce shows that it is new.

    Example: provisioner attest verify report.txt chain.txt --nonce 931d… --rim r.xml
    """
    when = parse_time("--at", at) if at else WallClock().now()
    trust = TrustStore()
    for path in anchor or ():
        trust = trust.with_added(_read_anchor(path))
    admitted_at = parse_time("--admitted", admitted) if admitted else when
    wishes = parse_expected(expect or [])
    if release or profile:
        named = _find_profile(matrix or [], release, profile)
        add_pins(wishes, named.pins, named.attestation)
    further = list_references(references) if references is not None else []
    rims = [*(rim or ()), *(path for path in further if path.suffix != ANSWER)]
    answers = [*(ocsp or ()), *(path for path in further if path.suffix == ANSWER)]
    expected = Expectation(
        nonce=_parse_nonce(nonce) if nonce else None,
        at=when,
        trust=trust,
        manifests=_read_manifests(rims, trust, when, wishes.admitted_at, admitted_at),
        admitted=wishes.manifests,
        versions=wishes.versions,
        answers=tuple(_read_answer(path) for path in answers),
        revocation=revocation.value,
    )
    contents = [(str(path), _read_contents(path)) for path in files]
    evidence = pair_evidence(contents)
    quotes = [(source, quote) for source, content in contents for quote in content.quotes]
    if not evidence and not quotes:
        names = ", ".join(str(f) for f in files)[:200]
        remedy = "Name a file with a report; a chain alone proves nothing."
        raise InputError("FILE", names, "there is no report in it", remedy)
    rows = _judge(evidence, quotes, expected, wishes)
    _show(rows, as_json=as_json)
    raise typer.Exit(0 if all(r["verdict"] == Verdict.PROVED.value for r in rows) else 1)


def _judge(
    evidence: Sequence[Evidence],
    quotes: Sequence[tuple[str, QuoteEvidence]],
    expected: Expectation,
    wishes: ExpectedEvidence,
) -> list[dict[str, Any]]:
    results = find_shared_identities([verify_report(e, expected) for e in evidence])
    rows = [describe(result, e.source) for result, e in zip(results, evidence, strict=True)]
    of_quote = wishes.of_quote(expected.nonce)
    return rows + [describe(verify_quote(quote, of_quote), source) for source, quote in quotes]


def describe(result: Attestation, source: str) -> dict[str, Any]:
    """Return the result as the JSON object that `--json` prints."""
    return {
        "verdict": result.verdict.value,
        "findings": [str(f) for f in result.findings],
        "component": result.component,
        "measurements": result.measurements.model_dump(),
        "unblock": list(list_remedies(result.findings)),
        "kind": result.kind,
        "identity": result.identity,
        "versions": dict(result.versions),
        "mode": result.mode,
        "nonce": result.nonce,
        "mismatches": [m.model_dump(mode="json") for m in result.mismatches],
        "references": [{"rim": i, "sha256": digest} for i, digest in result.references],
        "measurement_digest": result.measurement_digest,
        "evidence_sha256": result.evidence_sha256,
        "source": source,
    }


def _show(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows[0] if len(rows) == 1 else rows))
        return
    table = Table(title="Attestation", title_justify="left")
    for column in ("component", "verdict", "golden", "matched", "findings"):
        table.add_column(column, overflow="fold")
    for row in rows:
        counts = row["measurements"]
        texts = "\n".join(row["findings"])
        shown = (row["component"], row["verdict"], counts["golden"], counts["matched"], texts)
        table.add_row(*(str(cell) for cell in shown))
    console = open_console()
    console.print(table)
    for step in dict.fromkeys(step for row in rows for step in row["unblock"]):
        console.print(f"- {step}", markup=False)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_MAX + 1)
    except OSError as error:
        remedy = "Name a file that exists and can be read."
        raise InputError("FILE", str(path), error.strerror or "it cannot be read", remedy) from None
    if len(raw) > SIZE_MAX:
        remedy = "Name a file of evidence; none is that large."
        raise InputError("FILE", str(path), f"it has more than {SIZE_MAX} bytes", remedy)
    return raw


def _read_contents(path: Path) -> Contents:
    """Return the content of a file of evidence; one of another kind is named, and not judged."""
    raw = _read(path)
    text = raw.lstrip()
    if not text:
        raise InputError("FILE", str(path), "it is empty", "Collect the report again.")
    if text[:1] == b"<":
        remedy = "Name a manifest with --rim; a report is binary, hex, base64 or JSON."
        raise InputError("FILE", str(path), "it is XML, as manifests are", remedy)
    try:
        if text[:1] in (b"{", b"["):
            json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = f"it is no JSON that can be read: {str(error)[:120]}"
        raise InputError("FILE", str(path), problem, "Collect it again.") from None
    return read_evidence_file(raw)


def _read_manifests(
    paths: list[Path],
    trust: TrustStore,
    at: float,
    of_matrix: Mapping[str, float],
    admitted_at: float,
) -> tuple[ReferenceManifest, ...]:
    """Return the manifests; `of_matrix`: SHA-256 -> when the matrix admitted it."""
    rows = [row for path in paths for row in read_manifest_file(_read(path), path.stem)]
    return tuple(
        read_manifest(
            raw,
            rim_id,
            trust.references,
            at,
            of_matrix.get(hashlib.sha256(raw).hexdigest(), admitted_at),
        )
        for rim_id, raw in rows
    )


def _find_profile(paths: list[Path], release: str, profile: str) -> Profile:
    pinned = read_matrix(paths).releases.get(release)
    named = pinned.profiles.get(profile) if pinned is not None else None
    if named is None:
        shown = f"{release}/{profile}"[:120]
        remedy = "Name both, as `provisioner matrix show` lists them."
        raise InputError("--release, --profile", shown, "the matrix has no such profile", remedy)
    return named


def _read_anchor(path: Path) -> tuple[Any, ...]:
    try:
        return read_anchors(_read(path), str(path))
    except (ValueError, TypeError):
        remedy = "Name a PEM file with certificates or one public key."
        raise InputError("--anchor", str(path), "it holds no key", remedy) from None


def _read_answer(path: Path) -> OCSPResponse:
    try:
        return parse_answer(_read(path))
    except ValueError as error:
        remedy = "Name a file with one OCSP answer in DER, as `openssl ocsp -respout` writes it."
        raise InputError("--ocsp", str(path), str(error)[:120], remedy) from None


def _parse_nonce(text: str) -> bytes:
    digits = text.strip().lower().removeprefix("0x")
    if not _NONCE.fullmatch(digits):
        remedy = "Give the 32 bytes that were sent as 64 hex digits."
        raise InputError("--nonce", text[:80], "it is not 64 hex digits", remedy)
    return bytes.fromhex(digits)

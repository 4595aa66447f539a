"""`provisioner attest`: signed evidence of devices, judged from files alone.

Nothing is needed but the files and the pinned keys of this package: no daemon, no data directory,
no network. An auditor can repeat every verdict of a certificate with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from cryptography.x509.ocsp import OCSPResponse

from provisioner.checks import secure_boot
from provisioner.checks.attestation.certificate_chains import parse_answer
from provisioner.checks.attestation.device_reports import (
    Evidence as DeviceReportsEvidence,
)
from provisioner.checks.attestation.device_reports import (
    Expectation,
    find_shared_identities,
    verify_report,
)
from provisioner.checks.attestation.event_log import BootState, read_boot_states
from provisioner.checks.attestation.evidence_containers import (
    SIZE_MAX as EVIDENCE_CONTAINERS_SIZE_MAX,
)
from provisioner.checks.attestation.evidence_containers import (
    Contents,
    list_remedies,
    read_evidence_file,
    read_manifest_file,
)
from provisioner.checks.attestation.reference_manifests import ReferenceManifest, read_manifest
from provisioner.checks.attestation.tpm_quotes import QuoteEvidence, verify_quote
from provisioner.checks.attestation.trust_anchors import TrustStore, read_anchors
from provisioner.checks.check import Unreadable
from provisioner.cli.options.checked_options import JsonOption, parse_time
from provisioner.cli.options.matrix_files import MatrixOption, read_matrix
from provisioner.cli.options.tables import Table, open_console
from provisioner.execution.observe.inband import ANSWER, list_references
from provisioner.integrations.evidence_files.concise_manifests import (
    SIZE_MAX as CONCISE_MANIFESTS_SIZE_MAX,
)
from provisioner.integrations.evidence_files.concise_manifests import (
    ConciseValues,
    read_concise,
)
from provisioner.integrations.evidence_files.pairing import pair_evidence
from provisioner.integrations.evidence_files.reading import (
    ExpectedEvidence,
    add_pins,
    parse_expected,
)
from provisioner.integrations.evidence_files.witnesses import (
    Witnessed,
    WitnessedGroup,
    collect_devices,
    collect_witnessed,
)
from provisioner.model.certificate import Attestation, Unacceptable, Verdict
from provisioner.model.cohort import Evidence
from provisioner.model.input_error import InputError
from provisioner.model.matrix import AttestedComponents, Profile, Reference, TrustedMaker
from provisioner.planning.certification.attested_state import parse_evidence
from provisioner.runtime.wall_clock import WallClock

# ------------------------------------------------------------------------------
# `provisioner attest admit`: golden values from witness nodes, as lines for a person to review.
#
# Nothing is stored: the lines take effect once a person has put them into the matrix.


SIZE_MAX = 32 * 1024 * 1024  # as of stored evidence
_REFUSED = 1


def admit(
    files: Annotated[
        list[Path],
        typer.Argument(help="Stored evidence of witness nodes."),
    ],
    witness: Annotated[str, typer.Option(help="Which node, when, and who reviewed it.")],
    components: Annotated[
        list[str] | None, typer.Option(help="Glob of names of roots of trust; repeatable.")
    ] = None,
    maker: Annotated[
        list[Path] | None, typer.Option(help="Trust this maker's certificate or key; repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the golden values of witness nodes, as lines of a profile for review.

    Every answer is verified first: one that is not new, not genuine or not signed ends it with exit
    code 1. An index whose value changed between two questions is left out.

    Example: provisioner attest admit first.json second.json --witness 'su0-n01, 2026-11-22'
    """
    questions = [_read_outputs(path) for path in files]
    makers = tuple(m for path in maker or () for m in _read_makers(path))
    try:
        asked = [q for q in questions if "measurements" in q]
        witnessed = collect_witnessed(asked, components or (), makers)
        devices, refused = collect_devices(questions, makers)
        witnessed = witnessed.model_copy(update={"refusals": (*witnessed.refusals, *refused)})
        states = [s for q in questions for s in _read_states(q)]
    except (Unreadable, Unacceptable) as problem:
        remedy = "Give the evidence as the daemon stored it."
        raise InputError("FILE", ", ".join(map(str, files))[:200], str(problem), remedy) from None
    if not (witnessed.groups or devices or witnessed.refusals or states):
        remedy = "Record the attestation of a witness node first (`policy: record`)."
        names = ", ".join(map(str, files))[:200]
        raise InputError("FILE", names, "no device answers in it", remedy)
    for name, reason in witnessed.refusals:
        typer.echo(f"{name}: {reason}", err=True)
    rule = _write_rule(witnessed, states, makers, witness)
    if not witnessed.refusals:
        for name, group in devices.items():
            rule[name] = {"policy": "record", **_write_group(group, witness)}
            rule.setdefault("makers", [m.model_dump(mode="json") for m in makers])
    named = [group.model_copy(update={"pattern": name}) for name, group in devices.items()]
    witnessed = witnessed.model_copy(update={"groups": (*witnessed.groups, *named)})
    if as_json:
        groups = [group.model_dump(mode="json") for group in witnessed.groups]
        typer.echo(json.dumps({"attestation": rule, "groups": groups}))
    else:
        for line in _list_remarks(witnessed):
            typer.echo(f"# {line}")
        typer.echo(yaml.safe_dump({"attestation": rule}, sort_keys=False, width=160), nl=False)
    raise typer.Exit(_REFUSED if witnessed.refusals else 0)


def _write_rule(
    witnessed: Witnessed, states: list[BootState], makers: tuple[TrustedMaker, ...], witness: str
) -> dict[str, Any]:
    """Return the lines of a profile. They record only: a person decides when to require."""
    rule: dict[str, Any] = {}
    if witnessed.groups and not witnessed.refusals:
        rule = {
            "policy": "record",
            "components": {
                group.pattern: _write_group(group, witness)
                for group in witnessed.groups
                if group.digests
            },
        }
        if makers:
            rule["makers"] = [m.model_dump(mode="json") for m in makers]
    if states:
        names = sorted({name for state in states for name in state.databases})
        rule["secure_boot"] = {
            "policy": "record",
            "state": "on",
            "databases": {
                n: sorted({s.databases[n].sha256 for s in states if n in s.databases})
                for n in names
            },
        }
    return rule


def _write_group(group: WitnessedGroup, witness: str) -> dict[str, Any]:
    rule = group.write_rule(witness).model_dump(mode="json", exclude_defaults=True)
    rule["digests"] = {index: list(values) for index, values in group.digests.items()}
    return {"count": len(group.roots), **rule}


def _list_remarks(witnessed: Witnessed) -> list[str]:
    """Return what the reviewer must know about each group."""
    remarks = ["Review these values; then put them into the profile of the matrix."]
    for group in witnessed.groups:
        line = f"{group.pattern}: {len(group.roots)} roots, {len(group.digests)} indices"
        if group.counting:
            line += f"; left out, since they changed between questions: {_join(group.counting)}"
        if group.individual:
            line += f"; left out, since each root has its own: {_join(group.individual)}"
        if group.questions < 2:
            line += "; asked once, so that an index that counts boots is not recognised"
        remarks.append(line)
    return remarks


def _join(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(n) for n in numbers)


def _read_states(outputs: Mapping[str, Evidence]) -> tuple[BootState, ...]:
    evidence = outputs.get(secure_boot.COMMAND.name)
    return read_boot_states(evidence.text) if evidence is not None else ()


def _read_outputs(path: Path) -> Mapping[str, Evidence]:
    """Return outputs by command name: stored evidence, or the answer of `node attestation`."""
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_MAX + 1)
        document = json.loads(raw) if len(raw) <= SIZE_MAX else None
    except OSError as error:
        remedy = "Name a file that exists and can be read."
        raise InputError("FILE", str(path), error.strerror or "it cannot be read", remedy) from None
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and isinstance(document.get("evidence"), dict):
        document = document["evidence"]
    outputs = parse_evidence(json.dumps(document)) if isinstance(document, dict) else {}
    if not outputs:
        remedy = "Write it by `provisioner node attestation NODE --evidence -o json`."
        raise InputError("FILE", str(path), "it holds no evidence of a check", remedy)
    return outputs


def _read_makers(path: Path) -> tuple[TrustedMaker, ...]:
    try:
        anchors = read_anchors(path.read_bytes()[:SIZE_MAX], str(path))
    except (OSError, ValueError, TypeError):
        remedy = "Name a PEM file with certificates or one public key."
        raise InputError("--maker", str(path), "it holds no key", remedy) from None
    return tuple(
        TrustedMaker(name=a.name, spki_sha256=a.spki_sha256, source=a.source) for a in anchors
    )


# ------------------------------------------------------------------------------
# `provisioner attest admit-rim`: golden values of a signed CoRIM, for a person to review.


_UNTRIED = "This reader was never tried on a genuine manifest of NVIDIA's: none is public."


def admit_rim(
    file: Annotated[Path, typer.Argument(help="A signed CoRIM (CBOR in COSE).")],
    components: Annotated[str, typer.Option(help="Glob of the roots of trust that it is for.")],
    reviewed: Annotated[str, typer.Option(help="Who reviewed it.")],
    count: Annotated[int, typer.Option(min=1, max=64, help="How many must answer.")] = 1,
    model: Annotated[str, typer.Option(help="Which model, where it names several.")] = "",
    at: Annotated[str, typer.Option(help="When it is admitted: 2026-11-22; otherwise now.")] = "",
    anchor: Annotated[
        list[Path] | None, typer.Option(help="Trust this certificate or key too; repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the golden values of a signed CoRIM, as lines of a profile for review.

    Signature and chain are verified first: a manifest that is not its maker's ends it with exit
    code 1. A person names the roots that it is for; no published rule leads from it to them.

    Example: provisioner attest admit-rim erot.corim --components 'HGX_ERoT_GPU_*' --reviewed jd
    """
    when = parse_time("--at", at) if at else WallClock().now()
    trust = TrustStore()
    for path in anchor or ():
        trust = trust.with_added(_read_anchor(path))
    manifest = read_concise(_read(file), trust.references, when, when)
    chosen = [v for v in manifest.values if v.digests and model in ("", v.model)]
    if len(chosen) != 1:
        reason = "; ".join(str(f) for f in manifest.findings)
        models = ", ".join(sorted({v.model for v in manifest.values}))
        typer.echo(reason if not manifest.values else f"name one --model of: {models}", err=True)
        raise typer.Exit(_REFUSED)
    group = AttestedComponents(
        count=count,
        digests=dict(chosen[0].digests),
        learned_from=f"CoRIM {manifest.rim_id}, {chosen[0].model} {chosen[0].version}; {reviewed}",
        reference=Reference(
            rim="".join(c if c.isalnum() or c in "_.+-" else "_" for c in manifest.rim_id) or "-",
            sha256=manifest.sha256,
            admitted=datetime.fromtimestamp(when, UTC).date().isoformat(),
        ),
    )
    _print(components, group, chosen[0], as_json=as_json)


def _print(
    components: str, group: AttestedComponents, values: ConciseValues, *, as_json: bool
) -> None:
    written: dict[str, Any] = {"count": group.count, **group.model_dump(exclude_defaults=True)}
    written["digests"] = {index: list(accepted) for index, accepted in group.digests.items()}
    rule = {"policy": "record", "components": {components: written}}
    if as_json:
        typer.echo(json.dumps({"attestation": rule, "unnamed": values.unnamed}))
        return
    typer.echo(f"# {_UNTRIED}")
    if values.unnamed:
        typer.echo(f"# {values.unnamed} values are named by no index, and are not used.")
    typer.echo(yaml.safe_dump({"attestation": rule}, sort_keys=False, width=160), nl=False)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(CONCISE_MANIFESTS_SIZE_MAX + 1)
    except OSError as error:
        remedy = "Name a file that exists and can be read."
        raise InputError("FILE", str(path), error.strerror or "it cannot be read", remedy) from None


def _read_anchor(path: Path) -> tuple[Any, ...]:
    try:
        return read_anchors(_read(path), str(path))
    except (ValueError, TypeError):
        remedy = "Name a PEM file with certificates or one public key."
        raise InputError("--anchor", str(path), "it holds no key", remedy) from None


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
    evidence: Sequence[DeviceReportsEvidence],
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


def _read_device_evidence(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(EVIDENCE_CONTAINERS_SIZE_MAX + 1)
    except OSError as error:
        remedy = "Name a file that exists and can be read."
        raise InputError("FILE", str(path), error.strerror or "it cannot be read", remedy) from None
    if len(raw) > EVIDENCE_CONTAINERS_SIZE_MAX:
        remedy = "Name a file of evidence; none is that large."
        raise InputError(
            "FILE", str(path), f"it has more than {EVIDENCE_CONTAINERS_SIZE_MAX} bytes", remedy
        )
    return raw


def _read_contents(path: Path) -> Contents:
    """Return the content of a file of evidence; one of another kind is named, and not judged."""
    raw = _read_device_evidence(path)
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
    rows = [
        row for path in paths for row in read_manifest_file(_read_device_evidence(path), path.stem)
    ]
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


def _read_answer(path: Path) -> OCSPResponse:
    try:
        return parse_answer(_read_device_evidence(path))
    except ValueError as error:
        remedy = "Name a file with one OCSP answer in DER, as `openssl ocsp -respout` writes it."
        raise InputError("--ocsp", str(path), str(error)[:120], remedy) from None


def _parse_nonce(text: str) -> bytes:
    digits = text.strip().lower().removeprefix("0x")
    if not _NONCE.fullmatch(digits):
        remedy = "Give the 32 bytes that were sent as 64 hex digits."
        raise InputError("--nonce", text[:80], "it is not 64 hex digits", remedy)
    return bytes.fromhex(digits)

"""`provisioner certificate verify` and `case verify-bundle`: verify a site's signed files.

They need the file and the site's public keys only: no daemon, no data directory, no network.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.bmc_options import KeyOption, read_trusted_keys
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import open_console
from provisioner.integrations.signed_files.bundle_reading import (
    NotABundle,
    envelope_of,
    list_bundle_objections,
    unpack_bundle,
)
from provisioner.integrations.signed_files.log_proofs import (
    NotALog,
    describe_proof,
    is_note_signed,
    list_log_objections,
    open_checkpoint,
    parse_bundle,
)
from provisioner.integrations.signed_files.witness_commands import read_policy
from provisioner.integrations.signed_files.witnessing import (
    BadPolicy,
    Policy,
    describe_witnessing,
    read_cosignatures,
)
from provisioner.model.certificate import Certificate
from provisioner.model.input_error import InputError
from provisioner.planning.certification import attestation
from provisioner.planning.certification.attestation import NotAnAttestation, RevocationList
from provisioner.planning.certification.evidence_log import Checkpoint
from provisioner.planning.lifecycle.usage import USAGE_PAYLOAD
from provisioner.planning.repair.evidence_bundle import BYTES_MAX
from provisioner.runtime.shipped import read_text
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.signing import signed


def verify(
    file: Annotated[Path, typer.Argument(help="The exported certificate.")],
    key: KeyOption,
    revocations: Annotated[
        Path | None, typer.Option("--revocations", help="A signed revocation list.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check an exported certificate offline. Exit code 0: valid; 1: not; 2: unreadable.

    Without --revocations a revocation cannot be seen, and the answer says so.

    Example: provisioner certificate verify su0-n03.json --key keys.pem --revocations list.json
    """
    keys = read_trusted_keys(key)
    certificate, good = _opened(file, keys)
    listed = _listed(revocations, keys)
    why = _objections(certificate, listed, WallClock().now(), good=good)
    if as_json:
        body = certificate.model_dump(mode="json") if good else None
        document = {
            "valid": not why,
            "objections": why,
            "revocations_checked": listed is not None,
            "certificate": body,
        }
        typer.echo(json.dumps(document))
    elif why:
        for objection in why:
            open_console().print(f"NOT VALID: {objection}", style="red")
    else:
        open_console().print(f"valid: {certificate.node} until {_day(certificate.expires_at)}")
        open_console().print(f"gates proved: {certificate.proved or 'none'}")
        if listed is None:
            open_console().print(
                "revocation was not checked: give --revocations FILE", style="yellow"
            )
    raise typer.Exit(1 if why else 0)


def verify_bundle(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive.")], key: KeyOption
) -> None:
    """Check that an archive is unchanged and signed by a trusted site.

    Example: provisioner case verify-bundle case.tar.gz --key keys.pem
    """
    keys = read_trusted_keys(key)
    try:
        members = unpack_bundle(_read(file))
        envelope = envelope_of(members)
    except NotABundle as error:
        raise InputError(str(file), "", str(error), "Write it with `case bundle`.") from None
    wrong = ["no trusted key signed it"] if not signed(envelope, keys) else []
    wrong += list_bundle_objections(members, envelope.payload)
    for line in wrong:
        typer.echo(f"{file}: {line}", err=True)
    if wrong:
        raise typer.Exit(1)
    typer.echo(f"{file}: good; {len(members)} files, signed by {envelope.key_id}")


def verify_usage(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The signed statement.")],
    key: KeyOption,
) -> None:
    """Check that a statement of usage is unchanged and signed by a trusted site; print its sums.

    Example: provisioner usage verify red.json --key keys.pem
    """
    keys = read_trusted_keys(key)
    remedy = "Write it with: provisioner usage statement TENANT --out FILE"
    try:
        envelope = attestation.parse_envelope(read_text(file))
    except NotAnAttestation as error:
        raise InputError(str(file), "", str(error), remedy) from None
    if envelope.payload_type != USAGE_PAYLOAD:
        raise InputError(str(file), "", "it is no statement of usage", remedy)
    if not signed(envelope, keys):
        typer.echo(f"{file}: NOT VALID: no trusted key signed it", err=True)
        raise typer.Exit(1)
    told = json.loads(envelope.payload)
    hours = sum(row["gpu_s"] for row in told["items"]) / 3600.0
    period = f"{told['period']['begins_at']} to {told['period']['ends_at']}"
    typer.echo(f"{file}: good; {told['tenant']}, {period}: {hours:.2f} GPU-hours")


def verify_log(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `log export` wrote.")],
    key: KeyOption,
    known: Annotated[
        Path | None, typer.Option("--known", help="A checkpoint that you kept from earlier.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", help="Witnesses that must have cosigned the known checkpoint."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that entries are in the site's log and that none is left out between two of them.

    It also says whether the node was ever in two tenants' networks at once. With --known, that
    the log only grew since then: without it the site could have written another log. With
    --policy, that enough witnesses saw the same known checkpoint (see `log witness`).

    Example: provisioner log verify su0-n03.log.json --key keys.pem --known checkpoint.txt
    """
    keys = read_trusted_keys(key)
    remedy = "Write it with: provisioner log export NODE --out FILE"
    if policy is not None and known is None:
        raise InputError("--policy", str(policy), "no checkpoint is given", "Give --known FILE.")
    try:
        bundle = parse_bundle(read_text(file))
        head = _open_checkpoint(bundle.checkpoint, keys)
        note = "" if known is None else read_text(known)
        kept = None if known is None else _open_checkpoint(note, keys)
    except NotALog as error:
        raise InputError(str(file), "", str(error), remedy) from None
    wrong = list_log_objections(bundle, head, kept)
    told = [] if wrong else describe_proof(bundle, head, kept)
    if policy is not None and kept is not None:
        met, line = _judge_witnesses(note, kept, read_policy(policy), known)
        (told if met else wrong).append(line)
    if as_json:
        proved = [] if wrong else told
        document = {"valid": not wrong, "objections": wrong, "proved": proved, "size": head.size}
        typer.echo(json.dumps(document))
    for line in () if as_json else wrong:
        open_console().print(f"NOT VALID: {line}", style="red")
    for line in () if as_json or wrong else told:
        open_console().print(line)
    raise typer.Exit(1 if wrong else 0)


def _judge_witnesses(
    note: str, kept: Checkpoint, policy: Policy, file: Path | None
) -> tuple[bool, str]:
    """Return whether a policy accepts a checkpoint, and a line that says so."""
    logs = [public for name, public in policy.logs if name == kept.origin]
    trusted = {public.hex(): public for public in logs}
    try:
        if policy.logs:
            _open_checkpoint(note, trusted)
        cosigned = read_cosignatures(note, policy)
    except (NotALog, BadPolicy) as error:
        return False, f"{file}: by this policy {error}"
    met = policy.is_met(cosigned)
    return met, describe_witnessing(kept, cosigned, met=met)


def _open_checkpoint(note: str, keys: dict[str, bytes]) -> Checkpoint:
    return open_checkpoint(note, lambda text, name, by: is_note_signed(text, name, by, keys))


def _opened(file: Path, trusted: dict[str, bytes]) -> tuple[Certificate, bool]:
    try:
        envelope = attestation.parse_envelope(read_text(file))
        return attestation.read_certificate(envelope), signed(envelope, trusted)
    except NotAnAttestation as error:
        remedy = "Write it with: provisioner certificate export NODE"
        raise InputError(str(file), "", str(error), remedy) from None


def _listed(file: Path | None, trusted: dict[str, bytes]) -> RevocationList | None:
    if file is None:
        return None
    remedy = "Write it with: provisioner certificate revocations"
    try:
        envelope = attestation.parse_envelope(read_text(file))
        if not signed(envelope, trusted):
            raise InputError(str(file), "", "no trusted key signed this list", remedy)
        return attestation.read_revocations(envelope)
    except NotAnAttestation as error:
        raise InputError(str(file), "", str(error), remedy) from None


def _objections(
    certificate: Certificate, listed: RevocationList | None, now: float, *, good: bool
) -> tuple[str, ...]:
    if not good:
        return ("no trusted key signed it",)
    return attestation.find_objections(certificate, now, listed)


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(BYTES_MAX + 1)
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError(str(file), "", problem, "Check the path.") from None
    if len(content) > BYTES_MAX:
        raise InputError(str(file), "", "it is too large for such an archive", "Check the path.")
    return content

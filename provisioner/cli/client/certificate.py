"""`provisioner certificate`: what was proved of a node, for people and for other tools.

`verify` needs nothing but the file and the public key: no data directory, no network.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.options.confirmation import (
    ActorOption,
    DryRunOption,
    YesOption,
    confirm_change,
    name_actor,
)
from provisioner.cli.options.data_options import (
    DataOption,
    JsonOption,
    console,
    node_of,
    with_data,
)
from provisioner.daemon.data import Data, read_text
from provisioner.model.certificate import GATE_NAMES, Certificate, GateProof
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, State
from provisioner.planning.certification import attestation
from provisioner.planning.certification.attestation import NotAnAttestation, RevocationList
from provisioner.runtime.site_clock import site_clock
from provisioner.runtime.wall_clock import WallClock
from provisioner.store import exchange_signing_key, lock_data_directory
from provisioner.store.rows.request_writes import write_revocation
from provisioner.store.rows.signing_key_rows import SigningKey, read_keys
from provisioner.store.signing import envelope_of, keys_of, public_pem, signed

app = typer.Typer(
    help="Certificates: show, export, verify offline, revoke; the keys that sign them.",
    no_args_is_help=True,
)
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write to this file instead of the terminal.")
]


@app.command()
def show(name: str, data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """The certificate of a node, in words."""

    async def read(opened: Data) -> tuple[Certificate, bool, bool]:
        certificate = await _certificate(opened, name)
        revoked = await opened.store.revoked(certificate.id)
        return certificate, await opened.store.attested(certificate), revoked

    certificate, good, revoked = with_data(data, read)
    why = _objections(certificate, None, site_clock(data).now(), good=good)
    why += ("it was revoked",) if revoked else ()
    if as_json:
        body = certificate.model_dump(mode="json")
        typer.echo(json.dumps({"certificate": body, "valid": not why, "objections": why}))
        return
    table = Table(show_header=False, box=None)
    for word, told in _told(certificate):
        table.add_row(word, Text(told))
    console().print(table)
    for objection in why:
        console().print(f"not valid: {objection}", style="red")


@app.command()
def export(name: str, data: DataOption = Path("var"), output: OutputOption = None) -> None:
    """The certificate of a node as a signed in-toto attestation (a DSSE envelope)."""
    certificate = with_data(data, lambda opened: _certificate(opened, name))
    _write(envelope_of(certificate), output)


@app.command()
def verify(
    file: Path,
    key: Annotated[Path, typer.Option("--key", help="Public keys to trust, PEM.")],
    revocations: Annotated[
        Path | None, typer.Option("--revocations", help="A signed revocation list.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check an exported certificate offline. Exit code 0: valid; 1: not; 2: unreadable.

    Without --revocations nobody can tell whether it was revoked, and that is said.
    """
    keys = _keys(key)
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
            console().print(f"NOT VALID: {objection}", style="red")
    else:
        console().print(f"valid: {certificate.node} until {_day(certificate.expires_at)}")
        console().print(f"gates proved: {certificate.proved or 'none'}")
        if listed is None:
            console().print("revocation was not checked: give --revocations FILE", style="yellow")
    raise typer.Exit(1 if why else 0)


@app.command()
def revoke(
    name: str,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept for good.")],
    by: ActorOption = "",
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    data: DataOption = Path("var"),
) -> None:
    """Revoke a node's certificate. A node that is not released yet is proved anew by itself."""

    async def look(opened: Data) -> tuple[Node, Certificate, bool]:
        certificate = await _certificate(opened, name)
        revoked = await opened.store.revoked(certificate.id)
        return await node_of(opened, name), certificate, revoked

    node, certificate, revoked = with_data(data, look)
    if revoked:
        remedy = "See `provisioner certificate show`."
        raise InputError(name, "", f"certificate {certificate.id} is revoked already", remedy)
    confirm_change(_revocation(node, certificate), yes=yes, dry_run=dry_run)
    detail = {"by": name_actor(by)}

    async def apply(opened: Data) -> None:
        now, revoked = opened.clock.now(), certificate.id
        write = partial(write_revocation, certificate=revoked, node=name, reason=reason)
        await opened.store.write(partial(write, detail=detail, now=now))

    with_data(data, apply)
    typer.echo(f"{name}: certificate {certificate.id} is revoked")


def _revocation(node: Node, certificate: Certificate) -> tuple[str, ...]:
    """Return the sentences that a person reads before a certificate is revoked."""
    if node.state is State.RELEASED:
        then = (
            f"{node.id} serves {node.tenant} and goes on serving it without a valid certificate. "
            f"`provisioner node reclaim {node.id}` takes it back."
        )
    else:
        then = f"{node.id} is {node.state}. It reaches no tenant before it is proved anew."
    issued = _day(certificate.issued_at)
    return (f"Certificate {certificate.id} of {issued} is revoked, for good.", then)


@app.command("revocations")
def revocation_list(data: DataOption = Path("var"), output: OutputOption = None) -> None:
    """The signed list of everything that was revoked, to be published beside the public keys."""

    async def read(opened: Data) -> str:
        keys = await opened.store.read(read_keys)
        payload = attestation.revocations(
            await opened.store.revocations(),
            [k.key_id for k in keys if k.withdrawn_at is not None],
            opened.clock.now(),
            attestation.REVOCATIONS_VALID_S,
        )
        return opened.signer.seal(attestation.REVOCATIONS_PAYLOAD, payload)

    _write(with_data(data, read), output)


@app.command()
def keys(
    data: DataOption = Path("var"),
    pem: Annotated[bool, typer.Option("--pem", help="PEM, for --key of verify.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Public keys that signed here: which signs now, which only verifies, which is withdrawn."""

    async def read(opened: Data) -> tuple[SigningKey, ...]:
        return await opened.store.read(read_keys)

    found = with_data(data, read)
    if pem:
        believed = [k for k in found if k.withdrawn_at is None]
        typer.echo("".join(public_pem(k.public) for k in believed), nl=False)
        return
    rows = [(k.key_id, _standing(k), _day(k.created_at)) for k in found]
    if as_json:
        names = ("key_id", "standing", "created")
        typer.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
        return
    table = Table("key", "standing", "made")
    for row in rows:
        table.add_row(*row)
    console().print(table)


@app.command()
def rotate(
    data: DataOption = Path("var"),
    compromised: Annotated[
        bool,
        typer.Option("--compromised", help="Believe nothing any more that older keys signed."),
    ] = False,
) -> None:
    """Sign with a new key from now on. The daemon must be stopped: it holds the old one.

    Certificates of older keys stay valid until they expire, unless --compromised: then every node
    that is not released is proved anew, and released ones are shown as needing it.
    """

    async def apply(opened: Data) -> str:
        now = opened.clock.now()
        signer = await exchange_signing_key(
            opened.store, opened.master, now, compromised=compromised
        )
        detail = {"request": "rotate", "key": signer.key_id, "compromised": compromised}
        await opened.store.journal("request", "", detail, now)
        return signer.key_id

    with lock_data_directory(data):
        typer.echo(f"signs from now on: {with_data(data, apply)}")
    typer.echo("Publish the new public key: provisioner certificate keys --pem")


async def _certificate(opened: Data, name: str) -> Certificate:
    node = await node_of(opened, name)
    certificate = await opened.store.certificate(node.certificate) if node.certificate else None
    if certificate is None:
        remedy = "See `provisioner node show` for what it waits for."
        raise InputError(name, "", "this node has no certificate", remedy)
    return certificate


def _keys(file: Path) -> dict[str, bytes]:
    try:
        found = dict(keys_of(read_text(file)))
    except ValueError as error:
        raise InputError(str(file), "", f"unreadable key: {error}", _KEY_REMEDY) from None
    if not found:
        raise InputError(str(file), "", "there is no public key in it", _KEY_REMEDY)
    return found


_KEY_REMEDY = "Write it with: provisioner certificate keys --pem"


def _opened(file: Path, trusted: dict[str, bytes]) -> tuple[Certificate, bool]:
    """The certificate of a file, and whether a trusted key signed it."""
    try:
        envelope = attestation.opened(read_text(file))
        return attestation.certificate_of(envelope), signed(envelope, trusted)
    except NotAnAttestation as error:
        remedy = "Write it with: provisioner certificate export NODE"
        raise InputError(str(file), "", str(error), remedy) from None


def _listed(file: Path | None, trusted: dict[str, bytes]) -> RevocationList | None:
    if file is None:
        return None
    remedy = "Write it with: provisioner certificate revocations"
    try:
        envelope = attestation.opened(read_text(file))
        if not signed(envelope, trusted):
            raise InputError(str(file), "", "no trusted key signed this list", remedy)
        return attestation.revocation_list(envelope)
    except NotAnAttestation as error:
        raise InputError(str(file), "", str(error), remedy) from None


def _objections(
    certificate: Certificate, listed: RevocationList | None, now: float, *, good: bool
) -> tuple[str, ...]:
    if not good:
        return ("no trusted key signed it",)
    return attestation.objections(certificate, now, listed)


def _told(certificate: Certificate) -> list[tuple[str, str]]:
    return [
        ("node", f"{certificate.node} at {certificate.location}"),
        ("proved for", f"{certificate.release}, {certificate.profile}"),
        ("issued", f"{_day(certificate.issued_at)}, expires {_day(certificate.expires_at)}"),
        ("parts", f"{len(certificate.serials)} serials, {len(certificate.versions)} versions"),
        ("gates", "\n".join(_proved(g, certificate) for g in certificate.gates) or "none"),
        ("checks", ", ".join(certificate.checks)),
        ("evidence", f"{len(certificate.evidence)} raw outputs by digest"),
        ("ports", ", ".join(certificate.ports)),
        ("matrix", certificate.matrix_digest),
        ("signed by", certificate.key_id),
    ]


def _proved(proof: GateProof, certificate: Certificate) -> str:
    words = f"{proof.gate.value}: {GATE_NAMES[proof.gate]}"
    if proof.certificate == certificate.id:
        return words
    return f"{words} (on {_day(proof.proved_at)}, by certificate {proof.certificate})"


def _standing(key: SigningKey) -> str:
    if key.withdrawn_at is not None:
        return f"withdrawn {_day(key.withdrawn_at)}"
    return "signs" if key.signs else "verifies only"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError(str(output), "", problem, "Check the path.") from None
    typer.echo(f"written: {output}")

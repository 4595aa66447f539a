"""Routes of certificates: list, show, the signed attestation, revoke."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_objection, decode_cursor, encode_cursor
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import ANYBODY, OPERATORS, VIEWERS, Counted, Effect, Paging, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.certificate import Certificate, SigningKey
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import State
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.certification import attestation
from provisioner.store.signing import envelope_of, public_pem

# ------------------------------------------------------------------------------
# Routes of signing keys: the public keys, their exchange, and the list of revocations.


SIGNING_KEYS_TAG = "site"


class KeyStanding(StrEnum):
    """The use of a key now."""

    SIGNS = "signs"
    VERIFIES_ONLY = "verifies only"
    WITHDRAWN = "withdrawn"


class KeyView(Record):
    """A public key that signs or signed here."""

    key_id: str
    standing: KeyStanding
    created_at: Instant
    withdrawn_at: InstantOrNone
    pem: str


class KeyList(Record):
    """All keys, the newest first."""

    items: tuple[KeyView, ...]


class Rotation(Record):
    """The body of a key's exchange."""

    compromised: bool = Field(
        default=False, description="Nothing that older keys signed is believed any more."
    )


class SignedList(Record):
    """A DSSE envelope with all revocations."""

    envelope: dict[str, Any]


async def list_keys(ask: Ask) -> Reply:
    keys = await ask.parts.store.signing_keys.list()
    return Reply(KeyList(items=tuple(_key(k) for k in keys)))


def _key(key: SigningKey) -> KeyView:
    standing = KeyStanding.SIGNS if key.signs else KeyStanding.VERIFIES_ONLY
    return KeyView(
        key_id=key.key_id,
        standing=standing if key.withdrawn_at is None else KeyStanding.WITHDRAWN,
        created_at=key.created_at,
        withdrawn_at=key.withdrawn_at or 0.0,
        pem=public_pem(key.public),
    )


async def list_revocations(ask: Ask) -> Reply:
    """Return all revocations, signed, for publication beside the public keys."""
    store = ask.parts.store
    signer = ask.parts.signer
    if signer is None:
        raise refuse_missing("signing key in this process")
    keys = await store.signing_keys.list()
    payload = attestation.write_revocations(
        await store.evidence.list_revocations(),
        [k.key_id for k in keys if k.withdrawn_at is not None],
        ask.now,
        attestation.REVOCATIONS_VALID_S,
    )
    sealed = signer.seal(attestation.REVOCATIONS_PAYLOAD, payload)
    return Reply(SignedList(envelope=json.loads(sealed)))


async def rotate_key(ask: Ask) -> Reply:
    if ask.parts.exchange_key is None:
        raise build_refusal(409, "vault", "This process has no master key", "Ask the daemon.")
    arguments = ask.body.model_dump(mode="json")
    return await ask.parts.works.submit_change(
        ask, ChangeKind.KEY_ROTATE, "signing key", "", arguments
    )


async def change_key(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out the exchange of the signing key."""
    assert asked.kind is ChangeKind.KEY_ROTATE
    assert parts.exchange_key is not None
    now = parts.clock.now()
    compromised = bool(asked.arguments["compromised"])
    key = await parts.exchange_key(now, compromised)
    rotated = RequestCarriedOut(
        request="rotate", key=key, compromised=compromised, by=asked.asked_by, id=asked.id
    )
    await parts.store.journal.append(rotated, now)
    return Outcome(RequestState.DONE, {"key": key})


async def foresee_rotation(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the effects on certificates that older keys signed."""
    lines = ["A new key signs from now on. Publish it: provisioner certificate keys --pem"]
    if asked.arguments.get("compromised"):
        lines.append("Nothing that older keys signed is believed any more, at once and for good:")
        lines.append("nodes that serve no tenant are proved anew, those that serve are listed.")
    else:
        lines.append("Certificates that older keys signed stay valid until they expire.")
    if parts.store.shared:
        lines.append("Other daemons on this database sign with the old key until they restart.")
    return Forecast(tuple(lines))


_ASKED = {200: OperationView, 202: OperationView}
SIGNING_KEYS_ROUTES = (
    Route(
        "GET",
        "/keys",
        "list_keys",
        SIGNING_KEYS_TAG,
        "List public keys: the one that signs now, and those that only verify.",
        VIEWERS,
        list_keys,
        {200: KeyList},
    ),
    Route(
        "POST",
        "/keys/rotate",
        "rotate_key",
        SIGNING_KEYS_TAG,
        "Sign with a new key from now on.",
        OPERATORS,
        rotate_key,
        _ASKED,
        effect=Effect.LASTING,
        body=Rotation,
        example={"compromised": False},
        site=True,
    ),
    Route(
        "GET",
        "/revocations",
        "list_revocations",
        SIGNING_KEYS_TAG,
        "Export the signed list of all revocations, for publication.",
        VIEWERS,
        list_revocations,
        {200: SignedList},
        refusals={404: "This process has no signing key."},
    ),
)


TAG = "certificates"


class CertificateView(Record):
    """A certificate, and whether it is valid now."""

    certificate: Certificate
    in_force: bool = Field(description="Signed by a key of ours, not revoked, not expired.")
    revoked_at: InstantOrNone = 0.0
    revoked_reason: str = ""


class CertificateLine(Record):
    """A certificate in a list."""

    id: str
    node: str
    release: str
    profile: str
    issued_at: Instant
    expires_at: Instant
    revoked_at: InstantOrNone = 0.0
    revoked_reason: str = ""
    damaged: str = Field("", description="Why its row cannot be read; it is not valid then.")


class CertificatePage(Counted):
    """A part of the list, the newest first."""

    items: tuple[CertificateLine, ...]
    next: str = ""


class CertificateQuery(Paging):
    """The selection of certificates."""

    node: str = Field("", max_length=128, description="Select this node.")


class Attestation(Record):
    """A DSSE envelope (in-toto) with the certificate as its statement."""

    envelope: dict[str, Any]


class Why(Record):
    """The body of a revocation."""

    reason: str = Field(
        min_length=1, max_length=200, description="Reason; it is stored permanently."
    )


async def list_all(ask: Ask) -> Reply:
    """List certificates, the newest first."""
    started = decode_cursor(ask.query.cursor, float, str)
    before = (float(started[0]), str(started[1])) if started else None
    limit = ask.query.limit
    evidence = ask.parts.store.evidence
    rows = await evidence.list_certificates(before=before, limit=limit + 1, node=ask.query.node)
    items = tuple(
        CertificateLine(
            id=row.id,
            node=row.node,
            release=row.certificate.release if row.certificate else "",
            profile=row.certificate.profile if row.certificate else "",
            issued_at=row.issued_at,
            # a damaged one is valid for no time
            expires_at=row.certificate.expires_at if row.certificate else row.issued_at,
            revoked_at=row.revoked_at or 0.0,
            revoked_reason=row.revoked_reason,
            damaged=row.damaged,
        )
        for row in rows[:limit]
    )
    last = items[-1] if len(rows) > limit else None
    following = encode_cursor(float(last.issued_at), last.id) if last else ""
    total = await ask.parts.store.evidence.count_certificates(ask.query.node)
    return Reply(CertificatePage(items=items, next=following, total=total))


async def show(ask: Ask) -> Reply:
    certificate = await _certificate(ask)
    return Reply(await _view(ask, certificate))


async def show_of_node(ask: Ask) -> Reply:
    node = await ask.read_node()
    certificate = (
        await ask.parts.store.evidence.get_certificate(node.certificate)
        if node.certificate
        else None
    )
    if certificate is None:
        raise refuse_missing("certificate in force of this node")
    return Reply(await _view(ask, certificate))


async def export_attestation(ask: Ask) -> Reply:
    """Return a certificate as a signed attestation for other tools."""
    certificate = await _certificate(ask)
    return Reply(Attestation(envelope=json.loads(envelope_of(certificate))))


async def _certificate(ask: Ask) -> Certificate:
    """Return the certificate of the path; a tenant sees those in force of its own nodes."""
    named = ask.read_word("certificate")
    certificate = await ask.parts.store.evidence.get_certificate(named)
    if certificate is None:  # a node's name stands for its present certificate
        of = await ask.parts.store.nodes.get(named)
        certificate = (
            await ask.parts.store.evidence.get_certificate(of.certificate)
            if of and of.certificate
            else None
        )
    if certificate is not None and not ask.caller.staff:
        node = await ask.parts.store.nodes.get(certificate.node)
        if node is None or not ask.may_see(node) or node.certificate != certificate.id:
            certificate = None
    if certificate is None:
        raise refuse_missing("certificate")
    return certificate


async def _view(ask: Ask, found: Certificate) -> CertificateView:
    store = ask.parts.store
    revoked = next(
        (r for r in await store.evidence.list_revocations() if r.certificate == found.id), None
    )
    good = (
        await store.evidence.is_attested(found) and revoked is None and ask.now < found.expires_at
    )
    return CertificateView(
        certificate=found,
        in_force=good,
        revoked_at=revoked.revoked_at if revoked else 0.0,
        revoked_reason=revoked.reason if revoked else "",
    )


async def revoke(ask: Ask) -> Reply:
    certificate = await _certificate(ask)
    node = await ask.parts.store.nodes.get(certificate.node)
    tenant = node.tenant if node is not None else ""
    arguments = {"reason": ask.body.reason}
    kind = ChangeKind.CERTIFICATE_REVOKE
    return await ask.parts.works.submit_change(ask, kind, certificate.id, tenant, arguments)


async def foresee_revocation(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    certificate = await parts.store.evidence.get_certificate(asked.subject)
    assert certificate is not None, "certificates are never deleted"
    if await parts.store.evidence.is_revoked(certificate.id):
        return Forecast(blockers=_revoked(certificate.id).blockers)
    node = await parts.store.nodes.get(certificate.node)
    issued = datetime.fromtimestamp(certificate.issued_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    first = f"Certificate {certificate.id} of {issued} is revoked, for good."
    if node is None:
        return Forecast((first, f"{certificate.node} is no node of this site any more."))
    if node.state is State.RELEASED:
        then = (
            f"{node.id} serves {node.tenant} and goes on serving it without a valid certificate. "
            f"`provisioner node reclaim {node.id}` takes it back."
        )
    else:
        then = f"{node.id} is {node.state}. It reaches no tenant before it is proved anew."
    return Forecast((first, then))


def _revoked(name: str) -> Outcome:
    return build_objection(name, "it is revoked already", "See `provisioner certificate show`.")


async def change_certificate(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    certificate = await parts.store.evidence.get_certificate(asked.subject)
    now = parts.clock.now()
    assert certificate is not None, "certificates are never deleted"
    if await parts.store.evidence.is_revoked(certificate.id):
        return _revoked(certificate.id)
    why = str(asked.arguments["reason"])
    await parts.store.evidence.revoke_requested(certificate, why, asked.asked_by, now, asked.id)
    return Outcome(RequestState.DONE, {"certificate": certificate.id})


ROUTES = (
    Route(
        "GET",
        "/certificates",
        "list_certificates",
        TAG,
        "List certificates, the newest first.",
        VIEWERS,
        list_all,
        {200: CertificatePage},
        query=CertificateQuery,
    ),
    Route(
        "GET",
        "/certificates/{certificate}",
        "show_certificate",
        TAG,
        "Show one certificate, and whether it is valid.",
        ANYBODY,
        show,
        {200: CertificateView},
    ),
    Route(
        "GET",
        "/certificates/{certificate}/attestation",
        "show_attestation",
        TAG,
        "Export a certificate as a signed in-toto attestation.",
        ANYBODY,
        export_attestation,
        {200: Attestation},
    ),
    Route(
        "POST",
        "/certificates/{certificate}/revoke",
        "revoke_certificate",
        TAG,
        "Revoke a certificate, for good.",
        OPERATORS,
        revoke,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=Why,
        example={"reason": "the wrong cable was tested"},
    ),
    Route(
        "GET",
        "/nodes/{node}/certificate",
        "show_node_certificate",
        TAG,
        "Show the present certificate of a node.",
        ANYBODY,
        show_of_node,
        {200: CertificateView},
    ),
)

"""Routes of certificates: list, show, the signed attestation, revoke."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, objection
from provisioner.api.cursor import cursor, place
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import missing
from provisioner.api.route import ANYBODY, OPERATORS, VIEWERS, Paging, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.certificate import Certificate
from provisioner.model.node import State
from provisioner.store.signing import envelope_of

TAG = "certificates"


class CertificateView(Record):
    """A certificate, and whether it is still believed."""

    certificate: Certificate
    in_force: bool = Field(description="Signed by a key of ours, not revoked, not expired.")
    revoked_at: float = 0.0
    revoked_reason: str = ""


class CertificateLine(Record):
    """A certificate in a list."""

    id: str
    node: str
    release: str
    profile: str
    issued_at: float
    expires_at: float
    revoked_at: float = 0.0
    revoked_reason: str = ""


class CertificatePage(Record):
    """A part of the list, the newest first."""

    items: tuple[CertificateLine, ...]
    next: str = ""


class CertificateQuery(Paging):
    """Which certificates."""

    node: str = Field("", max_length=128, description="Of this node only.")


class Attestation(Record):
    """A DSSE envelope (in-toto) with the certificate as its statement."""

    envelope: dict[str, Any]


class Why(Record):
    """The body of a revocation."""

    reason: str = Field(min_length=1, max_length=200, description="It is kept for good.")


async def list_all(ask: Ask) -> Reply:
    """The newest first."""
    started = place(ask.query.cursor, float, str)
    before = (float(started[0]), str(started[1])) if started else None
    limit = ask.query.limit
    evidence = ask.parts.store.evidence
    rows = await evidence.list_certificates(before=before, limit=limit + 1, node=ask.query.node)
    items = tuple(
        CertificateLine(
            id=c.id, node=c.node, release=c.release, profile=c.profile, issued_at=c.issued_at,
            expires_at=c.expires_at, revoked_at=at or 0.0, revoked_reason=why,
        )
        for c, at, why in rows[:limit]
    )  # fmt: skip
    last = items[-1] if len(rows) > limit else None
    following = cursor(float(last.issued_at), last.id) if last else ""
    return Reply(CertificatePage(items=items, next=following))


async def show(ask: Ask) -> Reply:
    """One."""
    found = await _certificate(ask)
    return Reply(await _view(ask, found))


async def of_node(ask: Ask) -> Reply:
    """The one in force of a node."""
    node = await ask.node()
    found = (
        await ask.parts.store.evidence.get_certificate(node.certificate)
        if node.certificate
        else None
    )
    if found is None:
        raise missing("certificate in force of this node")
    return Reply(await _view(ask, found))


async def attestation(ask: Ask) -> Reply:
    """For other tools."""
    found = await _certificate(ask)
    return Reply(Attestation(envelope=json.loads(envelope_of(found))))


async def _certificate(ask: Ask) -> Certificate:
    """A tenant sees the certificates that are in force of its own nodes."""
    named = ask.word("certificate")
    found = await ask.parts.store.evidence.get_certificate(named)
    if found is None:  # a node stands for the certificate that it has now
        of = await ask.parts.store.nodes.get(named)
        found = (
            await ask.parts.store.evidence.get_certificate(of.certificate)
            if of and of.certificate
            else None
        )
    if found is not None and not ask.caller.staff:
        node = await ask.parts.store.nodes.get(found.node)
        if node is None or not ask.may_see(node) or node.certificate != found.id:
            found = None
    if found is None:
        raise missing("certificate")
    return found


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
    """Take it back, for good."""
    found = await _certificate(ask)
    node = await ask.parts.store.nodes.get(found.node)
    tenant = node.tenant if node is not None else ""
    arguments = {"reason": ask.body.reason}
    kind = ChangeKind.CERTIFICATE_REVOKE
    return await ask.parts.works.ask(ask, kind, found.id, tenant, arguments)


async def foresee_revocation(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return what a revocation means for the node and its tenant."""
    found = await parts.store.evidence.get_certificate(asked.subject)
    assert found is not None, "certificates are never deleted"
    if await parts.store.evidence.is_revoked(found.id):
        return Forecast(blockers=_revoked(found.id).blockers)
    node = await parts.store.nodes.get(found.node)
    issued = datetime.fromtimestamp(found.issued_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    first = f"Certificate {found.id} of {issued} is revoked, for good."
    if node is None:
        return Forecast((first, f"{found.node} is no node of this site any more."))
    if node.state is State.RELEASED:
        then = (
            f"{node.id} serves {node.tenant} and goes on serving it without a valid certificate. "
            f"`provisioner node reclaim {node.id}` takes it back."
        )
    else:
        then = f"{node.id} is {node.state}. It reaches no tenant before it is proved anew."
    return Forecast((first, then))


def _revoked(name: str) -> Outcome:
    return objection(name, "it is revoked already", "See `provisioner certificate show`.")


async def change_certificate(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out."""
    found, now = await parts.store.evidence.get_certificate(asked.subject), parts.clock.now()
    assert found is not None, "certificates are never deleted"
    if await parts.store.evidence.is_revoked(found.id):
        return _revoked(found.id)
    why = str(asked.arguments["reason"])
    await parts.store.evidence.revoke_requested(found, why, asked.asked_by, now, asked.id)
    return Outcome(RequestState.DONE, {"certificate": found.id})


ROUTES = (
    Route("GET", "/certificates", "list_certificates", TAG, "Certificates, the newest first.",
          VIEWERS, list_all, {200: CertificatePage}, query=CertificateQuery),
    Route("GET", "/certificates/{certificate}", "show_certificate", TAG,
          "One certificate, and whether it is believed.", ANYBODY, show, {200: CertificateView}),
    Route("GET", "/certificates/{certificate}/attestation", "show_attestation", TAG,
          "The certificate as a signed in-toto attestation.", ANYBODY, attestation,
          {200: Attestation}),
    Route("POST", "/certificates/{certificate}/revoke", "revoke_certificate", TAG,
          "Take a certificate back, for good.", OPERATORS, revoke,
          {200: OperationView, 202: OperationView}, body=Why,
          example={"reason": "the wrong cable was tested"}),
    Route("GET", "/nodes/{node}/certificate", "show_node_certificate", TAG,
          "The certificate that a node has now.", ANYBODY, of_node, {200: CertificateView}),
)  # fmt: skip

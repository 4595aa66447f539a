"""Routes of signing keys: the public keys, their exchange, and the list of revocations."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Effect, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.certificate import SigningKey
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.certification import attestation
from provisioner.store.signing import public_pem

TAG = "site"


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
    """Return the public keys."""
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
    """Ask for a new signing key."""
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
ROUTES = (
    Route(
        "GET",
        "/keys",
        "list_keys",
        TAG,
        "List public keys: the one that signs now, and those that only verify.",
        VIEWERS,
        list_keys,
        {200: KeyList},
    ),
    Route(
        "POST",
        "/keys/rotate",
        "rotate_key",
        TAG,
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
        TAG,
        "Export the signed list of all revocations, for publication.",
        VIEWERS,
        list_revocations,
        {200: SignedList},
        refusals={404: "This process has no signing key."},
    ),
)

"""Routes of pinned releases: the release for a node, a rack or the whole fleet, with the reason."""

from __future__ import annotations

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Effect, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.campaign import PinScope, ReleasePin
from provisioner.model.times.instant import InstantOrNone

TAG = "pins"


class PinView(ReleasePin):
    """A pinned release."""

    expired: bool = False


class PinList(Record):
    """All pins, expired ones too."""

    items: tuple[PinView, ...]


class Place(Record):
    """The subject of a pin."""

    scope: PinScope = Field(description="What is pinned.")
    name: str = Field(
        "", max_length=128, description="Name of the node or rack; none for the fleet."
    )


class PinFields(Record):
    """The body of a pin whose subject is in the path."""

    release: str = Field(min_length=1, max_length=128, description="The target release.")
    reason: str = Field(
        min_length=1, max_length=300, description="The reason; it is stored permanently."
    )
    until: InstantOrNone = Field(
        0.0, description="When it ends; null: never. A node's or a rack's pin must end."
    )


class NewPin(PinFields, Place):
    """The body of a pin."""


class PinPatch(Record):
    """A merge patch of a pin."""

    release: str | None = Field(
        None, min_length=1, max_length=128, description="The target release."
    )
    reason: str | None = Field(
        None, min_length=1, max_length=300, description="The reason; it is stored permanently."
    )
    until: InstantOrNone = Field(
        0.0, description="When it ends; null: never. A node's or a rack's pin must end."
    )


async def list_all(ask: Ask) -> Reply:
    pins = await ask.parts.store.campaigns.list_pins()
    items = tuple(PinView(**dict(p), expired=not p.is_in_force(ask.now)) for p in pins)
    return Reply(PinList(items=items))


async def put(ask: Ask) -> Reply:
    return await _put(ask, ask.body)


async def _put(ask: Ask, body: NewPin) -> Reply:
    releases = ask.parts.matrix.releases
    if body.release not in releases:
        unblock = f"Name one of: {', '.join(sorted(releases))}."
        raise build_refusal(400, "release", "The matrix has no such release", unblock, body.release)
    fleet = body.scope is PinScope.FLEET
    if (not fleet and not body.until) or (body.until and body.until <= ask.now):
        unblock = "Name a time in the future: --until 2026-12-24T18:00."
        raise build_refusal(400, "until", "A pin of a node or a rack ends at some time", unblock)
    nodes = await ask.parts.store.nodes.list()
    names = {
        PinScope.NODE: {n.id for n in nodes},
        PinScope.RACK: {n.location.rack for n in nodes},
        PinScope.FLEET: {""},
    }[body.scope]
    if body.name not in names:
        unblock = "Look at the list of nodes."
        raise build_refusal(404, "missing", f"There is no such {body.scope}", unblock, body.name)
    return await _ask(ask, ChangeKind.PIN_SET, body)


async def remove(ask: Ask) -> Reply:
    return await _ask(ask, ChangeKind.PIN_REMOVE, ask.body)


def read_place(ask: Ask) -> Place:
    """Return the subject of a pin by its id: fleet, node:NAME or rack:NAME. Raises Refused."""
    scope, _, name = ask.read_word("pin").partition(":")
    if scope not in set(PinScope) or bool(name) == (scope == PinScope.FLEET):
        raise refuse_missing("pin")
    return Place(scope=PinScope(scope), name=name)


async def show_pin(ask: Ask) -> Reply:
    pin = await _read(ask)
    return Reply(PinView(**dict(pin), expired=not pin.is_in_force(ask.now)))


async def replace_pin(ask: Ask) -> Reply:
    """Ask for a pin of the path's subject, new or instead of the present one."""
    place = read_place(ask)
    return await _put(ask, NewPin(**dict(ask.body), **dict(place)))


async def merge_pin(ask: Ask) -> Reply:
    """Ask for some fields of a pin otherwise."""
    pin = await _read(ask)
    patch: PinPatch = ask.body
    until = patch.until if "until" in patch.model_fields_set else pin.expires_at
    body = NewPin(
        scope=pin.scope,
        name=pin.name,
        release=patch.release or pin.release,
        reason=patch.reason or pin.reason,
        until=until,
    )
    return await _put(ask, body)


async def delete_pin(ask: Ask) -> Reply:
    return await _ask(ask, ChangeKind.PIN_REMOVE, read_place(ask))


async def _read(ask: Ask) -> ReleasePin:
    place = read_place(ask)
    pins = await ask.parts.store.campaigns.list_pins()
    pin = next((p for p in pins if (p.scope, p.name) == (place.scope, place.name)), None)
    if pin is None:
        raise refuse_missing("pin")
    return pin


async def _ask(ask: Ask, kind: ChangeKind, body: Place) -> Reply:
    arguments = body.model_dump(mode="json")
    subject = f"{body.scope.value} {body.name}".strip()
    return await ask.parts.works.submit_change(ask, kind, subject, "", arguments)


async def change_pin(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    book = parts.store.campaigns
    now = parts.clock.now()
    if asked.kind is ChangeKind.PIN_SET:
        body = NewPin.model_validate(asked.arguments, strict=False)
        pin = ReleasePin(
            scope=body.scope,
            name=body.name,
            release=body.release,
            reason=body.reason,
            by=asked.asked_by,
            at=now,
            expires_at=body.until,
        )
        await book.put_pin(pin, now)
        return Outcome(RequestState.DONE, pin.model_dump(mode="json"))
    held = await _find(parts, asked)
    if held is None:
        return build_objection(asked.subject, "there is no pin of it", "Look at the list of pins.")
    await book.drop_pin(held, now)
    return Outcome(RequestState.DONE, {"pin": asked.subject})


async def foresee_removal(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    pin = await _find(parts, asked)
    if pin is None:
        absent = build_objection(
            asked.subject, "there is no pin of it", "Look at the list of pins."
        )
        return Forecast(blockers=absent.blockers)
    line = f"{asked.subject} is pinned to {pin.release} no more ({pin.reason}). Nothing moves."
    return Forecast((line,))


async def _find(parts: ApiParts, asked: ChangeRequest) -> ReleasePin | None:
    place = Place.model_validate(asked.arguments, strict=False)
    pins = await parts.store.campaigns.list_pins()
    return next((p for p in pins if (p.scope, p.name) == (place.scope, place.name)), None)


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        "/pins",
        "list_pins",
        TAG,
        "List the target releases of nodes, racks and the fleet.",
        VIEWERS,
        list_all,
        {200: PinList},
    ),
    Route(
        "PUT",
        "/pins",
        "set_pin",
        TAG,
        "Set the target release of a node, a rack or the fleet; a campaign moves it there.",
        OPERATORS,
        put,
        _ASKED,
        effect=Effect.LASTING,
        body=NewPin,
        example={"scope": "fleet", "release": "spectrum-x-1.3.0", "reason": "the baseline"},
        refusals={404: "There is no such node or rack."},
    ),
    Route(
        "GET", "/pins/{pin}", "show_pin", TAG, "Show one pin.", VIEWERS, show_pin, {200: PinView}
    ),
    Route(
        "PUT",
        "/pins/{pin}",
        "replace_pin",
        TAG,
        "Set or replace a pin by its id: fleet, node:NAME or rack:NAME.",
        OPERATORS,
        replace_pin,
        _ASKED,
        effect=Effect.LASTING,
        body=PinFields,
        example={"release": "spectrum-x-1.3.0", "reason": "the baseline"},
        refusals={404: "There is no such node or rack."},
    ),
    Route(
        "PATCH",
        "/pins/{pin}",
        "merge_pin",
        TAG,
        "Change some fields of a pin (a merge patch, RFC 7396).",
        OPERATORS,
        merge_pin,
        _ASKED,
        effect=Effect.LASTING,
        body=PinPatch,
        example={"reason": "the tested baseline"},
    ),
    Route(
        "DELETE",
        "/pins/{pin}",
        "delete_pin",
        TAG,
        "Remove a pin by its id. No node is moved by it.",
        OPERATORS,
        delete_pin,
        _ASKED,
        effect=Effect.LASTING,
    ),
    Route(
        "POST",
        "/pins/remove",
        "remove_pin",
        TAG,
        "Remove a pin. No node is moved by it.",
        OPERATORS,
        remove,
        _ASKED,
        effect=Effect.LASTING,
        body=Place,
        example={"scope": "fleet"},
    ),
)

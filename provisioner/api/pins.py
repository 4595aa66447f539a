"""Routes of pinned releases: what a node, a rack or the whole fleet is to run, and why."""

from __future__ import annotations

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import no
from provisioner.api.route import OPERATORS, VIEWERS, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.campaign_row import PinScope, ReleasePin

TAG = "pins"
TIME_MAX = 1e11  # seconds since the epoch: the year 5138


class PinView(ReleasePin):
    """A pinned release."""

    expired: bool = False


class PinList(Record):
    """All pins, expired ones too."""

    items: tuple[PinView, ...]


class Place(Record):
    """What a pin is about."""

    scope: PinScope
    name: str = Field("", max_length=128, description="Of the node or rack; none for the fleet.")


class NewPin(Place):
    """The body of a pin."""

    release: str = Field(min_length=1, max_length=128, description="The release it is to run.")
    reason: str = Field(min_length=1, max_length=300, description="Why; it is kept for good.")
    until: float = Field(
        0.0, ge=0, le=TIME_MAX, description="When it ends; a node's or a rack's pin must end."
    )


async def list_all(ask: Ask) -> Reply:
    """Return every pin."""
    pins = await ask.parts.store.campaigns.list_pins()
    items = tuple(PinView(**dict(p), expired=not p.is_in_force(ask.now)) for p in pins)
    return Reply(PinList(items=items))


async def put(ask: Ask) -> Reply:
    """Ask for a pin."""
    wanted: NewPin = ask.body
    known = ask.parts.matrix.releases
    if wanted.release not in known:
        unblock = f"Name one of: {', '.join(sorted(known))}."
        raise no(400, "release", "The matrix has no such release", unblock, wanted.release)
    fleet = wanted.scope is PinScope.FLEET
    if (not fleet and not wanted.until) or (wanted.until and wanted.until <= ask.now):
        unblock = "Name a time in the future: --until 2026-12-24T18:00."
        raise no(400, "until", "A pin of a node or a rack ends at some time", unblock)
    nodes = await ask.parts.store.nodes.list()
    names = {
        PinScope.NODE: {n.id for n in nodes},
        PinScope.RACK: {n.location.rack for n in nodes},
        PinScope.FLEET: {""},
    }[wanted.scope]
    if wanted.name not in names:
        unblock = "Look at the list of nodes."
        raise no(404, "missing", f"There is no such {wanted.scope}", unblock, wanted.name)
    return await _ask(ask, ChangeKind.PIN_SET)


async def remove(ask: Ask) -> Reply:
    """Ask for a pin's end."""
    return await _ask(ask, ChangeKind.PIN_REMOVE)


async def _ask(ask: Ask, kind: ChangeKind) -> Reply:
    arguments = ask.body.model_dump(mode="json")
    subject = f"{ask.body.scope.value} {ask.body.name}".strip()
    return await ask.parts.works.ask(ask, kind, subject, "", arguments)


async def change_pin(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out."""
    book, now = parts.store.campaigns, parts.clock.now()
    if asked.kind is ChangeKind.PIN_SET:
        wanted = NewPin.model_validate(asked.arguments, strict=False)
        pin = ReleasePin(
            scope=wanted.scope,
            name=wanted.name,
            release=wanted.release,
            reason=wanted.reason,
            by=asked.asked_by,
            at=now,
            expires_at=wanted.until,
        )
        await book.put_pin(pin, now)
        return Outcome(RequestState.DONE, pin.model_dump(mode="json"))
    held = await _find(parts, asked)
    if held is None:
        return objection(asked.subject, "there is no pin of it", "Look at the list of pins.")
    await book.drop_pin(held, now)
    return Outcome(RequestState.DONE, {"pin": asked.subject})


async def foresee_removal(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return which pin would go."""
    pin = await _find(parts, asked)
    if pin is None:
        absent = objection(asked.subject, "there is no pin of it", "Look at the list of pins.")
        return Forecast(blockers=absent.blockers)
    line = f"{asked.subject} is pinned to {pin.release} no more ({pin.reason}). Nothing moves."
    return Forecast((line,))


async def _find(parts: ApiParts, asked: ChangeRequest) -> ReleasePin | None:
    place = Place.model_validate(asked.arguments, strict=False)
    pins = await parts.store.campaigns.list_pins()
    return next((p for p in pins if (p.scope, p.name) == (place.scope, place.name)), None)


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route("GET", "/pins", "list_pins", TAG, "Releases that nodes, racks or the fleet are to run.",
          VIEWERS, list_all, {200: PinList}),
    Route("PUT", "/pins", "set_pin", TAG,
          "Say which release a node, a rack or the fleet is to run; a campaign moves it there.",
          OPERATORS, put, _ASKED, body=NewPin,
          example={"scope": "fleet", "release": "spectrum-x-1.3.0", "reason": "the baseline"},
          refusals={404: "There is no such node or rack."}),
    Route("POST", "/pins/remove", "remove_pin", TAG,
          "Take a pin away. No node moves by that.", OPERATORS, remove, _ASKED, body=Place,
          example={"scope": "fleet"}),
)  # fmt: skip

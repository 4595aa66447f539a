"""Changes of webhooks: their fields as asked for, their forecasts, and how they are carried out.

A merge is recorded as the fields that it names, and laid over the receiver when it is carried out:
a change that waited for another person's approval takes nothing back that was changed meanwhile.
The journal's position, the secret and a pause are no part of a replacement.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from pydantic import Field, field_validator

from provisioner.api.changes import Execute, Forecast, Foresee, Outcome, build_objection
from provisioner.api.parts import ApiParts, get_vault
from provisioner.integrations.webhooks.posted_events import check
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.integrations.webhook import Webhook, WebhookStatus, secret_name
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.watch.webhooks import list_changes
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# Records of webhooks at the API: a receiver, its undelivered events, and bodies of requests.


PEM_MAX = 100_000  # characters of certificates
LINE = r"^[^\x00-\x1f\x7f]*$"


class WebhookView(Record):
    """A receiver, and the progress of its deliveries."""

    name: str
    url: str
    kinds: tuple[str, ...]
    nodes: tuple[str, ...]
    tenant: str
    ca: str
    pending: int
    dead: int
    delivered: int
    delivered_at: InstantOrNone
    paused_why: str
    made_at: Instant


class WebhookList(Record):
    """All receivers, by name."""

    items: tuple[WebhookView, ...]


class DeadLetter(Record):
    """An event that could not be delivered."""

    seq: int
    event: str
    at: Instant
    kind: str
    node: str
    tries: int
    error: str


class DeadLetters(Record):
    """Undelivered events, the oldest first; 1,000 at most."""

    items: tuple[DeadLetter, ...]


class NewWebhook(Record):
    """The body of a receiver, new or instead of the present one."""

    url: str = Field(min_length=1, max_length=1000, description="URL to which events are posted.")
    secret: str = Field(
        "",
        max_length=200,
        repr=False,
        description="whsec_...: signs what is sent. An existing receiver keeps its secret.",
    )
    kinds: tuple[str, ...] = Field(("*",), max_length=64, description="Globs of event kinds.")
    nodes: tuple[str, ...] = Field(("*",), max_length=64, description="Globs of nodes.")
    tenant: str = Field("", max_length=64, description="Send only notices to this tenant.")
    ca: str = Field(
        "", max_length=PEM_MAX, description="PEM of the CAs of the receiver's certificate."
    )
    after: int | None = Field(
        None,
        ge=0,
        description="Begin after this row; by default from now on. An existing one goes on.",
    )
    plain: bool = Field(default=False, description="Allow http, where the site's settings do.")


class WebhookPatch(Record):
    """A merge patch of a receiver. Its secret has a request of its own."""

    url: str | None = Field(
        None, min_length=1, max_length=1000, description="URL to which events are posted."
    )
    kinds: tuple[str, ...] | None = Field(
        None, max_length=64, description="Globs of event kinds; null: all."
    )
    nodes: tuple[str, ...] | None = Field(
        None, max_length=64, description="Globs of nodes; null: all."
    )
    tenant: str | None = Field(
        None, max_length=64, description="Send only notices to this tenant; null: all events."
    )
    ca: str | None = Field(
        None,
        max_length=PEM_MAX,
        description="PEM of the CAs of the receiver's certificate; null: the system's.",
    )
    paused_why: str | None = Field(
        None,
        max_length=200,
        pattern=LINE,
        description="Reason of a pause, for other people; null: events are sent.",
    )
    plain: bool = Field(default=False, description="Allow http, where the site's settings do.")

    @field_validator("url")
    @classmethod
    def _check(cls, url: str | None) -> str:
        if url is None:
            raise ValueError("a receiver has a URL: it cannot be removed")
        return url


class NewSecret(Record):
    """The body of a rotation: the new secret, or the confirmation that the receiver has it."""

    secret: str = Field(
        "", max_length=200, repr=False, description="New secret (whsec_...), which signs too."
    )
    done: bool = Field(
        default=False, description="Confirm that the receiver has it: the old one signs no more."
    )


class Letters(Record):
    """The selection of undelivered events."""

    seq: int | None = Field(None, ge=1, description="Number of one event; by default all.")


class Pause(Record):
    """The body of a pause."""

    why: str = Field(
        min_length=1, max_length=200, pattern=LINE, description="Reason, for other people."
    )


FIELDS = ("url", "kinds", "nodes", "tenant", "ca")  # of a replacement
MATCH = "match"  # argument: the receiver as the caller read it
# null removes a field (RFC 7396): it gets the value of a new receiver
DEFAULTS: Mapping[str, object] = {
    "kinds": ("*",),
    "nodes": ("*",),
    "tenant": "",
    "ca": "",
    "paused_why": "",
}


async def find_webhook(parts: ApiParts, name: str) -> WebhookStatus | None:
    return next((s for s in await parts.store.webhooks.list() if s.webhook.name == name), None)


def build_webhook(name: str, body: NewWebhook, now: float) -> Webhook:
    return Webhook(name=name, made_at=now, **body.model_dump(include=set(FIELDS)))


def merge_webhook(webhook: Webhook, patch: WebhookPatch) -> Webhook:
    named = {n: getattr(patch, n) for n in patch.model_fields_set if n != "plain"}
    values = {n: DEFAULTS[n] if value is None else value for n, value in named.items()}
    return webhook.model_copy(update=values)


def format_fields(webhook: Webhook) -> str:
    """Return the digest of a receiver's fields: the part of its ETag before the dot."""
    return webhook.digest()[:16]


def check_merged(before: Webhook, after: Webhook, settings: Settings, *, plain: bool) -> None:
    """Check changed fields. An http URL that stays was wanted already. Raises InputError."""
    check(after, settings, plain=plain or after.url == before.url)
    if after.ca != before.ca:
        check_certificates(after.ca)


def check_certificates(pem: str) -> None:
    """Check the CAs of a receiver. Raises InputError."""
    try:
        if pem:
            ssl.create_default_context(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        problem = f"the certificate is unreadable ({type(error).__name__})"
        raise InputError("--ca-file", "", problem, "Send certificates as PEM.") from None


async def change_webhook(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    book = parts.store.webhooks
    name = asked.subject
    arguments = asked.arguments
    now = parts.clock.now()
    if asked.kind is ChangeKind.WEBHOOK_ADD:
        receiver = NewWebhook.model_validate({**arguments, "secret": "in the vault"}, strict=False)
        added = build_webhook(name, receiver, now)
        try:  # the site's settings may be others than when it was asked for
            check(added, parts.settings, plain=receiver.plain)
        except InputError as error:
            return build_objection(name, error.problem, error.remedy)
        await book.add(added, receiver.after, asked.asked_by)
        return Outcome(RequestState.DONE, {"webhook": name})
    status = await find_webhook(parts, name)
    if status is None:
        return build_objection(name, "there is no such webhook", "Look at the list of them.")
    result: dict[str, object] = {"webhook": name}
    match asked.kind:
        case ChangeKind.WEBHOOK_SET:
            return await _merge(parts, asked, status.webhook)
        case ChangeKind.WEBHOOK_REMOVE:
            await book.remove(name, asked.asked_by, now)
            await get_vault(parts).remove(secret_name(name))
        case ChangeKind.WEBHOOK_AGAIN:
            result["letters"] = await book.revive(name, arguments.get("seq"), now)
        case ChangeKind.WEBHOOK_DROP:
            result["letters"] = await book.bury(name, arguments.get("seq"), asked.asked_by, now)
        case ChangeKind.WEBHOOK_ROTATE if arguments.get("done"):
            await get_vault(parts).confirm(secret_name(name))
        case ChangeKind.WEBHOOK_PAUSE | ChangeKind.WEBHOOK_RESUME:
            await book.pause(name, str(arguments.get("why", "")), now)
    return Outcome(RequestState.DONE, result)


def read_merge(asked: ChangeRequest, before: Webhook, settings: Settings) -> Webhook:
    """Return the receiver after a recorded merge. Raises InputError if it would be no good one."""
    fields = {n: value for n, value in asked.arguments.items() if n != MATCH}
    patch = WebhookPatch.model_validate(fields, strict=False)
    after = merge_webhook(before, patch)
    check_merged(before, after, settings, plain=patch.plain)
    return after


async def _merge(parts: ApiParts, asked: ChangeRequest, before: Webhook) -> Outcome:
    if asked.arguments.get(MATCH, "") not in ("", format_fields(before)):
        detail = "it changed since it was asked for"
        return build_objection(before.name, detail, "Look at it, then ask again.")
    try:
        after = read_merge(asked, before, parts.settings)
    except InputError as error:
        return build_objection(before.name, error.problem, error.remedy)
    now = parts.clock.now()
    dropped = await parts.store.webhooks.replace(before, after, asked.asked_by, now)
    fields = ", ".join(list_changes(before, after))
    return Outcome(
        RequestState.DONE,
        {"webhook": before.name, "changed": fields or "nothing", "dropped": dropped},
    )


async def foresee_merge(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the fields that would change, and the events that would be dropped."""
    status = await find_webhook(parts, asked.subject)
    assert status is not None, "the handler found it"
    before = status.webhook
    after = read_merge(asked, before, parts.settings)
    lines = [_describe(name, before, after) for name in list_changes(before, after)]
    dropped = await parts.store.webhooks.count_unwanted(after)
    if dropped:
        lines.append(f"{dropped} undelivered events do not match any more: they are dropped.")
    return Forecast(tuple(lines) or (f"{before.name} has these fields already.",))


def _describe(name: str, before: Webhook, after: Webhook) -> str:
    if name == "ca":
        source = "its own certificates" if after.ca else "the system's"
        return f"{before.name}: its server is verified by {source}."
    if name == "paused_why":
        return f"{before.name} is {'paused' if after.paused_why else 'resumed'}."
    was, becomes = (_format_value(getattr(w, name)) for w in (before, after))
    return f"{before.name}: {name} is {becomes}, and was {was}."


def _format_value(value: object) -> str:
    text = " ".join(value) if isinstance(value, tuple) else str(value)
    return text or "none"


async def foresee_loss(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the events that a removed receiver, or dropped ones, would never deliver."""
    every = await parts.store.webhooks.list()
    mine = [s for s in every if s.webhook.name == asked.subject]
    lines = [
        f"{s.webhook.name} ({s.webhook.url}): {s.dead} events could not be delivered, "
        f"{s.pending} wait to be sent."
        for s in mine
    ]
    if asked.kind is ChangeKind.WEBHOOK_REMOVE:
        lines.append("It is sent nothing any more, and what waits for it is dropped.")
    else:
        lines.append("They are never sent. The journal keeps them.")
    return Forecast(tuple(lines))


CHANGES: Mapping[ChangeKind, tuple[Execute, Foresee | None]] = {
    ChangeKind.WEBHOOK_ADD: (change_webhook, None),
    ChangeKind.WEBHOOK_SET: (change_webhook, foresee_merge),
    ChangeKind.WEBHOOK_REMOVE: (change_webhook, foresee_loss),
    ChangeKind.WEBHOOK_AGAIN: (change_webhook, None),
    ChangeKind.WEBHOOK_DROP: (change_webhook, foresee_loss),
    ChangeKind.WEBHOOK_PAUSE: (change_webhook, None),
    ChangeKind.WEBHOOK_RESUME: (change_webhook, None),
    ChangeKind.WEBHOOK_ROTATE: (change_webhook, None),
}

"""Routes of webhooks: the receivers of events, and the events that could not be delivered.

Rule: a secret comes in the body of a request and goes sealed into the vault before the request is
recorded; no answer and no row has it.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable

from provisioner.api.changes import Forecast, Outcome, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Route
from provisioner.api.webhook_records import (
    DeadLetter,
    DeadLetters,
    Letters,
    NewSecret,
    NewWebhook,
    Pause,
    WebhookList,
    WebhookView,
)
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.input_error import InputError
from provisioner.model.integrations.webhook import Webhook, WebhookStatus, secret_name
from provisioner.planning.watch.webhooks import check, event_id, key_of, secret_of
from provisioner.ports import Credentials, Secret

TAG = "webhooks"


async def list_all(ask: Ask) -> Reply:
    """Return every receiver with the events that wait for it."""
    receivers = await ask.parts.store.webhooks.list()
    return Reply(WebhookList(items=tuple(_view(s) for s in receivers)))


def _view(s: WebhookStatus) -> WebhookView:
    w = s.webhook
    return WebhookView(
        name=w.name,
        url=w.url,
        kinds=w.kinds,
        nodes=w.nodes,
        tenant=w.tenant,
        pending=s.pending,
        dead=s.dead,
        delivered=s.delivered,
        delivered_at=s.delivered_at,
        paused_why=w.paused_why,
        made_at=w.made_at,
    )


async def show(ask: Ask) -> Reply:
    """Return one receiver with the events that wait for it."""
    name = await _name(ask)
    receivers = await ask.parts.store.webhooks.list()
    return Reply(next(_view(s) for s in receivers if s.webhook.name == name))


async def list_dead(ask: Ask) -> Reply:
    """Return the undelivered events, with the causes."""
    name = await _name(ask)
    items = tuple(
        DeadLetter(
            seq=d.seq,
            event=event_id(r),
            at=r.at,
            kind=r.kind,
            node=r.node,
            tries=d.tries,
            error=d.error,
        )
        for d, r in await ask.parts.store.webhooks.list_dead(name)
    )
    return Reply(DeadLetters(items=items))


async def _name(ask: Ask) -> str:
    """Return the webhook of the path. Raises Refused as missing if there is none."""
    name = ask.read_word("webhook")
    if not await _exists(ask.parts, name):
        raise refuse_missing("webhook")
    return name


async def _exists(parts: ApiParts, name: str) -> bool:
    return any(s.webhook.name == name for s in await parts.store.webhooks.list())


async def add(ask: Ask) -> Reply:
    """Ask for a new receiver. Its secret waits in the vault under the receiver's name."""
    name = ask.read_word("webhook")
    body = ask.body
    store = ask.parts.store
    if body.tenant and not any(t.name == body.tenant for t in await store.tenants.list()):
        raise refuse_missing("tenant")
    if await _exists(ask.parts, name):
        raise build_refusal(
            409, "exists", "There is a webhook of this name", "Remove it first.", name
        )
    try:
        check(_webhook(name, body, ask.now), plain=body.plain)
        key_of(body.secret)
        if body.ca:
            ssl.create_default_context(cadata=body.ca)
    except InputError as error:
        raise build_refusal(400, "body", error.problem, error.remedy, error.source) from None
    except (ssl.SSLError, ValueError) as error:
        unblock = "Send whsec_ with 24 to 64 bytes in base64, and certificates as PEM."
        raise build_refusal(
            400,
            "body",
            "The secret or the certificate is unreadable",
            unblock,
            type(error).__name__,
        ) from None
    if not ask.dry_run:
        # the secret first: a crash in between leaves a secret that opens nothing
        await _vault(ask.parts).put(secret_name(name), name, Secret(body.secret))
    arguments = body.model_dump(mode="json", exclude={"secret"})
    return await ask.parts.works.submit_change(ask, ChangeKind.WEBHOOK_ADD, name, "", arguments)


def _webhook(name: str, wanted: NewWebhook, now: float) -> Webhook:
    fields = wanted.model_dump(include={"url", "kinds", "nodes", "tenant", "ca"})
    return Webhook(name=name, made_at=now, **fields)


def _vault(parts: ApiParts) -> Credentials:
    if parts.vault is None:
        raise build_refusal(409, "vault", "This process has no credentials", "Ask the daemon.")
    return parts.vault


async def rotate(ask: Ask) -> Reply:
    """Ask for a new secret, or for the end of the old one; until then both sign."""
    name = await _name(ask)
    vault = _vault(ask.parts)
    key = secret_name(name)
    pending = await vault.pending(key)
    if ask.body.done and pending is None:
        unblock = f"Run `provisioner webhook rotate {name}` first."
        raise build_refusal(409, "secret", "There is no new secret", unblock)
    if not ask.body.done:
        if pending is not None:
            unblock = f"Run `provisioner webhook rotate {name} --done` once the receiver has it."
            raise build_refusal(
                409, "secret", "A new secret signs already, beside the old one", unblock
            )
        try:
            secret = secret_of(key_of(ask.body.secret))
        except ValueError as error:
            unblock = "Send whsec_ with 24 to 64 bytes in base64."
            raise build_refusal(400, "body", "This is no secret", unblock, str(error)) from None
        if not ask.dry_run:
            await vault.begin(key, name, Secret(secret))
    arguments = {"done": ask.body.done}
    return await ask.parts.works.submit_change(ask, ChangeKind.WEBHOOK_ROTATE, name, "", arguments)


def asking(kind: ChangeKind) -> Callable[[Ask], Awaitable[Reply]]:
    """Return the handler that asks for one kind of change of a receiver."""

    async def handle(ask: Ask) -> Reply:
        name = await _name(ask)
        arguments = {} if ask.body is None else ask.body.model_dump(mode="json")
        return await ask.parts.works.submit_change(ask, kind, name, "", arguments)

    return handle


async def change_webhook(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a change of a webhook."""
    book = parts.store.webhooks
    name = asked.subject
    arguments = asked.arguments
    now = parts.clock.now()
    if asked.kind is ChangeKind.WEBHOOK_ADD:
        receiver = NewWebhook.model_validate({**arguments, "secret": "in the vault"}, strict=False)
        await book.add(_webhook(name, receiver, now), receiver.after, asked.asked_by)
        return Outcome(RequestState.DONE, {"webhook": name})
    if not await _exists(parts, name):
        return build_objection(name, "there is no such webhook", "Look at the list of them.")
    result: dict[str, object] = {"webhook": name}
    match asked.kind:
        case ChangeKind.WEBHOOK_REMOVE:
            await book.remove(name, asked.asked_by, now)
            await _vault(parts).remove(secret_name(name))
        case ChangeKind.WEBHOOK_AGAIN:
            result["letters"] = await book.revive(name, arguments.get("seq"), now)
        case ChangeKind.WEBHOOK_DROP:
            result["letters"] = await book.bury(name, arguments.get("seq"), asked.asked_by, now)
        case ChangeKind.WEBHOOK_ROTATE if arguments.get("done"):
            await _vault(parts).confirm(secret_name(name))
        case ChangeKind.WEBHOOK_PAUSE | ChangeKind.WEBHOOK_RESUME:
            await book.pause(name, str(arguments.get("why", "")), now)
    return Outcome(RequestState.DONE, result)


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


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        "/webhooks",
        "list_webhooks",
        TAG,
        "List receivers of events, and the progress of each.",
        VIEWERS,
        list_all,
        {200: WebhookList},
    ),
    Route(
        "GET",
        "/webhooks/{webhook}",
        "show_webhook",
        TAG,
        "Show one receiver, and how many events wait for it.",
        VIEWERS,
        show,
        {200: WebhookView},
    ),
    Route(
        "GET",
        "/webhooks/{webhook}/dead",
        "list_dead_letters",
        TAG,
        "List undelivered events of a receiver, with the causes.",
        VIEWERS,
        list_dead,
        {200: DeadLetters},
    ),
    Route(
        "PUT",
        "/webhooks/{webhook}",
        "add_webhook",
        TAG,
        "Send events to a new receiver, signed with its secret.",
        OPERATORS,
        add,
        _ASKED,
        body=NewWebhook,
        refusals={409: "There is one of this name."},
        example={
            "url": "https://hooks.example/provisioner",
            "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz",
        },
    ),
    Route(
        "DELETE",
        "/webhooks/{webhook}",
        "remove_webhook",
        TAG,
        "Remove a receiver, and drop the events that wait for it.",
        OPERATORS,
        asking(ChangeKind.WEBHOOK_REMOVE),
        _ASKED,
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/again",
        "resend_dead_letters",
        TAG,
        "Send undelivered events once more, with the same ids.",
        OPERATORS,
        asking(ChangeKind.WEBHOOK_AGAIN),
        _ASKED,
        body=Letters,
        example={},
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/drop",
        "drop_dead_letters",
        TAG,
        "Drop undelivered events; the journal keeps them.",
        OPERATORS,
        asking(ChangeKind.WEBHOOK_DROP),
        _ASKED,
        body=Letters,
        example={},
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/pause",
        "pause_webhook",
        TAG,
        "Pause a receiver; its events wait meanwhile.",
        OPERATORS,
        asking(ChangeKind.WEBHOOK_PAUSE),
        _ASKED,
        body=Pause,
        example={"why": "it moves"},
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/resume",
        "resume_webhook",
        TAG,
        "Resume a receiver; waiting events are sent first.",
        OPERATORS,
        asking(ChangeKind.WEBHOOK_RESUME),
        _ASKED,
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/rotate",
        "rotate_webhook_secret",
        TAG,
        "Sign with a new secret beside the old one, or (done) with the new one alone.",
        OPERATORS,
        rotate,
        _ASKED,
        body=NewSecret,
        example={"done": True},
    ),
)

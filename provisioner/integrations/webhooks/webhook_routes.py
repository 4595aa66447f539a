"""Routes of webhooks: the receivers of events, and the events that could not be delivered.

Rule: a secret comes in the body of a request and goes sealed into the vault before the request is
recorded; no answer and no row has it.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from provisioner.api.operations import OperationView
from provisioner.api.parts import Ask, Reply, get_vault
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Effect, Route
from provisioner.integrations.webhooks.posted_events import check, key_of, secret_of
from provisioner.integrations.webhooks.webhook_changes import (
    FIELDS,
    MATCH,
    DeadLetter,
    DeadLetters,
    Letters,
    NewSecret,
    NewWebhook,
    Pause,
    WebhookList,
    WebhookPatch,
    WebhookView,
    build_webhook,
    check_certificates,
    check_merged,
    find_webhook,
    format_fields,
    merge_webhook,
)
from provisioner.model.access import ChangeKind
from provisioner.model.input_error import InputError
from provisioner.model.integrations.webhook import WebhookStatus, secret_name
from provisioner.planning.watch.webhooks import event_id
from provisioner.ports import Secret

TAG = "webhooks"


async def list_all(ask: Ask) -> Reply:
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
        ca=w.ca,
        pending=s.pending,
        dead=s.dead,
        delivered=s.delivered,
        delivered_at=s.delivered_at,
        paused_why=w.paused_why,
        made_at=w.made_at,
    )


async def show(ask: Ask) -> Reply:
    status = await _read(ask)
    return Reply(_view(status), etag=_tag(status))


def _tag(status: WebhookStatus) -> str:
    """Return the ETag: the rest of the answer follows from these."""
    progress = f"{status.pending}-{status.dead}-{status.delivered}"
    return f'"{format_fields(status.webhook)}.{progress}"'


def check_fields(ask: Ask, status: WebhookStatus | None) -> dict[str, object]:
    """Check If-Match against a receiver's fields; the progress of its deliveries does not count.

    Return the argument that has them compared again when the change is carried out. Raises Refused.
    """
    condition = ask.request.headers.get("If-Match", "*").strip()
    fields = "" if status is None else format_fields(status.webhook)
    if not fields or not condition.startswith(f'"{fields}.'):
        ask.check_match("" if status is None else _tag(status))
    return {} if condition == "*" else {MATCH: fields}


async def list_dead(ask: Ask) -> Reply:
    name = (await _read(ask)).webhook.name
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


async def _read(ask: Ask) -> WebhookStatus:
    """Return the webhook of the path. Raises Refused as missing if there is none."""
    status = await find_webhook(ask.parts, ask.read_word("webhook"))
    if status is None:
        raise refuse_missing("webhook")
    return status


async def put(ask: Ask) -> Reply:
    """Ask for a new receiver, or for other fields of the present one.

    The secret of a new one waits in the vault under the receiver's name.
    """
    name = ask.read_word("webhook")
    body: NewWebhook = ask.body
    await _check_tenant(ask, body.tenant)
    status = await find_webhook(ask.parts, name)
    match = check_fields(ask, status)
    if status is not None:
        await _check_secret(ask, name, body.secret)
        fields = body.model_dump(mode="json", include={*FIELDS, "plain"})
        patch = WebhookPatch.model_validate(fields, strict=False)
        return await _submit_merge(ask, status, patch, match)
    try:
        check(build_webhook(name, body, ask.now), ask.parts.settings, plain=body.plain)
        check_certificates(body.ca)
    except InputError as error:
        raise build_refusal(400, "body", error.problem, error.remedy, error.source) from None
    _check_key(body.secret)
    if not ask.dry_run:
        # the secret first: a crash in between leaves a secret that opens nothing
        await get_vault(ask.parts).put(secret_name(name), name, Secret(body.secret))
    arguments = body.model_dump(mode="json", exclude={"secret"})
    return await ask.parts.works.submit_change(ask, ChangeKind.WEBHOOK_ADD, name, "", arguments)


async def merge(ask: Ask) -> Reply:
    """Ask for some fields of a receiver otherwise."""
    status = await _read(ask)
    await _check_tenant(ask, ask.body.tenant or "")
    return await _submit_merge(ask, status, ask.body, check_fields(ask, status))


async def _submit_merge(
    ask: Ask, status: WebhookStatus, patch: WebhookPatch, match: dict[str, object]
) -> Reply:
    before = status.webhook
    try:
        after = merge_webhook(before, patch)
        check_merged(before, after, ask.parts.settings, plain=patch.plain)
    except InputError as error:
        raise build_refusal(400, "body", error.problem, error.remedy, error.source) from None
    arguments = patch.model_dump(mode="json", exclude_unset=True) | match
    kind = ChangeKind.WEBHOOK_SET
    return await ask.parts.works.submit_change(ask, kind, before.name, "", arguments)


async def _check_tenant(ask: Ask, tenant: str) -> None:
    if tenant and not any(t.name == tenant for t in await ask.parts.store.tenants.list()):
        raise refuse_missing("tenant")


def _check_key(secret: str) -> bytes:
    """Return the key of a secret. Raises Refused if it is none."""
    try:
        return key_of(secret)
    except ValueError as error:
        unblock = "Send whsec_ with 24 to 64 bytes in base64."
        raise build_refusal(400, "body", "This is no secret", unblock, str(error)) from None


async def _check_secret(ask: Ask, name: str, secret: str) -> None:
    """Check that a replacement has no secret, or one that signs already. Raises Refused."""
    if not secret:
        return
    key = _check_key(secret)
    vault = get_vault(ask.parts)
    signing = (await vault.pending(secret_name(name)), await vault.current(secret_name(name)))
    if not any(hmac.compare_digest(key_of(s[1].reveal()), key) for s in signing if s is not None):
        title = "There is a webhook of this name, with another secret"
        unblock = f"Leave the secret out, or exchange it: `provisioner webhook rotate {name}`."
        raise build_refusal(409, "exists", title, unblock, name)


async def rotate(ask: Ask) -> Reply:
    """Ask for a new secret, or for the end of the old one; until then both sign."""
    name = (await _read(ask)).webhook.name
    vault = get_vault(ask.parts)
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
        secret = secret_of(_check_key(ask.body.secret))
        if not ask.dry_run:
            await vault.begin(key, name, Secret(secret))
    arguments = {"done": ask.body.done}
    return await ask.parts.works.submit_change(ask, ChangeKind.WEBHOOK_ROTATE, name, "", arguments)


def asking(kind: ChangeKind) -> Callable[[Ask], Awaitable[Reply]]:
    async def handle(ask: Ask) -> Reply:
        status = await _read(ask)
        check_fields(ask, status)
        arguments = {} if ask.body is None else ask.body.model_dump(mode="json")
        return await ask.parts.works.submit_change(ask, kind, status.webhook.name, "", arguments)

    return handle


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
        entity=True,
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
        "Send events to a new receiver, signed with its secret, or replace a receiver's fields.",
        OPERATORS,
        put,
        _ASKED,
        effect=Effect.LASTING,
        body=NewWebhook,
        entity=True,
        refusals={409: "There is one of this name, with another secret."},
        example={
            "url": "https://hooks.example/provisioner",
            "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz",
        },
        site=True,
    ),
    Route(
        "PATCH",
        "/webhooks/{webhook}",
        "merge_webhook",
        TAG,
        "Change some fields of a receiver (a merge patch, RFC 7396); what waits for it stays.",
        OPERATORS,
        merge,
        _ASKED,
        effect=Effect.LASTING,
        body=WebhookPatch,
        entity=True,
        example={"url": "https://hooks.example/new", "kinds": ["alert*"], "tenant": None},
        site=True,
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
        effect=Effect.LASTING,
        entity=True,
        site=True,
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
        effect=Effect.LASTING,
        body=Letters,
        example={},
        site=True,
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
        effect=Effect.LASTING,
        body=Letters,
        example={},
        site=True,
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
        effect=Effect.LASTING,
        body=Pause,
        example={"why": "it moves"},
        site=True,
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
        effect=Effect.LASTING,
        site=True,
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
        effect=Effect.LASTING,
        body=NewSecret,
        example={"done": True},
        site=True,
    ),
)

"""Idempotency-Key: a change that is asked for twice with one key is made once.

After the IETF draft "The Idempotency-Key HTTP Header Field": the second one gets the first one's
answer; another request under the same key is 422; one whose first is still under way is 409. Keys
are each caller's own. A no is kept like a yes: whoever corrects a request takes a new key.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections.abc import Awaitable, Callable

from aiohttp import web

from provisioner.api.parts import Ask
from provisioner.api.problem import Refused, answered, no
from provisioner.model.kept_answer import KeptAnswer, TooManyKeys

HEADER = "Idempotency-Key"
# the draft has a quoted string; bare words are taken too, as most clients send them
KEY = re.compile(r'"[!#-~]{1,128}"|[!#-~]{1,128}')
KEPT_HEADERS = ("ETag", "Location", "Content-Type")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answer = Callable[[], Awaitable[web.StreamResponse]]


async def once(ask: Ask, raw: bytes, answer: Answer) -> web.StreamResponse:
    """The answer, made now or kept from the first time."""
    given = ask.request.headers.get(HEADER)
    if given is None:
        return await answer()
    if not KEY.fullmatch(given):
        unblock = "Send 1 to 128 visible characters, such as a UUID."
        raise no(400, "key", "The idempotency key is not readable", unblock)
    key, caller = given.strip('"'), ask.caller.via + " " + ask.caller.subject
    parts, keep_s = ask.parts, ask.parts.settings.api_keys_keep_h * 3600
    fingerprint, keys_max = _fingerprint(ask.request, raw), parts.settings.api_keys_per_caller
    try:
        kept = await parts.store.answers.begin(caller, key, fingerprint, ask.now, keep_s, keys_max)
    except TooManyKeys as error:
        unblock = "Wait (Retry-After), or send changes that may be made twice without a key."
        refused = no(429, "keys", "Too many idempotency keys of yours are kept", unblock)
        refused.headers["Retry-After"] = f"{math.ceil(error.free_in_s)}"
        raise refused from None
    if kept is not None:
        return _replayed(kept, fingerprint)
    # whoever hangs up does not stop what he asked for, nor the keeping of its answer
    return await asyncio.shield(asyncio.ensure_future(_made(ask, caller, key, answer)))


async def _made(ask: Ask, caller: str, key: str, answer: Answer) -> web.StreamResponse:
    store = ask.parts.store
    try:
        told = await answer()
    except Refused as refused:
        # nothing was begun, or it may be tried again: also after a fresh sign-in
        if refused.problem.status >= 500 or refused.problem.status == 401:
            await store.answers.release(caller, key)
            raise
        told = answered(refused)
    assert isinstance(told, web.Response)
    headers = {name: told.headers[name] for name in KEPT_HEADERS if name in told.headers}
    body = bytes(told.body).decode() if isinstance(told.body, bytes) else ""
    await store.answers.finish(caller, key, told.status, headers, body)
    return told


def _fingerprint(request: web.Request, raw: bytes) -> str:
    """What was asked: the same key with anything else is another request."""
    said = [request.method, request.path_qs, request.headers.get("If-Match", "")]
    return hashlib.sha256(json.dumps(said).encode() + raw).hexdigest()


def _replayed(kept: KeptAnswer, fingerprint: str) -> web.Response:
    if kept.fingerprint != fingerprint:
        unblock = "Take a new key for a new request."
        raise no(422, "key-reused", "This key was used for another request", unblock)
    if kept.status == 0:
        unblock = "Ask again in a minute. If it stays so, look at what became of it first."
        raise no(409, "key-open", "The request with this key has no answer yet", unblock)
    headers = {**kept.headers, "Idempotency-Replayed": "true", "Cache-Control": "no-store"}
    return web.Response(status=kept.status, body=kept.body.encode(), headers=headers)

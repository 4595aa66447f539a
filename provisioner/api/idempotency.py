"""Idempotency-Key: a change that is sent twice with one key is made once.

After the IETF draft "The Idempotency-Key HTTP Header Field": the second request gets the first
one's answer; another request under the same key is 422; one whose first is still under way is 409.
Keys belong to each caller. A refusal is stored like an acceptance: a corrected request takes a new
key.
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
from provisioner.api.problem import Refused, build_answer, build_refusal
from provisioner.model.kept_answer import KeptAnswer, TooManyKeys

HEADER = "Idempotency-Key"
# the draft has a quoted string; bare tokens are taken too, as most clients send them
KEY = re.compile(r'"[!#-~]{1,128}"|[!#-~]{1,128}')
KEPT_HEADERS = ("ETag", "Location", "Content-Type")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answer = Callable[[], Awaitable[web.StreamResponse]]


async def answer_once(ask: Ask, raw: bytes, answer: Answer) -> web.StreamResponse:
    """Return the answer, made now or stored from the first time."""
    header = ask.request.headers.get(HEADER)
    if header is None:
        return await answer()
    if not KEY.fullmatch(header):
        unblock = "Send 1 to 128 visible characters, such as a UUID."
        raise build_refusal(400, "key", "The idempotency key is not readable", unblock)
    key = header.strip('"')
    caller = ask.caller.via + " " + ask.caller.subject
    parts = ask.parts
    keep_s = ask.parts.settings.api_keys_keep_h * 3600
    fingerprint = _fingerprint(ask.request, raw)
    keys_max = parts.settings.api_keys_per_caller
    try:
        stored = await parts.store.answers.begin(
            caller, key, fingerprint, ask.now, keep_s, keys_max
        )
    except TooManyKeys as error:
        unblock = "Wait (Retry-After), or send changes that may be made twice without a key."
        refused = build_refusal(429, "keys", "Too many idempotency keys of yours are kept", unblock)
        refused.headers["Retry-After"] = f"{math.ceil(error.free_in_s)}"
        raise refused from None
    if stored is not None:
        return _replayed(stored, fingerprint)
    # a caller that disconnects stops neither the change nor the storing of its answer
    return await asyncio.shield(asyncio.ensure_future(_made(ask, caller, key, answer)))


async def _made(ask: Ask, caller: str, key: str, answer: Answer) -> web.StreamResponse:
    store = ask.parts.store
    try:
        made = await answer()
    except Refused as refused:
        # nothing was begun, or it may be tried again: also after a fresh sign-in
        if refused.problem.status >= 500 or refused.problem.status == 401:
            await store.answers.release(caller, key)
            raise
        made = build_answer(refused)
    assert isinstance(made, web.Response)
    headers = {name: made.headers[name] for name in KEPT_HEADERS if name in made.headers}
    body = bytes(made.body).decode() if isinstance(made.body, bytes) else ""
    await store.answers.finish(caller, key, made.status, headers, body)
    return made


def _fingerprint(request: web.Request, raw: bytes) -> str:
    """Return the digest of the request: the same key with another digest is another request."""
    parts = [request.method, request.path_qs, request.headers.get("If-Match", "")]
    return hashlib.sha256(json.dumps(parts).encode() + raw).hexdigest()


def _replayed(kept: KeptAnswer, fingerprint: str) -> web.Response:
    if kept.fingerprint != fingerprint:
        unblock = "Take a new key for a new request."
        raise build_refusal(422, "key-reused", "This key was used for another request", unblock)
    if kept.status == 0:
        unblock = "Ask again in a minute. If it stays so, look at what became of it first."
        raise build_refusal(409, "key-open", "The request with this key has no answer yet", unblock)
    headers = {**kept.headers, "Idempotency-Replayed": "true", "Cache-Control": "no-store"}
    return web.Response(status=kept.status, body=kept.body.encode(), headers=headers)

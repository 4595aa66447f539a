"""Changes: recorded, approved where the site wants a second person, carried out, reported.

Rule: a change is a row before it is begun, and the row has its arguments, so that another person
can later approve exactly the change that was requested. A caller that waits longer than
`api_wait_s` follows the operation; the work continues without it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from provisioner.api.callers import name_client, read_agent
from provisioner.api.operations import (
    OperationState,
    OperationView,
    build_carried_view,
    build_request_view,
    needs_approval,
    withhold_staff_text,
)
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import Refused, build_answer, build_refusal, refuse_blocked
from provisioner.api.route import PREFIX
from provisioner.api.scopes import find_scope_blockers, require_scope
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import Node
from provisioner.model.operation import KeptAnswer, TooManyKeys, parse_public_id
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.intake import expected_text
from provisioner.ports import StaleWrite, StoreFailed
from provisioner.runtime import permit
from provisioner.runtime.event_loop import end_tasks

# ------------------------------------------------------------------------------
# Idempotency-Key: a change that is sent twice with one key is made once.
#
# After the IETF draft "The Idempotency-Key HTTP Header Field": the second request gets the first
# one's answer; another request under the same key is 422; one whose first is still under way is
# 409. Keys belong to each caller. A refusal is stored like an acceptance: a corrected request takes
# a new key.


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
        # nothing was begun, or it may be tried again
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


# ------------------------------------------------------------------------------
# Cursors: the end of a page of a list, as text that a client sends back unread.


def encode_cursor(*place: str | int | float) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def decode_cursor(text: str, *kinds: type) -> tuple[str | int | float, ...] | None:
    """Return the place in a cursor; None for "". Raises Refused for a cursor of another form."""
    if not text:
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        values = json.loads(raw)
    except (ValueError, binascii.Error, RecursionError):
        values = None
    good = isinstance(values, list) and len(values) == len(kinds)
    if not good or not all(type(v) is k for v, k in zip(values or [], kinds, strict=True)):
        raise build_refusal(
            400, "cursor", "This is no cursor", "Use `next` of a page, or begin without one."
        )
    return tuple(values or ())


log = logging.getLogger(__name__)
# changes that settle a restore, and changes that send nothing to any device
WHILE_CLOSED = frozenset(
    {ChangeKind.RECOVERY_SETTLE, ChangeKind.RECOVERY_FINISH, ChangeKind.TOKEN_CREATE}
)
# changes of a daemon that observes: rows of its own database that no act on a device follows from
WHILE_OBSERVING = frozenset(
    {
        ChangeKind.NODE_ADOPT,
        ChangeKind.NODE_DETACH,
        ChangeKind.NODE_BMC_ADDRESS,
        ChangeKind.CAPABILITY_GRANT,
        ChangeKind.CAPABILITY_WITHDRAW,
        ChangeKind.TOKEN_CREATE,
        ChangeKind.TOKEN_REVOKE,
        ChangeKind.SESSION_END,
        ChangeKind.CLOCK_ACCEPT,
        ChangeKind.PIN_SET,
        ChangeKind.PIN_REMOVE,
        ChangeKind.POLICY_PUT,
        ChangeKind.POLICY_DELETE,
        ChangeKind.ALERT_OVERRIDE,
        ChangeKind.ALERT_CLEAR,
        ChangeKind.WEBHOOK_ADD,
        ChangeKind.WEBHOOK_SET,
        ChangeKind.WEBHOOK_REMOVE,
        ChangeKind.WEBHOOK_AGAIN,
        ChangeKind.WEBHOOK_DROP,
        ChangeKind.WEBHOOK_PAUSE,
        ChangeKind.WEBHOOK_RESUME,
        ChangeKind.WEBHOOK_ROTATE,
        ChangeKind.KEY_ROTATE,
        ChangeKind.AUDIT_ARCHIVE,
        ChangeKind.AUDIT_PRUNE,
    }
)
SAVES_MAX = 5  # tries to write an outcome: such a row is written once or twice by others at most
WORKS_MAX = 64  # changes under way at once; a person makes one at a time


@dataclass(frozen=True)
class Outcome:
    """The result of a change. `state` DONE, FAILED, UNFINISHED or UNDER_WAY."""

    state: RequestState
    result: Mapping[str, Any] | None = None
    blockers: tuple[Blocker, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Forecast:
    """The effects of a change: sentences for the person who decides, and the obstacles."""

    lines: tuple[str, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)


Execute = Callable[["ApiParts", ChangeRequest], Awaitable[Outcome]]
Foresee = Callable[["ApiParts", ChangeRequest], Awaitable[Forecast]]


def build_failure(*blockers: Blocker) -> Outcome:
    return Outcome(RequestState.FAILED, blockers=blockers)


def build_objection(subject: str, detail: str, unblock: str) -> Outcome:
    """Return the outcome of a change that the subject's state does not permit."""
    reason = Reason.PRECONDITION
    return build_failure(Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock))


async def find_node(parts: ApiParts, asked: ChangeRequest) -> Node | Outcome:
    """Return the node that a change is about, as it is now, or the objection that it is gone."""
    node = await parts.store.nodes.get(asked.subject)
    if node is None:
        detail = "there is no such node any more"
        return build_objection(asked.subject, detail, "Look at the list.")
    return node


async def open_operation(parts: ApiParts, asked: ChangeRequest, node: str, want: str) -> Outcome:
    """Open the operation of a node that carries a change out, and record it in the journal."""
    now = parts.clock.now()
    operation = await parts.store.operations.open(node, want, now)
    if operation is None:
        return build_objection(node, "an operation of it is under way", "Wait for its end.")
    event = RequestCarriedOut(
        about=node, request=want, by=asked.asked_by, id=asked.id, approved=asked.decided_by
    )
    await parts.store.journal.append(event, now)
    return Outcome(RequestState.UNDER_WAY, {"operation": operation.public_id})


# ------------------------------------------------------------------------------
# What an object was before a change of it, for the audit: its state, and each field that the change
# names. Of an object that a change removes, its plain fields.


STANDING = ("state", "stage", "service", "phase", "active", "tenant", "release")
REMOVALS = ("delete", "remove", "revoke", "drop")
UNTOLD = re.compile(r"secret|password|sealed|digest|sha256|user_data|signature|generation")
NAMES = {"nodes": "nodes_wanted", "replace": "tags", "merge": "tags"}  # of other names
VALUE_MAX = 200  # characters of one value
FIELDS_MAX = 30


async def read_before(parts: ApiParts, asked: ChangeRequest) -> dict[str, Any]:
    """Return what a change may change, as it is now; {}: there is no such object, or no reader."""
    match asked.kind:
        case ChangeKind.NODE_INTAKE:
            return await _read_outlets(parts, asked)
        case ChangeKind.RECOVERY_FINISH:
            return {"look_only": await parts.store.recovery.get_look_only()}
        case ChangeKind.RECOVERY_SETTLE:
            rows = await parts.store.recovery.list_differences()
            return next(
                ({"row": d.row, "world": d.world} for d in rows if d.subject == asked.subject), {}
            )
    found = await _find_object(parts, asked)
    if found is None:
        return {}
    values = found.model_dump(mode="json")
    asks = {NAMES.get(name, name): value for name, value in asked.arguments.items()}
    wanted = [n for n in asks if n in values and values[n] != asks[n]]
    if asked.kind.value.rpartition(".")[2] in REMOVALS:
        wanted += [n for n, v in values.items() if isinstance(v, str | int | float)]
    wanted = [n for n in wanted if not UNTOLD.search(n)] or [n for n in STANDING if n in values]
    told = {n: _differing(values[n], asks.get(n)) for n in dict.fromkeys(wanted)}
    kept = [(n, v) for n, v in told.items() if v not in (None, "", [], {})][:FIELDS_MAX]
    return {n: v if len(str(v)) <= VALUE_MAX else f"{str(v)[:VALUE_MAX]}…" for n, v in kept}


def _differing(value: Any, asked: object) -> Any:
    """Return a value, of a record only its fields that are asked to be otherwise."""
    if not isinstance(value, dict) or not isinstance(asked, Mapping):
        return value
    return {n: v for n, v in value.items() if n in asked and asked[n] != v}


async def _read_outlets(parts: ApiParts, asked: ChangeRequest) -> dict[str, Any]:
    """Return the feeds that known nodes of a list have in place of the listed ones: an intake
    replaces nothing else of a known node."""
    sealed = None
    if parts.vault is not None:
        sealed = await parts.vault.current(str(asked.arguments.get("sealed", "")))
    if sealed is None:
        return {}
    listed = {n.name: n.outlets for n in expected_text.parse("list", sealed[1].reveal()).nodes}
    known = await parts.store.nodes.list_named(listed.keys())
    told = {
        f"{name} outlets": ", ".join(map(str, node.outlets)) or "none"
        for name, node in sorted(known.items())
        if listed[name] and node.outlets != listed[name]
    }
    return {n: v[:VALUE_MAX] for n, v in list(told.items())[:FIELDS_MAX]}


async def _find_object(parts: ApiParts, asked: ChangeRequest) -> Record | None:
    store = parts.store
    subject = asked.subject
    arguments = asked.arguments
    match asked.kind.value.partition(".")[0]:
        case "node" | "credential":
            return await store.nodes.get(subject)
        case "tenant":
            return next((t for t in await store.tenants.list() if t.name == subject), None)
        case "campaign":
            return await store.campaigns.get(subject)
        case "case":
            named = await store.cases.get(str(arguments.get("case", "")))
            return named or await store.cases.get_open(subject)
        case "certificate":
            return await store.evidence.get_certificate(subject)
        case "policy":
            return await store.policies.get(subject)
        case "image":
            return await store.images.get(subject)
        case "pin":
            place = (arguments.get("scope"), arguments.get("name", ""))
            pins = await store.campaigns.list_pins()
            return next((p for p in pins if (p.scope.value, p.name) == place), None)
        case "webhook":
            hooks = await store.webhooks.list()
            return next((h.webhook for h in hooks if h.webhook.name == subject), None)
        case "token":
            return next((t for t in await store.tokens.list() if t.id == subject), None)
        case "alert":
            place = (arguments.get("id"), arguments.get("target"))
            rows = await store.alerts.list(subject)
            return next((a for a in rows if (a.id, a.target) == place), None)
    return None


class ChangeController:
    """The runner of changes: one task for each, at most WORKS_MAX."""

    def __init__(
        self,
        executors: Mapping[ChangeKind, Execute],
        forecasts: Mapping[ChangeKind, Foresee] | None = None,
    ) -> None:
        assert set(executors) == set(ChangeKind), "every kind of change has its executor"
        self._executors = executors
        self._forecasts = forecasts or {}
        self._tasks: set[asyncio.Task[ChangeRequest]] = set()
        self._places = 0  # of changes under way, and of those whose row is being written

    async def submit_change(
        self, ask: Ask, kind: ChangeKind, subject: str, tenant: str, arguments: Mapping[str, Any]
    ) -> Reply:
        """Record a change, and carry it out unless another person must approve it first."""
        parts = ask.parts
        waits = needs_approval(kind, parts.settings.api_four_eyes)
        request = ChangeRequest(
            kind=kind,
            subject=subject,
            tenant=tenant,
            arguments=dict(arguments),
            scopes=ask.scopes,
            asked_by=ask.caller.subject,
            asked_at=ask.now,
            source=name_client(ask.request),
            agent=read_agent(ask.request.headers),
            state=RequestState.WAITING if waits else RequestState.RUNNING,
            note="another person has to approve it" if waits else "",
        )
        await require_scope(ask, request)
        if ask.dry_run:
            return await self.forecast_change(ask, request)
        with self.reserve_place(ask, kind) as place:
            if waits:
                await _check_waiting(ask)
            stored = await parts.store.requests.add(request)
            if waits:
                return await self.answer_change(ask, stored)
            return await self.run(ask, stored, place.pop_all())

    async def forecast_change(self, ask: Ask, asked: ChangeRequest) -> Reply:
        """Return the effects of a change. Nothing is written, nothing is sent to a device."""
        find = self._forecasts.get(asked.kind)
        forecast = Forecast() if find is None else await find(ask.parts, asked)
        shown = OperationView(
            id="",
            kind=asked.kind.value,
            subject=asked.subject,
            state=OperationState.DRY_RUN,
            asked_by=asked.asked_by,
            opened_at=ask.now,
            result={
                "lines": list(forecast.lines),
                "approval": needs_approval(asked.kind, ask.parts.settings.api_four_eyes),
                **forecast.result,
            },
            blockers=forecast.blockers,
        )
        return Reply(shown, etag=ask.tag)

    async def run(self, ask: Ask, asked: ChangeRequest, place: ExitStack) -> Reply:
        """Carry out a row that is RUNNING; answer when it ends, or after the caller's waiting time.

        `place` comes from `reserve`. `Prefer: respond-async` (RFC 7240) asks not to wait at all.
        """
        task = asyncio.create_task(self._carry_out(ask.parts, asked), name=f"request {asked.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: place.close())
        waits = 0.0 if _async(ask.request) else ask.parts.settings.api_wait_s
        await asyncio.wait({task}, timeout=waits)
        return await self.answer_change(ask, task.result() if task.done() else asked)

    async def answer_change(self, ask: Ask, asked: ChangeRequest) -> Reply:
        """Return the operation as an answer: 200 ended, 202 not yet. Refused if blocked."""
        view = await read_operation_view(ask.parts, asked, ask.now, staff=ask.caller.staff)
        if view.state is OperationState.FAILED and view.blockers:
            raise refuse_blocked(view.blockers)
        status = 200 if view.state is OperationState.DONE else 202
        return Reply(view, status, location=f"{PREFIX}/operations/{view.id}")

    async def _carry_out(self, parts: ApiParts, asked: ChangeRequest) -> ChangeRequest:
        before: dict[str, Any] = {}
        try:
            before = await read_before(parts, asked)
            blockers = await find_scope_blockers(parts, asked)
            execute = self._executors[asked.kind]
            outcome = build_failure(*blockers) if blockers else await execute(parts, asked)
        except StaleWrite as stale:
            unblock = "Look at it, then ask again."
            outcome = build_objection(
                asked.subject, f"somebody changed it meanwhile: {stale}", unblock
            )
        except StoreFailed:
            raise
        except Exception:
            log.exception("our bug, in request %s", asked.id)
            outcome = build_failure(
                Blocker(
                    reason=Reason.OUR_BUG,
                    subject=asked.subject,
                    detail="our bug; it is in the log",
                    unblock="Report it with the log; look at what became of it.",
                )
            )
        now = parts.clock.now()
        ended = asked.model_copy(
            update={
                "state": outcome.state,
                "result": None if outcome.result is None else dict(outcome.result),
                "blockers": outcome.blockers,
                "note": outcome.note,
                "before": before,
                "ended_at": now,
            }
        )
        by = asked.decided_by or asked.asked_by
        return await _keep(parts, ended, by, now)

    def reserve_place(self, ask: Ask, kind: ChangeKind) -> ExitStack:
        """Return a place for a change, before its row is written; closing it frees the place.

        Raises Refused if nothing may be changed now, or if too many changes are under way: the
        caller's, or all together.
        """
        if permit.is_observing() and kind not in WHILE_OBSERVING:
            title = "This daemon only observes: nothing is changed"
            remedy = (
                "Add --dry-run to see its effects; or start the daemon without --observe "
                "(docs/adopting.md)."
            )
            raise build_refusal(409, "observe", title, remedy)
        closed = not permit.is_observing() and kind not in WHILE_CLOSED
        if closed and (why := permit.get_closing_reason()):
            remedy = "Settle it first: `provisioner recovery list` (docs/disaster-recovery.md)."
            raise build_refusal(503, "look_only", f"Nothing is changed now: {why}", remedy)
        with ExitStack() as place:
            place.enter_context(ask.parts.callers.hold_change(ask.caller))
            if self._places >= WORKS_MAX:
                refused = build_refusal(
                    503, "busy", "Too many changes are under way", "Ask again in a minute."
                )
                refused.headers["Retry-After"] = "60"
                raise refused
            self._places += 1
            place.callback(self._leave)
            return place.pop_all()

    def _leave(self) -> None:
        self._places -= 1

    async def close(self) -> None:
        """Cancel the changes under way; their rows are recognised as lost at the next start."""
        await end_tasks(*self._tasks)


async def _check_waiting(ask: Ask) -> None:
    """Refuse a change of a caller with too many changes that wait for another person's approval."""
    parts = ask.parts
    since = ask.now - parts.settings.api_approval_h * 3600
    most = parts.settings.api_waiting_per_caller
    if await parts.store.requests.count_waiting(ask.caller.subject, since) >= most:
        unblock = "Ask an approver to decide on them: GET /v1/requests?waiting=true."
        refused = build_refusal(
            429, "waiting", f"{most} changes of yours wait for an approval", unblock
        )
        refused.headers["Retry-After"] = "600"
        raise refused


async def _keep(parts: ApiParts, ended: ChangeRequest, by: str, now: float) -> ChangeRequest:
    """Write the result of a change, also where its row went stale meanwhile.

    Another process may have taken the change for lost. Only this process has the result, so that it
    overwrites that. Raises `StaleWrite` after SAVES_MAX tries.
    """
    for _ in range(SAVES_MAX - 1):
        try:
            return await parts.store.requests.save(ended, by, now)
        except StaleWrite as stale:
            log.warning("%s; its outcome is written again", stale)
        current = await parts.store.requests.get(ended.id)
        if current is None:
            break
        ended = ended.model_copy(update={"generation": current.generation})
    return await parts.store.requests.save(ended, by, now)


async def read_operation_view(
    parts: ApiParts, asked: ChangeRequest, now: float, *, staff: bool
) -> OperationView:
    """Return a request in the form for the caller that follows it: the staff, or a tenant."""
    limit_s = parts.settings.api_approval_h * 3600
    result = asked.result or {}
    own = str(result.get("operation", ""))
    if asked.state is not RequestState.UNDER_WAY:
        view = build_request_view(asked, None, now, limit_s)
        if not (own or "state" in result):  # no node was under way: nobody else's text is in it
            return view
    elif own:  # an operation of the node carries it out
        operation = await parts.store.operations.get(parse_public_id(own))
        view = build_carried_view(asked, operation, now, limit_s)
    else:
        node = await parts.store.nodes.get(asked.subject)
        view = build_request_view(asked, node, now, limit_s)
    return view if staff else withhold_staff_text(view)


def _async(request: web.Request) -> bool:
    return "respond-async" in request.headers.get("Prefer", "").lower()

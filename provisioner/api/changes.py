"""Changes: written down, approved where the site wants a second person, carried out, told.

Rule: a change is a row before it is begun, and the row has its arguments, so that another person in
another hour can approve exactly what was asked. Whoever waits longer than `api_wait_s` follows the
operation; the work goes on without him.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from provisioner.api.operations import OperationView, approvable, view_of_request
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import blocked, no
from provisioner.api.route import PREFIX
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import StaleWrite, StoreFailed
from provisioner.runtime import permit
from provisioner.store.rows import request_rows

log = logging.getLogger(__name__)
SAVES_MAX = 5  # tries to write an outcome: nobody writes such a row more than once or twice
WORKS_MAX = 64  # changes under way at once; a person makes one at a time


@dataclass(frozen=True)
class Outcome:
    """What became of a change. `state` DONE, FAILED, UNFINISHED or UNDER_WAY."""

    state: RequestState
    result: Mapping[str, Any] | None = None
    blockers: tuple[Blocker, ...] = ()
    note: str = ""


Execute = Callable[["ApiParts", ChangeRequest], Awaitable[Outcome]]


def failed(*blockers: Blocker) -> Outcome:
    """Nothing was changed; these stand in the way."""
    return Outcome(RequestState.FAILED, blockers=blockers)


def objection(subject: str, detail: str, unblock: str) -> Outcome:
    """Nothing was changed: the subject is not in a state for it."""
    reason = Reason.PRECONDITION
    return failed(Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock))


class Works:
    """Carries changes out; one task each, at most WORKS_MAX."""

    def __init__(self, executors: Mapping[ChangeKind, Execute]) -> None:
        assert set(executors) == set(ChangeKind), "every kind of change has its executor"
        self._executors = executors
        self._tasks: set[asyncio.Task[ChangeRequest]] = set()

    async def ask(
        self, ask: Ask, kind: ChangeKind, subject: str, tenant: str, arguments: Mapping[str, Any]
    ) -> Reply:
        """Write it down, and do it unless another person must approve it first."""
        parts = ask.parts
        self._admit()
        waits = approvable(kind, parts.settings.api_four_eyes)
        asked = ChangeRequest(
            kind=kind,
            subject=subject,
            tenant=tenant,
            arguments=dict(arguments),
            asked_by=ask.caller.subject,
            asked_at=ask.now,
            state=RequestState.WAITING if waits else RequestState.RUNNING,
            note="another person has to approve it" if waits else "",
        )
        stored = await parts.store.write(partial(request_rows.add_request, asked=asked))
        if waits:
            return await self.told(ask, stored)
        return await self.run(ask, stored)

    async def run(self, ask: Ask, asked: ChangeRequest) -> Reply:
        """Carry out a row that is RUNNING; told when it is over, or when the caller waited enough.

        `Prefer: respond-async` (RFC 7240) asks not to wait at all.
        """
        self._admit()
        task = asyncio.create_task(self._carry_out(ask.parts, asked), name=f"request {asked.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        waits = 0.0 if _async(ask.request) else ask.parts.settings.api_wait_s
        await asyncio.wait({task}, timeout=waits)
        return await self.told(ask, task.result() if task.done() else asked)

    async def told(self, ask: Ask, asked: ChangeRequest) -> Reply:
        """The operation as an answer: 200 over, 202 not yet; Refused where something blocks."""
        found = await operation_view(ask.parts, asked, ask.now)
        if found.state == "failed" and found.blockers:
            raise blocked(found.blockers)
        status = 200 if found.state == "done" else 202
        return Reply(found, status, location=f"{PREFIX}/operations/{found.id}")

    async def _carry_out(self, parts: ApiParts, asked: ChangeRequest) -> ChangeRequest:
        try:
            outcome = await self._executors[asked.kind](parts, asked)
        except StaleWrite as stale:
            unblock = "Look at it, then ask again."
            outcome = objection(asked.subject, f"somebody changed it meanwhile: {stale}", unblock)
        except StoreFailed:
            raise
        except Exception:
            log.exception("our bug, in request %s", asked.id)
            outcome = failed(
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
                "ended_at": now,
            }
        )
        by = asked.decided_by or asked.asked_by
        return await _keep(parts, ended, by, now)

    def _admit(self) -> None:
        if why := permit.why_closed():
            remedy = "Settle it first: `provisioner recovery list` (docs/disaster-recovery.md)."
            raise no(503, "look_only", f"Nothing is changed now: {why}", remedy)
        if len(self._tasks) >= WORKS_MAX:
            refused = no(503, "busy", "Too many changes are under way", "Ask again in a minute.")
            refused.headers["Retry-After"] = "60"
            raise refused

    async def close(self) -> None:
        """What is under way is cut off; its rows are found as lost at the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _keep(parts: ApiParts, ended: ChangeRequest, by: str, now: float) -> ChangeRequest:
    """Write what became of a change, also where its row went stale meanwhile.

    Another process may have taken the change for lost. What was done is known here and nowhere
    else, so that it is written over that. Raises `StaleWrite` after SAVES_MAX tries.
    """
    for _ in range(SAVES_MAX - 1):
        save = partial(request_rows.save_request, asked=ended, by=by, now=now)
        try:
            return await parts.store.write(save)
        except StaleWrite as stale:
            log.warning("%s; its outcome is written again", stale)
        current = await parts.store.read(partial(request_rows.read_request, number=ended.id))
        if current is None:
            break
        ended = ended.model_copy(update={"generation": current.generation})
    save = partial(request_rows.save_request, asked=ended, by=by, now=now)
    return await parts.store.write(save)


async def operation_view(parts: ApiParts, asked: ChangeRequest, now: float) -> OperationView:
    """A request as whoever follows it sees it."""
    of_node = asked.state is RequestState.UNDER_WAY
    node = await parts.store.node(asked.subject) if of_node else None
    return view_of_request(asked, node, now, parts.settings.api_approval_h * 3600)


def _async(request: web.Request) -> bool:
    return "respond-async" in request.headers.get("Prefer", "").lower()

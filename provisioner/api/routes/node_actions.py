"""The route of one action: what was sent, what came back, each Ansible task, the BMC's task.

It reads what is there, also while the action runs. Everything that a device or a play said is
bounded, and the run's secrets are taken out of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.tasks import TaskRef, TaskView
from provisioner.api.parts import Ask, Reply, read_bmc
from provisioner.api.problem import Refused, refuse_missing
from provisioner.api.route import VIEWERS, Nothing, Route
from provisioner.api.routes.events import Event, build_event
from provisioner.api.routes.node_parts import Action, build_action
from provisioner.model.base import Record
from provisioner.model.events.event import EventKind
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.lifecycle.timeline import name_action
from provisioner.ports.inband import Run
from provisioner.runtime.integrations import list_play_tasks
from provisioner.telemetry.logs import scrub

RUNS_MAX = 10  # newest plays of one action
LINES_MAX = 400  # of what was sent
ROWS_MAX = 200  # newest events of the node that are looked through
SAID = (EventKind.STEP, EventKind.WAITS, EventKind.STATE, EventKind.REMEDY, EventKind.VALIDATED)


class PlayTask(Record):
    """One task of a play on this node."""

    task: str = Field(description="Name of the task.")
    status: str = Field(description="running, ok, changed, skipped, failed or unreachable.")
    message: str = Field(description="What it said, without secrets; empty: nothing.")
    began_at: InstantOrNone = Field(description="Its begin; null: not recorded.")
    ended_at: InstantOrNone = Field(description="Its end; null: it runs, or it is not recorded.")


class Play(Record):
    """One Ansible play that ran on this node meanwhile."""

    run: str = Field(description="Id of the run.")
    play: str = Field(description="Name of the play.")
    state: str = Field(description="open, ended, lost or cancelled.")
    started_at: Instant = Field(description="Its start.")
    ended_at: InstantOrNone = Field(description="Its end; null: it runs.")
    tasks: tuple[PlayTask, ...] = Field(description="Its tasks on this node, at most 400.")
    gap: str = Field(description="Why there are no tasks; empty: there are.")


class BmcTask(Record):
    """The task of a BMC, as the BMC has it now."""

    path: str = Field(description="Its address at the BMC.")
    bmc: str = Field(description="Name of the BMC; empty: the ledger does not have it.")
    state: str = Field(description="As the BMC reports it; empty: it was not read.")
    percent: float | None = Field(description="How far it is; null: not reported.")
    messages: tuple[str, ...] = Field(description="Its messages, at most 50.")
    gap: str = Field(description="Why it was not read; empty: it was.")


class ActionOutput(Record):
    """One action, opened."""

    action: Action = Field(description="The action and its outcome.")
    at: Instant = Field(description="Time of this answer.")
    live: bool = Field(description="Whether it is under way: ask again.")
    sent: tuple[str, ...] = Field(
        description="What was decided and sent, and the state before it, line by line."
    )
    plays: tuple[Play, ...] = Field(description="Ansible plays on the node meanwhile.")
    task: BmcTask | None = Field(description="The BMC's task; null: there is none.")
    events: tuple[Event, ...] = Field(description="Events of the node meanwhile, at most 200.")


class OutputQuery(Nothing):
    """Whether the BMC is asked."""

    bmc: bool = Field(default=False, description="Read the BMC's task from the BMC now.")


async def show_action(ask: Ask) -> Reply:
    node = await ask.read_node()
    wanted = ask.read_word("action")
    entries = await ask.parts.store.operations.list_entries(node.id)
    entry = next((e for e in reversed(entries) if name_action(e) == wanted), None)
    if entry is None:
        raise refuse_missing("action of this node")
    live = not entry.settled_at
    until = ask.now if live else entry.settled_at
    view = ActionOutput(
        action=build_action(entry),
        at=ask.now,
        live=live,
        sent=describe_sent(entry.before),
        plays=await _list_plays(ask, node, entry.intended_at, until),
        task=await _read_task(ask, node, entry) if entry.task else None,
        events=await _list_events(ask, node, entry.intended_at, until),
    )
    return Reply(view)


def describe_sent(before: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what an action's intent recorded, as lines without secrets."""
    lines = json.dumps(before, indent=1, ensure_ascii=False, sort_keys=True).splitlines()
    return tuple(scrub(line)[:500] for line in lines[1:-1][:LINES_MAX])


async def _list_plays(ask: Ask, node: Node, since: float, until: float) -> tuple[Play, ...]:
    book = ask.parts.runs
    if book is None:
        return ()
    runs = [r for r in await book.list_since(node.id, since) if r.started_at <= until]
    return tuple([await asyncio.to_thread(read_play, run, node.id) for run in runs[:RUNS_MAX]])


def read_play(run: Run, host: str) -> Play:
    tasks, gap = list_play_tasks(run, host)
    return Play(
        run=run.id,
        play=run.play,
        state=run.state,
        started_at=run.started_at,
        ended_at=run.ended_at,
        tasks=tuple(PlayTask(**task._asdict()) for task in tasks),
        gap=gap,
    )


async def _read_task(ask: Ask, node: Node, entry: LedgerEntry) -> BmcTask:
    """Return the BMC's task, read now where that is asked for."""
    bmc = find_bmc(entry.before, [b.name for b in node.bmcs])
    gap = "ask with bmc=true" if bmc else "the ledger does not have its BMC"
    seen = TaskView(state="")
    if bmc and ask.query.bmc:

        async def read(client: Redfish) -> TaskView:
            return await client.read_task(TaskRef(path=entry.task))

        try:
            seen = await read_bmc(ask, node, bmc, read)
            gap = "the BMC has forgotten it" if seen.vanished else ""
        except Refused as refused:
            gap = f"{refused.problem.title}: {refused.problem.detail}"[:300]
    return BmcTask(
        path=entry.task,
        bmc=bmc,
        state=seen.state,
        percent=seen.percent,
        messages=tuple(scrub(m)[:500] for m in seen.messages[:50]),
        gap=gap,
    )


def find_bmc(before: Mapping[str, Any], known: Sequence[str]) -> str:
    """Return the BMC that an action was sent to, from what its intent recorded; "": not there."""
    step = before.get("step")
    named = [before.get("bmc"), *(step.get("bmcs") or () if isinstance(step, Mapping) else ())]
    return next((str(name) for name in named if name in known), known[0] if len(known) == 1 else "")


async def _list_events(ask: Ask, node: Node, since: float, until: float) -> tuple[Event, ...]:
    rows, _ = await ask.parts.store.journal.list_page(
        after=0, limit=ROWS_MAX, kinds=SAID, node=node.id, backwards=True
    )
    return tuple(
        build_event(row)
        for row in reversed(rows)
        if since <= row["at"] <= until + 1.0  # the event of its end is written after it
    )


ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/actions/{action}",
        "show_action",
        "nodes",
        "Open one action: what was sent, what came back, Ansible's tasks, the BMC's task.",
        VIEWERS,
        show_action,
        {200: ActionOutput},
        query=OutputQuery,
        heavy=True,
    ),
)

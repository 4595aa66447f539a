"""The outcome of a task, from its answer. Pure. `Completed` means that the task ended, not that the
new version runs; only an inventory read afterwards shows that (docs/sources/redfish.md#completed).
"""

from __future__ import annotations

import re
from dataclasses import replace

from provisioner.adapters.redfish.messages import (
    Message,
    body_of,
    collect_messages,
    find_awaited,
    read_messages,
)
from provisioner.adapters.redfish.parsing import Json, as_object, at, link, name_of, number, text
from provisioner.adapters.redfish.service import Service, raise_unread
from provisioner.model.base import Record
from provisioner.model.inventory import Activation
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Reply, Unreachable
from provisioner.quirks.message_ids import Meaning

# States by meaning, written without blanks and case: DMTF's Task and Job (DSP2046), and those of
# Dell's jobs (DellJob schema; openstack/sushy-oem-idrac, mappings.py). All others are unknown, and
# unknown is no end: then the versions show the outcome, or the limit ends the wait.
_ENDED_WELL = frozenset({"completed", "rebootcompleted"})
_ENDED_BADLY = frozenset(
    {"exception", "killed", "cancelled", "canceled"}
    | {"failed", "completedwitherrors", "rebootfailed"}
)
_SCHEDULED = frozenset({"scheduled"})
_RUNNING = frozenset(
    {"new", "starting", "running", "pending", "service", "stopping", "cancelling", "suspended"}
    | {"interrupted", "continue", "validating", "paused", "waiting", "downloading", "downloaded"}
    | {"scheduling", "readyforexecution", "rebootpending", "pendingactivation"}
)
# Dell ends an update that waits for the host's next reset without completing its task
_STAGED = frozenset({"userintervention"})
_ENDED = _ENDED_WELL | _ENDED_BADLY | _STAGED
_ENDS_PER_MONITOR = frozenset({400, 405, 409, 412, 413, 415, 422, 501})  # the operation's own "no"
_FAILED = re.compile(
    r"(Transfer|Verification|Apply|Activate)Failed$|^TaskAborted$|^(FirmwareUpdate|Update)Failed$"
)
# erasing a token that is not there (docs/sources/redfish.md#debug-token)
# a status is OK, Warning or Critical (DSP0268); these words of others mean the last
_BAD_STATUS = re.compile(r"critical|error|fatal|fail", re.IGNORECASE)
_BAD_STATES_OF_VENDORS = _ENDED_BADLY | {"error", "failure", "aborted"}
_HARMLESS = re.compile(r"DebugToken")
_GOOD = frozenset({"Success", "Created", "NoOperation"})  # Base registry
_NOTHING_MATCHED = "No Matching Devices"


class TaskRef(Record):
    """The path at which a task is polled: its own, or else its monitor's.

    The path is empty if the service named none: then only the versions show the outcome.
    """

    path: str = ""


class TaskView(Record):
    """One reading of a task. If it `vanished`, only the versions show its outcome."""

    state: str
    percent: float | None = None
    messages: tuple[str, ...] = ()
    done: bool = False  # ended, well or badly
    staged: bool = False  # written, and waits for the host's reset to be installed
    failed: str | None = None
    skipped: str = ""  # the message of a task that wrote nothing, since the same image was there
    vanished: bool = False
    awaits: Activation | None = None  # the activation that the new version needs


VANISHED = TaskView(state="vanished", vanished=True)


def read_view(reply: Reply, path: str) -> TaskView:
    """Read a task, or its monitor: that answers with the operation's own result once it ended."""
    if reply.status in (404, 410):
        return VANISHED
    body = body_of(reply)
    monitor = path.endswith("/Monitor") or "/TaskMonitors/" in path
    if reply.stated and monitor:  # its operation's "no" may come in an answer of status 200
        reply = replace(reply, status=reply.stated, stated=0)
    ends = monitor and reply.status in _ENDS_PER_MONITOR
    not_ready = any(m.meaning is Meaning.NOT_READY for m in collect_messages(body))
    if reply.status >= 400 and (not ends or not_ready):
        return TaskView(state=f"HTTP status {reply.status}")  # silence: not an end of any kind
    if reply.status < 400 and ("TaskState" in body or "JobState" in body):
        return of_task(body)
    if reply.status == 202:
        return TaskView(state="Running")
    if (blocker := _refused(reply, body)) is not None:
        return TaskView(state=f"HTTP status {reply.status}", done=True, failed=blocker)
    if reply.status == 204 or (monitor and reply.status in (200, 201)):
        return TaskView(state="Completed", percent=100.0, done=True)
    return TaskView(state="unknown")


def is_running(view: TaskView) -> bool:
    """Return whether a task may still be at work, as one that is unread or unknown may be."""
    return not (view.vanished or view.done or view.staged)


def of_task(body: Json) -> TaskView:
    """Judge a Task or a Job by its states, its status and its messages together.

    A Dell's task and its DMTF Job carry the state of Dell's own job beside theirs: it has ended
    well only if all of them say so, and badly if any does.
    """
    states = _states(body)
    entries = read_messages(body.get("Messages") or [])
    plain = [_plain(state) for state in states]
    bad = next((state for state in states if _plain(state) in _BAD_STATES_OF_VENDORS), None)
    # Dell's own state, which is listed last, says more than the task's
    staged = bad is None and bool(plain) and plain[-1] in _SCHEDULED
    done = bad is not None or (bool(plain) and all(state in _ENDED for state in plain))
    done = done or (bool(plain) and plain[0] in _STAGED)
    status = (text(body.get("TaskStatus")) or text(body.get("JobStatus")) or "").capitalize()
    status = "Critical" if _BAD_STATUS.search(status) else status
    done = done or (_is_over(body, status) and not staged and not set(plain) & _RUNNING)
    shown = bad or next((s for s in states if _plain(s) not in _ENDED), states[0] if states else "")
    return TaskView(
        state=shown or "unknown",
        percent=number(body.get("PercentComplete")),
        messages=tuple(dict.fromkeys(m.said or m.key for m in entries if m.said or m.key)),
        done=done and not staged,
        staged=staged,
        failed=_failure(shown, status, _with_own_message(body, entries)) if done else None,
        skipped=_skipped(entries) if done else "",
        awaits=find_awaited(entries),
    )


def _states(body: Json) -> list[str]:
    """Return every state that a task names: its own, then those of its vendor's job."""
    vendors = list(as_object(body.get("Oem")).values())[:8]
    named = [body.get(key) for key in ("TaskState", "JobState")]
    named += [at(vendor, key) for vendor in vendors for key in ("TaskState", "JobState")]
    # a plain "State" of a vendor may be of anything: only what it says of a failure counts
    own = [text(at(vendor, "State")) or "" for vendor in vendors]
    named += [state for state in own if _plain(state) in _BAD_STATES_OF_VENDORS]
    return [state for state in map(text, named) if state]


def _plain(state: str) -> str:
    """Return a state without blanks and case: Dell's older jobs are "Completed with Errors"."""
    return re.sub(r"[^a-z]", "", state.lower())


def _is_over(body: Json, status: str) -> bool:
    """Return whether a task in a state that nobody knows has ended, and badly.

    It has a time at which it ended, and is critical; the same with another status proves nothing.
    """
    ended = text(body.get("EndTime")) or text(body.get("CompletionTime")) or ""
    return status == "Critical" and re.match(r"(?!0000|19)\d{4}-\d\d", ended) is not None


def _with_own_message(body: Json, entries: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages, and last the one that Dell's jobs have beside them."""
    own = [body, *list(as_object(body.get("Oem")).values())[:8]]
    return entries + tuple(
        m for part in own for m in read_messages([part]) if (m.said or m.key) and not entries
    )


def _refused(reply: Reply, body: Json) -> str | None:
    """Return the "no" that a monitor has for its operation (DSP0266, "Asynchronous operations").

    Some services put it into an answer of status 200.
    """
    if reply.status < 400 and "error" not in body:
        return None
    entries = collect_messages(body)
    if reply.status < 400 and entries and all(m.key in _GOOD for m in entries):
        return None
    message = "; ".join(dict.fromkeys(_words(m) for m in entries))
    message = message or text(at(body, "error", "message")) or "no message"
    return f"HTTP status {reply.status}: {message}"[:400]


def of_hpe(service: Json) -> TaskView:
    """Return the view of an iLO 5 update, which has no task, from the UpdateService."""
    state = text(at(service, "Oem", "Hpe", "State")) or "unknown"
    result = read_messages(at(service, "Oem", "Hpe", "Result"))
    why = "; ".join(m.said or m.key for m in result) or "the update ended with an error"
    return TaskView(
        state=state,
        percent=number(at(service, "Oem", "Hpe", "FlashProgressPercent")),
        done=state in ("Complete", "Error"),
        failed=why if state == "Error" else None,
    )


def _failure(state: str, status: str, entries: tuple[Message, ...]) -> str | None:
    """Why an ended task failed, or None. A DGX task may be an Exception whose status is OK."""
    bad = [m for m in entries if _is_bad(m)]
    message = "; ".join(dict.fromkeys(_words(m) for m in bad))[:400]
    if _plain(state) in _BAD_STATES_OF_VENDORS:
        return message or f"the task ended as {state}: {_last(entries)}"[:400]
    if bad:
        return message
    if status == "Critical" and not any(_HARMLESS.search(m.key) for m in entries):
        return f"the task is {state}, but its status is Critical: {_last(entries)}"
    return None


def _is_bad(message: Message) -> bool:
    if _HARMLESS.search(message.key):
        return False
    nothing = any(_NOTHING_MATCHED in a for a in message.args) or _NOTHING_MATCHED in message.said
    return (
        nothing
        or bool(_FAILED.search(message.key))
        or _BAD_STATUS.search(message.severity) is not None
    )


def _skipped(entries: tuple[Message, ...]) -> str:
    """pldm names each component that it left as it was (docs/sources/redfish.md#skipped)."""
    keys = {m.key for m in entries}
    skipped = [m for m in entries if m.key == "ComponentUpdateSkipped"]
    return _words(skipped[0]) if skipped and "TransferringToComponent" not in keys else ""


def _words(message: Message) -> str:
    message_text = message.said or f"{message.key}({', '.join(message.args)})"
    return f"{message_text} {message.resolution}".strip()


def _last(entries: tuple[Message, ...]) -> str:
    return _words(entries[-1]) if entries else "no message"


# ------------------------------------------------------------------------------
# The tasks that a service lists, those of them that run, and Dell's job of a task that is gone.


async def list_tasks(service: Service) -> tuple[str, ...]:
    """Return the path of every task; none if there is no task service.

    Raises `Unreachable` when the list does not come: silence does not mean that nothing runs.
    """
    walk = service.walk()
    tasks = link(await walk.read_root(), "Tasks")
    listed = link((await walk.read(tasks)).data, "Tasks") if tasks is not None else None
    paths = await walk.read_links(listed)
    silent = [g for g in walk.gaps if g.reason is not Reason.NOT_OFFERED]
    if silent:
        detail = f"{silent[0].source}: {silent[0].detail}"
        raise Unreachable(f"the task list could not be read: {detail}", maybe_executed=False)
    return tuple(paths)


async def list_running_tasks(service: Service) -> tuple[str, ...]:
    """Return the tasks that run. One that cannot be read counts as running, unless it is gone."""
    return tuple(
        [
            path
            for path in await list_tasks(service)
            if is_running(read_view(await service.call("GET", path), path))
        ]
    )


async def find_open_job(service: Service, subject: str) -> Blocker | None:
    """Return why a change of settings waits: a job that is open is never ended for it."""
    running = await list_running_tasks(service)
    if not running:
        return None
    return Blocker(
        reason=Reason.BUSY,
        subject=subject,
        detail=f"the BMC has an open job: {', '.join(running[:4])}",
        unblock="It is tried again when the job has ended; a stale one is deleted by a person.",
    )


async def read_job(service: Service, path: str) -> TaskView | None:
    """Return the job of the same name as a task that is gone; None if the service has none.

    After the iDRAC's own update the task is 404 while JobService still has its job
    (dell/iDRAC-Redfish-Scripting, DeviceFirmwareMultipartUploadREDFISH).
    """
    walk = service.walk()
    jobs = link(await walk.read_root(), "JobService")
    listed = link((await walk.read(jobs)).data, "Jobs") if jobs is not None else None
    raise_unread(walk.gaps)
    if listed is None:
        return None
    job = await service.find_existing(f"{listed.rstrip('/')}/{name_of(path)}")
    return of_task(job) if job is not None and "JobState" in job else None

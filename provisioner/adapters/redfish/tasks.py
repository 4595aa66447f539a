"""The outcome of a task, from its answer. Pure. `Completed` means that the task ended, not that the
new version runs; only an inventory read afterwards shows that (facts: redfish 0.7, 0.8).
"""

from __future__ import annotations

import re

from provisioner.adapters.redfish.messages import Message, body_of, find_awaited, read_messages
from provisioner.adapters.redfish.parsing import Json, at, number, text
from provisioner.model.base import Record
from provisioner.model.inventory import Activation
from provisioner.ports import Reply

_ENDED_WELL = frozenset({"Completed"})
_ENDED_BADLY = frozenset({"Exception", "Killed", "Cancelled"})
# Dell ends an update that waits for the host's next reset without completing its task
_STAGED = frozenset({"UserIntervention"})
_FAILED = re.compile(
    r"(Transfer|Verification|Apply|Activate)Failed$|^TaskAborted$|^(FirmwareUpdate|Update)Failed$"
)
_HARMLESS = re.compile(r"DebugToken")  # erasing a token that is not there (facts: redfish 3.1)
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
    if reply.status >= 400:
        return TaskView(state=f"HTTP status {reply.status}")  # silence: not an end of any kind
    body = body_of(reply)
    if "TaskState" in body or "JobState" in body:
        return of_task(body)
    if reply.status == 202:
        return TaskView(state="Running")
    monitor = path.endswith("/Monitor") or "/TaskMonitors/" in path
    if reply.status == 204 or (monitor and reply.status in (200, 201)):
        return TaskView(state="Completed", percent=100.0, done=True)
    return TaskView(state="unknown")


def of_task(body: Json) -> TaskView:
    """Judge a Task (or Dell's Job) by its state, its status and its messages together."""
    state = text(body.get("TaskState")) or text(body.get("JobState")) or "unknown"
    entries = read_messages(body.get("Messages") or [])
    job = text(at(body, "Oem", "Dell", "JobState")) or text(body.get("JobState")) or ""
    staged = job == "Scheduled"
    done = state in _STAGED or state in _ENDED_WELL or state in _ENDED_BADLY
    return TaskView(
        state=state,
        percent=number(body.get("PercentComplete")),
        messages=tuple(dict.fromkeys(m.said or m.key for m in entries if m.said or m.key)),
        done=done and not staged,
        staged=staged,
        failed=_failure(state, text(body.get("TaskStatus")) or "", entries) if done else None,
        skipped=_skipped(entries) if done else "",
        awaits=find_awaited(entries),
    )


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
    if state in _ENDED_BADLY:
        return message or f"the task ended as {state}"
    if bad:
        return message
    if status == "Critical" and not any(_HARMLESS.search(m.key) for m in entries):
        return f"the task is {state}, but its status is Critical: {_last(entries)}"
    return None


def _is_bad(message: Message) -> bool:
    if _HARMLESS.search(message.key):
        return False
    nothing = any(_NOTHING_MATCHED in a for a in message.args) or _NOTHING_MATCHED in message.said
    return nothing or bool(_FAILED.search(message.key)) or message.severity == "Critical"


def _skipped(entries: tuple[Message, ...]) -> str:
    """pldm names each component that it left as it was (facts: redfish 3.1)."""
    keys = {m.key for m in entries}
    skipped = [m for m in entries if m.key == "ComponentUpdateSkipped"]
    return _words(skipped[0]) if skipped and "TransferringToComponent" not in keys else ""


def _words(message: Message) -> str:
    message_text = message.said or f"{message.key}({', '.join(message.args)})"
    return f"{message_text} {message.resolution}".strip()


def _last(entries: tuple[Message, ...]) -> str:
    return _words(entries[-1]) if entries else "no message"

"""Appends one JSON line per event to a file that the daemon reads while the play runs.

The file outlives both processes, so that a new daemon continues where the last one stopped. It
holds only the data that the daemon judges: never a task's arguments or whole result, which may
contain secrets. A host's verdict is the fact `provisioner_result`, which a play sets in its last
task.
"""

from __future__ import annotations

DOCUMENTATION = """
    name: provisioner_events
    type: notification
    short_description: Append one JSON line per event to a file
    description: Hosts, tasks and verdicts, for a daemon that follows the play.
    options:
      path:
        description: The file to append to.
        env: [{name: PROVISIONER_EVENTS}]
        required: true
        type: path
"""
import json
import os
import time

from ansible.plugins.callback import CallbackBase

FACT = "provisioner_result"
FACT_MAX = 1024 * 1024  # bytes; versions and states of one host are below 10 KB
TEXT_MAX = 2000  # characters of a message


class CallbackModule(CallbackBase):
    """Writes each line with one write() to a file opened with O_APPEND: lines never mix."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "provisioner_events"
    CALLBACK_NEEDS_ENABLED = True

    def set_options(self, *args, **kwargs):
        super().set_options(*args, **kwargs)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self.get_option("path"), flags, 0o600)

    def _emit(self, event, **data):
        line = json.dumps({"event": event, **data}, default=str) + "\n"
        os.write(self._file, line.encode())

    def _message(self, result):
        if result.task.no_log:
            return "hidden: the task handles secrets"
        data = result.result
        text = data.get("msg") or data.get("stderr") or data.get("reason") or "no message"
        return str(text)[:TEXT_MAX]

    def v2_playbook_on_start(self, playbook):
        self._emit("begin", play=os.path.basename(playbook._file_name))

    def v2_runner_on_start(self, host, task):
        self._emit("task", host=host.get_name(), task=task.get_name(), at=time.time())

    def _done(self, result, status):
        """Tell people how a task ended and what it said; one that handles secrets says nothing."""
        data = result.result
        hidden = result.task.no_log or data.get("_ansible_no_log")
        said = "" if hidden else str(data.get("msg") or data.get("stdout") or "")
        self._emit(
            "done",
            host=result.host.get_name(),
            task=result.task.get_name(),
            status=status,
            message=said[:TEXT_MAX],
            at=time.time(),
        )

    def v2_runner_on_skipped(self, result):
        self._done(result, "skipped")

    def v2_runner_on_ok(self, result):
        self._done(result, "changed" if result.result.get("changed") else "ok")
        facts = result.result.get("ansible_facts")
        if not isinstance(facts, dict) or FACT not in facts:
            return
        host = result.host.get_name()
        try:
            text = json.dumps(facts[FACT])
        except (TypeError, ValueError) as error:
            self._emit("result", host=host, problem=f"it is not JSON: {error}"[:TEXT_MAX])
            return
        if len(text) > FACT_MAX:
            self._emit("result", host=host, problem=f"it is larger than {FACT_MAX} bytes")
        else:
            self._emit("result", host=host, fact=json.loads(text))

    def v2_runner_on_failed(self, result, ignore_errors=False):
        if not ignore_errors:
            self._emit(
                "failed",
                host=result.host.get_name(),
                task=result.task.get_name(),
                message=self._message(result),
                final=_is_final(result.task),
            )

    def v2_runner_item_on_failed(self, result):
        # a loop's own event only reports that one of its items failed
        self._emit("item_failed", host=result.host.get_name(), message=self._message(result))

    def v2_runner_on_unreachable(self, result):
        self._emit(
            "unreachable",
            host=result.host.get_name(),
            message=self._message(result),
            final=not result.task.ignore_unreachable,
        )

    def v2_playbook_on_stats(self, stats):
        self._emit("end", hosts={h: stats.summarize(h) for h in stats.processed})


def _is_final(task):
    """Return whether nothing more runs on the host: no enclosing block rescues or cleans up."""
    part = task
    for _ in range(100):  # blocks within blocks; a real play has three
        part = getattr(part, "_parent", None)
        if part is None:
            return True
        if getattr(part, "rescue", None) or getattr(part, "always", None):
            return False
    return False

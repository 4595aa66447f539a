"""Verdicts per host from a run's event lines. Pure: bytes in, results out; everything is hostile.

The rule that a reader would otherwise break: silence is no verdict. A host without one is unknown
when its run is over, whatever the exit code says (docs/sources/host.md#ansible-results).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from provisioner.ports import PlaybookResult
from provisioner.ports.inband import TaskOutput

LINE_MAX = 2 * 1024 * 1024  # bytes; the callback writes facts of at most one MiB
DETAIL_MAX = 500  # characters of a message for a person
SECRET_MIN = 4  # characters; a shorter "secret" would garble every text it is taken out of
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
Verdicts = list[tuple[str, PlaybookResult]]


class Events:
    """The results of a run so far.

    `feed` returns the hosts whose verdict became certain just now.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self.waiting = dict.fromkeys(hosts, "")  # host -> its current task; "" before the first
        self.malformed = 0  # lines that are no event
        self._secrets: Sequence[str] = ()
        self._rest = b""
        self._skipping = False
        self._reasons: dict[str, str] = {}
        self._items: dict[str, str] = {}

    def hide(self, secrets: Iterable[str]) -> None:
        """Take these secrets out of everything that is read from here on."""
        self._secrets = list_spellings(secrets)

    def feed(self, data: bytes, progress: Callable[[str, str], None] | None = None) -> Verdicts:
        """Read on; call `progress(host, task)` for each task that begins."""
        verdicts: Verdicts = []
        *lines, incomplete = (self._rest + data).split(b"\n")
        for line in lines:
            if self._skipping or len(line) > LINE_MAX:
                self._skipping = False
                self.malformed += 1
                continue
            verdicts += self._line(line, progress)
        self._skipping = self._skipping or len(incomplete) > LINE_MAX
        self._rest = b"" if self._skipping else incomplete
        return verdicts

    def _line(self, line: bytes, progress: Callable[[str, str], None] | None) -> Verdicts:
        text = redact_secrets(line.decode("utf-8", "replace"), self._secrets)
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            self.malformed += 1
            return []
        if event.get("event") == "end":
            return self._end(event.get("hosts"))
        host = event.get("host")
        if not isinstance(host, str) or host not in self.waiting:
            return []  # decided already, or of the play as a whole
        match event.get("event"):
            case "task":
                task = make_readable(event.get("task"))
                self.waiting[host] = task or "a task"
                self._items.pop(host, None)
                if progress is not None:
                    progress(host, task)
            case "item_failed":
                self._items[host] = make_readable(event.get("message"))
            case "failed":
                message = self._items.get(host) or make_readable(event.get("message"))
                self._reasons[host] = f"{make_readable(event.get('task'))}: {message}"[:DETAIL_MAX]
                if event.get("final") is True:
                    return [self._decide(host, "failed", self._reasons[host])]
            case "unreachable":
                if event.get("final") is True:
                    return [self._decide(host, "unreachable", make_readable(event.get("message")))]
            case "result":
                return [self._fact(host, event)]
        return []

    def _fact(self, host: str, event: Mapping[str, Any]) -> tuple[str, PlaybookResult]:
        fact = event.get("fact")
        if not isinstance(fact, dict):
            problem = make_readable(event.get("problem")) or "it is no object"
            return self._decide(host, "failed", f"malformed provisioner_result: {problem}")
        self.waiting.pop(host)
        return host, PlaybookResult("ok", fact)

    def _end(self, summary: object) -> Verdicts:
        """Read the play's own counts, which include rescued and ignored failures."""
        if not isinstance(summary, dict):
            self.malformed += 1
            return []
        verdicts: Verdicts = []
        for host in list(self.waiting):
            counts = summary.get(host)
            if not isinstance(counts, dict):
                continue  # the play never reached it
            if counts.get("unreachable") == 0 and counts.get("failures") == 0:
                verdicts.append(self._decide(host, "failed", "the play ended without a result"))
            elif counts.get("unreachable"):
                verdicts.append(self._decide(host, "unreachable", self._reasons.get(host, "")))
            elif counts.get("failures"):
                detail = self._reasons.get(host, "no message")
                verdicts.append(self._decide(host, "failed", detail))
        return verdicts

    def all_left(self, status: str, detail: str) -> Verdicts:
        """Return the same verdict for every host that has none."""
        return [self._decide(host, status, detail) for host in list(self.waiting)]

    def end_run(self, output: str | None) -> Verdicts:
        """End the run: hosts without a verdict have none.

        `output`: the text of the process itself, if it came to its end by itself; then a host on
        which no task began was provably not touched.
        """
        verdicts: Verdicts = []
        for host, task in list(self.waiting.items()):
            if task or output is None:
                where = f" in the task {task}" if task else ""
                detail = self._reasons.get(host) or f"the run ended{where} without a verdict"
                verdicts.append(self._decide(host, "unknown", detail))
            else:
                shown = redact_secrets(output, self._secrets)
                shown = make_readable(shown[max(0, shown.find("[ERROR]")) :]) or "it said nothing"
                verdicts.append(self._decide(host, "failed", f"the play did not begin: {shown}"))
        return verdicts

    def _decide(self, host: str, status: str, detail: str) -> tuple[str, PlaybookResult]:
        self.waiting.pop(host)
        return host, PlaybookResult(status, {}, detail[:DETAIL_MAX])


TASKS_MAX = 400  # newest tasks of a host that are shown
SAID_MAX = 2000  # characters of a task's message


def list_tasks(data: bytes, host: str, secrets: Iterable[str]) -> tuple[TaskOutput, ...]:
    """Return the tasks of a host from a run's event lines, the newest at the end.

    A task that failed and was ignored or rescued has its message too. Lines that are no event are
    left out.
    """
    spelled = list_spellings(secrets)
    tasks: list[TaskOutput] = []
    for line in data.split(b"\n"):
        if not line or len(line) > LINE_MAX:
            continue
        try:
            event = json.loads(redact_secrets(line.decode("utf-8", "replace"), spelled))
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict) or event.get("host") != host:
            continue
        _add_event(tasks, event)
        del tasks[:-TASKS_MAX]
    return tuple(tasks)


def _add_event(tasks: list[TaskOutput], event: Mapping[str, Any]) -> None:
    kind = event.get("event")
    at = event.get("at")
    at = float(at) if isinstance(at, int | float) and 0 <= at < 1e12 else 0.0
    name = make_readable(event.get("task"))
    said = event.get("message")
    message = _clean_lines(said) if isinstance(said, str) else ""
    if kind == "task":
        tasks.append(TaskOutput(name, "running", "", at, 0.0))
    elif tasks and kind == "item_failed":
        tasks[-1] = tasks[-1]._replace(message=message)
    elif tasks and kind in ("done", "failed", "unreachable"):
        status = str(event.get("status")) if kind == "done" else str(kind)
        if status in ("ok", "changed", "skipped", "failed", "unreachable"):
            last = tasks[-1]
            tasks[-1] = last._replace(status=status, message=message or last.message, ended_at=at)


def _clean_lines(text: str) -> str:
    """Return text of several lines without colours and control characters."""
    plain = _COLOURS.sub("", text[:SAID_MAX])
    return "".join(c if c.isprintable() or c == "\n" else " " for c in plain)


def make_readable(text: object) -> str:
    """Return text for a person's terminal: one bounded line without control characters."""
    if not isinstance(text, str):
        return ""
    plain = _COLOURS.sub("", text[: 4 * DETAIL_MAX])
    line = "".join(c if c.isprintable() else " " for c in plain)
    return " ".join(line.split())[:DETAIL_MAX]


def list_spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return the spellings of secrets in a run's output, longest first, without too short ones."""
    long = {s for s in secrets if len(s) >= SECRET_MIN}
    inside = {json.dumps(s, ensure_ascii=e)[1:-1] for s in long for e in (True, False)}
    return tuple(sorted(long | inside, key=len, reverse=True))


def redact_secrets(text: str, spelled: Sequence[str]) -> str:
    """Return the text without them."""
    for secret in spelled:
        text = text.replace(secret, "(secret)")
    return text

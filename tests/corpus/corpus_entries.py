"""The labelled entries, as YAML: what a tool printed, and the part that was at fault, if any.

`log` are kernel messages, each "LEVEL|TEXT" or a text of level "warn"; `change` replaces text in
the healthy node's output of a command: [AFTER, OLD, NEW] the first OLD behind AFTER; `output`
replaces an output whole, `exit_code` its status.
An entry's `source` names the repository and path, the thread or the document that its figures and
its label come from; the texts are our own, with this node's addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import yaml
from healthy_node import CHECKS, read_good_outputs
from pydantic import Field

from provisioner.checks.check import BEFORE, Check
from provisioner.checks.commands import KERNEL_LOG
from provisioner.checks.kernel_errors import KERNEL_ERRORS
from provisioner.checks.readers.tool_output import END_WORDS
from provisioner.model.base import Record
from provisioner.model.case import PartClass
from provisioner.model.cohort import Evidence

FOLDER = Path(__file__).parent
HEALTHY = "healthy"
KINDS = (HEALTHY, *(kind.value for kind in PartClass))
_LEVELS = {"emerg", "alert", "crit", "err"}  # that `dmesg --level` of the second command prints
_GREETING = "2026-03-01T10:00:00,000000+00:00 Linux version 6.8.0-51-generic"


class Entry(Record):
    """One labelled output, or several of one moment."""

    id: str
    source: str = Field(min_length=8)
    fact: str = ""  # what the source says of it, where the label needs an explanation
    kind: str
    part: str = ""  # the culprit; "" where no part is at fault
    log: tuple[str, ...] = ()
    change: Mapping[str, tuple[tuple[str, str, str], ...]] = {}
    output: Mapping[str, str] = {}
    exit_code: Mapping[str, int] = {}
    after_load: bool = False  # the outputs of after a load test; before it they were good

    @property
    def faulty(self) -> bool:
        """Return whether something was at fault."""
        return self.kind != HEALTHY


@cache
def load_entries() -> tuple[Entry, ...]:
    """Return all entries, in the order of their files' names."""
    return tuple(
        Entry.model_validate(row)
        for file in sorted(FOLDER.glob("*.yaml"))
        for row in yaml.safe_load(file.read_text())
    )


def build_outputs(entry: Entry) -> Iterator[tuple[Check, Mapping[str, Evidence]]]:
    """Yield each check that reads an output of this entry, with its whole evidence."""
    logs = _build_logs(entry.log) if entry.log else {}
    whole = {**logs, **entry.output}
    touched = {*whole, *entry.change, *entry.exit_code}
    unused = set(entry.change)
    for check in CHECKS:
        if not touched & {command.name for command in check.commands}:
            continue
        evidence = dict(read_good_outputs(check))
        for name in touched & set(evidence):
            text = whole.get(name, evidence[name].text)
            for after, old, new in entry.change.get(name, ()):
                head, mark, rest = text.partition(after) if after else ("", "", text)
                if old in rest:
                    unused.discard(name)
                    text = head + mark + rest.replace(old, new, 1)
            code = entry.exit_code.get(name, evidence[name].exit_code)
            if entry.after_load:
                evidence[name + BEFORE] = evidence[name]
            evidence[name] = evidence[name].model_copy(update={"text": text, "exit_code": code})
        yield check, evidence
    if unused:
        raise ValueError(f"{entry.id}: its change meets no text of {', '.join(sorted(unused))}")


def _build_logs(lines: tuple[str, ...]) -> Mapping[str, str]:
    everything = [_GREETING]
    errors = [_GREETING]
    for number, line in enumerate(lines):
        level, bar, text = line.partition("|")
        if not bar or not level.isalpha():
            level, text = "warn", line
        stamped = f"2026-03-01T10:{number // 60 + 10:02}:{number % 60:02},000000+00:00 {text}"
        everything.append(stamped)
        if level in _LEVELS:
            errors.append(stamped)
    return {
        KERNEL_LOG.name: "\n".join(everything) + "\n",
        KERNEL_ERRORS.name: "\n".join([*errors, END_WORDS]) + "\n",
    }

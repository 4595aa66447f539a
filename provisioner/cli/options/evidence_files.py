"""Reads files of evidence: those that the daemon stored, or the bare output of one command."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from provisioner.checks.check import Check, CheckContext, Command
from provisioner.checks.readers.tool_output import END, END_WORDS
from provisioner.checks.threshold_data import MODELS
from provisioner.model.health import Evidence
from provisioner.model.input_error import InputError
from provisioner.planning.certification.rejudging import parse_outputs

SIZE_MAX = 32 * 1024 * 1024  # bytes; a command's output is cut at 4 MiB, evidence holds a few


def read_evidence(
    check: Check, files: Sequence[str], context: CheckContext, exit_code: int
) -> Mapping[str, Evidence]:
    """Return outputs by command name.

    A file is stored evidence, or a command's output: [NAME=]FILE.

    A bare output is taken as printed by the check's own command, with this exit code.
    """
    commands = {c.name: c for c in check.commands_of(context)}
    outputs: dict[str, Evidence] = {}
    for argument in files:
        name, _, path = argument.partition("=")
        if not path or name.partition("@")[0] not in commands:
            name = ""
            path = argument
        text = _read(path)
        stored = parse_outputs(text) if not name else None
        if stored is not None:
            outputs.update(stored)
            continue
        name = name or _only(check, commands, path)
        outputs[name] = _one(text) or Evidence(
            source=_source(commands[name.partition("@")[0]], text), exit_code=exit_code, text=text
        )
    return outputs


def _source(command: Command, text: str) -> str:
    """Return the command line that a bare output is attributed to.

    A saved output of a bare tool does not have the `echo` that ends our lines: its marks are
    required only where they are present.
    """
    return command.line if END_WORDS in text else command.line.removesuffix(END).rstrip(" ;&")


def detect_model(outputs: Mapping[str, Evidence]) -> str:
    """Return the GPU model that the outputs themselves name; "" if none or several."""
    text = "\n".join(e.text for e in outputs.values())
    named = {model for model in MODELS if f"NVIDIA {model}" in text}
    return named.pop() if len(named) == 1 else ""


def _only(check: Check, commands: Mapping[str, Command], path: str) -> str:
    if len(commands) == 1:
        return next(iter(commands))
    names = ", ".join(commands)
    raise InputError(
        "--evidence",
        path,
        f"{check.name} judges the outputs of several commands",
        f"Write NAME=FILE for each of: {names}.",
    )


def _one(text: str) -> Evidence | None:
    """Return one stored output with its exit, or None if this is a bare output."""
    try:
        return Evidence.model_validate_json(text)
    except ValidationError:
        return None


def _read(path: str) -> str:
    try:
        if path == "-":
            content = sys.stdin.buffer.read(SIZE_MAX + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(SIZE_MAX + 1)
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError("--evidence", path, problem, "Check the path.") from None
    if len(content) > SIZE_MAX:
        problem = f"it is larger than {SIZE_MAX} bytes"
        raise InputError("--evidence", path, problem, "Is it the right file?")
    return content.decode("utf-8", errors="replace")

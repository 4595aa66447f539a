"""An agent's answers to commands, made harmless: sizes, types, characters, and the token.

An agent answers HTTP 200 also for a command that failed; only `command_status` shows the failure.
It writes its token into its own log, so that any text it sends may quote it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.adapters.agent.protocol import make_printable
from provisioner.ports import AgentResult, Malformed, Reply

RUNNING = "RUNNING"
ENDED = frozenset({"SUCCEEDED", "FAILED", "CLEAN_VERSION_MISMATCH"})
ANSWER_MAX = 8 * 1024 * 1024  # bytes; an inventory has some 40 KB, collected logs some MB
DEPTH_MAX = 32
IDENTIFIER = re.compile(r"[\w-]{1,64}", re.ASCII)  # it becomes part of a path
VALUES_MAX = 200_000
ERROR_MAX = 1000  # characters
COMMANDS_MAX = 10_000  # an agent keeps every command of a boot


@dataclass(frozen=True)
class Command:
    """One entry of an agent's list of commands."""

    id: str
    name: str  # without its extension: agents leave that out, but for commands that failed at once
    status: str
    result: Any
    error: str

    @property
    def has_ended(self) -> bool:
        """Return whether the command has ended."""
        return self.status in ENDED

    def outcome(self) -> AgentResult:
        """Return the command's result."""
        assert self.has_ended
        return AgentResult(self.status, self.result, self.error)


def digest_of(name: str, parameters: Mapping[str, Any]) -> str:
    """Return the SHA-256 that distinguishes commands."""
    text = json.dumps([name, parameters], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def short_name(name: str) -> str:
    """Return a command's name without its extension, as the list of commands has it."""
    return name.rpartition(".")[2]


def parse_command(reply: Reply, token: str) -> Command:
    """Return the command in an answer. Raises `Malformed`."""
    return _command(reply.json(), token)


def parse_commands(reply: Reply, token: str) -> Sequence[Command]:
    """Return the list of commands, oldest first. Raises `Malformed`."""
    document = reply.json()
    listed = document.get("commands") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > COMMANDS_MAX:
        raise Malformed("not a list of commands")
    return tuple(_command(entry, token) for entry in listed)


def read_fault(reply: Reply, token: str) -> str:
    """Return why a request was refused, in the agent's words."""
    try:
        document = reply.json()
    except Malformed:
        return f"HTTP status {reply.status}"
    text = (
        (document.get("faultstring") or document.get("details"))
        if isinstance(document, dict)
        else None
    )
    detail = _words(text, token) if isinstance(text, str) else ""
    return f"HTTP status {reply.status}: {detail}" if detail else f"HTTP status {reply.status}"


def _command(given: Any, token: str) -> Command:
    if not isinstance(given, dict):
        raise Malformed("not a command")
    identifier, name, status = (given.get(k) for k in ("id", "command_name", "command_status"))
    if not isinstance(identifier, str) or not IDENTIFIER.fullmatch(identifier):
        raise Malformed("a command without an identifier")
    if not isinstance(name, str) or not isinstance(status, str):
        raise Malformed("a command without a name or a status")
    if status != RUNNING and status not in ENDED:
        raise Malformed(f"a command in the status {make_printable(status, 40)!r}")
    error = given.get("command_error")
    text = ""
    if error is not None or status not in (RUNNING, "SUCCEEDED"):
        text = _error_text(error, token) or "no reason was given"
    result = _Cleaner(token).clean(given.get("command_result"), 0)
    return Command(identifier, short_name(make_printable(name, 100)), status, result, text)


def _error_text(error: Any, token: str) -> str:
    """Return the text of an error {type, code, message, details} (errors.py, RESTError)."""
    if isinstance(error, dict):
        texts = [error.get(key) for key in ("message", "details", "error")]
        error = ": ".join(part for part in texts if isinstance(part, str) and part)
    return _words(error, token) if isinstance(error, str) else ""


def _words(text: str, token: str) -> str:
    return make_printable(_hidden(text, token), ERROR_MAX)


def _hidden(text: str, token: str) -> str:
    return text.replace(token, "***") if token else text


class _Cleaner:
    """A copier of JSON within bounds; control characters but newline and tab become "?"."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._left = VALUES_MAX

    def clean(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if depth > DEPTH_MAX or self._left < 0:
            raise Malformed("a result that is nested too deeply, or has too many values")
        match value:
            case str():
                return self._text(value)
            case dict():
                return {self._text(k): self.clean(v, depth + 1) for k, v in value.items()}
            case list():
                return [self.clean(v, depth + 1) for v in value]
        return value

    def _text(self, text: str) -> str:
        if text.isprintable() and self._token not in text:
            return text
        shown = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
        return _hidden(shown, self._token)

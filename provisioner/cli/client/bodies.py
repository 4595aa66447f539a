"""Builds the parameters and the body of a request from the options and files of a command."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from provisioner.model.input_error import InputError

FILE_IS_A_LIST = ("intake", "case factory")  # --file is the expected-hardware list, not the body
Spec = Mapping[str, Any]
Given = dict[str, Any]


def format_text(option: Spec, given: Given) -> str:
    """Return a parameter of the query as text."""
    value = _value(option, given[option["name"]])
    return str(value).lower() if isinstance(value, bool) else str(value)


def build_body(command: str, spec: Spec, given: Given) -> dict[str, Any]:
    """Return the body: the file's content with the options laid over it."""
    file = given.get("file") if command not in FILE_IS_A_LIST else None
    body: Any = {} if file is None else _document(Path(file), "--file")
    if not isinstance(body, dict):
        raise InputError("--file", str(file), "it is no mapping", "Write lines of `name: value`.")
    for option in spec["body"]:
        value = given.get(option["name"])
        if value not in (None, [], ""):
            body[option["name"]] = _value(option, value)
    missing = [o["name"] for o in spec["body"] if o.get("required") and o["name"] not in body]
    if missing:
        names = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise InputError(names, "", "it is not given", f"Example: provisioner {spec['example']}")
    return body


def _value(option: Spec, value: Any) -> Any:
    flag = "--" + option["name"].replace("_", "-")
    if option["kind"] == "time":
        return parse_time(flag, value)
    if option["kind"] == "document" and isinstance(value, str | Path):
        return _document(Path(value), flag)
    if option["kind"] == "file" and isinstance(value, Path):
        return _read(value, flag)
    return value


def _document(path: Path, flag: str) -> Any:
    """Return the content of a YAML or JSON file; `-` is the standard input."""
    from provisioner.planning.matrix.located_yaml import load

    return load(str(path), _read(path, flag)).tree


def _read(path: Path, flag: str) -> str:
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", "") or "not UTF-8"
        problem = f"it cannot be read ({cause})"
        raise InputError(flag, str(path), problem, "Check the path.") from None


def parse_time(option: str, value: Any) -> str:
    """Return a time, of UTC unless it names an offset, as the API takes it. Raises InputError."""
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        problem = f"{value!r:.40} is no time"
        raise InputError(option, "", problem, "Write it like 2026-12-24T18:00.") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()

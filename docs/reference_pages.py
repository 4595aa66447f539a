"""Reference pages made from the code: every command, every route of the API, every reason.

`make docs` calls it before it builds. Its output is never kept in the repository: a page that is
generated each time cannot be out of date. By hand: `python docs/reference_pages.py DIRECTORY`.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import reference_matrix
import reference_tables
import simulated_shapes
import typer

from provisioner.api.openapi import build_document, list_schemas
from provisioner.api.table import ALL as ROUTES
from provisioner.checks.thresholds import render_markdown as threshold_rows
from provisioner.cli import app
from provisioner.model import outcome
from provisioner.model.events import EVENTS

PROGRAM = "provisioner"
FIGURES = Path(__file__).with_name("figures.jsonl")  # kept last lines of benchmarks
COVERAGE = Path(__file__).parents[1] / "tests" / "faults" / "fault_coverage.md"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, groups before their own; typer's click objects."""

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for word, child in getattr(command, "commands", {}).items():
            if not child.hidden:
                yield from below(f"{name} {word}", child)

    yield from below(PROGRAM, typer.main.get_command(app))


def options(command: Any) -> dict[str, Any]:
    """Every spelling of every option, with its parameter."""
    found = {}
    for given in command.params:
        if given.param_type_name == "option":
            for spelling in (*given.opts, *given.secondary_opts):
                found[spelling] = given
    return found


def takes_value(option: Any) -> bool:
    """Whether a word follows it."""
    return not (getattr(option, "is_flag", False) or getattr(option, "count", False))


def command_line() -> str:
    """The page of the command line."""
    lines = [
        "# The command line",
        "",
        "Made from the program itself. Exit code 0: done; 1: refused, or it failed; 2: bad input.",
        "How to do things with it is in the how-to guides.",
    ]
    for name, command in commands():
        if name == PROGRAM:
            continue
        depth = min(len(name.split()), 3)
        lines += ["", f"{'#' * depth} {name}", "", _words(command.help or "")]
        if getattr(command, "commands", None):
            continue
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        shape = " ".join([name, *(_argument(p) for p in arguments), "[OPTIONS]"])
        lines += ["", "```text", shape, "```", ""]
        lines += _table(("", "", "default"), [_row(p) for p in command.params])
    return "\n".join(lines) + "\n"


def _argument(given: Any) -> str:
    word = (given.metavar or given.name).upper().strip("{}[]")
    word += "..." if given.nargs == -1 else ""
    return word if given.required else f"[{word}]"


def _row(given: Any) -> tuple[str, str, str]:
    about = _words(getattr(given, "help", None) or "")
    if given.param_type_name == "argument":
        return f"`{_argument(given)}`", about, ""
    names = ", ".join(f"`{spelling}`" for spelling in (*given.opts, *given.secondary_opts))
    default = "" if given.required else _default(given.default)
    return names, about + (" **Must be given.**" if given.required else ""), default


def _default(value: object) -> str:
    plain = value if isinstance(value, str | int | float | Path) else ""
    return f"`{plain}`" if plain not in ("", False) else ""


def api() -> str:
    """The page of the REST API, from the OpenAPI document that the daemon serves."""
    api = build_document(ROUTES)
    lines = [
        "# The REST API, route by route",
        "",
        "Made from the OpenAPI document, which the daemon serves at `/v1/openapi.json`.",
        "What holds for all of them (lists, changes, events, problems) is in [api.md](../api.md).",
    ]
    for tag in api["tags"]:
        lines += ["", f"## {tag['name']}"]
        for path, verbs in api["paths"].items():
            for verb, operation in verbs.items():
                if tag["name"] in operation["tags"]:
                    lines += _route(verb, path, operation)
    lines += ["", "## What is asked and answered"]
    for name, schema in sorted(api["components"]["schemas"].items()):
        lines += _schema(name, schema)
    return "\n".join(lines) + "\n"


def _route(verb: str, path: str, operation: Mapping[str, Any]) -> list[str]:
    roles = ", ".join(f"`{r}`" for r in operation["x-roles"]) or "anybody"
    lines = ["", f"### {verb.upper()} {path}", "", _words(operation["summary"]), ""]
    lines += [f"Who may: {roles}."]
    body = operation.get("requestBody")
    if body:
        contents = body["content"]
        media = "application/json" if "application/json" in contents else next(iter(contents))
        lines[-1] += f" The body: {_type(contents[media]['schema'])} (`{media}`)."
    given = [
        (f"`{p['name']}`", p["in"], _words(p.get("description", "")))
        for p in operation["parameters"]
    ]
    lines += ["", *_table(("parameter", "in", "meaning"), given)] if given else []
    answers = []
    for status, answer in operation["responses"].items():
        kinds = {_type(c["schema"]) for c in answer.get("content", {}).values()}
        answers.append((status, ", ".join(sorted(kinds)), _words(answer["description"])))
    return [*lines, "", *_table(("answer", "body", "meaning"), answers)]


def _schema(name: str, schema: Mapping[str, Any]) -> list[str]:
    lines = ["", f"### {name}", "", _words(schema.get("description", "").split("\n\n")[0]), ""]
    if "enum" in schema:
        return [*lines, "One of " + ", ".join(f"`{v}`" for v in schema["enum"]) + "."]
    rows = [
        (f"`{field}`", _type(said), _words(said.get("description", "")))
        for field, said in schema.get("properties", {}).items()
    ]
    return [*lines, *_table(("field", "type", "meaning"), rows)] if rows else lines


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(s) for s in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("const") or schema.get("type", "anything"))


def reasons() -> str:
    """The page of reasons: the closed list that every "no" takes its reason from."""
    source = inspect.getsource(outcome.Reason)
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    first = next(n.lineno for n in body.body if isinstance(n, ast.Assign))
    lines = [
        "# Reasons",
        "",
        "Every refusal, blocker and gap carries one of these reasons, a subject,",
        "a sentence, and what would take it away. The list is closed and made from the code.",
    ]
    rows: list[tuple[str, str]] = []
    for line in ["", *source.splitlines()][first - 1 :]:
        if member := re.match(r'\s+[A-Z_]+ = "(\w+)"(?:\s+# (.*))?', line):
            meaning = member[2] or member[1].replace("_", " ")
            rows.append((f"`{member[1]}`", _words(meaning)))
        elif group := re.match(r"\s+# (.*)", line):
            lines += ["", *_table(("reason", "meaning"), rows)] if rows else []
            lines += ["", f"## {group[1][0].upper()}{group[1][1:]}"]
            rows = []
    return "\n".join([*lines, "", *_table(("reason", "meaning"), rows)]) + "\n"


def events() -> str:
    """The page of events: every kind with its fields, from the classes that write them."""
    schemas = list_schemas()
    lines = [
        "# Events",
        "",
        "Every row of the journal has a kind, the node that it is about, and the fields of its",
        "kind. Webhooks receive it as a CloudEvent of the type `provisioner.KIND`. The schemas are",
        "in the OpenAPI document, in the part `webhooks`. Fields that are not required are left",
        "out where they do not apply.",
    ]
    for kind, cls in EVENTS.items():
        schema = schemas[cls.__name__]
        lines += ["", f"## {kind.value}", "", _words(cls.__doc__ or ""), ""]
        rows = [
            (
                f"`{field}`" + ("" if field in schema["required"] else " (optional)"),
                _type(said),
                _words(said.get("description", "")),
            )
            for field, said in schema.get("properties", {}).items()
        ]
        lines += _table(("field", "type", "meaning"), rows)
    return "\n".join(lines) + "\n"


def _table(head: tuple[str, ...], rows: list[Any]) -> list[str]:
    if not rows:
        return []
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(cell or " " for cell in row) + " |" for row in rows]


def _words(text: str) -> str:
    """One line that is safe in a table: no bars, no links, no markup by chance."""
    line = " ".join(text.split())
    for mark in "|<>[]*_{}":
        line = line.replace(mark, f"\\{mark}")
    pieces = line.split("`")  # code stays unchanged
    code = [p.replace("\\", "") if n % 2 else p for n, p in enumerate(pieces)]
    return "`".join(code).replace("``", "")


def thresholds() -> str:
    """The page of the checks' thresholds, each with its source."""
    head = ["# Thresholds of the checks", "", "Where no value is published, it is unknown."]
    head += ["What takes precedence is in [thresholds.md](../thresholds.md).", ""]
    return "\n".join(head) + "\n" + threshold_rows()


def fault_coverage() -> str:
    """The page of BMC faults in every act, as they were last played."""
    head = ["# Faults of BMCs, act by act", "", "Written by `make soak NAME=fault-coverage`."]
    head += ["What a cell means is in [fault-coverage.md](../fault-coverage.md).", ""]
    return "\n".join(head) + "\n" + COVERAGE.read_text(encoding="utf-8")


def plots() -> str:
    """The page of plots: figures of the benchmarks as Mermaid draws them, colours by line."""
    head = "# Plots of the benchmarks\n\nFrom the last lines that the commands printed."
    lines = [f"{head} [All figures](../benchmarks.md), [conditions](../benchmark-conditions.md)."]
    for text in FIGURES.read_text(encoding="utf-8").splitlines():
        kept = json.loads(text)
        series = kept.get("lines", {})
        values = [*series.values(), kept["bars"]] if "bars" in kept else [*series.values()]
        top = max(max(line) for line in values) * 1.05
        drawn = [f"    line {line}" for line in series.values()]
        drawn += [f"    bar {kept['bars']}"] if "bars" in kept else []
        names = ", ".join(
            f"{n[0].upper()}{n[1:]} ({c})" for n, c in zip(series, PLOT_COLOURS, strict=False)
        )
        said = f"`{kept['command']}`, {kept['taken']}." + (f" {names}." if names else "")
        axis = f'    x-axis "{kept["x"]}" [{", ".join(json.dumps(a) for a in kept["at"])}]'
        lines += ["", f"## {kept['plot']}", "", said, "", "```{mermaid}"]
        lines += [PLOT_COLOURED, "xychart-beta", axis, f'    y-axis "{kept["y"]}" 0 --> {top:g}']
        lines += [*drawn, "```"]
    return "\n".join(lines) + "\n"


def decisions() -> str:
    """The list of decision records: one for each question "why not otherwise"."""
    lines = [
        "# Decisions",
        "",
        "Each record: the question, the decision and the rejected alternatives.",
        "",
    ]
    lines += ["```{toctree}", ":maxdepth: 1", ":glob:", "", "../decisions/*", "```"]
    return "\n".join(lines) + "\n"


# of one hue for each line, told apart by people who see colours otherwise (Okabe and Ito)
PLOT_COLOURS = {"blue": "#0072B2", "orange": "#D55E00", "green": "#009E73"}
PLOT_COLOURED = (
    '%%{init: {"theme": "base", "themeVariables": {"xyChart": {"plotColorPalette": "'
    + ", ".join(PLOT_COLOURS.values())
    + '"}}}}%%'
)

PAGES: Mapping[str, Callable[[], str]] = {
    "command-line.md": command_line,
    "api-routes.md": api,
    "events.md": events,
    "reasons.md": reasons,
    "decisions.md": decisions,
    "thresholds.md": thresholds,
    "plots.md": plots,
    "fault-coverage.md": fault_coverage,
    "matrix-contents.md": reference_matrix.make_page,
    "simulated-bmcs.md": simulated_shapes.make_page,
    "simulated-faults.md": simulated_shapes.make_page_of_faults,
    **reference_tables.PAGES,
}


def write(directory: Path) -> None:
    """All pages, anew; a page that did not change keeps its time."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        file, text = directory / name, make()
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the generated pages of docs/.")
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)

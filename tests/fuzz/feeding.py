"""How readers of foreign words are found in the sources, and how arbitrary bytes are given to them.

A document is built out of bytes with the words of the parser's own source as its keys, so that it
gets beyond "this is no object". registry.py lists what is fed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from provisioner.adapters.redfish.eventing.event_stream import SseReader
from provisioner.api import table
from provisioner.integrations.air_gap_bundles import bundle_files as bundles
from provisioner.integrations.playbooks.events import Events
from provisioner.model.agent import MANIFEST
from provisioner.model.cohort import Evidence
from provisioner.model.node import Node, NodeKind
from provisioner.planning.watch.pushed_alerts import Directory, Source, parse_push
from provisioner.ports import Reply

PACKAGE = Path(__file__).resolve().parents[2] / "provisioner"
# nothing from outside comes here, or a person's own files come through what is listed below
INSIDE = ("cli", "store")
OUTSIDE = frozenset({"Any", "Json", "Reply", "bytes", "Evidence", "Tree", "object"})
TEXTS = frozenset(
    {"text", "texts", "raw", "body", "document", "answer", "answers", "output", "outputs",
     "payload", "data", "tree", "listed", "said", "reply", "line", "lines", "content", "packet",
     "page", "event", "shown", "json", "resource", "entry", "entries", "words", "item", "frame",
     "datagram", "config"}
)  # fmt: skip
NODES = (Node(id="su0-n01", kind=NodeKind.HOST, address="10.0.0.1"),)
WORDS_MAX, DEPTH_MAX, ITEMS_MAX = 400, 8, 12

Feed = Callable[[bytes, int], object]  # the bytes, and how they are to be read


@dataclass(frozen=True)
class Parser:
    """One reader of foreign words. Only `may_raise` may leave it: what its docstring promises."""

    name: str
    feed: Feed
    may_raise: tuple[type[Exception], ...]


@cache
def sources() -> Mapping[str, ast.Module]:
    """Modules to which something comes from outside."""
    modules = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        memory = (
            ("adapters", "simulated"),
            *(("integrations", n) for n in ("demo", "sim", "twin")),
        )
        inside = parts[0] in INSIDE or parts[-1].endswith("_commands")  # as all of cli
        if not inside and parts[:2] not in memory:
            module = ".".join(part for part in parts if part != "__init__")
            modules[module] = ast.parse(file.read_text())
    return modules


def found() -> set[str]:
    """Public functions that take something from outside, as "module:function"."""
    return {
        f"{module}:{node.name}"
        for module, tree in sources().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and _takes(node)
    }


def _takes(function: ast.FunctionDef) -> bool:
    for given in (*function.args.posonlyargs, *function.args.args):
        names = {n.id for n in ast.walk(given.annotation or ast.Constant(None))
                 if isinstance(n, ast.Name)}  # fmt: skip
        if names & OUTSIDE or (given.arg in TEXTS and "str" in names):
            return True
    return False


def built(data: bytes, words: Sequence[str]) -> Any:
    """A JSON document out of bytes, with the words that a parser looks for as its keys."""
    stream = iter(data)

    def value(depth: int) -> Any:
        kind = next(stream, 0)
        if kind >= 128 and depth < DEPTH_MAX:
            items = range(min(next(stream, 0), ITEMS_MAX))
            if kind >= 192:
                return [value(depth + 1) for _ in items]
            return {word(): value(depth + 1) for _ in items}
        if kind >= 64:
            return word()
        sample: Any = (None, True, False, 0, -1, 2**70, 1.5, 1e308, "", "N/A", "\x1b[2J", [], {},
                       "9" * 400, "1e999", float("nan"))  # fmt: skip
        return sample[kind] if kind < len(sample) else next(stream, 0)

    def word() -> str:
        at = next(stream, 0) * 256 + next(stream, 0)
        return words[at % len(words)] if words else str(at)

    return value(0)


@cache
def words_of(module: str) -> tuple[str, ...]:
    """The short texts in a module's source: what it compares its input with."""
    source = inspect.getsource(importlib.import_module(f"provisioner.{module}"))
    texts = (n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant))
    short = {t for t in texts if isinstance(t, str) and 0 < len(t) < 60 and "\n" not in t}
    return tuple(sorted(short))[:WORDS_MAX]


def _document(data: bytes, how: int, module: str) -> Any:
    """`how` even: the bytes as JSON, or as text; odd: a document with the parser's own words."""
    if how % 2:
        return built(data, words_of(module))
    said = data.decode("utf-8", errors="replace")
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return said


def _text(data: bytes, how: int, module: str) -> str:
    if how % 2:
        return json.dumps(built(data, words_of(module)))
    return data.decode("utf-8", errors="replace")


def _given(annotation: str, data: bytes, how: int, module: str) -> Any:
    text = _text(data, how, module)
    match annotation:
        case "Reply":
            status = (200, 200, 202, 400, 401, 503)[how // 2 % 6]
            said = {"retry-after": text[:20], "location": text[:200], "etag": text[:40]}
            return Reply(status, said, text.encode("utf-8", "replace"))
        case "bytes" | "bytes | str":
            return text.encode("utf-8", "replace") if how % 2 else data
        case "str" | "str | None":
            return text
        case "list[str]" | "Sequence[str]" | "Iterable[str]" | "Iterable[object]":
            return text.splitlines()
        case "Sequence[tuple[str, str]]":
            return (("own.yaml", text),)
        case "Evidence":
            return Evidence(source="fuzz", exit_code=0, text=text)
        case "Iterable[bytes]":
            return [data[:how], data[how:]]
        case "Mapping[str, Evidence]" | "Mapping[str, Evidence | Blocker]":
            names = ("gpus", "packages", "nics", "nic_config", "boot_id", "lldp", "netdevs")
            return {n: Evidence(source=n, exit_code=0, text=text) for n in names}
        case "Mapping[str, bytes]":
            return {n: text.encode() for n in words_of(module) if "." in n}
        case "Json" | "Mapping[str, Any]" | "dict[str, object]" | "Tree":
            said = _document(data, how, module)
            return said if isinstance(said, dict) else {"@odata.id": said}
        case "Sequence[Mapping[str, Any]]":
            said = _document(data, how, module)
            return [said if isinstance(said, dict) else {"Oem": said, "Actions": {"Oem": said}}]
        case "Any" | "object":
            return _document(data, how, module)
    raise AssertionError(f"how is {annotation} given to a parser?")


def fed(name: str, others: Mapping[str, Any]) -> Feed:
    """Give the bytes to every parameter that is not among `others`."""
    module, _, attribute = name.partition(":")
    function = getattr(importlib.import_module(f"provisioner.{module}"), attribute)
    wanted = {
        p.name: str(p.annotation)
        for p in inspect.signature(function).parameters.values()
        if p.name not in others
        and p.default is inspect.Parameter.empty
        and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    }

    def feed(data: bytes, how: int) -> object:
        each = {n: _given(a, data, how, module) for n, a in wanted.items()}
        result = function(**each, **others)
        return tuple(result) if isinstance(result, Iterator) else result

    return feed


BODIES = tuple(sorted({r.body for r in table.ALL if r.body}, key=lambda model: model.__name__))


def api_bodies(data: bytes, how: int) -> object:
    model = BODIES[how // 2 % len(BODIES)]
    fields = tuple(model.model_fields)
    said = json.dumps(built(data, fields)).encode() if how % 2 else data
    return model.model_validate_json(said)


def webhook(data: bytes, how: int) -> object:
    source = Source(name="fuzz", format="alertmanager" if how // 2 % 2 else "plain")
    said = _document(data, how, "planning.watch.pushed_alerts")
    if how % 2:  # what it lists, rather than what it is
        said = {"alerts": [said, {"labels": said, "status": "firing"}], "ports": [said]}
    seen = parse_push(source, said, Directory(NODES, {"su0-n01": ["S1"]}), 1_790_000_000.0)
    assert {s.node for s in seen.signals} <= {"su0-n01"}
    return seen


def archive(data: bytes, how: int) -> object:
    """`how` odd: the bytes are the list within a whole archive, for it begins with that."""
    with tempfile.NamedTemporaryFile() as file:
        if how % 2:
            with tarfile.open(fileobj=file, mode="w") as tar:
                info = tarfile.TarInfo(MANIFEST)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        else:
            file.write(data)
        file.flush()
        return bundles.verify(Path(file.name), {})


def stream_of(data: bytes, how: int) -> object:
    reader, size = SseReader(), how + 1
    return [reader.feed(data[at : at + size]) for at in range(0, len(data), size)]


def playbook(data: bytes, how: int) -> object:
    reader = Events(("su0-n01",))
    built_in = json.dumps(
        built(data, (*words_of("integrations.playbooks.events"), "su0-n01"))
    ).encode()
    said = reader.feed(built_in + b"\n" if how % 2 else data)
    assert all(host == "su0-n01" for host, _ in said)
    return said

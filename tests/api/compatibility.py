"""Finds what breaks clients between two OpenAPI documents, by rules like those of oasdiff.

A client sends inputs (parameters, bodies) and reads outputs (answers, events of webhooks). An input
must take whatever it took; an output must have whatever it had. Additions break nothing: a client
ignores fields and values of enumerations that it does not know (docs/api.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = Mapping[str, Any]
VERBS = ("get", "put", "post", "delete", "patch")
LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
FORMS = ("pattern", "format", "const")
# of each schema; words for people are none of them
KEPT = (
    *LEAST, *MOST, *FORMS, "type", "enum", "properties", "required", "items", "prefixItems",
    "anyOf", "additionalProperties", "$ref",
)  # fmt: skip


def list_breaks(old: Schema, new: Schema) -> list[str]:
    """Return what an existing client would no longer find."""
    return sorted(set(_Comparison(old, new).compare()))


@dataclass
class _Comparison:
    old: Schema
    new: Schema
    met: set[tuple[str, str, bool]] = field(default_factory=set)

    def compare(self) -> Iterator[str]:
        for path, verbs in self.old["paths"].items():
            for verb in (v for v in VERBS if v in verbs):
                name = f"{verb.upper()} {path}"
                now = self.new["paths"].get(path, {}).get(verb)
                if now is None:
                    yield f"{name}: it is gone"
                else:
                    yield from (f"{name}: {b}" for b in self._operation(verbs[verb], now))
        for kind, hook in self.old["webhooks"].items():
            now = self.new["webhooks"].get(kind)
            if now is None:
                yield f"event {kind}: it is gone"
                continue
            was_sent, is_sent = (_bodies(h["post"]) for h in (hook, now))
            for media in was_sent:
                breaks = self._schema(was_sent[media], is_sent.get(media, {}), sent=False)
                yield from (f"event {kind}: {b}" for b in breaks)

    def _operation(self, old: Schema, new: Schema) -> Iterator[str]:
        if old["operationId"] != new["operationId"]:
            yield "its operationId, a function's name in generated clients, changed"
        for role in sorted(set(old["x-roles"]) - set(new["x-roles"])):
            yield f"the role {role} may no longer ask for it"
        yield from self._parameters(old, new)
        was_taken = _bodies(old)
        is_taken = _bodies(new)
        if new.get("requestBody", {}).get("required") and not _requires_body(old):
            yield "a body is required"
        for media, schema in was_taken.items():
            if media not in is_taken:
                yield f"it takes no body as {media}"
            else:
                yield from self._schema(schema, is_taken[media], sent=True, where="body")
        for status, answer in old["responses"].items():
            if not status.startswith("2"):
                continue
            now = new["responses"].get(status)
            if now is None:
                yield f"it no longer answers {status}"
                continue
            for media, content in answer.get("content", {}).items():
                if media not in now.get("content", {}):
                    yield f"it no longer answers {media}"
                    continue
                shown = now["content"][media]["schema"]
                yield from self._schema(content["schema"], shown, sent=False, where=status)

    def _parameters(self, old: Schema, new: Schema) -> Iterator[str]:
        was, now = ({(p["in"], p["name"]): p for p in o["parameters"]} for o in (old, new))
        for key, parameter in was.items():
            if key not in now:
                yield f"the parameter {key[1]} is gone"
                continue
            if now[key].get("required") and not parameter.get("required"):
                yield f"the parameter {key[1]} is required"
            yield from self._schema(
                parameter["schema"], now[key]["schema"], sent=True, where=key[1]
            )
        for key in now.keys() - was.keys():
            if now[key].get("required"):
                yield f"the new parameter {key[1]} is required"

    def _schema(self, old: Schema, new: Schema, *, sent: bool, where: str = "") -> Iterator[str]:
        """Compare what a client sends (`sent`), or reads."""
        pair = (old.get("$ref", ""), new.get("$ref", ""), sent)
        if pair[0]:
            if pair in self.met:
                return
            self.met.add(pair)
        old = _resolve(self.old, old)
        new = _resolve(self.new, new)
        was = old.get("anyOf", [old])
        now = new.get("anyOf", [new])
        if len(was) == len(now) == 1:
            yield from self._one(was[0], now[0], sent=sent, where=where)
            return
        # of an input every former form has to be taken; of an output every form has to be a former
        needed, offered = (was, now) if sent else (now, was)
        for form in needed:
            pairs = [(form, o) if sent else (o, form) for o in offered]
            if not any(self._fits(a, b, sent=sent) for a, b in pairs):
                yield f"{where}: {'takes no' if sent else 'may be'} {_describe(form)} now"

    def _fits(self, old: Schema, new: Schema, *, sent: bool) -> bool:
        trial = _Comparison(self.old, self.new, set(self.met))
        return not list(trial._schema(old, new, sent=sent))

    def _one(self, old: Schema, new: Schema, *, sent: bool, where: str) -> Iterator[str]:
        was, now = (_list_types(s) for s in (old, new))
        narrow, wide = (now, was) if sent else (was, now)
        if narrow is not None and (wide is None or not wide <= narrow):
            yield f"{where}: its type was {_describe(old)}, and is {_describe(new)}"
            return
        for value in old.get("enum", ()):
            if "enum" in new and value not in new["enum"]:
                yield f"{where}: the value {value!r} is gone"
        if sent:
            yield from _list_narrowed(old, new, where)
        yield from self._properties(old, new, sent=sent, where=where)
        for part in ("items", "additionalProperties"):
            if isinstance(old.get(part), dict) and isinstance(new.get(part), dict):
                yield from self._schema(old[part], new[part], sent=sent, where=f"{where}[]")
        for a, b in zip(old.get("prefixItems", ()), new.get("prefixItems", ()), strict=False):
            yield from self._schema(a, b, sent=sent, where=f"{where}[]")

    def _properties(self, old: Schema, new: Schema, *, sent: bool, where: str) -> Iterator[str]:
        was, now = (s.get("properties", {}) for s in (old, new))
        for name, schema in was.items():
            place = f"{where}.{name}"
            if name not in now:
                yield f"{place}: it is gone"
            else:
                yield from self._schema(schema, now[name], sent=sent, where=place)
        required, before = (set(s.get("required", ())) for s in (new, old))
        if sent:
            yield from (f"{where}.{name}: it is required" for name in sorted(required - before))
        else:
            lost = sorted((before - required) & now.keys())
            yield from (f"{where}.{name}: it may be missing" for name in lost)


def _list_narrowed(old: Schema, new: Schema, where: str) -> Iterator[str]:
    """Return the limits of an input that are closer than before."""
    for word in LEAST:
        if word in new and new[word] > old.get(word, 0 if word.startswith("min") else -1e99):
            yield f"{where}: {word} is {new[word]}, it was {old.get(word)}"
    for word in MOST:
        if word in new and (word not in old or new[word] < old[word]):
            yield f"{where}: {word} is {new[word]}, it was {old.get(word)}"
    for word in FORMS:
        if word in new and new[word] != old.get(word):
            yield f"{where}: {word} is {new[word]}, it was {old.get(word)}"
    if "enum" in new and "enum" not in old:
        yield f"{where}: only {new['enum']} is taken"


def _bodies(operation: Schema) -> dict[str, Schema]:
    content = operation.get("requestBody", {}).get("content", {})
    return {media: inner["schema"] for media, inner in content.items()}


def _requires_body(operation: Schema) -> bool:
    return bool(operation.get("requestBody", {}).get("required"))


def _resolve(document: Schema, schema: Schema) -> Schema:
    name = schema.get("$ref", "").rpartition("/")[2]
    named = document["components"]["schemas"].get(name, {}) if name else {}
    return {**named, **{k: v for k, v in schema.items() if k != "$ref"}}


def _list_types(schema: Schema) -> frozenset[str] | None:
    """Return the types of a schema; None: any. Every integer is a number."""
    types = schema.get("type")
    if types is None and "enum" not in schema and "const" not in schema:
        return None
    if types is None:
        return frozenset({"string"})
    chosen = {types} if isinstance(types, str) else set(types)
    return frozenset(chosen | ({"integer"} if "number" in chosen else set()))


def _describe(schema: Schema) -> str:
    return str(schema.get("$ref") or schema.get("format") or schema.get("type") or "anything")


def reduce(value: Any) -> Any:
    """Return a document without words for people and examples: what clients depend on."""
    paths = {
        path: {verb: _reduce_operation(verbs[verb]) for verb in VERBS if verb in verbs}
        for path, verbs in value["paths"].items()
    }
    schemas = value["components"]["schemas"]
    hooks = {
        kind: {"post": {"requestBody": _reduce_body(hook["post"]["requestBody"])}}
        for kind, hook in value["webhooks"].items()
    }
    reduced = {name: _reduce_schema(schema) for name, schema in schemas.items()}
    return {"paths": paths, "webhooks": hooks, "components": {"schemas": reduced}}


def _reduce_operation(operation: Schema) -> dict[str, Any]:
    reduced: dict[str, Any] = {name: operation[name] for name in ("operationId", "x-roles")}
    reduced["parameters"] = [
        {
            "name": p["name"],
            "in": p["in"],
            "required": p.get("required", False),
            "schema": _reduce_schema(p["schema"]),
        }
        for p in operation["parameters"]
    ]
    if "requestBody" in operation:
        reduced["requestBody"] = _reduce_body(operation["requestBody"])
    reduced["responses"] = {
        status: {"content": _reduce_body(answer)["content"]}
        for status, answer in operation["responses"].items()
        if status.startswith("2")
    }
    return reduced


def _reduce_body(body: Schema) -> dict[str, Any]:
    content = {
        media: {"schema": _reduce_schema(inner["schema"])}
        for media, inner in body.get("content", {}).items()
    }
    return {"required": body.get("required", False), "content": content}


def _reduce_schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    reduced = {}
    for name in sorted(schema.keys() & set(KEPT)):
        value = schema[name]
        if name == "properties":
            value = {k: _reduce_schema(v) for k, v in sorted(value.items())}
        elif name in ("anyOf", "prefixItems"):
            value = [_reduce_schema(v) for v in value]
        elif name in ("items", "additionalProperties"):
            value = _reduce_schema(value)
        reduced[name] = value
    return reduced

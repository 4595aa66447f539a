"""Builds the OpenAPI 3.1 document from the table of routes, so that nothing is written twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from provisioner.api.app import list_models
from provisioner.api.problem import MEDIA, Problem
from provisioner.api.route import PREFIX, STREAM_MEDIA, Effect, Route, list_media
from provisioner.api.routes.home import Document, Page
from provisioner.model.events import EVENTS, Event, EventKind
from provisioner.model.shipped_tables import read_table
from provisioner.planning.watch.webhooks import CONTENT_TYPE, TYPE_PREFIX

# ------------------------------------------------------------------------------
# JSON Schemas of events: of a row of the journal, and of the CloudEvent that a webhook receives.
#
# Both are generated from the classes of `model.events`, so that they equal the written rows. The
# OpenAPI document has one webhook for each kind.


REF = "#/components/schemas/{model}"
_MODE: Literal["serialization"] = "serialization"


def list_schemas() -> dict[str, Any]:
    """Return the schema of each event's detail by class name, with the schemas that they name."""
    modes = [(cls, _MODE) for cls in EVENTS.values()]
    _, schemas = models_json_schema(modes, by_alias=True, ref_template=REF)
    for cls in EVENTS.values():  # a row has the fields that its writer set
        schema = schemas["$defs"][cls.__name__]
        schema.get("properties", {}).pop("about", None)
        schema["required"] = sorted(_list_required(cls))
    return dict(schemas["$defs"])


def list_webhooks() -> dict[str, Any]:
    """Return the part "webhooks" of the OpenAPI document: one request for each kind."""
    return {kind.value: {"post": _describe_post(kind, cls)} for kind, cls in EVENTS.items()}


def _list_required(cls: type[Event]) -> list[str]:
    return [f.alias or n for n, f in cls.model_fields.items() if f.is_required()]


def _describe_post(kind: EventKind, cls: type[Event]) -> dict[str, Any]:
    data = {
        "type": "object",
        "properties": {
            "kind": {"const": kind.value},
            "node": {"type": "string", "description": "The node concerned, or empty."},
            "detail": {"$ref": REF.format(model=cls.__name__)},
        },
        "required": ["kind", "node", "detail"],
    }
    text = {"type": "string"}
    schema = {
        "type": "object",
        "properties": {
            "specversion": {"const": "1.0"},
            "type": {"const": TYPE_PREFIX + kind.value},
            **dict.fromkeys(("id", "source", "time", "sequence", "subject", "partitionkey"), text),
            "datacontenttype": {"const": "application/json"},
            "data": data,
        },
        "required": ["specversion", "id", "source", "type", "time", "sequence", "data"],
    }
    summary = " ".join((cls.__doc__ or "").split())
    body = {"required": True, "content": {CONTENT_TYPE.partition(";")[0]: {"schema": schema}}}
    return {
        "operationId": f"receive_{kind.value}",
        "tags": ["webhooks"],
        "summary": summary,
        "requestBody": body,
        "responses": {"2XX": {"description": "The event was taken."}},
    }


# ------------------------------------------------------------------------------
# Examples of answers in the OpenAPI document, by the record that they show.
#
# They are answers of the simulated site (`tests/api/test_api_examples.py` records them), and each
# has the form of its schema.


FILE = Path(__file__).parent / "examples.json"


@cache
def read_examples() -> Mapping[str, Any]:
    examples: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return examples


# ------------------------------------------------------------------------------
# Meanings of the OpenAPI document's fields: those that no record describes are in `fields.md`.
#
# Most fields of the document belong to records of the domain, which have comments for those who
# read the code. People who build on the API read the document: there each field has a sentence.


_ROW = re.compile(r"- `([\w.-]+)`: (.+)")


@cache
def read_meanings() -> Mapping[str, str]:
    """Return the meaning of each field by `field` or `Record.field`."""
    text = resources.files("provisioner.api").joinpath("fields.md").read_text(encoding="utf-8")
    rows = [row for line in text.splitlines() if (row := _ROW.fullmatch(line)) is not None]
    return {row[1]: row[2] for row in rows}


def add_meanings(schemas: Mapping[str, Any]) -> None:
    """Write the meaning of each field that has none into its schema."""
    meanings = read_meanings()
    for record, field, schema in list_fields(schemas):
        text = meanings.get(f"{record}.{field}") or meanings.get(field)
        if text is not None:
            schema.setdefault("description", text)


def list_fields(schemas: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (record, field, schema) of every field."""
    for record, schema in schemas.items():
        for field, inner in schema.get("properties", {}).items():
            yield record, field, inner


WORDS = {row["word"]: row["means"] for row in read_table("provisioner.api", "path_words.csv")}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Asked again with the same key, a change is made once and answered alike.",
    "schema": {"type": "string", "pattern": r'^("[!#-~]{1,128}"|[!#-~]{1,128})$'},
}
_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "ETag of what the decision rests on; 412 if it changed since.",
    "schema": {"type": "string", "pattern": r'^(\*|"[!#-~]{1,60}")$'},
}
_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "ETag of what is known already; 304 if it is still so.",
    "schema": {"type": "string"},
}


def build_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the whole document, as JSON's values."""
    served = [m for m in list_models(routes) if m not in (Document, Page)]
    served.append(Problem)
    bodies = {r.body for r in routes}
    _, answers = models_json_schema([_mode(m, asked=m in bodies) for m in served], ref_template=REF)
    schemas = _name_apart(_null_defaults({**list_schemas(), **answers["$defs"]}))
    add_meanings(schemas)
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(PREFIX + route.path, {})[route.verb.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "The provisioner",
            "version": version("gpu-provisioner"),
            "description": "Nodes from racked to released, upgraded in waves, and back.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "tags": [{"name": t} for t in dict.fromkeys(r.tag for r in routes)],
        "paths": paths,
        "webhooks": list_webhooks(),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    }


def _name_apart(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas with a short name and title for each of two classes of one name.

    pydantic names them by their modules and leaves them one title, which generators of clients make
    one class of: `provisioner__model__case__Origin` becomes `CaseOrigin`.
    """
    text = json.dumps(schemas)
    for long in [name for name in schemas if "__" in name]:
        module, name = long.split("__")[-2:]
        short = f"{module.title().replace('_', '')}{name}"
        assert short not in schemas, f"two schemas are named {short}"
        text = text.replace(json.dumps(long), json.dumps(short))
        text = text.replace(json.dumps(REF.format(model=long)), json.dumps(REF.format(model=short)))
    named: dict[str, Any] = json.loads(text)
    for name, schema in named.items():
        schema["title"] = name
    return named


def _null_defaults(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas with null as the default of unset times: 0.0 never leaves the daemon."""
    for schema in schemas.values():
        for field in schema.get("properties", {}).values():
            if any(s.get("format") == "date-time" for s in field.get("anyOf", ())):
                field.update({"default": None} if "default" in field else {})
    return schemas


def _mode(
    model: type[BaseModel], *, asked: bool
) -> tuple[type[BaseModel], Literal["validation", "serialization"]]:
    """Return the schema's mode: a request may omit defaults; an answer has all fields."""
    return model, "validation" if asked else "serialization"


def write_document(routes: Sequence[Route]) -> bytes:
    return json.dumps(build_document(routes), indent=1, sort_keys=False).encode()


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": _responses(route),
        "x-roles": sorted(r.value for r in route.roles),
        "x-effect": route.effect,
    }
    if route.lasting_with:
        operation["x-lasting-with"] = sorted(route.lasting_with)
    if not route.roles:
        operation["security"] = []
    if route.body is not None:
        schema = {"$ref": REF.format(model=route.body.__name__)}
        content: dict[str, Any] = {"schema": schema}
        content["example"] = dict(route.example or {})
        required = any(f.is_required() for f in route.body.model_fields.values())
        media = dict.fromkeys(list_media(route.verb), content)
        operation["requestBody"] = {"required": required, "content": media}
    if route.streamed:
        binary = {
            "schema": {"type": "string", "format": "binary"},
            "example": "the bytes of the file",
        }
        operation["requestBody"] = {"required": False, "content": {STREAM_MEDIA: binary}}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {
            "name": word,
            "in": "path",
            "required": True,
            "description": WORDS[word],
            "schema": {"type": "string", "pattern": r"^[^\x00-\x1f\x7f]{1,128}$"},
        }
        for word in re.findall(r"\{(\w+)\}", route.path)
    ]
    schema = route.query.model_json_schema()
    for name, parameter_schema in schema.get("properties", {}).items():
        kind = parameter_schema.pop("$ref", "").rpartition("/")[2]  # an enumeration: written here
        parameter_schema = schema.get("$defs", {}).get(kind, {}) | parameter_schema
        parameter_schema = {k: v for k, v in parameter_schema.items() if k != "title"}
        about = parameter_schema.pop("description", "")
        parameters.append(
            {
                "name": name,
                "in": "query",
                "required": route.streamed and name in schema.get("required", ()),
                "description": about,
                "schema": parameter_schema,
            }
        )
    if route.changes and not route.secret:
        parameters.append(_KEY)
        if route.entity:
            parameters.append(_MATCH)
    elif route.roles and route.media == "application/json":
        parameters.append(_NONE_MATCH)
    return parameters


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, model in route.answers.items():
        schema: dict[str, Any] = {"$ref": REF.format(model=model.__name__)}
        if model is Document:
            schema = {"type": "object"}
        elif model is Page or route.media == "text/event-stream":
            schema = {"type": "string"}
        headers = {"ETag": {"schema": {"type": "string"}}} if route.media.endswith("json") else {}
        if status == 202:
            headers["Location"] = {"schema": {"type": "string"}}
        about = {200: "It is so.", 202: "It is under way, or waits: follow the operation."}[status]
        responses[str(status)] = {
            "description": about,
            "headers": headers,
            "content": {route.media: {"schema": schema, **_example(model, route)}},
        }
    if not route.changes and route.roles and route.media == "application/json":
        responses["304"] = {"description": "What you have is still so."}
    for status, why in sorted((_refusals(route) | dict(route.refusals)).items()):
        content = {MEDIA: {"schema": {"$ref": REF.format(model="Problem")}}}
        responses[str(status)] = {"description": why, "content": content}
    return responses


def _example(model: type[BaseModel], route: Route) -> dict[str, Any]:
    """Return the example of an answer; files of pages and streams have none."""
    examples = read_examples()
    shown = route.media == "application/json" and model.__name__ in examples
    return {"example": examples[model.__name__]} if shown else {}


def _refusals(route: Route) -> dict[int, str]:
    refusals = {429: "More than one caller may take; Retry-After says when to ask again."}
    takes = route.query.model_fields or "{" in route.path or route.body is not None
    if takes or route.changes:
        refusals[400] = "A parameter or the body is not what this takes."
    if route.roles:
        refusals[401] = "No good bearer token."
        if route.effect is Effect.LASTING or route.lasting_with:
            refusals[401] += " A console's session: its sign-in is too long ago."
        refusals[403] = "The token's role may not do this."
    if "{" in route.path:
        refusals[404] = "There is no such thing, or it is not yours."
    if route.changes:
        refusals[409] = "It cannot be done now; each blocker has its remedy."
        refusals[413] = f"The body is larger than {route.body_max} bytes."
        refusals[422] = "The idempotency key was used for another request."
        refusals[503] = "A device, or the daemon, is not able to now."
        if route.entity:
            refusals[412] = "It changed since the ETag that you name."
    if route.streamed:
        refusals[408] = "The file did not come."
        refusals[413] = "The file is larger than this site takes (`api_upload_max_bytes`)."
        refusals[507] = "The artifact store has no room for it."
    if route.body is not None:
        refusals[408] = "The body did not come."
        refusals[413] = f"The body is larger than {route.body_max} bytes."
        refusals[415] = "The body is not JSON."
    return refusals

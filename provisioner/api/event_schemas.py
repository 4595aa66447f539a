"""JSON Schemas of events: of a row of the journal, and of the CloudEvent that a webhook receives.

Both are generated from the classes of `model.events`, so that they equal the written rows. The
OpenAPI document has one webhook for each kind.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic.json_schema import models_json_schema

from provisioner.model.events import EVENTS, Event, EventKind
from provisioner.planning.watch.webhooks import CONTENT_TYPE, TYPE_PREFIX

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

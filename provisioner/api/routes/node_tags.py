"""Routes of a node's tags: words that people search by. No decision of the daemon reads them.

PUT replaces all tags. PATCH is a merge patch (RFC 7396) of an object whose members are the tags:
true adds one, null removes one.
"""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from provisioner.api.changes import Forecast, Outcome, build_objection, find_node
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.route import OPERATORS, VIEWERS, Effect, Route, format_etag
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import Node

TAG = "nodes"
TAGS_MAX = 32
PATTERN = r"^[a-z0-9][a-z0-9._:/-]{0,62}$"
_TAG = re.compile(PATTERN, re.ASCII)


class TagList(Record):
    """The tags of a node."""

    tags: tuple[str, ...] = Field(
        (),
        max_length=TAGS_MAX,
        description="Small letters, digits and . _ : / -, at most 63 each: loan, team:vision.",
    )

    @field_validator("tags")
    @classmethod
    def _check(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        for tag in tags:
            if not _TAG.fullmatch(tag):
                raise ValueError(f"{tag[:63]!r} is no tag: it has to match {PATTERN}")
        return tuple(sorted(set(tags)))


class TagPatch(Record):
    """A merge patch of a node's tags."""

    tags: dict[str, bool | None] = Field(
        max_length=TAGS_MAX, description="true adds a tag; null or false removes it."
    )

    @field_validator("tags")
    @classmethod
    def _check(cls, tags: dict[str, bool | None]) -> dict[str, bool | None]:
        TagList(tags=tuple(tags))
        return tags


async def show_tags(ask: Ask) -> Reply:
    """Return the tags of a node."""
    node = await ask.read_node()
    return Reply(TagList(tags=node.tags), etag=format_etag(node.generation))


async def replace_tags(ask: Ask) -> Reply:
    """Ask for these tags instead of the present ones."""
    return await _ask(ask, {"replace": list(ask.body.tags)})


async def merge_tags(ask: Ask) -> Reply:
    """Ask for some tags more or less."""
    return await _ask(ask, {"merge": ask.body.tags})


async def _ask(ask: Ask, arguments: dict[str, object]) -> Reply:
    node = await ask.read_node()
    ask.check_match(format_etag(node.generation))
    return await ask.parts.works.submit_change(ask, ChangeKind.NODE_TAG, node.id, "", arguments)


async def change_tags(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a change of tags."""
    node = await find_node(parts, asked)
    if isinstance(node, Outcome):
        return node
    tags = merge(node, asked)
    if len(tags) > TAGS_MAX:
        detail = f"it would have {len(tags)} tags, more than {TAGS_MAX}"
        return build_objection(node.id, detail, "Remove some in the same request.")
    if tags != node.tags:
        event = RequestCarriedOut(
            request="tag", by=asked.asked_by, id=asked.id, approved=asked.decided_by
        )
        changed = node.model_copy(update={"tags": tags})
        await parts.store.nodes.save_requested([changed], event, parts.clock.now())
    return Outcome(RequestState.DONE, {"tags": list(tags)})


async def foresee_tags(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the tags that the node would have."""
    node = await parts.store.nodes.get(asked.subject)
    tags = () if node is None else merge(node, asked)
    return Forecast((f"{asked.subject} has the tags: {', '.join(tags) or 'none'}.",))


def merge(node: Node, asked: ChangeRequest) -> tuple[str, ...]:
    """Return the tags after a request."""
    arguments = asked.arguments
    if "replace" in arguments:
        return tuple(arguments["replace"])
    patch = arguments["merge"]
    others = {tag for tag in node.tags if tag not in patch}
    return tuple(sorted(others | {tag for tag, there in patch.items() if there}))


ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/tags",
        "show_node_tags",
        TAG,
        "Show a node's tags.",
        VIEWERS,
        show_tags,
        {200: TagList},
        entity=True,
    ),
    Route(
        "PUT",
        "/nodes/{node}/tags",
        "replace_node_tags",
        TAG,
        "Replace a node's tags; nodes are searched by `where=tag=...`.",
        OPERATORS,
        replace_tags,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=TagList,
        entity=True,
        example={"tags": ["loan", "team:vision"]},
    ),
    Route(
        "PATCH",
        "/nodes/{node}/tags",
        "merge_node_tags",
        TAG,
        "Add and remove tags of a node (a merge patch, RFC 7396).",
        OPERATORS,
        merge_tags,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=TagPatch,
        entity=True,
        example={"tags": {"loan": True, "burn-in": None}},
    ),
)

"""Events and node rows that a test makes up: any kind, any detail, any state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import PrivateAttr

from provisioner.model.events import Event
from provisioner.model.node import Node, State


def event_of(kind: str, about: str = "", detail: Mapping[str, Any] | None = None) -> Event:
    """Return an event of any kind, also of one that the product does not have."""
    event = _class_of(kind)(about=about)
    event._detail = dict(detail or {})
    return event


class _Given(Event):
    _detail: dict[str, Any] = PrivateAttr(default_factory=dict)

    def to_detail(self) -> dict[str, Any]:
        return dict(self._detail)


@cache  # pydantic takes 10 ms of CPU time to build the schema of a class
def _class_of(kind: str) -> type[_Given]:
    class Given(_Given):
        KIND = kind  # type: ignore[assignment]

    return Given


def in_state(node: Node, state: State, now: float, **changes: object) -> Node:
    """Return the node in a state that the journey's table is not asked about."""
    return node.model_copy(update={"state": state, "entered_at": now, **changes})

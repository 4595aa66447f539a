"""Events and node rows that a test makes up: any kind, any detail, any state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.model.events import Event
from provisioner.model.node import Node, State


def event_of(kind: str, about: str = "", detail: Mapping[str, Any] | None = None) -> Event:
    """Return an event of any kind, also of one that the product does not have."""

    class Given(Event):
        KIND = kind  # type: ignore[assignment]

        def to_detail(self) -> dict[str, Any]:
            return dict(detail or {})

    return Given(about=about)


def in_state(node: Node, state: State, now: float, **changes: object) -> Node:
    """Return the node in a state that the journey's table is not asked about."""
    return node.model_copy(update={"state": state, "entered_at": now, **changes})

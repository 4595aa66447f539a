"""Every kind of event that the journal keeps, with its class; see `event`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.model.events import case_events, fleet_events, node_events, request_events
from provisioner.model.events.event import FORMER_NAMES, Event, EventKind

__all__ = ["EVENTS", "FORMER_NAMES", "Event", "EventKind", "list_names", "name_kind"]


def _list_classes() -> Iterator[type[Event]]:
    modules = (node_events, request_events, fleet_events, case_events, request_events)
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Event) and "KIND" in vars(value):
                yield value


EVENTS: Mapping[EventKind, type[Event]] = {cls.KIND: cls for cls in _list_classes()}


def name_kind(stored: str) -> str:
    """Return the present name of a stored kind; rows of former versions keep their own."""
    return str(FORMER_NAMES.get(stored, stored))


def list_names(kind: str) -> frozenset[str]:
    """Return every name that rows of a kind may be stored under; none for ""."""
    former = {old for old, new in FORMER_NAMES.items() if new == kind}
    return frozenset({kind, *former} - {""})

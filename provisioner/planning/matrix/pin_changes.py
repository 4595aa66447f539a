"""The pins in which two matrices differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.matrix import Matrix


class PinChange(Record):
    """A pin that another matrix has otherwise, has in addition, or lacks."""

    release: str = Field(description="Release of the pin.")
    profile: str = Field(description="Profile of the pin.")
    component: str = Field(description="Kind of the component.")
    before: str = Field(description="Version in force; empty: there is no such pin.")
    after: str = Field(description="Version in the other matrix; empty: it has no such pin.")
    fields: tuple[str, ...] = Field(description="Fields of the pin that differ.")


def list_pin_changes(before: Matrix, after: Matrix) -> tuple[PinChange, ...]:
    """Return every pin that differs, by release, profile and component."""
    return tuple(_find_changes(before, after))


def _find_changes(before: Matrix, after: Matrix) -> Iterator[PinChange]:
    old = _list_pins(before)
    new = _list_pins(after)
    for key in sorted(old.keys() | new.keys()):
        was = old.get(key, {})
        is_now = new.get(key, {})
        fields = tuple(n for n in sorted(was | is_now) if was.get(n) != is_now.get(n))
        if fields:
            release, profile, component = key
            yield PinChange(
                release=release,
                profile=profile,
                component=component,
                before=str(was.get("version", "")),
                after=str(is_now.get("version", "")),
                fields=fields,
            )


def _list_pins(matrix: Matrix) -> dict[tuple[str, str, str], dict[str, object]]:
    return {
        (release, profile, component): pin.model_dump(mode="json")
        for release, content in matrix.releases.items()
        for profile, pinned in content.profiles.items()
        for component, pin in pinned.pins.items()
    }

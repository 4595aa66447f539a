"""Compare two releases of a matrix: for each profile, the changed pins and the cost of the move.

The cost is the planner's own, for a hypothetical node that runs exactly the pins of the older
release. A pin that either side does not publish is left out of that node and listed by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pydantic import Field

from provisioner.components import ALL, ComponentKind
from provisioner.model.base import Record
from provisioner.model.inventory import Component, Inventory
from provisioner.model.matrix import Matrix, Profile
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Neighbour, Plan
from provisioner.planning.path.conditions import list_kinds
from provisioner.planning.path.planner import plan

# ------------------------------------------------------------------------------
# The pins in which two matrices differ. Pure.


class PinChange(Record):
    """A pin that another matrix has otherwise, has in addition, or lacks."""

    release: str = Field(description="Release of the pin.")
    profile: str = Field(description="Profile of the pin.")
    component: str = Field(description="Kind of the component.")
    before: str = Field(description="Version in force; empty: there is no such pin.")
    after: str = Field(description="Version in the other matrix; empty: it has no such pin.")
    fields: tuple[str, ...] = Field(description="Fields of the pin that differ.")


def find_lost_releases(nodes: Iterable[Node], after: Matrix) -> Mapping[str, tuple[str, ...]]:
    lost: dict[str, list[str]] = {}
    for node in nodes:
        if node.release and node.release not in after.releases:
            lost.setdefault(node.release, []).append(node.id)
    return {name: tuple(sorted(ids)) for name, ids in sorted(lost.items())}


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


class Change(Record):
    """One component whose pin differs; "" where a release has no such pin."""

    kind: str
    before: str
    after: str


class ProfileDiff(Record):
    """The move of one profile. `minutes` is the planner's estimate, rounded up."""

    profile: str
    changes: tuple[Change, ...]
    left_out: tuple[str, ...]  # kinds that a release does not publish
    steps: tuple[str, ...]
    blockers: tuple[Blocker, ...]
    outages: int
    resets: int
    minutes: int


def compare_releases(
    matrix: Matrix,
    older: str,
    newer: str,
    *,
    kinds: dict[str, ComponentKind] = ALL,
    production: bool = False,
) -> tuple[ProfileDiff, ...]:
    """Return one entry for each profile that both releases have, in the newer one's order."""
    before = matrix.releases[older].profiles
    after = matrix.releases[newer].profiles
    return tuple(
        compare_profile(matrix, older, newer, name, kinds=kinds, production=production)
        for name in after
        if name in before
    )


def compare_profile(
    matrix: Matrix,
    older: str,
    newer: str,
    name: str,
    *,
    kinds: dict[str, ComponentKind] = ALL,
    production: bool = False,
) -> ProfileDiff:
    before = matrix.releases[older].profiles[name]
    after = matrix.releases[newer].profiles[name]
    move = plan(
        build_node_at_pins(before, name),
        _drop_unknown_pins(matrix, newer, name, before),
        newer,
        name,
        kinds=kinds,
        neighbours=_list_neighbours(matrix, newer, after),
        production=production,
    )
    return ProfileDiff(
        profile=name,
        changes=_list_changes(before, after),
        left_out=tuple(sorted(_unknown(before) | _unknown(after))),
        steps=tuple(step.title for step in move.steps),
        blockers=move.blockers,
        outages=move.outages,
        resets=move.resets,
        minutes=_minutes(move),
    )


def build_node_at_pins(profile: Profile, name: str) -> Inventory:
    """Return a hypothetical node that runs the pins of a profile, with one slot of each kind."""
    return Inventory(
        node=f"a node of {name}",
        vendor="generic",
        components=tuple(
            Component(
                kind=kind,
                slot="0",
                version=pin.version,
                updateable=True,
                source="pinned",
                bmc="host",
            )
            for kind, pin in profile.pins.items()
            if pin.known
        ),
    )


def _drop_unknown_pins(matrix: Matrix, release: str, name: str, before: Profile) -> Matrix:
    """Return the matrix with only those pins of the profile that both releases publish.

    A rule about a pin that is left out cannot be judged and is left out too.
    """
    after = matrix.releases[release].profiles[name]
    pins = {
        kind: pin
        for kind, pin in after.pins.items()
        if pin.known and kind in before.pins and before.pins[kind].known
    }
    profiles = {**matrix.releases[release].profiles, name: after.model_copy(update={"pins": pins})}
    left_out = _unknown(before) | _unknown(after)
    rules = tuple(
        rule
        for rule in matrix.releases[release].requires
        if not left_out & (list_kinds(rule.when) | list_kinds(rule.needs))
    )
    changed = matrix.releases[release].model_copy(update={"profiles": profiles, "requires": rules})
    return matrix.model_copy(update={"releases": {**matrix.releases, release: changed}})


def _list_neighbours(matrix: Matrix, release: str, after: Profile) -> tuple[Neighbour, ...]:
    """Return the switches' pins of the newer release: switches are upgraded before their hosts."""
    neighbours = []
    for name, profile in matrix.releases[release].profiles.items():
        if profile.match.kind != after.match.kind and after.match.kind == "host":
            versions: dict[str, tuple[str, ...]] = {
                kind: (pin.version,) for kind, pin in profile.pins.items() if pin.known
            }
            neighbours.append(Neighbour(node=name, versions=versions))
    return tuple(neighbours)


def _list_changes(before: Profile, after: Profile) -> tuple[Change, ...]:
    kinds = dict.fromkeys([*after.pins, *before.pins])
    pairs = [
        (
            kind,
            before.pins[kind].version if kind in before.pins else "",
            after.pins[kind].version if kind in after.pins else "",
        )
        for kind in kinds
    ]
    return tuple(Change(kind=k, before=b, after=a) for k, b, a in pairs if b != a)


def _unknown(profile: Profile) -> set[str]:
    return {kind for kind, pin in profile.pins.items() if not pin.known}


def _minutes(move: Plan) -> int:
    return -(-move.duration_s // 60)

"""Find edges of a matrix that no plan can take, or whose mark contradicts their direction. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from provisioner import components
from provisioner.model.host_packages import MLNX_OFED, OFED_MIGRATION
from provisioner.model.inventory import Activation
from provisioner.model.matrix import Edge, Matrix
from provisioner.model.versions import compare, parse_version
from provisioner.planning.matrix.faults import Fault, find_empty_condition
from provisioner.planning.matrix.located_yaml import Path
from provisioner.planning.path import conditions
from provisioner.planning.path.hops import ANY, NEVER_ALONE, Moves
from provisioner.planning.path.pins import grammar_of, is_pinned
from provisioner.planning.path.switch_upgrades import ASKS_LEAVE


def find_edge_faults(matrix: Matrix) -> Iterator[Fault]:
    """Return the faults of every edge, in the order of the file."""
    for kind, edges in matrix.edges.items():
        for index, edge in enumerate(edges):
            yield from _check_edge(matrix, kind, index, edge)


def _check_edge(matrix: Matrix, kind: str, index: int, edge: Edge) -> Iterator[Fault]:
    path: Path = ("edges", kind, index)
    where = f"edges.{kind}: {' · '.join(edge.from_versions)} → {edge.to}"
    method = edge.method or components.ALL[kind].method
    if method in NEVER_ALONE:
        yield Fault(
            path,
            where,
            f"{kind} is never updated by itself ({method})",
            "Give the edge to what carries it, or a `method`.",
        )
    if (method in _SWITCH_METHODS) != kind.startswith("switch."):
        yield Fault(path, where, f"{method} does not update {kind}", "Correct `method`.")
    yield from _check_migration(path, where, kind, edge, method)
    if (edge.activates_by is Activation.IMAGE_REBOOT) and not kind.startswith("switch."):
        yield Fault(
            (*path, "activates_by"),
            where,
            "only a switch boots another image",
            "Correct `activates_by`.",
        )
    if ANY in edge.from_versions and len(edge.from_versions) > 1:
        yield Fault(
            (*path, "from"),
            where,
            '"*" is every version, and others are listed beside it',
            "Keep one of the two.",
            blocks=False,
        )
    yield from _check_versions_of_edge(path, where, kind, edge)
    yield from _check_legs(matrix, path, kind, edge)
    yield from _check_conditions_of_edge(matrix, path, where, kind, edge)
    for part, version in edge.carries.items():
        if parse_version(grammar_of(part), version) is None:
            yield Fault(
                (*path, "carries", part),
                where,
                f"'{version}' is no version of {part}",
                "Write it as the device prints it.",
            )
        contents = matrix.bundles.get(kind, {}).get(edge.to, {})
        if part in contents and compare(grammar_of(part), contents[part], version) != 0:
            yield Fault(
                (*path, "carries", part),
                where,
                f"it brings {part} {version}, but the bundle contains {contents[part]}",
                "Correct one of the two.",
            )
    yield from _check_carried_pins(matrix, path, where, kind, edge)


def _check_migration(path: Path, where: str, kind: str, edge: Edge, method: str) -> Iterator[Fault]:
    """Only an edge that leads away from MLNX_OFED may remove it, and it must say so."""
    away = kind == "host.doca" and any(v.startswith(MLNX_OFED) for v in edge.from_versions)
    if away and method != OFED_MIGRATION:
        yield Fault(
            (*path, "method"),
            where,
            "it leads away from MLNX_OFED, which its method does not remove",
            f"Give it `method: {OFED_MIGRATION}`.",
        )
    only = all(v.startswith(MLNX_OFED) for v in edge.from_versions)
    if method == OFED_MIGRATION and not (away and only):
        yield Fault(
            (*path, "method"),
            where,
            f"{OFED_MIGRATION} leads from versions {MLNX_OFED}... of host.doca only",
            "Give the other versions an edge of their own, without `method`.",
        )


_SWITCH_METHODS = frozenset({"nvue_image", "sonic_installer"}) | ASKS_LEAVE


def _check_versions_of_edge(path: Path, where: str, kind: str, edge: Edge) -> Iterator[Fault]:
    grammar = grammar_of(kind)
    for field, versions in (("from", edge.from_versions), ("via", edge.via), ("to", (edge.to,))):
        for version in versions:
            if edge.method == OFED_MIGRATION and version.startswith(MLNX_OFED):
                continue  # as `ofed_info -s` writes it
            if version != ANY and parse_version(grammar, version) is None:
                # a card as delivered may print anything, but nothing is installed to it on purpose
                yield Fault(
                    (*path, field),
                    where,
                    f"'{version}' is no version as {kind} writes them",
                    "Write it as the device prints it.",
                    blocks=field != "from",
                )


def _check_legs(matrix: Matrix, path: Path, kind: str, edge: Edge) -> Iterator[Fault]:
    """Report legs that lead back without a mark, or back over a one-way edge."""
    grammar = grammar_of(kind)
    moves = Moves(matrix, {}, components.ALL, production=False, leave=ASKS_LEAVE)
    stops = (*edge.via, edge.to)
    starts = [v for v in edge.from_versions if v != ANY]
    legs = [*((start, stops[0]) for start in starts), *pairwise(stops)]
    backward = [leg for leg in legs if compare(grammar, *leg) == 1]
    for start, to in backward:
        if not edge.downgrade:
            yield Fault(
                path,
                f"edges.{kind}: {start} → {to}",
                "leads to an older version",
                "Add `downgrade: true` if that is meant.",
            )
    if edge.downgrade and legs and all(compare(grammar, *leg) == -1 for leg in legs):
        yield Fault(
            (*path, "downgrade"),
            f"edges.{kind}: {legs[0][0]} → {edge.to}",
            "it is marked as a downgrade and leads to a newer version",
            "Remove `downgrade`.",
            blocks=False,
        )
    for start, to in legs:
        if moves.find_one_way_edge(kind, start, to) is not None:
            yield Fault(
                path,
                f"edges.{kind}: {start} → {to}",
                "it leads back over a one-way edge, so it is never taken",
                "Remove it, or correct `one_way`.",
            )


def _check_conditions_of_edge(
    matrix: Matrix, path: Path, where: str, kind: str, edge: Edge
) -> Iterator[Fault]:
    for other, text in edge.requires.items():
        at = (*path, "requires", other)
        if problem := find_empty_condition(other, text):
            yield Fault(at, where, problem, "Correct the condition; the edge is never taken.")
            continue
        terms = conditions.parse_terms(text)
        if ("=", other) in terms:
            yield Fault(at, where, f"{other} is compared with itself", "Name another component.")
        elif other == kind:
            before = edge.via[-1:] or edge.from_versions
            if ANY not in before and not any(_holds(other, text, v) for v in before):
                yield Fault(
                    at,
                    where,
                    f"it never holds: the edge starts at {' · '.join(before)}",
                    "Correct `from`, or the condition.",
                )
        else:
            named = _list_named(matrix, other)
            if (
                named
                and all(op != "=" for op, _ in terms)
                and not any(_holds(other, text, v) for v in named)
            ):
                yield Fault(
                    at,
                    where,
                    f"no version of {other} in this file is {text}",
                    "Correct the condition, or add the edges that lead there.",
                )


def _holds(kind: str, text: str, version: str) -> bool:
    grammar = grammar_of(kind)
    return all(
        conditions.satisfies_term(grammar, version, term) is True
        for term in conditions.parse_terms(text)
        if term[0] != "="
    )


def _list_named(matrix: Matrix, kind: str) -> tuple[str, ...]:
    """Return every version of a kind that the matrix names; () if one of its pins is unknown."""
    pins = [
        profile.pins[kind]
        for release in matrix.releases.values()
        for profile in release.profiles.values()
        if kind in profile.pins
    ]
    if not pins or any(not pin.known for pin in pins):
        return ()
    moves = Moves(matrix, {}, components.ALL, production=False)
    return (*(v for pin in pins for v in (pin.version, *pin.also)), *moves.list_versions(kind))


def _check_carried_pins(
    matrix: Matrix, path: Path, where: str, kind: str, edge: Edge
) -> Iterator[Fault]:
    """Report an edge into a pin that brings another component to a version which is not pinned."""
    for name, release in matrix.releases.items():
        for profile in release.profiles.values():
            pin = profile.pins.get(kind)
            if pin is None or not pin.known or not is_pinned(grammar_of(kind), edge.to, pin):
                continue
            for part, version in edge.carries.items():
                other = profile.pins.get(part)
                if other is None or not other.known or matrix.edges.get(part):
                    continue
                if not is_pinned(grammar_of(part), version, other):
                    yield Fault(
                        (*path, "carries", part),
                        where,
                        f"it brings {part} {version}, but {name} pins {other.version}, and "
                        f"{part} has no edge of its own",
                        "Correct one of the two.",
                    )

"""The matrix as a map: one line per component, one column per release, one track per edge. Pure.

`layout` places things; `graph_svg` and the command line's picture only draw what it placed.
"""

from __future__ import annotations

from provisioner import components
from provisioner.model.base import Record
from provisioner.model.inventory import Activation
from provisioner.model.matrix import UNKNOWN, Edge, Matrix
from provisioner.planning.path.reachability import ancestors, moves, pinned_kinds


class Stop(Record):
    """A version on its line. `releases` pin it; `note` says for which profiles, if not for all."""

    version: str
    column: float
    row: int
    releases: tuple[str, ...] = ()
    note: str = ""


class Track(Record):
    """One edge from one start, through its stops."""

    start: str
    end: str
    via: tuple[str, ...]
    activates_by: Activation
    vouched: bool


class Lane(Record):
    """One component kind's line."""

    kind: str
    title: str
    stops: tuple[Stop, ...]
    tracks: tuple[Track, ...]
    rows: int

    def stop(self, version: str) -> Stop:
        """The stop of a version that is on this line."""
        return next(s for s in self.stops if s.version == version)


class Layout(Record):
    releases: tuple[str, ...]  # oldest first: the columns
    lanes: tuple[Lane, ...]


def layout(matrix: Matrix) -> Layout:
    """Where everything stands."""
    releases = tuple(sorted(matrix.releases, key=lambda r: len(ancestors(matrix, r))))
    kinds = [*pinned_kinds(matrix), *(k for k in matrix.edges if k not in pinned_kinds(matrix))]
    return Layout(releases=releases, lanes=tuple(_lane(matrix, releases, k) for k in kinds))


def _lane(matrix: Matrix, releases: tuple[str, ...], kind: str) -> Lane:
    edges = matrix.edges.get(kind, ())
    columns: dict[str, float] = {}
    pinned: dict[str, list[str]] = {}
    notes: dict[str, str] = {}
    for index, name in enumerate(releases):
        profiles = matrix.releases[name].profiles
        with_kind = [p for p, profile in profiles.items() if kind in profile.pins]
        for version in dict.fromkeys(profiles[p].pins[kind].version for p in with_kind):
            at = f"{UNKNOWN} {name}" if version == UNKNOWN else version
            columns.setdefault(at, float(index))
            pinned.setdefault(at, []).append(name)
            of = [p for p in with_kind if profiles[p].pins[kind].version == version]
            if len(of) < len(with_kind):
                notes[at] = ", ".join(of)
    _place_unpinned(edges, columns)
    taken: dict[float, int] = {}
    whole = int(any(column.is_integer() for column in columns.values()))
    stops = []
    for version, column in columns.items():
        # a stop that is no release's stands under those that are, or their labels would meet
        row = taken.get(column, 0 if column.is_integer() else whole)
        taken[column] = row + 1
        stops.append(
            Stop(
                version=version,
                column=column,
                row=row,
                releases=tuple(pinned.get(version, ())),
                note=notes.get(version, ""),
            )
        )
    known = components.ALL.get(kind)
    return Lane(
        kind=kind,
        title=known.title if known else kind,
        stops=tuple(stops),
        tracks=tuple(_track(edge, start) for edge in edges for start in edge.from_versions)
        or _carried(matrix, kind, columns),
        rows=max(taken.values(), default=1),
    )


def _place_unpinned(edges: tuple[Edge, ...], columns: dict[str, float]) -> None:
    """A stop that no release pins stands one column before the first that it leads to.

    Where nothing is pinned, stops stand between the columns, because they are no release's.
    """
    for edge in edges:
        if edge.to not in columns:
            before = [columns[f] for f in edge.from_versions if f in columns]
            columns[edge.to] = max(before, default=0.5) + 1.0
        target = columns[edge.to]
        for back, version in enumerate(reversed(edge.via), start=1):
            columns.setdefault(version, target - back / (len(edge.via) + 1))
        for version in edge.from_versions:
            columns.setdefault(version, max(target - 1.0, 0.0))


def _carried(matrix: Matrix, kind: str, columns: dict[str, float]) -> tuple[Track, ...]:
    """Tracks of a kind that has no edges of its own: it moves with what carries it."""
    found = []
    for start, ends in moves(matrix, kind).items():
        for end in ends:
            carrier = next(
                (
                    edge
                    for edges in matrix.edges.values()
                    for edge in edges
                    if edge.carries.get(kind) == end
                ),
                None,
            )
            if carrier and start in columns and end in columns:
                found.append(
                    Track(
                        start=start,
                        end=end,
                        via=(),
                        activates_by=carrier.activates_by,
                        vouched=bool(carrier.evidence),
                    )
                )
    return tuple(found)


def _track(edge: Edge, start: str) -> Track:
    return Track(
        start=start,
        end=edge.to,
        via=edge.via,
        activates_by=edge.activates_by,
        vouched=bool(edge.evidence),
    )

"""The matrix as a map: one line per component, one column per release, one track per edge. Pure.

`build_layout` computes every position; `graph_svg` and the command line only draw them.
"""

from __future__ import annotations

from provisioner import components
from provisioner.model.base import Record
from provisioner.model.inventory import Activation
from provisioner.model.matrix import UNKNOWN, Edge, Matrix
from provisioner.planning.path.reachability import list_ancestors, list_pinned_kinds, map_moves


class Stop(Record):
    """A version on its line.

    `releases` pin it; `note` names the profiles if only some of them do.
    """

    version: str
    column: float
    row: int
    releases: tuple[str, ...] = ()
    note: str = ""


class Track(Record):
    """One edge from one start version, through its intermediate stops."""

    start: str
    end: str
    via: tuple[str, ...]
    activates_by: Activation
    vouched: bool


class Lane(Record):
    """The line of one component kind."""

    kind: str
    title: str
    stops: tuple[Stop, ...]
    tracks: tuple[Track, ...]
    rows: int

    def stop(self, version: str) -> Stop:
        """Return the stop of a version that is on this line."""
        return next(s for s in self.stops if s.version == version)


class Layout(Record):
    """The whole map."""

    releases: tuple[str, ...]  # oldest first: the columns
    lanes: tuple[Lane, ...]


def build_layout(matrix: Matrix) -> Layout:
    """Return the map with the position of every stop and track."""
    releases = tuple(sorted(matrix.releases, key=lambda r: len(list_ancestors(matrix, r))))
    kinds = [
        *list_pinned_kinds(matrix),
        *(k for k in matrix.edges if k not in list_pinned_kinds(matrix)),
    ]
    return Layout(releases=releases, lanes=tuple(_build_lane(matrix, releases, k) for k in kinds))


def _build_lane(matrix: Matrix, releases: tuple[str, ...], kind: str) -> Lane:
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
        # a stop without a release is placed below those with one, or their labels would overlap
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
    component = components.ALL.get(kind)
    return Lane(
        kind=kind,
        title=component.title if component else kind,
        stops=tuple(stops),
        tracks=tuple(_build_track(edge, start) for edge in edges for start in edge.from_versions)
        or _build_carried_tracks(matrix, kind, columns),
        rows=max(taken.values(), default=1),
    )


def _place_unpinned(edges: tuple[Edge, ...], columns: dict[str, float]) -> None:
    """Place a stop that no release pins one column before the first stop that it leads to.

    Where a kind has no pin, stops are placed between the columns, because they belong to no
    release.
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


def _build_carried_tracks(
    matrix: Matrix, kind: str, columns: dict[str, float]
) -> tuple[Track, ...]:
    """Return the tracks of a kind without edges of its own, which moves with its carriers."""
    tracks = []
    for start, ends in map_moves(matrix, kind).items():
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
                tracks.append(
                    Track(
                        start=start,
                        end=end,
                        via=(),
                        activates_by=carrier.activates_by,
                        vouched=bool(carrier.evidence),
                    )
                )
    return tuple(tracks)


def _build_track(edge: Edge, start: str) -> Track:
    return Track(
        start=start,
        end=edge.to,
        via=edge.via,
        activates_by=edge.activates_by,
        vouched=bool(edge.evidence),
    )

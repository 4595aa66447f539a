"""The matrix as a map: one line per component, one column per release, one track per edge. Pure.

`build_layout` computes every position; `graph_svg` and the command line only draw them.
"""

from __future__ import annotations

from collections.abc import Collection
from html import escape
from itertools import pairwise

from provisioner import components
from provisioner.model.base import Record
from provisioner.model.inventory import Activation
from provisioner.model.matrix import UNKNOWN, Edge, Matrix
from provisioner.planning.matrix.standing import list_lines
from provisioner.planning.path.distances import (
    Ways,
    list_pinned_kinds,
    map_moves,
    normalize_version,
)


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
        return next(s for s in self.stops if s.version == version)


class Layout(Record):
    """The whole map."""

    releases: tuple[str, ...]  # oldest first: the columns
    lanes: tuple[Lane, ...]


def select_releases(matrix: Matrix, names: Collection[str]) -> Matrix:
    """Return the part of a matrix that some releases need: they, and the edges to their pins."""
    releases = {name: r for name, r in matrix.releases.items() if name in names}
    ways = Ways(matrix)
    edges: dict[str, tuple[Edge, ...]] = {}
    for kind, every in matrix.edges.items():
        pins = {
            normalize_version(matrix, kind, version)
            for release in releases.values()
            for profile in release.profiles.values()
            if kind in profile.pins and profile.pins[kind].known
            for version in (profile.pins[kind].version, *profile.pins[kind].also)
        }
        if kept := tuple(e for e in every if pins & ways.list_reachable(kind, e.to)):
            edges[kind] = kept
    return matrix.model_copy(update={"releases": releases, "edges": edges})


def build_layout(matrix: Matrix) -> Layout:
    """Return the map with the position of every stop and track."""
    releases = tuple(name for line in list_lines(matrix) for name in line)
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


# ------------------------------------------------------------------------------
# Draw the map of a matrix as SVG that opens in any browser and prints on one page. Pure.
#
# Black dots are versions that a release pins, white ones are intermediate. The colour of a track is
# the reset that activates it; a dotted track has no evidence.


COLUMN = 270.0
ROW = 52.0
LEFT = 262.0
TOP = 104.0
LABEL_CHARS_MAX = 34  # the width between two columns at 12 px

COLORS = {
    Activation.NONE: "#64748b",
    Activation.SERVICE_RESTART: "#0d9488",
    Activation.BMC_RESET: "#2563eb",
    Activation.NIC_RESET: "#7c3aed",
    Activation.WARM_REBOOT: "#d97706",
    Activation.COLD_BOOT: "#dc2626",
    Activation.AC_CYCLE: "#881337",
    Activation.IMAGE_REBOOT: "#4f46e5",
}


def draw_svg(matrix: Matrix) -> str:
    """Return the map as a standalone SVG document."""
    plan = build_layout(matrix)
    width = LEFT + COLUMN * len(plan.releases) + 20
    height = TOP + sum(lane.rows * ROW + 16 for lane in plan.lanes) + 110
    body = [*_draw_columns(plan, height)]
    top = TOP
    for index, lane in enumerate(plan.lanes):
        body += _draw_lane(lane, top, width, shaded=index % 2 == 0)
        top += lane.rows * ROW + 16
    body += _draw_legend(plan, top + 34)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" '
        'font-family="Inter, Segoe UI, Helvetica, Arial, sans-serif">'
    )
    return "\n".join(
        [
            head,
            "<title>Upgrade paths of the firmware matrix</title>",
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
            _draw_text(28, 44, "Upgrade paths", 24, "#0f172a", weight=700),
            _draw_text(28, 67, "what each release pins", 13, "#64748b"),
            *body,
            "</svg>\n",
        ]
    )


def _x(column: float) -> float:
    return LEFT + COLUMN * (column + 0.5)


def _draw_columns(plan: Layout, height: float) -> list[str]:
    parts = []
    for index, name in enumerate(plan.releases):
        x = LEFT + COLUMN * index
        parts.append(
            f'<rect x="{x + COLUMN / 2 - 84:.0f}" y="26" width="168" height="46" rx="10" '
            'fill="#eff6ff" stroke="#bfdbfe"/>'
        )
        parts.append(
            _draw_text(x + COLUMN / 2, 54, name, 14, "#1e3a8a", weight=600, anchor="middle")
        )
        parts.append(
            f'<line x1="{x + COLUMN / 2:.0f}" y1="76" x2="{x + COLUMN / 2:.0f}" '
            f'y2="{height - 100:.0f}" stroke="#dbeafe" stroke-width="2"/>'
        )
    return parts


def _draw_lane(lane: Lane, top: float, width: float, *, shaded: bool) -> list[str]:
    height = lane.rows * ROW + 16
    middle = top + height / 2
    parts = []
    if shaded:
        parts.append(
            f'<rect x="12" y="{top:.0f}" width="{width - 24:.0f}" height="{height:.0f}" rx="8" '
            'fill="#64748b" fill-opacity="0.07"/>'
        )
    parts.append(_draw_text(28, middle - 2, lane.title, 14, "#0f172a", weight=600))
    parts.append(_draw_text(28, middle + 16, lane.kind, 11, "#64748b", mono=True))
    parts += [line for track in lane.tracks for line in _draw_track(lane, track, top)]
    parts += [line for stop in lane.stops for line in _draw_stop(stop, top)]
    return parts


def _y(stop: Stop, top: float) -> float:
    return top + 22 + stop.row * ROW


def _draw_track(lane: Lane, track: Track, top: float) -> list[str]:
    color = COLORS[track.activates_by]
    dashes = "" if track.vouched else ' stroke-dasharray="3 7"'
    stops = [lane.stop(v) for v in (track.start, *track.via, track.end)]
    path = f"M {_x(stops[0].column):.0f} {_y(stops[0], top):.0f}"
    for first, second in pairwise(stops):
        x1 = _x(first.column)
        y1 = _y(first, top)
        x2 = _x(second.column)
        y2 = _y(second, top)
        if y1 > y2 and x2 - x1 > COLUMN:  # stay below the labels of the columns in between
            x1 = x2 - COLUMN
            path += f" H {x1:.0f}"
        bend = (x2 - x1) / 2
        path += f" C {x1 + bend:.0f} {y1:.0f} {x2 - bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    label = f"{track.start} → {track.end}, activated by {track.activates_by}"
    line = (
        f'<path d="{path}" fill="none" stroke="{color}" stroke-width="5" '
        f'stroke-linecap="round"{dashes}><title>{escape(label)}</title></path>'
    )
    return [line]


def _draw_stop(stop: Stop, top: float) -> list[str]:
    x = _x(stop.column)
    y = _y(stop, top)
    if stop.version.startswith(UNKNOWN):
        ring = (
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="8" fill="#fff" stroke="#94a3b8" '
            'stroke-width="2" stroke-dasharray="3 3"/>'
        )
        return [
            ring,
            _draw_text(x, y + 4, "?", 11, "#64748b", weight=700, anchor="middle"),
            _draw_text(x, y + 25, "not published", 11, "#94a3b8", anchor="middle"),
        ]
    fill = "#0f172a" if stop.releases else "#ffffff"
    label = stop.version
    if len(label) > LABEL_CHARS_MAX:
        label = label[: LABEL_CHARS_MAX - 1] + "…"
    note = f" ({stop.note})" if stop.note else ""
    size = 12 if len(label) <= 24 else 10
    dot = (
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="8" fill="{fill}" stroke="#0f172a" '
        f'stroke-width="2.5"><title>{escape(stop.version + note)}</title></circle>'
    )
    labels = [_draw_text(x, y + 24, label, size, "#0f172a", weight=600, anchor="middle", mono=True)]
    if stop.note:
        labels.append(_draw_text(x, y + 36, stop.note, 10, "#64748b", anchor="middle"))
    return [dot, *labels]


def _draw_legend(plan: Layout, top: float) -> list[str]:
    parts = []
    x = 28.0
    used = {track.activates_by for lane in plan.lanes for track in lane.tracks}
    for activation, color in ((a, c) for a, c in COLORS.items() if a in used):
        parts.append(
            f'<line x1="{x:.0f}" y1="{top:.0f}" x2="{x + 26:.0f}" y2="{top:.0f}" '
            f'stroke="{color}" stroke-width="5" stroke-linecap="round"/>'
        )
        parts.append(_draw_text(x + 34, top + 4, activation.replace("_", " "), 12, "#334155"))
        x += 52 + 7.2 * len(activation)
    parts.append(
        f'<line x1="28" y1="{top + 28:.0f}" x2="54" y2="{top + 28:.0f}" stroke="#64748b" '
        'stroke-width="5" stroke-linecap="round" stroke-dasharray="3 7"/>'
    )
    parts.append(_draw_text(62, top + 32, "nobody vouches for it: laboratory only", 12, "#334155"))
    parts.append(
        f'<circle cx="330" cy="{top + 28:.0f}" r="7" fill="#0f172a"/>'
        f'<circle cx="480" cy="{top + 28:.0f}" r="7" fill="#fff" stroke="#0f172a" '
        'stroke-width="2.5"/>'
    )
    parts.append(_draw_text(344, top + 32, "pinned by a release", 12, "#334155"))
    parts.append(_draw_text(494, top + 32, "on the way", 12, "#334155"))
    return parts


def _draw_text(
    x: float,
    y: float,
    text: str,
    size: int,
    color: str,
    *,
    weight: int = 400,
    anchor: str = "start",
    mono: bool = False,
) -> str:
    family = ' font-family="ui-monospace, Menlo, DejaVu Sans Mono, monospace"' if mono else ""
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" '
        f'fill="{color}" text-anchor="{anchor}"{family}>{escape(text)}</text>'
    )

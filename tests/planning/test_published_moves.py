"""The moves from Spectrum-X 1.3.0 to 2.1.2: which of them a public document vouches for."""

from __future__ import annotations

import re
from pathlib import Path

from provisioner import components
from provisioner.planning.matrix.diff import compare_releases
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.path.hops import Moves

ROOT = Path(__file__).parents[2]
OLD, NEW = "spectrum-x-1.3.0", "spectrum-x-2.1.2"
ROW = re.compile(r"^\| `([\w.]+)` \| (\S+) → (\S+) \| (published: .+|sought: .+) \|$")


def test_the_page_says_of_each_move_whether_production_takes_it() -> None:
    matrix = parse([("matrix", (ROOT / "firmware_matrix.yaml").read_text())])
    published, sought = {}, {}
    for profile in ("hgx-h100-bf3", "sn5600"):
        before = matrix.releases[OLD].profiles[profile].pins
        after = matrix.releases[NEW].profiles[profile].pins
        moves = Moves(matrix, after, components.ALL, production=True)
        for kind, pin in after.items():
            if not pin.known or kind not in before or not matrix.edges.get(kind):
                continue
            hops = moves.find_hops(kind, before[kind].version)
            last = [h for h in hops if h.to == pin.version]
            if not last:
                continue  # it moves with the bundle that carries it
            move = (kind, before[kind].version, pin.version)
            published[move] = any(h.evidence for h in last)
            if not published[move]:
                sought[move] = last[0].sought
    page = (ROOT / "docs" / "matrix.md").read_text()
    table = page.partition("<!-- moves: begin -->")[2].partition("<!-- moves: end -->")[0]
    rows = [match for line in table.splitlines() if (match := ROW.match(line))]

    said = {m.group(1, 2, 3): m[4] for m in rows}
    assert {move: text.startswith("published") for move, text in said.items()} == published
    assert {m: said[m].removeprefix("sought: ") for m in sought} == sought


def test_each_gap_of_the_shipped_file_says_which_document_would_close_it() -> None:
    matrix = parse([("matrix", (ROOT / "firmware_matrix.yaml").read_text())])
    pins = [
        (release, profile, kind)
        for release, r in matrix.releases.items()
        for profile, p in r.profiles.items()
        for kind, pin in p.pins.items()
        if not pin.known and not pin.sought and kind not in matrix.sought
    ]
    edges = [
        (kind, edge.to)
        for kind, moves in matrix.edges.items()
        for edge in moves
        if not edge.evidence and not edge.sought
    ]

    assert (pins, edges) == ([], [])


def test_production_refuses_the_campaign_with_the_page_of_each_missing_proof() -> None:
    matrix = parse([("matrix", (ROOT / "firmware_matrix.yaml").read_text())])

    moves = compare_releases(matrix, OLD, NEW, production=True)

    (host,) = [m for m in moves if m.profile == "hgx-h100-bf3"]
    unproved = {b.subject: b.unblock for b in host.blockers if b.reason == "missing_evidence"}
    assert sorted(unproved) == ["bluefield.bundle/0", "nic.cx7/0", "supernic.nic/0"]
    assert all("Sought: " in unblock for unblock in unproved.values())


def test_a_pin_that_an_overlay_closes_is_sought_no_longer() -> None:
    base = (ROOT / "firmware_matrix.yaml").read_text()
    overlay = (
        "releases:\n  dgx-gb200-1.3:\n    profiles:\n      gb200-tray:\n        pins:\n"
        "          host.driver: {version: 580.95.05, evidence: our support case}\n"
    )
    before, after = (
        parse(texts).releases["dgx-gb200-1.3"].profiles["gb200-tray"].pins["host.driver"]
        for texts in ([("matrix", base)], [("matrix", base), ("site", overlay)])
    )

    assert (before.known, bool(before.sought)) == (False, True)
    assert (after.version, after.sought) == ("580.95.05", "")

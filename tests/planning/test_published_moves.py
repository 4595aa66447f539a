"""The moves from Spectrum-X 1.3.0 to 2.1.2: which of them a public document vouches for."""

from __future__ import annotations

import sys
from pathlib import Path

from provisioner.planning.matrix.diff import compare_releases
from provisioner.planning.matrix.matrix_text import parse

ROOT = Path(__file__).parents[2]
OLD, NEW = "spectrum-x-1.3.0", "spectrum-x-2.1.2"
sys.path.append(str(ROOT / "docs"))

import reference_matrix  # noqa: E402  (beside the pages, in no package)


def test_the_page_says_of_each_move_whether_production_takes_it() -> None:
    matrix = parse([("matrix", (ROOT / "firmware_matrix.yaml").read_text())])
    said = {kind: text for kind, _, text in reference_matrix.list_moves(matrix)}

    published = sorted(kind for kind, text in said.items() if text.startswith("published: "))
    assert published == ["host.doca", "host.spcx_cc", "nic.config", "switch.os"]
    sought = {k: t for k, t in said.items() if k not in published}
    assert sorted(sought) == ["bluefield.bundle", "nic.cx7", "supernic.nic"]
    assert all(len(t) > len("sought: ") and t.startswith("sought: ") for t in sought.values())


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

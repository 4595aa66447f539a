"""The moves from Spectrum-X 1.3.0 to 2.1.2: which of them a public document vouches for."""

from __future__ import annotations

import re
from pathlib import Path

from provisioner import components
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.path.hops import Moves

ROOT = Path(__file__).parents[2]
OLD, NEW = "spectrum-x-1.3.0", "spectrum-x-2.1.2"
ROW = re.compile(r"^\| `([\w.]+)` \| (\S+) → (\S+) \| (published: .+|no source .+) \|$")


def test_the_page_says_of_each_move_whether_production_takes_it() -> None:
    matrix = parse([("matrix", (ROOT / "firmware_matrix.yaml").read_text())])
    published = {}
    for profile in ("hgx-h100-bf3", "sn5600"):
        before = matrix.releases[OLD].profiles[profile].pins
        after = matrix.releases[NEW].profiles[profile].pins
        moves = Moves(matrix, after, components.ALL, production=True)
        for kind, pin in after.items():
            if not pin.known or kind not in before or not matrix.edges.get(kind):
                continue
            hops = moves.find_hops(kind, before[kind].version)
            evidence = {h.evidence for h in hops if h.to == pin.version}
            published[kind, before[kind].version, pin.version] = evidence not in ({""}, set())
    page = (ROOT / "docs" / "matrix.md").read_text()
    table = page.partition("<!-- moves: begin -->")[2].partition("<!-- moves: end -->")[0]
    rows = [match for line in table.splitlines() if (match := ROW.match(line))]

    assert {m.group(1, 2, 3): m[4].startswith("published") for m in rows} == published

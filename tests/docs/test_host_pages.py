"""The pins and edges that the page of host images shows are ones that the matrix's reader takes."""

from __future__ import annotations

import re
from pathlib import Path

from provisioner.daemon.data import read_matrix
from provisioner.integrations.matrix_tools.deciding.contradictions import find_contradictions

ROOT = Path(__file__).parents[2]
PROFILE = """\
releases:
  shown:
    profiles:
      host:
        match: {kind: host}
        pins:
"""
EVIDENCE = ", evidence: shown}"


def test_what_the_page_of_host_images_shows_is_read_as_a_matrix(tmp_path: Path) -> None:
    text = (ROOT / "docs/host-images.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    pins = [b for b in blocks if b.startswith("host.")]
    files = [b for b in blocks if b not in pins]
    rows = [row for b in pins for row in b.splitlines()]
    body = "".join(f"          {row.replace('}', EVIDENCE, 1)}\n" for row in rows)
    files.append(PROFILE + body)
    paths = [ROOT / "firmware_matrix.yaml"]
    for number, content in enumerate(files):
        paths.append(tmp_path / f"{number}.yaml")
        paths[-1].write_text(content, encoding="utf-8")

    matrix = read_matrix(paths)

    shown = matrix.releases["shown"].profiles["host"].pins
    moved = matrix.edges["host.doca"][-1]
    faults = [f for f in find_contradictions(matrix) if f.path[:2] == ("edges", "host.doca")]
    assert len(blocks) == 4
    assert shown["host.doca"].version == moved.to
    assert dict(moved.carries) == {"host.doca_ofed": shown["host.doca_ofed"].version}
    assert faults == []

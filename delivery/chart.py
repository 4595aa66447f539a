"""Packs the Helm chart as Helm does: one folder with the chart's name, as NAME-VERSION.tgz."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from delivery.archive import pack_tree
from delivery.sources import NAME, read_version

CHART = Path(__file__).with_name("chart") / NAME


def build_chart(folder: Path, epoch: int) -> Path:
    """Write the packed chart into the folder."""
    packed = folder / f"{NAME}-{read_version()}.tgz"
    with tempfile.TemporaryDirectory() as place:
        tar = Path(place) / "chart.tar"
        pack_tree(CHART, tar, epoch)
        packed.write_bytes(gzip.compress(tar.read_bytes(), mtime=0))
    return packed

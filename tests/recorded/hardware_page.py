"""The tables of docs/hardware.md, made from this repository's recordings.

`python tests/recorded/hardware_page.py` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path

from provisioner import quirks
from provisioner.adapters.redfish.recordings.recorder import Recording
from provisioner.cli.offline.compatibility import build_row, make_page

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "hardware.md"
BEGIN, END = "<!-- recordings: begin -->\n", "<!-- recordings: end -->"


def replace_tables(page: str) -> str:
    """Return the page with the tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = make_page([build_row(recording) for recording in read_recordings()])
    return f"{before}{BEGIN}{tables}{END}{after}"


def read_recordings() -> list[Recording]:
    """Return the reduced trees of the repository that hold what a write needs."""
    files = sorted((HERE / "writes").glob("*.json"))
    whole = [json.loads(file.read_text()) for file in files]
    return [
        Recording(
            source=one["source"],
            vendor=quirks.identify(one["tree"]["/redfish/v1"]).name,
            tree=one["tree"],
        )
        for one in whole
    ]


if __name__ == "__main__":
    PAGE.write_text(replace_tables(PAGE.read_text()))

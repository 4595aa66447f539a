"""The generated page of recorded BMCs, made from this repository's recordings."""

from __future__ import annotations

import json
from pathlib import Path

from provisioner import quirks
from provisioner.adapters.redfish.recorded import Recording
from provisioner.integrations.recordings.recording_commands import build_row, make_page

HERE = Path(__file__).parent


def make_tables() -> str:
    """Return the tables of what is read and how each write is known."""
    return make_page([build_row(recording) for recording in read_recordings()])


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

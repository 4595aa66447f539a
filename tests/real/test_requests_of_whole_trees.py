"""A whole captured tree gives the very requests that were recorded on its reduced one.

The reduced trees are in tests/recorded/writes; the whole ones are kept elsewhere (static_tree.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from static_tree import recorded_tree

sys.path.append(str(Path(__file__).parents[1] / "recorded"))
import golden_requests

WHOLE = {
    "dell_idrac9": "dell",
    "dgx_h100": "nvidia_viking",
    "bluefield3": "nvidia_dpu",
    "hpe_ilo5": "hpe",
    "lenovo_xcc": "lenovo",
    "supermicro_x13": "supermicro",
    "gb200": "nvidia_gb200",
}
DRY = {"DetectorState": "OK", "Status": {"State": "Enabled", "Health": "OK"}}
# what a wet detector does not forbid
HARMLESS = {"change-password", "power off", "subscribe", "enable-media"}


def read_whole_tree(folder: Path) -> dict[str, Any]:
    """Return the resources by path; files that are no JSON (schemas in XML) are left out."""
    tree = {}
    for file in folder.rglob("index.json"):
        try:
            tree["/" + str(file.parent.relative_to(folder))] = json.loads(file.read_text())
        except ValueError:
            continue
    return tree


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n == "dgx_h100" else ()) for n in WHOLE]
)
def test_a_whole_tree_gives_the_requests_of_its_reduced_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = read_whole_tree(recorded_tree(WHOLE[name], tmp_path / "tree"))
    wet = {p: r for p, r in tree.items() if r.get("DetectorState") not in (None, "OK")}
    golden = json.loads(golden_requests.golden_of(name).read_text())

    monkeypatch.setattr(golden_requests, "read_tree", lambda _: json.loads(json.dumps(tree)))
    captured = golden_requests.record(name, tmp_path)
    tree |= {path: resource | DRY for path, resource in wet.items()}
    dry = golden_requests.record(name, tmp_path) if wet else captured

    leaks = {a for a, r in captured.items() if (r["refused"] or {}).get("reason") == "leak"}
    assert dry == golden
    assert leaks == (set(golden) - HARMLESS if wet else set())

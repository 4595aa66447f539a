"""The page of recorded requests (docs/reference_tables.py), made from those of each tree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROWS = {
    "dell_idrac9": "Dell iDRAC 9",
    "hpe_ilo5": "HPE iLO 5",
    "supermicro_x13": "Supermicro X13",
    "lenovo_xcc": "Lenovo XCC",
    "dgx_h100": "AMI, DGX H100",
    "gb200": "GB200",
    "bluefield3": "BlueField-3",
}


def build_verdicts() -> str:
    """Return the tables: one row for each recorded action of each tree, and the trees' sources."""
    lines = ["| BMC | recorded from |", "|---|---|"]
    lines += [f"| {title} | {_read('writes', name)['source']} |" for name, title in ROWS.items()]
    lines += ["", "| BMC | action | verdict | requests, or the reason and the remedy |"]
    lines.append("|---|---|---|---|")
    for name, title in ROWS.items():
        for action, result in _read("requests", name).items():
            verdict, text = _describe(result)
            lines.append(f"| {title} | {action} | {verdict} | {text} |")
    return "\n".join(lines) + "\n"


def _read(folder: str, name: str) -> Mapping[str, Any]:
    data: dict[str, Any] = json.loads((HERE / folder / f"{name}.json").read_text())
    return data


def _describe(result: Mapping[str, Any]) -> tuple[str, str]:
    refused = result["refused"]
    if refused is not None:
        return "X", f"{refused['detail']}. {refused['unblock']}".replace("|", "/")
    names = [_name(write) for write in result["writes"]]
    return "R", ", ".join(names) or "no request is needed"


def _name(write: Mapping[str, Any]) -> str:
    end = write["path"].rstrip("/").rpartition("/")[2]
    return f"{write['method']} `{end}`"

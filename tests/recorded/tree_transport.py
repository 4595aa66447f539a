"""A `BmcTransport` over a tree: in memory, or read from `<path>/index.json` files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provisioner.ports import BmcAddress, Call, Reply

ADDRESS = BmcAddress("https://bmc.example")


class TreeTransport:
    """Answers GET from the tree, and everything else with 405; counts what was asked."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self.tree = tree
        self.asked: list[str] = []

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        """One answer. Text is sent as it is, anything else as JSON."""
        self.asked.append(f"{call.method} {call.path}")
        if call.method != "GET":
            return Reply(405, {}, b"")
        path = call.path.split("?$expand")[0]
        if path not in self.tree:
            return Reply(404, {}, b"")
        found = self.tree[path]
        return Reply(
            200,
            {},
            (found if isinstance(found, str) else json.dumps(found)).encode("utf-8", "replace"),
        )

    async def fingerprint(self, bmc: BmcAddress) -> str:
        """No certificate."""
        return ""

    async def password_change(self, bmc: BmcAddress) -> str | None:
        """No login."""
        return None

    async def forget(self, bmc: BmcAddress) -> None:
        """No session."""

    async def close(self) -> None:
        """No connection."""


def tree_of(folder: Path) -> dict[str, str]:
    """Every resource of a folder of index.json files, by path."""
    return {
        "/" + str(file.parent.relative_to(folder)): file.read_text()
        for file in sorted(folder.rglob("index.json"))
    }

"""A transport whose BMC is a recording: reads are answered from it, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provisioner.ports import BmcAddress, Call, Reply


class RecordedTransport:
    """`BmcTransport` over the tree of a recording; the same for every address."""

    def __init__(self, tree: Mapping[str, Mapping[str, Any]]) -> None:
        self._tree = tree

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        """Return the recorded resource, 404 where there is none, and 405 for a write."""
        if call.method not in ("GET", "HEAD"):
            return Reply(405, {}, b"")
        body = self._tree.get(call.path.partition("?")[0].rstrip("/"))
        return Reply(404, {}, b"") if body is None else Reply(200, {}, json.dumps(body).encode())

    async def fingerprint(self, bmc: BmcAddress) -> str:
        """Return "": a recording presents no certificate."""
        return ""

    async def password_change(self, bmc: BmcAddress) -> str | None:
        """Return None: any login holds."""
        return None

    async def forget(self, bmc: BmcAddress) -> None:
        """Do nothing: there is no session."""

    async def close(self) -> None:
        """Do nothing: there is no connection."""

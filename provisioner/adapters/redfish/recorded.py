"""A recorded BMC, and the transport over it, which answers reads and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from provisioner.model.base import Record
from provisioner.ports import BmcAddress, Call, Reply

FORMAT = 1


class Recording(Record):
    """The resources of one Redfish service, as `provisioner record` writes them.

    `replaced` counts the distinct values of each kind that got a pseudonym, `removed` the secrets.
    `unread` and `withheld` name resources that are not in the tree, with the reason.
    """

    format: int = Field(default=FORMAT, ge=1, le=FORMAT)
    source: str  # a sentence for people: vendor, product, date and version of the recorder
    vendor: str  # name of the quirk declaration that fits
    tree: Mapping[str, Mapping[str, Any]]  # by path, "/redfish/v1" first
    replaced: Mapping[str, int] = Field(default_factory=dict)
    removed: int = 0
    unread: Mapping[str, str] = Field(default_factory=dict)
    withheld: Mapping[str, str] = Field(default_factory=dict)


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

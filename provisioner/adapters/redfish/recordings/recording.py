"""A recorded BMC: every resource that it shows, without the values that belong to its site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from provisioner.model.base import Record

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

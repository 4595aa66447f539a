"""Reads the filter that keeps hosts apart on one leaf, and the ports that have it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.execution.tenancy.leaf_line import INTERFACES_MAX, LeafLine, Refused
from provisioner.model.outcome import Reason
from provisioner.settings import Settings
from provisioner.switches import cumulus, cumulus_filter

TREES = ("applied", "startup", "operational")


@dataclass(frozen=True)
class FilterState:
    """What each tree of a leaf has: the filter itself (None: it has none), and its ports.

    `ports`: tree -> port -> its VRF, and whether the filter is on what comes in there.
    """

    filters: Mapping[str, Any]
    ports: Mapping[str, Mapping[str, tuple[str, bool]]]


def apart_filter(settings: Settings, doors: Iterable[cumulus_filter.Door] = ()) -> dict[str, Any]:
    """Return the filter that the site's settings ask for, with these doors."""
    return cumulus_filter.filter_tree(settings.lookup_networks, settings.lookup_reached, doors)


async def read_filter(line: LeafLine, tree: str) -> Any:
    """Return the filter between hosts as one tree has it; None if it has none."""
    answer = await line.find(cumulus.acls_path(tree))
    return answer.get(cumulus_filter.NAME) if isinstance(answer, dict) else None


async def read_filter_state(line: LeafLine) -> FilterState:
    """Return the filter and its ports in all trees. Raises `PortError` and `Refused`."""
    filters = await asyncio.gather(*(read_filter(line, tree) for tree in TREES))
    ports = await asyncio.gather(*(_ports(line, tree) for tree in TREES))
    return FilterState(dict(zip(TREES, filters, strict=True)), dict(zip(TREES, ports, strict=True)))


async def _ports(line: LeafLine, tree: str) -> dict[str, tuple[str, bool]]:
    answer = await line.get(cumulus.interfaces_path(tree))
    if not isinstance(answer, dict) or len(answer) > INTERFACES_MAX:
        raise Refused(Reason.MALFORMED, f"no readable interfaces ({tree})")
    found = {}
    for name, entry in answer.items():
        vrf = cumulus.read_vrf(entry)
        if vrf is None:
            raise Refused(Reason.MALFORMED, f"{name[:40]}: no readable state ({tree})")
        found[name] = (vrf or cumulus.DEFAULT_VRF, cumulus.read_apart(entry))
    return found

"""Trees of racks' units with one value spoilt: reading them never raises."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from rack_trees import Tree

from provisioner.adapters.redfish.recorded import RecordedTransport
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.membership import UnitReading
from provisioner.integrations.racks.reading import read_unit
from provisioner.ports import BmcAddress

ODD = (None, [], {}, "", "x" * 5000, "0x10", -1, 2**70, True, 1.5, [None], {"@odata.id": 7})
GONE = object()
Spot = tuple[str, tuple[str | int, ...]]  # a resource and the way to one of its values


def read(tree: Tree) -> UnitReading:
    address = BmcAddress(url="https://bmc.invalid")
    return asyncio.run(read_unit(RecordedTransport(tree), address))


def list_spots(tree: Tree) -> list[Spot]:
    return [(path, way) for path, body in tree.items() for way in _ways(body)]


def _ways(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inside = value.items() if isinstance(value, dict) else ()
    listed = enumerate(value) if isinstance(value, list) else ()
    for key, one in (*inside, *listed):
        yield (*at, key)
        yield from _ways(one, (*at, key))


def spoil(tree: Tree, spot: Spot, odd: object) -> Tree:
    """Return the tree with one value replaced, or gone."""
    path, way = spot
    spoilt = {**tree, path: deepcopy(tree[path])}
    inside: Any = spoilt[path]
    for key in way[:-1]:
        inside = inside[key]
    if odd is GONE:
        del inside[way[-1]]
    else:
        inside[way[-1]] = odd
    return spoilt


def find_crashes(name: str, tree: Tree, count: int, seed: int = 0) -> tuple[int, list[str]]:
    """Read it `count` times with one value spoilt; return how often, and what was wrong."""
    rng = random.Random(seed)
    spots = list_spots(tree)
    found: list[str] = []
    whole = read(tree).kind
    for _ in range(count):
        spot, odd = rng.choice(spots), rng.choice((*ODD, GONE))
        try:
            kind = read(spoil(tree, spot, odd)).kind
        except Exception as error:  # whatever it is: nothing may
            found.append(f"{name}: {spot} as {odd!r:.40}: {error!r:.200}")
            continue
        if kind not in (whole, Kind.OTHER, None):
            found.append(f"{name}: {spot} as {odd!r:.40}: a {whole} is read as a {kind}")
    return count, found


def load_trees(folder: Path) -> dict[str, Tree]:
    """Return recorded trees: NAME/redfish/v1/.../index.json, as public exporters keep them."""
    trees: dict[str, Tree] = {}
    for file in sorted(folder.glob("*/redfish/**/index.json")):
        name, _, path = file.relative_to(folder).parent.as_posix().partition("/")
        trees.setdefault(name, {})[f"/{path}"] = json.loads(file.read_text())
    return trees

"""Small trees in the shape of real machines, each a folder with the inventory that it must give.

A bug report from the field is a new folder: `<case>/redfish/v1/**/index.json`, `expected.json`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tree_transport import ADDRESS, TreeTransport, tree_of

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.model.inventory import Inventory

HERE = Path(__file__).parent
CASES = sorted(p.name for p in HERE.iterdir() if (p / "redfish").is_dir())


def collected(case: str) -> Inventory:
    tree = tree_of(HERE / case)
    quirk = quirks.identify(json.loads(tree["/redfish/v1"]))
    client = Redfish(TreeTransport(tree), ADDRESS, quirk)
    return asyncio.run(client.collect("node", ""))


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_machine_gives_the_inventory_that_is_written_beside_it(case: str) -> None:
    expected = Inventory.model_validate_json((HERE / case / "expected.json").read_text())

    actual = collected(case)

    assert actual == expected


@pytest.mark.parametrize("case", CASES)
def test_a_refresh_shows_the_same_components_as_a_full_collection(case: str) -> None:
    tree = tree_of(HERE / case)
    quirk = quirks.identify(json.loads(tree["/redfish/v1"]))
    client = Redfish(TreeTransport(tree), ADDRESS, quirk)

    async def both() -> tuple[Inventory, Inventory]:
        return await client.collect("node", "x"), await client.read_firmware("node", "x")

    full, narrow = asyncio.run(both())

    assert narrow.components == full.components
    assert narrow.power is full.power

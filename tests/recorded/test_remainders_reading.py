"""Accounts and subscriptions as the handed-over trees of real BMCs show them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from tree_transport import ADDRESS, TreeTransport, tree_of

from provisioner import quirks
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.upkeep.remainders import read_remainders

sys.path.append(str(Path(__file__).parents[1] / "real"))
from static_tree import recorded_tree

# who may log in, beside the account that a site uses: read from the trees
ENABLED = {
    "dell": {"root", "tests_admin"},  # of sixteen slots
    "nvidia_viking": {"admin", "S6AmJsX9uejbhS2r", "tests_admin"},  # the second: the host interface
    "nvidia_dpu": {"root", "NvBluefieldUefi0", "NvBluefieldUefi1"},
}


@pytest.mark.parametrize("name", ENABLED)
def test_who_may_log_in_is_read_from_a_real_tree(name: str, tmp_path: Path) -> None:
    tree = tree_of(recorded_tree(name, tmp_path))
    quirk = quirks.identify(json.loads(tree["/redfish/v1"]))

    reading = asyncio.run(read_remainders(Service(TreeTransport(tree), ADDRESS, quirk)))

    assert reading.accounts is not None
    assert {a.name for a in reading.accounts} == ENABLED[name]
    assert reading.destinations == ()  # Dell's one is a stream that was open
    assert reading.waiting == {}

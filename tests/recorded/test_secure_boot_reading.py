"""The keys of Secure Boot as the handed-over trees of real BMCs show them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from tree_transport import ADDRESS, TreeTransport, tree_of

from provisioner import quirks
from provisioner.adapters.redfish.hardware_tree import read_secure_boot
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings.bios_writes import read_secure_boot_keys
from provisioner.checks.attestation.event_log import read_boot_states
from provisioner.model.erasure import Result
from provisioner.planning.erasure.bmc_defaults import judge_keys

sys.path.append(str(Path(__file__).parents[1] / "real"))
from static_tree import recorded_tree

# counted in the trees: database -> (entries, the factory's)
COUNTS = {
    "nvidia_viking": {"PK": (1, 1), "KEK": (1, 1), "db": (2, 2), "dbx": (267, 371)},
    "nvidia_dpu": {"PK": (0, 0), "KEK": (1, 0), "db": (5, 0), "dbx": (77, 0)},
}
NOT_DONE = {
    # its revocations are older than those that came with its BIOS
    "nvidia_viking": {"host dbx"},
    # a card in setup mode, whose factory sets are empty
    "nvidia_dpu": {"host mode", "host KEK", "host db"},
}


@pytest.mark.parametrize("name", COUNTS)
def test_databases_are_read_with_their_factory_sets_and_judged(name: str, tmp_path: Path) -> None:
    tree = tree_of(recorded_tree(name, tmp_path))
    quirk = quirks.identify(json.loads(tree["/redfish/v1"]))

    keys = asyncio.run(read_secure_boot_keys(Service(TreeTransport(tree), ADDRESS, quirk)))

    assert keys is not None
    read = {d.name: (len(d.entries), len(d.factory or ())) for d in keys.databases}
    assert {n: c for n, c in read.items() if n in COUNTS[name]} == COUNTS[name]
    verdicts = list(judge_keys("host", keys, []))
    assert {part for part, result, _ in verdicts if result is Result.NOT_DONE} == NOT_DONE[name]
    assert keys.resets is (name == "nvidia_viking")


@pytest.mark.parametrize("name", COUNTS)
def test_the_check_of_gate_a_reads_the_same_databases(name: str, tmp_path: Path) -> None:
    tree = tree_of(recorded_tree(name, tmp_path))
    quirk = quirks.identify(json.loads(tree["/redfish/v1"]))
    service = Service(TreeTransport(tree), ADDRESS, quirk)

    reading = asyncio.run(read_secure_boot(service.walk()))
    gaps = [[g.source, g.reason.value, g.detail] for g in reading.gaps]
    text = json.dumps({"resources": dict(reading.resources), "gaps": gaps})

    (state,) = read_boot_states(text)
    assert state.running is False  # as all handed-over trees: the mode is not the state
    counts = {database: shown.entries for database, shown in state.databases.items()}
    assert counts == {database: entries for database, (entries, _) in COUNTS[name].items()}

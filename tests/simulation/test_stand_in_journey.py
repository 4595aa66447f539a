"""A spare takes the place of a node that fails, through the whole gate, past kills of a daemon."""

from __future__ import annotations

from pathlib import Path

import pytest
from replacing import replace_nodes


@pytest.mark.long
def test_a_spare_serves_and_the_replaced_node_becomes_a_spare(tmp_path: Path) -> None:
    outcome = replace_nodes(tmp_path, nodes=4, faults=2)
    assert outcome.wrong == []
    assert len(outcome.proofs) == 2
    assert outcome.free == outcome.failed


@pytest.mark.long
def test_a_daemon_that_is_killed_again_and_again_replaces_it_all_the_same(tmp_path: Path) -> None:
    outcome = replace_nodes(
        tmp_path, nodes=2, faults=1, kills=(11.0, 17.0, 29.0, 43.0, 67.0, 101.0, 151.0)
    )
    assert outcome.wrong == []
    assert len(outcome.proofs) == 1
    assert outcome.free == outcome.failed

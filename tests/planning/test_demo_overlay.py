"""The simulated site of the tutorial can take a reclaimed node back."""

from __future__ import annotations

import json
from pathlib import Path

from provisioner.daemon.data import read_matrix
from provisioner.integrations.demo.site import BASE, RELEASE, build_overlay
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.erasure.erasure import policy_of
from provisioner.planning.lifecycle.reclaiming import find_return_obstacles
from provisioner.settings import Settings

MATRIX = Path(__file__).parents[2] / "firmware_matrix.yaml"


def test_both_of_its_releases_pin_a_system_to_write_after_an_erasure(tmp_path: Path) -> None:
    own = tmp_path / "overlay.yaml"
    own.write_text(json.dumps(build_overlay()))
    node = Node(
        id="n", kind=NodeKind.HOST, state=State.DRAINING, served="red", profile="hgx-h100-bf3"
    )

    for release in (BASE, RELEASE):
        drained = node.model_copy(update={"release": release})
        found = find_return_obstacles(drained, read_matrix([MATRIX, own]), policy_of(Settings()))
        assert found == ()

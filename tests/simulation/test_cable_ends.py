"""Cable or optic, in a session: told by the counters at both ends, else it stays the link."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_fabric_sessions import blamed, lived
from test_sessions_together import inject

from provisioner.model.outcome import Reason


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("cable_lossy", "the cable to leaf-su0-r5/"),
        pytest.param(
            "leaf_optic_lossy",
            "the optic at the leaf's end of the link to leaf-su0-r5/",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "node_optic_lossy",
            "the optic at the node's end of the link to leaf-su0-r5/",
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_part_is_named_that_both_ends_counters_show(
    fault: str, words: str, tmp_path: Path
) -> None:
    _, outcomes, _ = lived(tmp_path, 5, meanwhile=inject(fault, "su0-n02"))

    assert blamed(outcomes) == {"su0-n02": (Reason.CABLING, "su0-n02/rail5")}
    assert outcomes["su0-n02"].blockers[0].detail.startswith(words)


def test_a_leaf_that_does_not_tell_its_counters_leaves_it_at_the_link(tmp_path: Path) -> None:
    async def put(place: Any) -> None:
        await inject("cable_lossy", "su0-n02")(place)
        place.world.site.switches["leaf-su0-r5"].planted.errors = Mute()

    _, outcomes, _ = lived(tmp_path, 5, meanwhile=put)

    assert outcomes["su0-n02"].blockers[0].detail.startswith("the link to leaf-su0-r5/")


class Mute(dict[str, int]):
    """Counters that no switch can have."""

    def get(self, *_: Any) -> Any:
        return -1

    def __setitem__(self, *_: Any) -> None:
        pass

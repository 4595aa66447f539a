"""Ports of a breakout read one optic: whose lane is weak, no leaf says."""

from __future__ import annotations

import pytest
from test_optic_series import days

from provisioner.integrations.optics.trends import find_mates, judge_port

DIRTY = [0.8] * 10 + [0.8 - 0.3 * n for n in range(12)]


@pytest.mark.parametrize("gone", [DIRTY, [0.8] * 10 + [-40.0] * 12], ids=["dirty", "dark"])
def test_a_weak_lane_of_a_breakout_names_neither_of_its_ports_and_swaps_nothing(
    gone: list[float | None],
) -> None:
    """Both ports read the worst lane of one module, which is one host's."""
    leaf = {
        "swp1s0": days(gone, serial="MT1"),
        "swp1s1": days(gone, serial="MT1"),
        "swp2s0": days(gone, serial="MT2"),
        "swp3": days(gone, serial=""),
        "swp4": [*days(gone, serial="MT2")[:-3]],  # where that module was before it was moved
    }
    mates = find_mates(leaf)

    found = {name: judge_port(f"l/{name}", own, mates.get(name, ())) for name, own in leaf.items()}

    assert {name for name, verdict in found.items() if verdict.end} == {"swp2s0", "swp3", "swp4"}
    assert {verdict.state for verdict in found.values()} == {found["swp1s0"].state} != {"good"}
    assert "shares with swp1s1" in found["swp1s0"].words
    assert "swap nothing" in found["swp1s0"].remedy
    assert find_mates({f"swp{n}": days(gone, serial="0000") for n in range(9)}) == {}


def test_an_ageing_laser_of_a_breakouts_module_is_still_that_module() -> None:
    ageing = [60.0] * 8 + [60.0 + 2.5 * n for n in range(14)]

    found = judge_port("l/swp1s0", days([0.8] * 22, bias=ageing), ("swp1s1",))

    assert (found.state, found.end) == ("dying", "leaf")

"""Counters of cable ends as hosts print them, and what grew between two looks."""

from __future__ import annotations

import pytest

from provisioner.execution.observe.cable_ends import Look, between, read

GOOD = """device mlx5_0
     rx_crc_errors_phy: 12
     rx_symbol_err_phy: 0
     link_down_events_phy: 1
device mlx5_3
     rx_crc_errors_phy: 0
copper
counted
"""


def test_each_device_has_its_counters_and_copper_is_told() -> None:
    assert read(GOOD) == {
        "mlx5_0": {"rx_crc_errors_phy": 12, "rx_symbol_err_phy": 0, "link_down_events_phy": 1},
        "mlx5_3": {"rx_crc_errors_phy": 0, "copper": 1},
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "counted",
        GOOD.replace("counted\n", ""),
        GOOD.replace("mlx5_3", "mlx5_0"),
        GOOD.replace(": 12", ": many"),
        GOOD.replace("12", "1" * 30),
        "rx_crc_errors_phy: 4\ncounted\n",
        GOOD.replace("mlx5_3", "mlx5_3\x1b[2J"),
    ],
)
def test_what_is_not_whole_tells_nothing(text: str) -> None:
    assert read(text) == {}


def look(at: float, host: int | None, leaf: int | None, downs: int = 0) -> Look:
    return Look(
        at=at,
        host={} if host is None else {5: {"rx_crc_errors_phy": host, "rx_symbol_err_phy": 7}},
        leaf={} if leaf is None else {5: {"in-errors": leaf, "carrier-transitions": downs}},
    )


def test_what_grew_is_told_for_each_end() -> None:
    (ends,) = between("n1", look(1.0, 10, 100), look(60.0, 30, 100, downs=2))

    assert (ends.node, ends.rail, ends.detachable) == ("n1", 5, True)
    assert ends.at_node is not None
    assert ends.at_leaf is not None
    assert (ends.at_node.damaged, ends.at_leaf.damaged, ends.at_leaf.link_downs) == (20, 0, 2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (look(1.0, 10, None), look(60.0, 30, 5)),  # the leaf did not answer before
        (look(1.0, 10, 9), look(60.0, 30, 5)),  # it counts from zero again
        (look(60.0, 10, 0), look(60.0, 30, 5)),  # no time in between
    ],
)
def test_an_end_that_cannot_be_compared_tells_nothing(before: Look, after: Look) -> None:
    (ends,) = between("n1", before, after)

    assert ends.at_leaf is None

"""Whether a drained switch's traffic has moved, and what a reboot took with it."""

from __future__ import annotations

import pytest

from provisioner.integrations.cumulus.services import wrong_firmware
from provisioner.model.switch import Wellness
from provisioner.planning.lifecycle.admission import (
    find_carrying_ports,
    find_clean_ports,
    find_damaged_ports,
    find_losses,
    find_lost_carriers,
)

IDLE_BPS = 100.0
LOOKS: dict[str, tuple[dict[str, int], dict[str, int], float, tuple[str, ...]]] = {
    "keepalives are no traffic": ({"swp1": 0}, {"swp1": 999}, 10.0, ()),
    "more than that is": ({"swp1": 0, "swp2": 0}, {"swp1": 1001, "swp2": 5}, 10.0, ("swp1",)),
    "a counter that went back tells nothing": ({"swp1": 500}, {"swp1": 0}, 10.0, ("swp1",)),
    "a port that was not counted before tells nothing": ({}, {"swp1": 0}, 10.0, ("swp1",)),
    "a port that is not counted any more tells nothing": ({"swp1": 0}, {}, 10.0, ("swp1",)),
    "two looks at one time tell nothing": ({"swp1": 0}, {"swp1": 0}, 0.0, ("swp1",)),
}


@pytest.mark.parametrize("sentence", LOOKS)
def test_traffic_has_moved(sentence: str) -> None:
    before, after, seconds, busy = LOOKS[sentence]

    assert find_carrying_ports(before, after, seconds, IDLE_BPS) == busy


BEFORE = {"health": "OK", "sessions": ["swp1", "swp2"], "vnis": ["4001"]}
WELL = Wellness("OK", frozenset({"swp1", "swp2"}), frozenset({"4001"}))


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (WELL, ()),
        (Wellness("OK", WELL.established | {"swp3"}, WELL.vnis | {"4002"}), ()),
        (Wellness("Not OK: PSU1", WELL.established, WELL.vnis), ("health is Not OK: PSU1",)),
        (
            Wellness("OK", frozenset({"swp2"}), WELL.vnis),
            ("BGP session swp1 and 0 more did not come back",),
        ),
        (
            Wellness("OK", WELL.established, frozenset()),
            ("VNI 4001 and 0 more did not come back",),
        ),
    ],
)
def test_what_was_well_before_must_be_well_after(now: Wellness, words: tuple[str, ...]) -> None:
    assert find_losses(BEFORE, now) == words


def test_an_old_fault_is_no_new_one() -> None:
    old = "Not OK: FAN2/1"

    assert find_losses({**BEFORE, "health": old}, Wellness(old, WELL.established, WELL.vnis)) == ()


@pytest.mark.parametrize(
    ("version", "asic", "fits"),
    [
        ("5.10.1.0017", "34.2014.1136", True),
        ("5.10.1.0017", "34.2014_1136", True),
        ("5.10.1.0017", "34.2014.1108", False),
        ("5.10.1.0017", None, False),
        ("5.16.1", None, True),
    ],
)
def test_the_asics_firmware_is_held_to_its_image_where_the_pair_is_published(
    version: str, asic: str | None, *, fits: bool
) -> None:
    assert (wrong_firmware(version, asic) == "") is fits


def test_every_port_must_once_be_seen_with_carrier_and_without_broken_packets() -> None:
    before = {**BEFORE, "ports": ["swp1", "swp2"]}

    assert find_lost_carriers(before, {"swp2"}) == (
        "the carrier of swp1 and 0 more did not come back",
    )
    assert find_lost_carriers(before, {"swp1", "swp2", "swp3"}) == ()
    assert find_damaged_ports({"swp1": 7, "swp2": 0}, {"swp1": 7, "swp2": 1}) == ("swp2",)
    assert find_clean_ports({"swp1": 7, "swp2": 0}, {"swp1": 7, "swp2": 1}) == {"swp1"}


def test_a_port_that_came_or_went_between_two_looks_is_neither_broken_nor_sound() -> None:
    for before, after in (({"swp1": 7}, {}), ({}, {"swp1": 0})):
        assert find_damaged_ports(before, after) == ()
        assert find_clean_ports(before, after) == frozenset()

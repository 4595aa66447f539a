"""Whether what runs is the pinned version: planner, drift and API give the same answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner import components
from provisioner.model.inventory import Component, Inventory
from provisioner.model.matrix import Match, Matrix, Pin, Profile, Release
from provisioner.model.outcome import Reason
from provisioner.planning.path.conditions import judge_pin
from provisioner.planning.path.planner import plan

# as a device prints it, and as a document does
SPELLINGS = [
    ("supernic.nic", "32.44.1036", "32.44.1036"),
    ("host.bmc", "11.01.01", "11.1.1"),
    ("host.doca", "2.9.0-0.4.7", "2.9.0"),
    ("hgx.gpu", "96.00.74.00.01", "96.00.74.00.01"),
    ("hgx.gpu", "96.00.74.00.1", "96.00.74.00.01"),
    ("host.driver", "535.154.05", "535.154.5"),
    ("switch.os", "5.12.1.100", "Cumulus Linux 5.12.1.100"),
    ("host.bios", "1.6.1", "01.06.01"),
]


def planned(kind: str, running: str, pin: Pin) -> bool | None:
    """Whether the planner takes the node as being at its pin; None where no pin is for the part."""
    pins = {"release": Release(profiles={"p": Profile(match=Match(), pins={kind: pin})})}
    part = Component(kind=kind, slot="s", version=running, source="/redfish")
    inventory = Inventory(node="n", vendor="unknown", components=(part,))
    found = plan(inventory, Matrix(releases=pins), "release", "p")
    assert found.blockers or not found.steps
    assert not any(b.reason is Reason.VERSION_MISSING for b in found.blockers), found.blockers
    if any(b.reason is Reason.UNKNOWN_PIN for b in found.blockers):
        return None
    return not found.blockers


@pytest.mark.parametrize(("kind", "running", "pinned"), SPELLINGS)
def test_versions_are_compared_by_their_grammar(kind: str, running: str, pinned: str):
    pin = Pin(version=pinned)

    assert judge_pin(kind, running, pin).met is planned(kind, running, pin)
    assert judge_pin(kind, running, Pin(version="none", also=(running,))).met is True


@given(
    kind=st.sampled_from(sorted(k for k, c in components.ALL.items() if not c.derived)),
    running=st.from_regex(r"[0-9]{1,2}(\.[0-9A-F]{1,3}){1,3}", fullmatch=True),
    names=st.lists(
        st.from_regex(r"[0-9]{1,2}(\.[0-9A-F]{1,3}){1,3}", fullmatch=True), min_size=1, max_size=3
    ),
)
def test_the_planner_and_the_views_agree(kind: str, running: str, names: list[str]):
    pin = Pin(version=names[0], also=tuple(names[1:]))

    assert judge_pin(kind, running, pin).met is planned(kind, running, pin)


@pytest.mark.parametrize(
    ("pin", "running", "why"),
    [
        (None, "1.0", "not pinned"),
        (Pin(version="unknown"), "1.0", "nobody publishes"),
        (Pin(version="1.0"), None, "gives no version"),
        (Pin(version="1.0"), "", "gives no version"),
    ],
)
def test_what_cannot_be_compared_is_neither_met_nor_unmet(
    pin: Pin | None, running: str | None, why: str
):
    verdict = judge_pin("host.bmc", running, pin)

    assert verdict.met is None
    assert why in verdict.why

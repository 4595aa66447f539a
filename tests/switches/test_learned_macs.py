"""MACs by the port that a switch learned them at: bridged ones, and those of routed ports."""

from __future__ import annotations

from typing import Any

import pytest
from switch_boxes import CumulusBox, SonicBox, play

from provisioner.execution.tenancy.leaf import Leaf
from provisioner.integrations.sonic import switch_state as sonic_state
from provisioner.planning.intake.inband_facts import is_reading_command
from provisioner.ports import PortError, Switch

BRIDGED, ROUTED = "7c:fe:90:80:9f:05", "94:6d:ae:00:00:01"
# as the heading of sonic-utilities' scripts/fdbshow shows it, which is what `show mac` runs
FDBSHOW = """\
  No.    Vlan  MacAddress         Port        Type
-----  ------  -----------------  ----------  -------
    1    1000  7C:FE:90:80:9F:05  Ethernet20  Dynamic
    2    1000  7C:FE:90:80:9F:10  Ethernet40  Dynamic
    3    1000  7C:FE:90:80:9F:01  Ethernet4   Dynamic
    4    1000  7C:FE:90:80:9F:02  Ethernet8   Dynamic
Total number of entries 4
"""


def test_a_cumulus_leaf_has_those_of_its_bridges_and_of_its_routed_ports() -> None:
    async def story(box: Any, switch: Switch, _leaf: Leaf) -> Any:
        assert isinstance(box, CumulusBox)
        planted = box.site.switch.planted
        planted.macs = {BRIDGED.upper(): "swp1s0", "aa:aa:aa:aa:aa:aa": "bond1"}
        planted.neighbours = [
            ("swp2.100", "172.16.0.9", ROUTED),
            ("vlan10", "172.16.1.9", BRIDGED),  # the same card, through its VLAN's interface
        ]
        return await switch.read_macs()

    learned = play("cumulus", story)

    assert learned["swp1s0"] == {BRIDGED}
    assert ROUTED in learned["swp2"]
    assert not {"bond1", "vlan10", "swp2.100"} & set(learned)


def test_a_sonic_leaf_has_those_of_its_vlans_and_of_its_routed_ports() -> None:
    async def story(box: Any, switch: Switch, _leaf: Leaf) -> Any:
        assert isinstance(box, SonicBox)
        box.switch.macs = FDBSHOW
        box.switch.entries = [
            {"dst": "172.16.0.9", "dev": "Ethernet0", "lladdr": ROUTED, "state": ["STALE"]},
            {"dst": "172.16.0.8", "dev": "Ethernet4", "state": ["FAILED"]},
            {"dst": "172.16.1.9", "dev": "Vlan1000", "lladdr": BRIDGED, "state": ["REACHABLE"]},
        ]
        learned = await switch.read_macs()
        assert all(is_reading_command(line) for line in box.switch.calls)
        return learned

    assert play("sonic", story) == {
        "Ethernet0": {ROUTED},
        "Ethernet20": {BRIDGED},
        "Ethernet40": {"7c:fe:90:80:9f:10"},
        "Ethernet4": {"7c:fe:90:80:9f:01"},
        "Ethernet8": {"7c:fe:90:80:9f:02"},
    }


@pytest.mark.parametrize("system", ["cumulus", "sonic"])
def test_a_table_that_cannot_be_read_is_never_an_empty_one(system: str) -> None:
    async def story(box: Any, switch: Switch, _leaf: Leaf) -> None:
        box.fail("garbled")
        with pytest.raises(PortError):
            await switch.read_macs()

    play(system, story)


@pytest.mark.parametrize(
    "text",
    [
        "",
        FDBSHOW.replace("entries 4", "entries 3"),
        FDBSHOW.replace("entries 4", "entries 5"),
        FDBSHOW.replace("7C:FE:90:80:9F:05", "7cfe.9080.9f05"),
        FDBSHOW.partition("Total")[0],
        "Total number of entries 4",
        "no such table",
    ],
)
def test_a_table_without_a_total_that_holds_its_entries_is_not_read(text: str) -> None:
    assert sonic_state.read_macs(text) is None


def test_a_row_is_an_entry_whatever_its_type_is_called() -> None:
    told = sonic_state.read_macs(
        FDBSHOW.replace("Ethernet20  Dynamic", "Ethernet20  DYNAMIC LOCAL")
    )

    assert told == sonic_state.read_macs(FDBSHOW)
    assert told is not None
    assert len(told) == 4


def test_an_entry_behind_a_tunnel_has_no_port() -> None:
    text = FDBSHOW.replace("Ethernet40", "10.0.0.1\n10.0.0.2")
    assert set((sonic_state.read_macs(text) or {}).values()) == {
        "Ethernet20",
        "Ethernet4",
        "Ethernet8",
    }

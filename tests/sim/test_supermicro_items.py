"""Supermicro's firmware list as recorded: capsules are no second BIOS, cards in a spelling apart.

source: NVIDIA/libredfish, tests/mockups/supermicro (SYS-821GE-TNHR), FirmwareInventory.
"""

from __future__ import annotations

import asyncio

from bmc_wire import host_of

from provisioner.integrations.sim.hardware.build import list_connectx
from provisioner.model.matrix import Pin
from provisioner.planning.path.conditions import judge_pin


def test_capsules_are_no_bios_and_a_split_version_is_the_pinned_one() -> None:
    wire, host, _ = host_of("supermicro")
    list_connectx(wire.client.machine)

    seen = asyncio.run(host.collect("n0", "host"))

    assert [(c.slot, c.version) for c in seen.of_kind("host.bios")] == [
        ("BIOS", "BIOS Date: 08/04/2023 Ver 1.4")
    ]
    inside = {c.slot: c.version for c in seen.of_kind("host.me")}
    assert inside == {
        "BIOS_ME": "6.0.5.46",
        "Capsule_BIOS": "1.0",
        "Capsule_MCU": "1.0b",
        "Capsule_ME": "6.80.224.2",
    }
    cards = seen.of_kind("nic.cx7")
    assert {c.version for c in cards} == {"28.37.10.14"}
    assert len(cards) == 8
    assert judge_pin("nic.cx7", cards[0].version, Pin(version="28.37.1014")).met
    assert not judge_pin("nic.cx7", cards[0].version, Pin(version="28.44.1036")).met
    assert [c.version for c in seen.of_kind("nic.other")] == ["3.50 0x800016DC"]

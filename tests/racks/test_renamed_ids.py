"""Machines of a rack whose ids are spelled otherwise, and a card that is Paused.

Sources: docs/sources/hardware.md#bluefield4; sonic-net/sonic-buildimage#29631 (MGX_FW_ to FW_).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rack_rig import NEW, TARGETS, Rig, finish, make

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.components import ALL
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.reading import read_unit
from provisioner.integrations.sim.racks.bluefield4 import BlueField4
from provisioner.integrations.sim.racks.rack import Event
from provisioner.model.inventory import DeviceKind, Inventory, Power
from provisioner.model.outcome import Reason
from provisioner.model.versions import compare, is_same_version
from provisioner.ports import BmcAddress

SWITCH = {"nvlink-switch": {"switch-firmware": TARGETS["nvlink-switch"]["switch-firmware"]}}
CARD = BmcAddress(url="https://10.0.9.1", username="a")


@pytest.mark.parametrize("prefix", ["MGX_", ""])
def test_a_switch_that_dropped_mgx_from_its_ids_is_read_and_updated_as_before(
    tmp_path: Path, prefix: str
) -> None:
    rig = make(tmp_path, SWITCH)
    switch = rig.switch("s0")
    switch.prefix = prefix
    address = rig.update().addresses["s0"]
    client = Redfish(rig.wires, address, quirks.UNKNOWN)

    def versions() -> dict[tuple[str, str], str | None]:
        seen = asyncio.run(client.read_firmware("s0", "s0"))
        return {(one.kind, one.slot): one.version for one in seen.components}

    before = {("host.bmc", "BMC_0"): "88.0002.1336", ("host.bios", "CPU_0"): "0ACTV_00.01.020"}
    assert versions() == before
    assert asyncio.run(read_unit(rig.wires, address)).kind is Kind.NVLINK_SWITCH

    def die(event: Event) -> None:  # its BMC writes the files
        switch.faults.nvos_dead = event.what != "switch reboot" and (
            switch.faults.nvos_dead or event.what == "job fetch"
        )

    rig.rack.watch = die
    finish(rig)
    assert len(rig.rack.find("push by bmc")) == 2
    assert switch.active == NEW["switch"]
    assert list(versions().values()) == [NEW["switch"]["BMC"], NEW["switch"]["BIOS"]]


def test_a_version_of_a_grammar_that_nobody_knows_is_equal_to_itself_alone() -> None:
    for kind in ("host.bios", "host.nvswitch", "bluefield4.firmware", "unclassified"):
        grammar = ALL[kind].grammar if kind in ALL else "opaque"
        assert is_same_version(grammar, "x~1:2", "x~1:2")
        assert compare(grammar, "x~1:2", "x~1:3") is None


def add_card(rig: Rig, manager: str, spelled: str = "BlueField") -> BlueField4:
    card = BlueField4(rig.rack, "c0", manager, spelled)
    rig.rack.units["c0"] = card
    rig.rack.hosts[CARD.url] = ("c0", "bmc")
    return card


def read_card(rig: Rig) -> tuple[Inventory, str, Redfish]:
    stated = {"Vendor": "Nvidia", "Product": "BlueField-4"}
    client = Redfish(rig.wires, CARD, quirks.identify(stated))

    async def read() -> tuple[Inventory, str]:
        manager = await client.service.read_manager()
        return await client.collect("n0", "DPU_1"), manager.path if manager is not None else ""

    seen, manager = asyncio.run(read())
    return seen, manager.rsplit("/", 1)[-1], client


@pytest.mark.parametrize("spelled", ["BlueField", "Bluefield"])
@pytest.mark.parametrize("manager", ["Bluefield_BMC", "BlueField_BMC_0", "BLUEFIELD_BMC_0"])
def test_a_bluefields_manager_and_firmware_are_found_however_they_are_spelled(
    tmp_path: Path, manager: str, spelled: str
) -> None:
    rig = make(tmp_path, SWITCH)
    add_card(rig, manager, spelled)
    seen, found, _ = read_card(rig)

    assert found == manager
    assert seen.vendor == "nvidia_openbmc"
    assert [one.kind for one in seen.devices if one.slot == "DPU_1"] == [DeviceKind.DPU]
    assert {one.kind for one in seen.components} == {"bluefield4.firmware"}
    told = {one.slot: one.version for one in seen.components}
    assert told["DPU_1:FW_BMC_0"] == "bf4-26.04-10"
    unread = {one.source.rsplit("_", 2)[-2] for one in seen.gaps if "VERSION" in one.reason.name}
    assert {"NIC", "CPU"} <= unread  # what is not stated is named, and never guessed
    assert ALL["bluefield4.firmware"].method == "none"  # a BlueField-3's package is not for it
    assert asyncio.run(read_unit(rig.wires, CARD)).kind is Kind.OTHER


def test_a_bluefield_4_that_says_paused_is_neither_on_nor_off_and_is_named(tmp_path: Path) -> None:
    rig = make(tmp_path, SWITCH)
    card = add_card(rig, "BlueField_BMC_0")
    running, _, _ = read_card(rig)
    assert running.power is Power.ON
    card.paused = True
    card.shown.change()
    seen, _, client = read_card(rig)

    assert seen.power is Power.UNKNOWN
    (told,) = [one for one in seen.gaps if one.reason is Reason.POWER]
    assert told.source.endswith("/Systems/BlueField_0")
    assert "Paused" in told.detail
    assert asyncio.run(read_unit(rig.wires, CARD)).power == "Unknown"
    assert rig.rack.find("written") == []  # it is looked at, and nothing is sent
    assert asyncio.run(client.reset_system("On")) is None  # a person's, and taken
    assert asyncio.run(client.power()) is Power.UNKNOWN  # which is not believed

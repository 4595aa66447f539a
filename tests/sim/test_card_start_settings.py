"""Settings that a BlueField takes when it starts: its mode, and its host's rights over it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bmc_client import Client
from bmc_wire import Wire

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import DryRunTransport
from provisioner.adapters.redfish.settings.bmc_writes import order_wipe, read_wipe_orders, set_card
from provisioner.adapters.redfish.settings.reading import read_host_settings
from provisioner.model.inventory import Activation
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.machine_settings.pinned_sets import (
    DPU,
    SUPERNIC,
    find_stranger,
    find_wrong_mode,
)
from provisioner.planning.machine_settings.running_sets import build_components
from provisioner.ports import BmcAddress

OPEN = {"card_mode": "dpu", "host_privilege": "unrestricted"}
CLOSED = {"card_mode": "dpu", "host_privilege": "restricted"}
SETS = {DPU: {"open": OPEN, "closed": CLOSED}, SUPERNIC: {"nic": {"card_mode": "nic"}}}


def card() -> tuple[Wire, Redfish]:
    wire = Wire("supermicro")
    wire.client = Client(bmc="DPU_0")
    quirk = quirks.ALL["nvidia_openbmc"]
    return wire, Redfish(wire, BmcAddress("https://card.example"), quirk, wire.sleep)


def read(client: Redfish, bmc: str = "DPU_0") -> tuple[Any, ...]:
    settings = asyncio.run(read_host_settings(client.service))
    (one,) = build_components(settings, SETS, client.quirk.meanings, bmc)
    return one.kind, one.slot, one.version, one.staged, one.pending


def start_card(wire: Wire) -> None:
    """Take the power of the host away and give it back, as the machine does at a cold boot."""
    machine = wire.client.machine
    machine._start(0.0, machine.power_turns)


def test_a_set_waits_for_the_cards_start_and_is_proved_after_it() -> None:
    wire, client = card()
    assert read(client) == (DPU, "DPU_0", "closed", None, None)

    assert asyncio.run(set_card(client.service, OPEN)) is None

    assert read(client) == (DPU, "DPU_0", "closed", "open", Activation.COLD_BOOT)
    start_card(wire)
    assert read(client) == (DPU, "DPU_0", "open", None, None)
    assert wire.client.machine.bluefields["DPU_0"].privilege == "Privileged"


def test_a_mode_is_an_action_and_waits_for_the_start() -> None:
    wire, client = card()
    machine = wire.client.machine
    machine.bluefields["DPU_0"].mode = "NicMode"
    assert read(client)[2] == "none"
    dry = DryRunTransport(wire)
    preview = Redfish(dry, client.address, client.quirk, wire.sleep)

    assert asyncio.run(set_card(preview.service, {"card_mode": "dpu"})) is None

    (write,) = dry.writes
    assert (write.path.rsplit("/", 1)[-1], write.body) == ("Mode.Set", {"Mode": "DpuMode"})
    assert asyncio.run(set_card(client.service, CLOSED)) is None
    assert asyncio.run(set_card(client.service, CLOSED)) is None, "our own request may wait"
    assert read(client)[2:4] == ("none", "closed")
    start_card(wire)
    assert read(client)[2:4] == ("closed", None)


def test_nothing_is_sent_where_everything_runs() -> None:
    wire, client = card()
    dry = DryRunTransport(wire)
    preview = Redfish(dry, client.address, client.quirk, wire.sleep)
    assert asyncio.run(set_card(preview.service, CLOSED)) is None
    assert dry.writes == []


def test_a_card_that_no_power_cycle_reaches_stays_as_it_is() -> None:
    """Some chassis keep their cards' power at a power cycle (NICo 3480): reading shows it."""
    wire, client = card()
    wire.client.machine.bluefields["DPU_0"].host_power_cycles_it = False
    assert asyncio.run(set_card(client.service, OPEN)) is None
    start_card(wire)
    assert read(client)[2:4] == ("closed", "open")


def test_a_system_without_a_mode_refuses_it_by_name() -> None:
    wire = Wire("supermicro")
    host = Redfish(wire, BmcAddress("https://bmc.example"), quirks.ALL["supermicro"], wire.sleep)
    for setting in OPEN.items():
        refused = asyncio.run(set_card(host.service, dict([setting])))
        assert isinstance(refused, Blocker)
        assert (refused.reason, refused.subject) == (Reason.NOT_OFFERED, setting[0])


def test_attributes_that_a_card_does_not_show_have_no_version() -> None:
    _, client = card()
    settings = asyncio.run(read_host_settings(client.service))
    silent = settings.model_copy(update={"bios": ()})
    (dpu,) = build_components(silent, {DPU: SETS[DPU]}, client.quirk.meanings, "DPU_0")
    (nic,) = build_components(silent, {SUPERNIC: SETS[SUPERNIC]}, (), "NIC_3")
    assert (dpu.version, nic.version) == (None, "none"), "in NIC mode only the mode is shown"


@pytest.mark.parametrize(
    ("kind", "settings", "stranger", "wrong"),
    [
        (DPU, OPEN, False, False),
        (DPU, {"card_mode": "nic"}, False, True),
        (SUPERNIC, {"card_mode": "nic"}, False, False),
        (SUPERNIC, {"card_mode": "dpu"}, False, True),
        (SUPERNIC, {"host_privilege": "restricted"}, True, False),
        (DPU, {"host_rshim": "off"}, True, False),
    ],
)
def test_a_set_fits_the_cards_that_their_name_says(
    kind: str, settings: dict[str, str], stranger: bool, wrong: bool
) -> None:
    assert (find_stranger(kind, settings) is not None) is stranger
    assert (find_wrong_mode(kind, settings) is not None) is wrong


def test_orders_to_wipe_wait_for_the_cards_start_and_are_sent_once() -> None:
    wire, client = card()
    orders = asyncio.run(read_wipe_orders(client.service))
    assert (orders.offered, orders.waiting) == (("EmmcWipe", "NvmeWipe"), ())

    assert asyncio.run(order_wipe(client.service, orders)) is None

    waiting = asyncio.run(read_wipe_orders(client.service))
    assert waiting.waiting == orders.offered
    dry = DryRunTransport(wire)
    again = Redfish(dry, client.address, client.quirk, wire.sleep)
    assert asyncio.run(order_wipe(again.service, waiting)) is None
    assert dry.writes == []
    start_card(wire)
    assert asyncio.run(read_wipe_orders(client.service)).waiting == ()
    assert set(wire.client.machine.bluefields["DPU_0"].storage.values()) == {""}


def test_another_change_that_waits_for_the_start_is_not_carried_out_with_a_wipe() -> None:
    wire, client = card()
    wire.client.machine.bluefields["DPU_0"].next_privilege = "Privileged"
    orders = asyncio.run(read_wipe_orders(client.service))

    refused = asyncio.run(order_wipe(client.service, orders))

    assert isinstance(refused, Blocker)
    assert "HostPrivilegeLevel" in refused.detail
    assert wire.client.machine.bluefields["DPU_0"].next_wipes == set()

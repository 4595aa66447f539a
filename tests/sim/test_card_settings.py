"""Settings of a BlueField's own BMC: read, previewed, written and proved by reading again."""

from __future__ import annotations

import asyncio

import pytest
from bmc_client import Client
from bmc_wire import Wire

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import DryRunTransport
from provisioner.adapters.redfish.settings.bmc_writes import set_bmc
from provisioner.adapters.redfish.settings.reading import read_host_settings
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.machine_settings.pinned_sets import (
    BIOS,
    BMC,
    CARD,
    find_set_kind,
    find_stranger,
)
from provisioner.planning.machine_settings.running_sets import build_components
from provisioner.ports import BmcAddress

CLOSED = {"ipmi": "off", "ssh": "off", "ntp": "10.0.0.1", "host_rshim": "off"}
SETS = {CARD: {"closed": CLOSED}, BMC: {"closed": {"ipmi": "off"}}, BIOS: {"fast": {"iommu": "on"}}}


def card() -> tuple[Wire, Redfish]:
    wire = Wire("supermicro")
    wire.client = Client(bmc="DPU_0")
    quirk = quirks.ALL["nvidia_openbmc"]
    return wire, Redfish(wire, BmcAddress("https://card.example"), quirk, wire.sleep)


def read(client: Redfish) -> list[tuple[str, str, str, str | None]]:
    settings = asyncio.run(read_host_settings(client.service))
    components = build_components(settings, SETS, client.quirk.meanings, "DPU_0")
    return [(c.kind, c.slot, c.bmc, c.version) for c in components]


def test_a_set_of_a_card_is_written_at_once_and_named_by_what_runs() -> None:
    wire, client = card()
    machine = wire.client.machine
    machine.bluefields["DPU_0"].host_rshim = "Enabled"
    assert read(client) == [(CARD, "DPU_0", "DPU_0", "none")]

    assert asyncio.run(set_bmc(client.service, CLOSED)) is None

    assert read(client) == [(CARD, "DPU_0", "DPU_0", "closed")]
    assert machine.bluefields["DPU_0"].host_rshim == "Disabled"
    assert not machine.bmcs["DPU_0"].protocols["IPMI"]
    machine.bluefields["DPU_0"].host_rshim = "Enabled"  # by hand, in the host
    assert read(client) == [(CARD, "DPU_0", "DPU_0", "none")]


def test_nothing_is_sent_where_everything_runs() -> None:
    wire, client = card()
    assert asyncio.run(set_bmc(client.service, CLOSED)) is None
    dry = DryRunTransport(wire)
    again = Redfish(dry, client.address, client.quirk, wire.sleep)
    assert asyncio.run(set_bmc(again.service, CLOSED)) is None
    assert dry.writes == []


def test_a_host_without_an_rshim_refuses_it_by_name() -> None:
    wire = Wire("supermicro")
    host = Redfish(wire, BmcAddress("https://bmc.example"), quirks.ALL["supermicro"], wire.sleep)
    refused = asyncio.run(set_bmc(host.service, {"host_rshim": "off"}))
    assert isinstance(refused, Blocker)
    assert (refused.reason, refused.subject) == (Reason.NOT_OFFERED, "host_rshim")


@pytest.mark.parametrize(
    ("settings", "kind", "fits"),
    [
        ({"ipmi": "off"}, BMC, {BMC, CARD}),
        ({"ipmi": "off", "host_rshim": "off"}, CARD, {CARD}),
        ({"iommu": "on"}, BIOS, {BIOS}),
        ({"iommu": "on", "host_rshim": "off"}, BIOS, set()),
    ],
)
def test_a_set_is_of_a_card_where_one_setting_is(
    settings: dict[str, str], kind: str, fits: set[str]
) -> None:
    assert find_set_kind(settings) == kind
    assert {k for k in (BIOS, BMC, CARD) if find_stranger(k, settings) is None} == fits

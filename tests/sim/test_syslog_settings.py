"""Syslog servers of BMCs as a setting, each vendor's form; others refuse it by name."""

from __future__ import annotations

import asyncio

import pytest
from bmc_wire import VENDORS, host_of

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.settings.bmc_writes import set_bmc
from provisioner.adapters.redfish.settings.reading import read_host_settings
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.machine_settings.pinned_sets import BMC, find_setting_fault
from provisioner.planning.machine_settings.running_sets import build_components

SETS = {
    BMC: {
        "two": {"syslog": "10.0.0.1,logs.example.com"},
        "one": {"syslog": "10.0.0.9"},
        "quiet": {"syslog": "off"},
    }
}


def read(host: Redfish) -> str | None:
    settings = asyncio.run(read_host_settings(host.service))
    (component,) = build_components(settings, SETS, host.quirk.meanings)
    return component.version


def test_servers_of_an_idrac_are_set_replaced_and_switched_off() -> None:
    wire, host, _ = host_of("dell")
    attributes = wire.client.machine.host.first_boot
    assert read(host) == "quiet"
    for name in ("two", "one", "quiet"):
        assert asyncio.run(set_bmc(host.service, SETS[BMC][name])) is None
        assert read(host) == name
    assert attributes["SysLog.1.SysLogEnable"] == "Disabled"
    attributes["SysLog.1.SysLogEnable"] = "Enabled"  # by hand, to the server that is still there
    assert read(host) == "one"


@pytest.mark.parametrize("vendor", ["hpe", "supermicro"])
def test_one_server_is_set_and_switched_off_and_two_are_refused(vendor: str) -> None:
    wire, host, _ = host_of(vendor)
    bmc = wire.client.machine.bmcs["host"]
    assert read(host) == "quiet"
    for name in ("one", "quiet", "one"):
        assert asyncio.run(set_bmc(host.service, SETS[BMC][name])) is None
        assert read(host) == name
    assert (bmc.syslog_on, bmc.syslog_servers) == (True, ("10.0.0.9",))
    refused = asyncio.run(set_bmc(host.service, {"ipmi": "off", **SETS[BMC]["two"]}))
    assert isinstance(refused, Blocker)
    assert "more than 1 servers" in refused.detail
    assert bmc.protocols["IPMI"], "nothing was sent"


def test_newer_firmware_of_supermicro_takes_a_list() -> None:
    wire, host, _ = host_of("supermicro")
    wire.client.machine.bmcs["host"].syslog_listed = True
    for name in ("two", "one", "quiet", "two"):
        assert asyncio.run(set_bmc(host.service, SETS[BMC][name])) is None
        assert read(host) == name


@pytest.mark.parametrize("vendor", [v for v in VENDORS if v not in ("dell", "hpe", "supermicro")])
def test_a_vendor_without_a_source_is_refused_before_anything_is_sent(vendor: str) -> None:
    wire, host, _ = host_of(vendor)
    protocols = dict(wire.client.machine.bmcs["host"].protocols)
    refused = asyncio.run(set_bmc(host.service, {"ipmi": "off", "syslog": "10.0.0.1"}))
    assert isinstance(refused, Blocker)
    assert (refused.reason, refused.subject) == (Reason.NOT_OFFERED, "syslog")
    assert wire.client.machine.bmcs["host"].protocols == protocols


@pytest.mark.parametrize(
    ("value", "fits"),
    [("off", True), ("10.0.0.1,b,c", True), ("a,b,c,d", False), ("a b", False), ("", False)],
)
def test_its_value_is_a_list_of_three_servers_or_off(value: str, fits: bool) -> None:
    assert (find_setting_fault("syslog", value) is None) is fits

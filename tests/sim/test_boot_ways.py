"""The maintenance image boots in the simulator at every vendor by each way that the vendor offers.

The stand-ins take only what their named sources show: Lenovo's drives by PATCH, AMI's after
EnableRMedia, Dell's by attributes, Supermicro's as UsbCd (docs/hardware-writes.md).
"""

from __future__ import annotations

import asyncio

import pytest
from bmc_wire import QUIRKS, VENDORS, Wire, host_of

from provisioner.execution.actions.power import switch_off
from provisioner.execution.steps.agent_steps import boot_disk, boot_image
from provisioner.model.outcome import Blocker, Reason
from provisioner.settings.maintenance import BootWay

IMAGE = "http://192.0.2.9:8080/maintenance.iso"


BY_DHCP = ["supermicro", "ami_dgx", "dell", "hpe", "nvidia_gb200"]


def boot(vendor: str, way: BootWay) -> tuple[Wire, Blocker | None]:
    wire, host, pace = host_of(vendor)
    return wire, asyncio.run(boot_image(host, pace, IMAGE, way))


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_image_boots_from_virtual_media_and_the_disk_afterwards(vendor: str) -> None:
    wire, host, pace = host_of(vendor)

    refused = asyncio.run(boot_image(host, pace, IMAGE, "vendor"))
    wire.client.later(3600.0)
    image = wire.client.machine.host.os
    back = asyncio.run(boot_disk(host, pace))
    wire.client.later(3600.0)

    assert (refused, image) == (None, "cd")
    assert (back, wire.client.machine.host.os) == (None, "disk")


@pytest.mark.parametrize("vendor", QUIRKS)
def test_pxe_is_offered_by_every_vendor(vendor: str) -> None:
    wire, refused = boot(vendor, "pxe")
    wire.client.later(3600.0)

    assert (refused, wire.client.machine.host.os) == (None, "pxe")


@pytest.mark.parametrize("vendor", BY_DHCP)
def test_http_from_the_url_of_a_dhcp_server_is_offered_where_uefihttp_is(vendor: str) -> None:
    wire, refused = boot(vendor, "http_dhcp")
    wire.client.later(3600.0)
    host = wire.client.machine.host

    assert (refused, host.os, host.boot_uri) == (None, "http", None)


def test_a_bmc_that_lists_no_uefihttp_is_refused_it_and_the_host_left_on() -> None:
    """source: captured tree of an SR670 V2; libredfish lenovo.rs: no implementation of UefiHttp."""
    wire, refused = boot("lenovo", "http_dhcp")

    assert isinstance(refused, Blocker)
    assert "UefiHttp" in refused.detail
    assert wire.client.machine.host.power == "On"


@pytest.mark.parametrize("vendor", ["supermicro", "dell", "hpe", "lenovo"])
def test_a_boot_uri_that_no_tree_lists_is_refused_and_the_host_left_on(vendor: str) -> None:
    wire, refused = boot(vendor, "http")

    assert isinstance(refused, Blocker)
    assert refused.reason is Reason.NOT_OFFERED
    assert wire.client.machine.host.power == "On"


def test_a_dgx_boots_the_image_by_http_through_its_settings_object() -> None:
    """source: captured tree of a DGX H100: Systems/DGX/SD lists HttpBootUri."""
    wire, refused = boot("ami_dgx", "http")
    settings = wire.client.ask("GET", "/redfish/v1/Systems/DGX/SD").body
    wire.client.later(3600.0)

    assert (refused, wire.client.machine.host.os) == (None, "http")
    assert IMAGE in settings.decode()


@pytest.mark.parametrize("way", ["vendor", "http"])
def test_a_gb200_tray_boots_the_image_by_http_and_its_disk_afterwards(way: BootWay) -> None:
    """source: NVIDIA/libredfish pull request 74; NVIDIA/bmcweb 7f3a16ae, systems.hpp."""
    wire, host, pace = host_of("nvidia_gb200")
    machine = wire.client.machine

    refused = asyncio.run(boot_image(host, pace, IMAGE, way))
    wire.client.later(3600.0)
    image = (refused, machine.host.os, machine.host.boot_uri)
    back = asyncio.run(boot_disk(host, pace))
    wire.client.later(3600.0)

    assert image == (None, "http", IMAGE)
    assert (back, machine.host.os) == (None, "disk")


def test_the_drives_of_a_gb200_tray_boot_no_image_and_are_refused() -> None:
    wire, refused = boot("nvidia_gb200", "virtual_media")

    assert isinstance(refused, Blocker)
    assert wire.client.machine.host.power == "On"


def test_a_gb200_tray_loses_standby_power_only_while_its_host_is_off() -> None:
    """source: NVIDIA/infra-controller issue 909; captured tree of a GB200 (AuxPowerReset)."""
    wire, host, pace = host_of("nvidia_gb200")
    machine = wire.client.machine
    machine.firmware["host", "FW_ERoT_BMC_0"].staged = "01.04.0031.0000_n04"

    early = asyncio.run(host.ac_cycle())
    asyncio.run(switch_off(host, pace))
    refused = asyncio.run(host.ac_cycle())
    wire.client.later(3600.0)

    assert isinstance(early, Blocker)
    assert refused is None
    assert machine.firmware["host", "FW_ERoT_BMC_0"].running == "01.04.0031.0000_n04"


@pytest.mark.parametrize(("vendor", "target"), [("supermicro", "Cd"), ("dell", "Cd")])
def test_a_target_that_is_another_drive_boots_no_image(vendor: str, target: str) -> None:
    """source: sushy's constants (UsbCd); dell/iDRAC-Redfish-Scripting 90 (a physical drive)."""
    wire, host, _ = host_of(vendor)

    async def boot_by_target() -> None:
        await host.insert_media(IMAGE)
        await host.boot_override(target)
        await host.reset_system("ForceOff")
        await wire.sleep(60.0)
        await host.reset_system("On")

    asyncio.run(boot_by_target())
    wire.client.later(3600.0)

    assert wire.client.machine.host.os == "disk"

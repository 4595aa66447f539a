"""The maintenance image boots in the simulator at every vendor by each way that the vendor offers.

The stand-ins take only what their named sources show: Lenovo's drives by PATCH, AMI's after
EnableRMedia, Dell's by attributes, Supermicro's as UsbCd (docs/hardware-writes.md).
"""

from __future__ import annotations

import asyncio

import pytest
from bmc_wire import VENDORS, Wire, host_of

from provisioner.execution.steps.boot_sources import boot_disk, boot_image
from provisioner.model.outcome import Blocker, Reason
from provisioner.settings.maintenance import BootWay

IMAGE = "http://192.0.2.9:8080/maintenance.iso"


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


@pytest.mark.parametrize("vendor", VENDORS)
def test_pxe_is_offered_by_every_vendor(vendor: str) -> None:
    wire, refused = boot(vendor, "pxe")
    wire.client.later(3600.0)

    assert (refused, wire.client.machine.host.os) == (None, "pxe")


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

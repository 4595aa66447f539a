"""The BIOS's defaults are asked for at every simulated vendor, and run after the next boot."""

from __future__ import annotations

import asyncio

import pytest
from bmc_wire import VENDORS, Wire, host_of

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import DryRunTransport
from provisioner.integrations.sim.hardware.build import make_image
from provisioner.model.erasure import Result
from provisioner.model.machine.settings import BiosState
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.erasure.bmc_defaults import judge_defaults

HGX = "/redfish/v1/UpdateService/FirmwareInventory/HGX_0"


def boot(wire: Wire) -> None:
    wire.client.machine.restart_host(wire.now())
    wire.client.later(900.0)


def plant(wire: Wire) -> str:
    """Another value than the default runs, as if a tenant had set it in band."""
    bios = wire.client.machine.host.bios
    name = next(n for n, v in bios.running.items() if isinstance(v, str))
    bios.running[name] = "planted"
    return name


def read(host: Redfish) -> BiosState:
    state = asyncio.run(host.read_bios_state())
    assert state is not None
    return state


@pytest.mark.parametrize("vendor", VENDORS)
def test_defaults_run_after_the_boot_and_the_changed_attribute_is_named(vendor: str) -> None:
    wire, host, _ = host_of(vendor)
    name = plant(wire)
    before = read(host)

    assert asyncio.run(host.reset_bios()) is None
    assert wire.client.machine.host.bios.running[name] == "planted"
    boot(wire)

    result, sentence = judge_defaults(before, read(host), None)
    assert result is Result.DONE
    assert sentence.endswith(f"1 attributes changed: {name}")
    bios = wire.client.machine.host.bios
    assert bios.running == bios.defaults


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_reset_that_the_bios_drops_at_the_boot_is_not_done(vendor: str) -> None:
    wire, host, _ = host_of(vendor)
    plant(wire)
    wire.client.machine.host.bios.reset_dropped = True
    before = read(host)

    assert asyncio.run(host.reset_bios()) is None  # the BMC's answer is the same
    boot(wire)

    assert judge_defaults(before, read(host), None)[0] is Result.NOT_DONE


def test_an_open_job_of_the_bmc_is_waited_for_and_not_ended() -> None:
    wire, host, _ = host_of("supermicro")
    image = make_image(
        "hgx.bundle", {"HGX_FW_GPU_SXM_*": "96.00.74.00.01", "HGX_FW_ERoT_GPU_*": "00.02.0150"}
    )
    wire.client.push(image, {"Targets": [HGX]})

    refused = asyncio.run(host.reset_bios())

    assert isinstance(refused, Blocker)
    assert refused.reason is Reason.BUSY
    assert not wire.client.machine.host.bios.reset_due


def test_the_type_that_a_dgx_requires_is_sent_and_other_services_get_an_empty_body() -> None:
    """source: captured trees: ResetBiosActionInfo of a DGX H100; the others list no parameter."""
    bodies = {}
    for vendor in ("ami_dgx", "dell"):
        wire, host, _ = host_of(vendor)
        dry = DryRunTransport(wire)
        preview = Redfish(dry, host.address, host.quirk, wire.sleep)
        assert asyncio.run(preview.reset_bios()) is None
        (request,) = dry.writes
        bodies[vendor] = request.body
        assert not wire.client.machine.host.bios.reset_due
    assert bodies == {"ami_dgx": {"ResetType": "Reset"}, "dell": {}}

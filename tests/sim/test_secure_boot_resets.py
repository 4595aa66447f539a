"""Keys of Secure Boot at every simulated vendor are compared with the factory's, and restored."""

from __future__ import annotations

import asyncio

import pytest
from bmc_wire import Wire, host_of

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import DryRunTransport
from provisioner.adapters.redfish.settings.bios_writes import fingerprint_pem
from provisioner.integrations.sim.redfish.shapes_bios import list_makers_keys, make_boot_key
from provisioner.model.erasure import Result
from provisioner.model.machine.settings import SecureBootKeys
from provisioner.planning.erasure.bmc_defaults import judge_keys


def plant(wire: Wire) -> str:
    """A key more, and no revocation any more; return the fingerprint of the key."""
    keys = dict(list_makers_keys())
    foreign = make_boot_key("somebody else")
    keys["db"] = (*keys["db"], foreign)
    keys["dbx"] = ()
    wire.client.machine.host.bios.boot_keys = keys
    return fingerprint_pem(foreign)


def read(host: Redfish) -> SecureBootKeys:
    keys = asyncio.run(host.read_secure_boot_keys())
    assert keys is not None
    return keys


def differing(keys: SecureBootKeys) -> dict[str, str]:
    verdicts = judge_keys("host", keys, [])
    return {part: why for part, result, why in verdicts if result is not Result.DONE}


@pytest.mark.parametrize("vendor", ["dell", "hpe", "lenovo", "supermicro", "ami_dgx"])
def test_the_factorys_keys_run_after_the_boot_that_follows_their_request(vendor: str) -> None:
    wire, host, _ = host_of(vendor)
    assert differing(read(host)) == {}
    foreign = plant(wire)
    planted = read(host)
    assert list(differing(planted)) == ["host db", "host dbx"]
    assert foreign in differing(planted)["host db"]

    assert asyncio.run(host.reset_secure_boot_keys()) is None
    assert read(host) == planted
    wire.client.machine.restart_host(wire.now())
    wire.client.later(900.0)

    assert differing(read(host)) == {}


def test_the_request_is_the_one_that_a_dgx_lists() -> None:
    """source: captured tree of a DGX H100, ResetKeysActionInfo"""
    wire, host, _ = host_of("ami_dgx")
    dry = DryRunTransport(wire)

    preview = Redfish(dry, host.address, host.quirk, wire.sleep)
    assert asyncio.run(preview.reset_secure_boot_keys()) is None

    (request,) = dry.writes
    assert request.body == {"ResetKeysType": "ResetAllKeysToDefault"}
    assert not wire.client.machine.host.bios.keys_reset_due

"""Things planted in simulated BMCs of every vendor are read by their services."""

from __future__ import annotations

import asyncio

import pytest
from bmc_wire import VENDORS, host_of

from provisioner.integrations.sim.redfish.accounts import Account
from provisioner.model.machine.settings import BmcAccount


@pytest.mark.parametrize("vendor", VENDORS)
def test_accounts_subscriptions_and_waiting_settings_are_read(vendor: str) -> None:
    wire, host, _ = host_of(vendor)
    service = wire.client.service
    clean = asyncio.run(host.read_remainders())
    own = [BmcAccount(name=service.bmc.username, role="Administrator")]
    assert list(clean.accounts or ()) == own
    assert (clean.destinations, clean.waiting, clean.gaps) == ((), {}, ())

    accounts = service.accounts.accounts
    accounts["7"] = Account("7", "svc-update", "Planted-Word.1", role="Operator")
    accounts["8"] = Account("8", "asleep", "Planted-Word.1", enabled=False)
    planted = {"Destination": "https://203.0.113.9/x", "Protocol": "Redfish", "Context": "c"}
    made = wire.client.ask("POST", "/redfish/v1/EventService/Subscriptions", planted)
    assert made.status == 201
    bios = wire.client.machine.host.bios
    name = next(iter(bios.running))
    bios.pending[name] = "planted"

    reading = asyncio.run(host.read_remainders())
    assert BmcAccount(name="svc-update", role="Operator") in (reading.accounts or ())
    assert "asleep" not in {a.name for a in reading.accounts or ()}
    assert reading.destinations == ("https://203.0.113.9/x",)
    assert reading.waiting == {name: "planted"}

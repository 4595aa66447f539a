"""A read that a BMC refuses for now becomes neither "offers no" nor a success without a request.

Every operation is carried out once on a sound simulated BMC, and then once for each resource that
it read and for each way to refuse a read, with that one read refused.

source: SWC0700 (quadsproject/badfish#129), SYS518 (openstack/sushy), an error in an answer of
status 200 (openbmc/bmcweb#75), ServiceTemporarilyUnavailable (DMTF Base registry), iLO's
ResourceNotReadyRetry (HPE iLO registry 2.34).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from bmc_wire import QUIRKS, Wire

from provisioner import quirks
from provisioner.adapters import redfish
from provisioner.adapters.redfish import accounts
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.eventing import subscriptions
from provisioner.adapters.redfish.settings import (
    bios_writes,
    bmc_writes,
)
from provisioner.adapters.redfish.settings import (
    bmc_writes as bmc_defaults,
)
from provisioner.adapters.redfish.settings import (
    bmc_writes as card_writes,
)
from provisioner.adapters.redfish.upkeep import bmc_time, certificates, leaks
from provisioner.integrations.sim.hardware.clock import HandClock
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import BmcAddress, Call, PortError, Reply, Secret

Operation = Callable[[Redfish, "Counting"], Awaitable[Any]]
LISTENER = "https://192.0.2.9:8443/x"


def refusal(status: int, message_id: str) -> Reply:
    error = {
        "code": message_id,
        "@Message.ExtendedInfo": [{"MessageId": message_id, "Message": "later"}],
    }
    return Reply(status, {}, json.dumps({"error": error}).encode())


REFUSALS = {
    "Dell, 400": refusal(400, "IDRAC.2.8.SWC0700"),
    "Dell, 404": refusal(404, "IDRAC.2.8.SYS518"),
    "status 200": refusal(200, "Base.1.12.InternalError"),
    "AMI, 405": refusal(405, "Ami.1.0.ServiceTemporarilyUnavailableDueToHostBooting"),
    "HPE, 404": refusal(404, "iLO.2.34.ResourceNotReadyRetry"),
    "nobody's": refusal(400, "Example.1.0.NobodyKnowsThisOne"),
}
OPERATIONS: dict[str, Operation] = {
    "reset": lambda c, _: c.reset_system("GracefulRestart"),
    "reset of the BMC": lambda c, _: c.reset_bmc(),
    "AC cycle": lambda c, _: c.find_ac_cycle(),
    "boot": lambda c, _: c.boot_override("Pxe"),
    "boot of the virtual CD": lambda c, _: c.boot_virtual_cd(),
    "boot of the disk": lambda c, _: c.boot_disk(),
    "media": lambda c, _: c.insert_media("http://192.0.2.5/b.iso"),
    "pull": lambda c, _: c.simple_update("http://192.0.2.5/b.bin", "host.bmc"),
    "password": lambda c, _: c.set_password(c.address.username, Secret("Another-1-long")),
    "administrator": lambda c, _: accounts.find_administrator(c.service),
    "LED": lambda c, _: accounts.identify(c.service, on=True),
    "reports": lambda c, _: accounts.list_reports(c.service),
    "subscription": lambda c, _: c.subscribe(LISTENER, "x"),
    "own subscription": lambda c, w: find_own(c, w),
    "test event": lambda c, _: subscriptions.submit_test(c.service),
    "BIOS defaults": lambda c, _: c.reset_bios(),
    "BIOS state": lambda c, _: c.read_bios_state(),
    "Secure Boot": lambda c, _: bios_writes.set_bios(c.service, {"secure_boot": "on"}),
    "keys": lambda c, _: c.reset_secure_boot_keys(),
    "keys read": lambda c, _: c.read_secure_boot_keys(),
    "set-up password": lambda c, _: bios_writes.read_setup_password(c.service),
    "protocols": lambda c, _: bmc_writes.set_bmc(c.service, {"ssh": "off", "ntp": "192.0.2.1"}),
    "policy": lambda c, _: bmc_writes.set_bmc(
        c.service, {"lockout_threshold": "7", "power_restore": "on"}
    ),
    "host interface": lambda c, _: bmc_writes.set_bmc(c.service, {"host_interface": "off"}),
    "BMC defaults": lambda c, _: bmc_defaults.list_resets(c.service),
    "clock": lambda c, w: bmc_time.set_clock(c.service, ["192.0.2.1"], w.now),
    "clock read": lambda c, w: bmc_time.read_clock(c.service, w.now),
    "lockdown": lambda c, _: certificates.set_lockdown(c.service, locked=True),
    "locked": lambda c, _: certificates.is_locked(c.service),
    "certificate": lambda c, _: certificates.find_door(c.service),
    "wipe": lambda c, _: card_writes.read_wipe_orders(c.service),
    "console": lambda c, _: leaks.find_console(c.service),
    "drives": lambda c, _: c.drive_serials(),
    "addresses": lambda c, _: c.host_macs(),
    "tasks": lambda c, _: c.read_tasks(),
}
# what these say of a list that is unread is stated in their own docstrings
LENIENT = frozenset({"keys read"})


async def find_own(client: Redfish, wire: Counting) -> Any:
    path = wire.made or await client.subscribe(LISTENER, "x")
    assert isinstance(path, str), path
    wire.made = path
    return (
        await subscriptions.is_standing(client.service, path, LISTENER),
        await subscriptions.find(client.service, path.rpartition("/")[0], LISTENER) == path,
        await subscriptions.end_subscription(client.service, path, "https://192.0.2.9:8443/y"),
    )


class Counting:
    """Counts what is read and sent; one path may be refused.

    What a fresh BMC of this vendor shows is kept: until something is sent, none has to be built.
    """

    _shown: ClassVar[dict[tuple[str, str], Reply]] = {}

    def __init__(self, vendor: str) -> None:
        self._vendor = vendor
        self._wire: Wire | None = None
        self.read: list[str] = []
        self.sent: list[tuple[str, str, str]] = []
        self.refused: tuple[str, Reply] | None = None
        self.made = ""

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        bare = call.path.split("?")[0]
        if call.method == "GET":
            self.read.append(bare)
            if self.refused is not None and bare == self.refused[0]:
                return self.refused[1]
            key = (self._vendor, call.path)
            if not self.sent and key in self._shown:
                return self._shown[key]
        else:
            self.sent.append((call.method, call.path, json.dumps(call.body, sort_keys=True)))
        reply = await self.wire.request(bmc, call)
        if not self.sent:
            self._shown[key] = reply
        return reply

    @property
    def wire(self) -> Wire:
        self._wire = self._wire or Wire(self._vendor)
        return self._wire

    def now(self) -> float:
        return self._wire.now() if self._wire is not None else HandClock().now()

    async def sleep(self, seconds: float) -> None:
        await self.wire.sleep(seconds)

    async def fingerprint(self, _: BmcAddress) -> str:
        return ""

    async def password_change(self, _: BmcAddress) -> str | None:
        return None

    async def forget(self, _: BmcAddress) -> None:
        return

    async def close(self) -> None:
        return


@cache
def account_of(vendor: str) -> str:
    return next(iter(Wire(vendor).client.service.accounts.accounts.values())).username


def carry_out(
    vendor: str, name: str, refused: tuple[str, Reply] | None = None
) -> tuple[Any, Counting]:
    wire = Counting(vendor)
    address = BmcAddress("https://bmc.example", username=account_of(vendor))
    client = Redfish(wire, address, quirks.ALL[QUIRKS[vendor]], wire.sleep)

    async def whole() -> Any:
        if name == "own subscription":
            await OPERATIONS[name](client, wire)
            wire.read.clear()
        wire.refused = refused
        return await OPERATIONS[name](client, wire)

    try:
        return asyncio.run(whole()), wire
    except PortError as error:
        return error, wire


def is_fair(name: str, result: Any, sound: Any, wire: Counting, before: Counting) -> bool:
    """Whether a refused read led to no other fact: raised, busy, or nothing but the same."""
    if isinstance(result, PortError):
        return True
    if isinstance(result, Blocker):
        return result.reason is not Reason.NOT_OFFERED or result == sound
    return name in LENIENT or (result == sound and wire.sent == before.sent)


def find_unfair(vendor: str, name: str, refusals: dict[str, Reply]) -> list[Any]:
    sound, before = carry_out(vendor, name)
    unfair = []
    for path in dict.fromkeys(before.read):
        for way, reply in refusals.items():
            result, wire = carry_out(vendor, name, (path, reply))
            if not is_fair(name, result, sound, wire, before):
                unfair.append((path, way, result, sound))
    return unfair


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - LENIENT))
def test_a_refused_read_is_no_fact_about_a_dell(name: str) -> None:
    assert find_unfair("dell", name, {"Dell, 400": REFUSALS["Dell, 400"]}) == []


@pytest.mark.long
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("vendor", QUIRKS)
def test_a_refused_read_is_no_fact_about_any_bmc(vendor: str, name: str) -> None:
    assert find_unfair(vendor, name, REFUSALS) == []


def test_only_the_service_says_that_a_bmc_offers_no_such_thing() -> None:
    folder = Path(redfish.__file__).parent
    builders = {f.name for f in folder.rglob("*.py") if 'f"this service offers' in f.read_text()}
    assert builders == {"service.py"}

"""A simulated BMC, a vault, and a fuse that burns at one moment of what the two are used for."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from rig import MemoryBmcs, Wire
from virtual_time import VirtualClock

from provisioner import quirks
from provisioner.adapters.redfish.discovery import Probe, probe
from provisioner.execution.observe.discover import Found, introduce_bmcs
from provisioner.execution.observe.rotation import rotate
from provisioner.integrations.sim.hardware.build import build_machine
from provisioner.integrations.sim.hardware.clock import Schedule
from provisioner.integrations.sim.redfish.accounts import Account
from provisioner.integrations.sim.redfish.bmc import make_service
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.model.outcome import Blocker
from provisioner.ports import BmcAddress, BmcTransport, Call, Reply, Secret, Unreachable
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

URL = "https://bmc.test"
NAME = "n/bmc"
FACTORY = "The-Factory-1"  # long enough for the strictest simulated vendor
BMCS = {
    "supermicro": "host",
    "dell": "host",
    "ami_dgx": "host",
    "hpe": "host",
    "lenovo": "host",
    "nvidia_openbmc": "DPU_0",  # answers nothing before its factory password is changed
}
# what may happen at a moment, and whether the BMC (or the vault) had it; a vault is only killed
FATES = {
    "killed before it": False,
    "killed after it": True,
    "connection refused": False,
    "answer lost": True,
    "network gone from here": False,
}
MOMENTS_MAX = 80  # a rotation has about 20; more means that it does not end
FAILED_LOGINS_MAX = 2  # in a row at one BMC: one below the lowest lockout threshold in the field

Result = TypeVar("Result")


class Killed(BaseException):
    """The process is gone: nothing in it may catch this."""


@dataclass
class Fuse:
    """Counts moments, and burns at one of them. `at` 0: never."""

    at: int = 0
    fate: str = "killed before it"
    seen: int = 0
    most: int = MOMENTS_MAX

    async def moment(self, act: Callable[[], Awaitable[Result]], *, wire: bool) -> Result:
        self.seen += 1
        assert self.seen < self.most, "this rotation does not end"
        lasting = wire and "from here" in self.fate and self.seen > self.at > 0
        if self.seen != self.at and not lasting:
            return await act()
        if FATES[self.fate]:
            await act()
        if wire and not self.fate.startswith("killed"):
            raise Unreachable(self.fate, maybe_executed=FATES[self.fate])
        raise Killed


class FusedBmcs:
    """`BmcTransport` whose requests are moments."""

    def __init__(self, inner: MemoryBmcs, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        return await self._fuse.moment(lambda: self._inner.request(bmc, call), wire=True)

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return await self._inner.fingerprint(bmc)

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return await self._inner.password_change(bmc)

    async def forget(self, bmc: BmcAddress) -> None:
        await self._inner.forget(bmc)

    async def close(self) -> None:
        await self._inner.close()


class FusedVault(Vault):
    """The vault, whose writes are moments."""

    fuse = Fuse()

    async def begin(self, name: str, username: str, secret: Secret) -> None:
        await self.fuse.moment(lambda: Vault.begin(self, name, username, secret), wire=False)

    async def confirm(self, name: str) -> None:
        await self.fuse.moment(lambda: Vault.confirm(self, name), wire=False)


class Bench:
    """One BMC fresh from the factory, and a vault that knows its factory password."""

    def __init__(self, vendor: str) -> None:
        machine = build_machine("n", Schedule(), 7, vendor="supermicro")
        if BMCS[vendor] == "host":
            machine = build_machine("n", Schedule(), 7, vendor=vendor)
        machine.bmcs[BMCS[vendor]].password = FACTORY
        self.machine = machine
        self.service: RedfishService = make_service(machine, BMCS[vendor], VirtualClock())
        self.bmcs = MemoryBmcs({URL: self.service}, Wire(random.Random(7), lost=0.0))
        self.vault = FusedVault(open_store(":memory:", inline=True), MasterKey.generate())

    @property
    def account(self) -> Account:
        (account,) = self.service.accounts.accounts.values()
        return account

    async def deliver(self) -> None:
        await self.vault.put(NAME, self.account.username, Secret(FACTORY))

    async def rotate(self, fuse: Fuse) -> BmcAddress | Blocker:
        """What the daemon does at its start: from the vault alone."""
        known = await self.vault.current(NAME)
        assert known is not None
        self.vault.fuse = fuse
        root = (await self.bmcs.request(BmcAddress(URL), Call("GET", "/redfish/v1"))).json()
        transport: BmcTransport = FusedBmcs(self.bmcs, fuse)
        address = BmcAddress(URL, *known)
        return await rotate(transport, self.vault, quirks.identify(root), NAME, address)

    async def introduce(self, fuse: Fuse) -> tuple[tuple[Found, ...], tuple[Blocker, ...]]:
        """What discovery does with it: the factory credential is from the list."""
        seen = await probe(self.bmcs, URL)
        assert isinstance(seen, Probe)
        self.vault.fuse = fuse
        transport: BmcTransport = FusedBmcs(self.bmcs, fuse)
        factory = {seen.vendor: (self.account.username, Secret(FACTORY))}
        return await introduce_bmcs(transport, self.vault, [seen], factory)

    async def settled(self, name: str = NAME) -> str:
        """The password in force; that it is the BMC's, ours, and the only one that is kept."""
        known = await self.vault.current(name)
        assert known is not None
        password = known[1].reveal()
        assert (known[0], password) == (self.account.username, self.account.password)
        assert await self.vault.pending(name) is None
        assert password != FACTORY
        assert self.account.failures == 0, "the last login was good"
        failed = [e for e in self.machine.log if e.kind == "login_failed"]
        assert len(failed) <= FAILED_LOGINS_MAX
        return password

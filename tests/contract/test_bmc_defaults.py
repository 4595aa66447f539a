"""A BMC gets its factory defaults, and is taken in again or named: on simulated BMCs.

A death is put at every moment in turn: at each request, at each write of the vault, of the ledger
and of the node's row. Then a daemon starts again with what was stored.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from crashes import FATES, Fuse, FusedBmcs, FusedVault, Killed
from exchange_bench import FACTORY, URL, ExchangeBench
from virtual_time import run

from provisioner.execution.steps.bmc_defaults import finish_resets, restore_bmcs
from provisioner.execution.steps.maintenance_boot import Stay
from provisioner.integrations.sim.hardware.build import build_machine
from provisioner.integrations.sim.hardware.clock import Schedule, make_certificate
from provisioner.integrations.sim.redfish.accounts import Account
from provisioner.integrations.sim.redfish.bmc import make_service
from provisioner.integrations.twin.wires import present_certificate
from provisioner.model.erasure import ErasureRecord, Result
from provisioner.model.inventory import Inventory
from provisioner.model.node import Boots, Placement
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.erasure.bmc_defaults import choose_reset
from provisioner.ports import Secret
from provisioner.store.repositories.signing_keys import MasterKey

OURS = "Ours-And-Unique.7"
FAILED_LOGINS_MAX = 2
MOMENTS_MAX = 600  # a BMC that drops its reset is looked at for ten minutes
VENDORS = {  # slot, setting, the type of reset that is chosen
    "dell": ("host", "addresses_reserved", "ResetAll"),
    "ami_dgx": ("host", "network_kept", "PreserveNetwork"),
    "nvidia_openbmc": ("DPU_0", "addresses_reserved", "ResetAll"),
}
QUICK = (("ami_dgx", "killed after it"), ("nvidia_openbmc", "answer lost"))
QUIRKS = {"dell": "dell_idrac", "ami_dgx": "ami_megarac", "nvidia_openbmc": "nvidia_openbmc"}


FENCED = {  # as a node is while it is erased
    "placement": Placement.MAINTENANCE,
    "fenced_at": 1.0,
    "boots": Boots.RAMDISK,
}


class FusedHold:
    """A hold whose writes are moments."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    @property
    def operation(self) -> Any:
        return self._inner.operation

    async def read_node(self) -> Any:
        return await self._inner.read_node()

    async def list_entries(self) -> Any:
        return await self._inner.list_entries()

    async def record_intent(self, *values: Any) -> Any:
        return await self._fuse.moment(lambda: self._inner.record_intent(*values), wire=False)

    async def settle_entry(self, *values: Any, **more: Any) -> Any:
        return await self._fuse.moment(
            lambda: self._inner.settle_entry(*values, **more), wire=False
        )

    async def record(self, **values: Any) -> Any:
        return await self._fuse.moment(lambda: self._inner.record(**values), wire=False)


class DefaultsBench(ExchangeBench):
    """The same host between two tenants; its password is ours, and an account is planted."""

    def __init__(self, vendor: str, **more: Any) -> None:
        slot, setting, self.kind = VENDORS[vendor]
        base = "supermicro" if slot != "host" else vendor
        super().__init__(base, slot, **{"erase_bmc_defaults": setting, **more})
        self.vendor = vendor
        self.slot = slot
        self.vault: Any = FusedVault(self.store, MasterKey.generate())
        self.factory = (self.bmc.username, self.bmc.password)

    @property
    def account(self) -> Account:
        return next(iter(self.service.accounts.accounts.values()))

    async def begin(self) -> DefaultsBench:
        """Store the node as it is while it is erased; its BMC is as a tenant left it."""
        await super().begin()
        self.vault.fuse = Fuse()
        accounts = self.service.accounts.accounts
        for name in list(accounts)[1:]:
            del accounts[name]
        self.account.password = OURS
        self.account.change_required = False
        accounts["77"] = Account("77", "svc-update", "Planted-Word.1")
        self.bmc.protocols["SSH"] = False
        await self.vault.put(f"{self.node}/host", self.bmc.username, Secret(OURS))
        name = f"factory/{QUIRKS[self.vendor]}"
        await self.vault.put(name, self.factory[0], Secret(self.factory[1]))
        node = await self.store.nodes.get(self.node)
        serial = self.machine.host.serial if self.slot == "host" else self.bmc.serial
        ref = node.bmcs[0].model_copy(update={"serial": serial})
        await self.store.nodes.save(node.model_copy(update={"bmcs": (ref,), **FENCED}))
        return self

    async def restore(self, fuse: Fuse | None = None) -> ErasureRecord | Blocker:
        """What a new daemon does in the turn that erases the node."""
        fuse = fuse or Fuse(most=MOMENTS_MAX)
        self.vault.fuse = fuse
        site = self.build_site(FusedBmcs(self.transport, fuse))
        hold: Any = FusedHold(await self.hold(), fuse)
        node = await self.store.nodes.get(self.node)
        self.stay = Stay(
            site,
            hold,
            node,
            Inventory(node=self.node, vendor="", system_uuid=self.machine.host.uuid),
        )
        begun = await finish_resets(self.stay)
        if begun is not None:
            return begun
        records = await restore_bmcs(self.stay)
        return records if isinstance(records, Blocker) else records[0]

    async def proved(self) -> None:
        """The BMC has its defaults, one password that is ours, and the only pin is its own."""
        ref = await self.read_ref()
        assert ref.pin == (present_certificate(self.service) or FACTORY)
        stored = await self.vault.current(f"{self.node}/host")
        assert (stored[0], stored[1].reveal()) == (self.account.username, self.account.password)
        assert self.account.password not in (OURS, self.factory[1])
        assert len(self.service.accounts.accounts) == 1, "the planted account is gone"
        assert self.bmc.protocols["SSH"] is True
        assert (ref.rotated, ref.certificate_ends_at) == (True, 0.0)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_bmc_gets_its_defaults_and_is_taken_in_again(vendor: str) -> None:
    async def scenario() -> None:
        bench = await DefaultsBench(vendor).begin()
        record = await bench.restore()
        assert isinstance(record, ErasureRecord), record
        assert (record.result, record.detail.split(";")[0]) == (Result.DONE, bench.kind)
        await bench.proved()
        assert (await bench.read_ref()).pin != FACTORY
        resets = [e for e in bench.machine.log if e.kind == "bmc_defaults"]
        assert [e.detail for e in resets] == [bench.kind]
        failed = [e for e in bench.machine.log if e.kind == "login_failed"]
        assert len(failed) == 0, "no password went to the new certificate but the factory's"
        assert await bench.restore() == record, "once in a stay"
        assert len([e for e in bench.machine.log if e.kind == "bmc_defaults"]) == 1

    run(scenario())


def test_a_bmc_that_keeps_its_certificate_is_known_by_its_refusal() -> None:
    async def scenario() -> None:
        bench = await DefaultsBench("ami_dgx").begin()
        bench.bmc.troubles.add("certificate_stays")
        record = await bench.restore()
        assert isinstance(record, ErasureRecord), record
        assert record.result is Result.DONE
        await bench.proved()
        failed = [e for e in bench.machine.log if e.kind == "login_failed"]
        assert len(failed) == 1

    run(scenario())


DEATHS = [
    pytest.param(vendor, fate, marks=() if (vendor, fate) in QUICK else pytest.mark.long)
    for vendor in ("ami_dgx", "nvidia_openbmc")
    for fate in ("killed before it", "killed after it", "answer lost")
]


@pytest.mark.parametrize(("vendor", "fate"), DEATHS)
def test_a_death_at_any_moment_leaves_a_way_back(vendor: str, fate: str) -> None:
    assert fate in FATES

    async def scenario() -> None:
        bench = await DefaultsBench(vendor).begin()
        fuse = Fuse(most=MOMENTS_MAX)
        assert isinstance(await bench.restore(fuse), ErasureRecord)
        for at in range(1, fuse.seen + 1):
            await bench.begin()
            bench.machine.log.clear()
            with suppress(Killed):
                await bench.restore(Fuse(at, fate, most=MOMENTS_MAX))
            for _ in range(3):
                record = await bench.restore()
                if isinstance(record, ErasureRecord):
                    break
                assert record.reason in (Reason.UNREACHABLE, Reason.BUSY), (at, record)
                await bench.clock.sleep(600.0)
            assert isinstance(record, ErasureRecord), (at, record)
            assert record.result is Result.DONE, (at, record)
            await bench.proved()
            failed = [e for e in bench.machine.log if e.kind == "login_failed"]
            assert len(failed) <= FAILED_LOGINS_MAX, at

    run(scenario())


def test_another_bmc_that_answers_gets_no_login_of_the_node_and_no_pin() -> None:
    async def scenario() -> None:
        bench = await DefaultsBench("dell").begin()
        other = build_machine("o", Schedule(), 8, vendor="dell")
        other.host.serial = "OTHER01"
        other.bmcs["host"].certificate, _ = make_certificate("o", "127.0.0.1")
        services = bench.transport._services
        plan_act = bench.machine.schedule.plan_act

        def plan(at: float, act: Any) -> None:
            """The address goes to another machine while the reset is carried out."""
            plan_act(at, act)
            services[URL] = make_service(other, "host", bench.clock)

        bench.machine.schedule.plan_act = plan  # type: ignore[method-assign]
        refused = await bench.restore()
        assert isinstance(refused, Blocker), refused
        assert refused.reason is Reason.PAIRING_FAILED
        assert "OTHER01" in refused.detail
        assert (await bench.read_ref()).pin == FACTORY
        stored = await bench.vault.current(f"{bench.node}/host")
        assert stored[1].reveal() == OURS
        assert not [e for e in other.log if e.kind in ("login_failed", "password")]

        services[URL] = bench.service  # a person gave the address back, and retried the node
        bench.machine.schedule.plan_act = plan_act  # type: ignore[method-assign]
        await bench.clock.sleep(600.0)
        record = await bench.restore()
        assert isinstance(record, ErasureRecord), record
        await bench.proved()

    run(scenario())


def test_a_bmc_that_refuses_the_factorys_login_is_named_after_one_attempt() -> None:
    async def scenario() -> None:
        bench = await DefaultsBench("dell").begin()
        await bench.vault.put("factory/dell_idrac", "root", Secret("Of-Another-Label"))
        refused = await bench.restore()
        assert isinstance(refused, Blocker)
        assert refused.reason is Reason.LOGIN_REFUSED
        assert "label" in refused.unblock
        assert len([e for e in bench.machine.log if e.kind == "login_failed"]) == 1
        await bench.vault.put("factory/dell_idrac", "root", Secret(bench.factory[1]))
        assert isinstance(await bench.restore(), ErasureRecord)
        await bench.proved()

    run(scenario())


def test_a_bmc_that_keeps_users_and_network_is_proved_by_a_changed_setting() -> None:
    async def scenario() -> None:
        bench = await DefaultsBench("dell", erase_bmc_defaults="network_kept").begin()
        record = await bench.restore()
        assert isinstance(record, ErasureRecord), record
        assert record.result is Result.DONE
        assert record.detail.startswith("PreserveNetworkAndUsers")
        assert (await bench.read_ref()).pin == present_certificate(bench.service)
        assert bench.account.password != OURS, "it was sent to a certificate that is new"

        await bench.begin()
        bench.bmc.troubles.add("certificate_stays")
        record = await bench.restore()
        assert isinstance(record, ErasureRecord), record
        assert record.detail == (
            "PreserveNetworkAndUsers: 1 settings changed: iDRAC.Embedded.1/SSH.ProtocolEnabled"
        )

        await bench.begin()
        bench.bmc.troubles.add("defaults_dropped")
        record = await bench.restore()
        assert isinstance(record, ErasureRecord), record
        assert record.result is Result.NOT_DONE

    run(scenario())


CHOICES = [
    (("ResetAll",), False, True, "", "not declared as reserved"),
    (("ResetAll",), True, False, "", "no factory login is known"),
    (("ResetAll",), True, True, "ResetAll", ""),
    (("ResetAll", "PreserveNetworkAndUsers"), True, False, "PreserveNetworkAndUsers", ""),
    (("ResetAll", "PreserveNetwork"), True, True, "PreserveNetwork", ""),
    ((), True, True, "", "does not say"),
]


@pytest.mark.parametrize(("offered", "reserved", "factory", "kind", "why"), CHOICES)
def test_no_reset_is_chosen_that_has_no_way_back(
    offered: tuple[str, ...], reserved: bool, factory: bool, kind: str, why: str
) -> None:
    chosen, reason = choose_reset(offered, reserved=reserved, factory_login=factory)
    assert chosen == kind
    assert (why in reason) if why else not reason


def test_a_bmc_that_never_comes_back_is_named() -> None:
    async def scenario() -> None:
        bench = await DefaultsBench("dell").begin()
        bench.bmc.troubles.add("lost_after_defaults")
        refused = await bench.restore()
        assert isinstance(refused, Blocker)
        assert refused.reason is Reason.NOT_ACTIVATED
        assert "did not answer at https://bmc.test" in refused.detail
        assert (await bench.read_ref()).pin == FACTORY
        bench.bmc.troubles.clear()
        bench.bmc.gone_until = 0.0
        again = await bench.restore()  # a person gave it its address again, and retried the node
        assert isinstance(again, ErasureRecord), again
        await bench.proved()

    run(scenario())


def test_a_bmc_that_drops_the_reset_and_keeps_our_password_is_not_done() -> None:
    async def scenario() -> None:
        bench = await DefaultsBench("dell").begin()
        bench.bmc.troubles.add("defaults_dropped")
        record = await bench.restore()
        assert isinstance(record, ErasureRecord), record
        assert record.result is Result.NOT_DONE
        assert "keeps the daemon's login" in record.detail
        assert bench.account.password == OURS
        assert (await bench.read_ref()).pin == FACTORY

    run(scenario())

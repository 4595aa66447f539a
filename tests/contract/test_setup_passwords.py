"""A set-up password is changed by a boot and proved by its digest: simulated PowerEdge."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from crashes import Fuse, FusedBmcs, FusedVault, Killed
from exchange_bench import ExchangeBench
from virtual_time import run

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.settings.bios_writes import read_setup_password
from provisioner.execution.steps.bios_defaults import Progress, advance
from provisioner.integrations.sim.hardware.parts import SetupPassword
from provisioner.model.machine.settings import SetupPasswordState
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.credential_rotation import SETUP, list_logins
from provisioner.ports import BmcAddress, Secret, Unreachable
from provisioner.store.repositories.signing_keys import MasterKey

FATES = ("killed before it", "killed after it", "answer lost", "connection refused")
BOOTS_MAX = 3
MOMENTS_MAX = 1000  # each task that ended is read


class Bench(ExchangeBench):
    """A host between two tenants, whose set-up has a password or none."""

    def __init__(self, vendor: str = "dell") -> None:
        super().__init__(vendor)
        self.vault: Any = FusedVault(self.store, MasterKey.generate())
        self.given: Secret | None = None

    @property
    def setup(self) -> SetupPassword:
        return self.machine.host.bios.setup

    @property
    def name(self) -> str:
        return f"{self.node}/{SETUP}"

    async def advance(self, fuse: Fuse | None = None) -> Progress | Blocker:
        """What a new daemon does until a boot is needed."""
        fuse = fuse or Fuse(most=MOMENTS_MAX)
        self.vault.fuse = fuse
        site = self.build_site(FusedBmcs(self.transport, fuse))
        client = await site.reach.redfish(await self.store.nodes.get(self.node), "host")
        assert isinstance(client, Redfish)
        return await advance(self.vault, client.service, self.name, self.given)

    def boot(self) -> None:
        self.machine.restart_host(self.clock.now())

    async def change(self, fuse: Fuse | None = None) -> Progress | Blocker:
        """What a daemon does in its turn, with the boots that it needs."""
        for _ in range(BOOTS_MAX):
            progress = await self.advance(fuse)
            if progress is not Progress.BOOT:
                break
            self.boot()
        return progress

    async def settled(self) -> str:
        """Return the password in force, which is the one that is stored."""
        stored = await self.vault.current(self.name)
        assert stored is not None
        assert await self.vault.pending(self.name) is None
        assert stored[1].reveal() == self.setup.password != ""
        return str(self.setup.password)


def test_a_first_password_is_set_and_then_changed_each_by_one_boot() -> None:
    async def scenario() -> tuple[str, str, int]:
        bench = await Bench().begin()
        assert await bench.change() is Progress.SETTLED
        first = await bench.settled()
        assert await bench.change() is Progress.SETTLED
        return first, await bench.settled(), bench.setup.changes

    first, second, changes = run(scenario())
    assert first != second
    assert changes == 2


def test_the_digest_is_that_of_the_password_and_the_salt_behind_it() -> None:
    """source: iDRAC9 User's Guide, "Generating hash password": its commands, run with sha256sum
    (echo -n SOMEPASSWORDALITTLEBITOFSALT | sha256sum) and `xxd -p`.
    """
    state = SetupPasswordState(
        target="/a",
        settings="/s",
        sha256="0265f4bdb3c37843052236babb2955b6e3bf4bfa71528a963fc538ff1a7825af",
        salt="414c4954544c454249544f4653414c54",
    )
    assert bytes.fromhex(state.salt) == b"ALITTLEBITOFSALT"
    assert state.proves("SOMEPASSWORD")
    assert not state.proves("")
    assert not state.proves("another")
    assert SetupPasswordState(target="/a", settings="/s").proves("")


@pytest.mark.parametrize("fate", FATES)
def test_no_death_loses_the_password(fate: str) -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        fuse = Fuse()
        assert await bench.advance(fuse) is Progress.BOOT
        bench.boot()
        for at in range(1, fuse.seen + 1):
            bench.service.tasks.tasks.clear()
            for boots_between in (False, True):
                await bench.change()
                before = await bench.settled()
                with suppress(Killed, Unreachable):
                    await bench.advance(Fuse(at, fate, most=MOMENTS_MAX))
                if boots_between:
                    bench.boot()  # by hand, while no daemon runs
                kept = [
                    await bench.vault.current(bench.name),
                    await bench.vault.pending(bench.name),
                ]
                known = {login[1].reveal() for login in kept if login is not None}
                assert bench.setup.password in known, at
                assert await bench.change() is Progress.SETTLED, at
                assert await bench.settled() != before, at

    run(scenario())


def test_a_bios_that_drops_the_change_keeps_both_passwords_stored() -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        await bench.change()
        before = await bench.settled()
        bench.setup.dropped = True
        assert await bench.change() is Progress.BOOT, "no boot brought it"
        current = await bench.vault.current(bench.name)
        pending = await bench.vault.pending(bench.name)
        assert current is not None
        assert current[1].reveal() == before == bench.setup.password
        assert pending is not None
        bench.setup.dropped = False
        assert await bench.change() is Progress.SETTLED
        assert await bench.settled() == pending[1].reveal()

    run(scenario())


def test_a_password_that_is_not_stored_is_named_and_taken_over_where_the_site_gives_it() -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        bench.setup.set("The-Sites-Own")
        refused = await bench.advance()
        assert isinstance(refused, Blocker)
        assert refused.reason is Reason.LOGIN_REFUSED
        assert "credential_setup_password_file" in refused.unblock
        assert bench.setup.waiting is None, "nothing was sent"
        bench.given = Secret("not it either")
        assert isinstance(await bench.advance(), Blocker)
        bench.given = Secret("The-Sites-Own")
        assert await bench.change() is Progress.SETTLED
        assert await bench.settled() != "The-Sites-Own"

    run(scenario())


def test_a_password_that_was_cleared_at_the_console_is_set_again() -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        await bench.change()
        bench.setup.password = ""
        assert await bench.change() is Progress.SETTLED
        await bench.settled()

    run(scenario())


def test_an_open_job_of_another_tool_is_waited_for() -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        bench.service.tasks.add_task("Configure: BIOS.Setup.1-1", bench.clock.now())
        await bench.clock.sleep(60.0)  # an iDRAC shows a new task some seconds late
        refused = await bench.advance()
        assert isinstance(refused, Blocker)
        assert refused.reason is Reason.BUSY
        assert await bench.vault.pending(bench.name) is None
        assert bench.setup.waiting is None

    run(scenario())


@pytest.mark.parametrize("vendor", ["supermicro", "ami_dgx", "hpe", "lenovo"])
def test_a_vendor_that_shows_no_proof_is_refused_by_name(vendor: str) -> None:
    async def scenario() -> None:
        bench = await Bench(vendor).begin()
        refused = await bench.advance()
        assert isinstance(refused, Blocker)
        assert refused.reason is Reason.NOT_OFFERED
        assert "proves the set-up password in force" in refused.detail
        assert await bench.vault.pending(bench.name) is None

    run(scenario())


def test_a_refusal_repeats_neither_password() -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        await bench.change()
        old = await bench.settled()
        bench.machine.host.bios.job = True  # no task shows it, and the request is refused
        refused = await bench.advance()
        pending = await bench.vault.pending(bench.name)
        assert isinstance(refused, Blocker)
        assert pending is not None
        assert old not in str(refused)
        assert pending[1].reveal() not in str(refused)

    run(scenario())


def test_a_digest_that_is_none_stops_before_anything_is_sent() -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        bench.setup.set("x")
        show = bench.setup.show
        bench.setup.show = lambda: {**show(), "SHA256SetupPassword": "***"}
        site = bench.build_site()
        client = Redfish(
            bench.transport,
            BmcAddress("https://bmc.test", bench.bmc.username, Secret(bench.bmc.password)),
            quirks.ALL["dell_idrac"],
        )
        assert site.settings.site == "test"
        refused = await read_setup_password(client.service)
        assert isinstance(refused, Blocker)
        assert refused.reason is Reason.MALFORMED

    run(scenario())


def test_set_up_passwords_are_listed_only_where_the_site_says_so() -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        node = await bench.store.nodes.get(bench.node)
        assert [b.name for b in list_logins(node)] == ["host"]
        assert [b.name for b in list_logins(node, setup=True)] == ["host", SETUP]

    run(scenario())

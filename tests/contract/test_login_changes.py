"""The password of a BMC in use is changed, and never lost: on simulated BMCs.

A death is put at every await of a change in turn: before and after each call of the BMC's client,
of the vault, and of the row that has the login's age. Then a daemon starts again with what was
stored. What the BMCs do wrong is from the field: a lockdown that refuses writes, an account rule
that refuses one password, a change that comes into force late, a 200 that did nothing.
"""

from __future__ import annotations

import inspect
import random
from contextlib import suppress
from typing import Any

import pytest
from crashes import FACTORY, FATES, NAME, URL, Bench, Fuse, FusedBmcs, Killed
from rig import MemoryBmcs, Wire
from virtual_time import VirtualClock, run

from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.rotation import change_login
from provisioner.model.credential import CredentialStanding, RotationCause
from provisioner.model.events.event import Event
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import AccountLocked, BmcAddress, Call, Reply
from provisioner.settings import Settings
from provisioner.store.repositories.vault import SqlCredentialStandings

BMC = BmcRef(name="bmc", url=URL, rotated=True)
NODE = Node(id="n", kind=NodeKind.HOST, bmcs=(BMC,))
FAILED_MAX = 2  # logins in a row: one below the lowest lockout threshold in the field


class FusedStandings(SqlCredentialStandings):
    """The rows of ages, whose writes are moments."""

    fuse = Fuse()

    async def begin_attempt(
        self, name: str, node: str, retry_at: float
    ) -> CredentialStanding | None:
        act = super().begin_attempt
        return await self.fuse.moment(lambda: act(name, node, retry_at), wire=False)

    async def record_change(self, name: str, node: str, now: float, event: Event) -> None:
        act = super().record_change
        await self.fuse.moment(lambda: act(name, node, now, event), wire=False)

    async def record_failure(self, name: str, problem: str, retry_at: float) -> None:
        act = super().record_failure
        await self.fuse.moment(lambda: act(name, problem, retry_at), wire=False)


class EveryAwait:
    """A port whose every coroutine is a moment, reads included."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def reach_moment(*arguments: Any, **named: Any) -> Any:
            return await self._fuse.moment(lambda: method(*arguments, **named), wire=False)

        return reach_moment


class Living:
    """A BMC whose password is ours already, and daemons that come and go."""

    def __init__(self, vendor: str) -> None:
        self.bench = Bench(vendor)
        self.clock = VirtualClock()
        store = self.bench.vault._transactions
        self.standings = FusedStandings(store)
        self.site: Any = None

    async def begin(self) -> Living:
        """Store what the BMC has, with a demand to change it."""
        await self.bench.deliver()
        self.bench.account.change_required = False
        await self.standings.enroll({NAME: "n"}, 1.0)
        await self.standings.demand(RotationCause.EMERGENCY, self.clock.now())
        return self

    async def change(self, fuse: Fuse | None = None) -> Blocker | None:
        """A new daemon changes the login."""
        fuse = fuse or Fuse()
        self.bench.vault.fuse = self.standings.fuse = fuse
        nothing: Any = None
        reach = Reach(FusedBmcs(self.bench.bmcs, fuse), nothing, self.bench.vault)
        self.site = Site(
            self.clock, Settings(site="test"), reach, nothing, nothing, nothing, nothing
        )
        return await change_login(self.site, self.standings, NODE, BMC, RotationCause.EMERGENCY)

    async def change_under(self, fuse: Fuse) -> Blocker | None:
        """A new daemon changes the login; each of its awaits is a moment."""
        self.bench.vault.fuse = self.standings.fuse = Fuse()
        nothing: Any = None
        bmcs, vault = EveryAwait(self.bench.bmcs, fuse), EveryAwait(self.bench.vault, fuse)
        reach = Reach(bmcs, nothing, vault)  # type: ignore[arg-type]
        site = Site(self.clock, Settings(site="test"), reach, nothing, nothing, nothing, nothing)
        standings: Any = EveryAwait(self.standings, fuse)
        return await change_login(site, standings, NODE, BMC, RotationCause.EMERGENCY)

    async def standing(self) -> CredentialStanding:
        standing = await self.standings.get(NAME)
        assert standing is not None
        return standing

    async def opens(self) -> bool:
        """Whether one of the stored passwords opens the BMC: it is not lost."""
        stored = (await self.bench.vault.current(NAME), await self.bench.vault.pending(NAME))
        return self.bench.account.password in {login[1].reveal() for login in stored if login}


KILLED = ("killed before it", "killed after it")
FACED = [
    (vendor, fate)
    for vendor in ("dell", "nvidia_openbmc")
    for fate in FATES
    if vendor != "dell" or fate not in KILLED  # those die at every await below
]


@pytest.mark.parametrize("fate", KILLED)
def test_a_death_at_every_await_of_a_change_loses_no_login(fate: str) -> None:
    async def scenario() -> None:
        fuse = Fuse()
        whole = await Living("dell").begin()
        assert await whole.change_under(fuse) is None
        password = await whole.bench.settled()
        assert fuse.seen > 15
        lost = 0
        for at in range(1, fuse.seen + 1):
            living = await Living("dell").begin()
            with pytest.raises(Killed):
                await living.change_under(Fuse(at, fate))
            lost += not await living.opens()
            await living.clock.sleep(86_400.0)
            assert await living.change() is None, at
            assert await living.bench.settled() != password
        assert lost == 0

    run(scenario())


@pytest.mark.parametrize(("vendor", "fate"), FACED)
def test_a_death_at_any_moment_of_a_change_loses_no_login(vendor: str, fate: str) -> None:
    async def scenario() -> None:
        fuse = Fuse()
        whole = await Living(vendor).begin()
        assert await whole.change(fuse) is None
        await whole.bench.settled()
        for at in range(1, fuse.seen + 1):
            living = await Living(vendor).begin()
            with suppress(Killed):
                await living.change(Fuse(at, fate))
            assert await living.opens(), (at, fate)
            assert (await living.standing()).cause in (RotationCause.EMERGENCY, None)
            await living.clock.sleep(86_400.0)  # a failed one is tried again in its time
            assert await living.change() is None, (at, fate)
            await living.bench.settled()
            standing = await living.standing()
            assert (standing.cause, standing.failures, standing.problem) == (None, 0, "")
            assert standing.changed_at > 1.0

    run(scenario())


class Locked(MemoryBmcs):
    """A lockdown refuses every write with 403 (settings misbehaviour 16)."""

    on = True

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if self.on and call.method == "PATCH":
            return Reply(403, {"content-type": "application/json"}, b"{}")
        return await super().request(bmc, call)


def wired(living: Living, kind: type[MemoryBmcs]) -> Any:
    """The BMC behind a wire of another kind."""
    living.bench.bmcs = kind({URL: living.bench.service}, Wire(random.Random(7), lost=0.0))
    return living.bench.bmcs


def test_a_lockdown_keeps_the_password_in_force_and_is_named() -> None:
    async def scenario() -> None:
        living = await Living("dell").begin()
        wire = wired(living, Locked)
        assert isinstance(await living.change(), Blocker)
        problem = await living.change()
        assert isinstance(problem, Blocker)
        failed = [e for e in living.bench.machine.log if e.kind == "login_failed"]
        assert failed == [], "the password that was refused is not tried"
        standing = await living.standing()
        assert standing.problem == problem.detail
        assert standing.retry_at > living.clock.now()
        assert standing.cause is RotationCause.EMERGENCY
        assert living.bench.account.password == FACTORY
        assert await living.opens()
        wire.on = False
        await living.clock.sleep(86_400.0)
        assert await living.change() is None
        await living.bench.settled()

    run(scenario())


class Picky(MemoryBmcs):
    """An account rule refuses the first password that it is given, for ever."""

    refused = ""

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if call.method == "PATCH" and isinstance(call.body, dict):
            new = str(call.body["Password"])
            self.refused = self.refused or new
            if new == self.refused:
                return Reply(400, {"content-type": "application/json"}, b"{}")
        return await super().request(bmc, call)


def test_a_password_that_the_rules_of_a_bmc_refuse_is_given_up_for_another() -> None:
    async def scenario() -> None:
        living = await Living("dell").begin()
        wire = wired(living, Picky)
        assert isinstance(await living.change(), Blocker)
        # at once the same is sent: the first request might still be on its way
        assert isinstance(await living.change(), Blocker)
        pending = await living.bench.vault.pending(NAME)
        assert pending is not None
        assert pending[1].reveal() == wire.refused
        await living.clock.sleep(86_400.0)
        assert await living.change() is None
        assert await living.bench.settled() != wire.refused

    run(scenario())


class Late(MemoryBmcs):
    """A change is answered with 200 and comes into force later: as if it was not made."""

    body: Any = None

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if call.method == "PATCH":
            self.body = call.body
            return Reply(200, {"content-type": "application/json"}, b"{}")
        return await super().request(bmc, call)


def test_a_change_that_comes_into_force_late_is_recognized() -> None:
    async def scenario() -> None:
        living = await Living("dell").begin()
        wire = wired(living, Late)
        problem = await living.change()
        assert isinstance(problem, Blocker)
        assert problem.reason is Reason.LOGIN_REFUSED
        living.bench.account.password = wire.body["Password"]
        assert await living.opens()
        await living.clock.sleep(86_400.0)
        assert await living.change() is None
        assert await living.bench.settled() == wire.body["Password"]

    run(scenario())


def test_attempts_at_a_foreign_password_never_add_up_to_a_lock() -> None:
    """It was changed by hand: each attempt is refused, the pauses outlast every lockout."""

    async def scenario() -> None:
        living = await Living("dell").begin()
        living.bench.account.password = "Somebody-Else.1"
        for _ in range(4):
            problem = await living.change()
            assert isinstance(problem, Blocker)
            wait_s = (await living.standing()).retry_at - living.clock.now()
            assert wait_s >= 7200.0
            failed = [e for e in living.bench.machine.log if e.kind == "login_failed"]
            recent = [e for e in failed if e.time > living.clock.now() - 1800.0]
            assert len(recent) <= FAILED_MAX
            await living.clock.sleep(wait_s)

    run(scenario())


def test_nobody_else_logs_in_while_a_password_is_changed() -> None:
    """A reader with the old password would cost a failed login at the device."""

    class Meanwhile(MemoryBmcs):
        refused = 0

        async def request(self, bmc: BmcAddress, call: Call) -> Reply:
            reply = await super().request(bmc, call)
            if call.method == "PATCH":
                with pytest.raises(AccountLocked) as held:
                    await living.site.reach.redfish(NODE, "bmc")
                assert held.value.retry_after_s <= 60.0
                self.refused += 1
            return reply

    living = Living("dell")

    async def scenario() -> None:
        await living.begin()
        wire = wired(living, Meanwhile)
        assert await living.change() is None
        assert wire.refused == 1
        client = await living.site.reach.redfish(NODE, "bmc")
        assert not isinstance(client, Blocker)
        assert await client.admits()
        assert not [e for e in living.bench.machine.log if e.kind == "login_failed"]

    run(scenario())

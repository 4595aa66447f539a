"""A lockdown of a BMC is lifted for work and restored, whatever dies between: simulated iDRAC."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from crashes import Fuse, FusedBmcs, Killed
from exchange_bench import ExchangeBench
from test_bmc_defaults import FusedHold
from virtual_time import run

from provisioner.adapters.redfish.settings.bios_writes import reset_bios
from provisioner.control.context import Context
from provisioner.control.node.credential_rotator import LockdownBracket, is_lifted
from provisioner.model.node import Placement, State
from provisioner.model.outcome import Blocker, Reason

ATTRIBUTE = "Lockdown.1.SystemLockdown"


class Bench(ExchangeBench):
    """A host in lockdown that converges."""

    def __init__(self) -> None:
        super().__init__("dell", bmc_lockdown="lift")
        self.placement = Placement.MAINTENANCE

    @property
    def locked(self) -> bool:
        return self.machine.host.first_boot[ATTRIBUTE] == "Enabled"

    async def begin(self) -> Bench:
        await super().begin()
        self.machine.host.first_boot[ATTRIBUTE] = "Enabled"
        await self.enter(State.CONVERGING)
        return self

    async def enter(self, state: State) -> None:
        node = await self.store.nodes.get(self.node)
        await self.store.nodes.save(
            node.model_copy(update={"state": state, "placement": self.placement})
        )

    async def turn(self, fuse: Fuse | None = None) -> Blocker | None:
        """What a new daemon does before a turn of the node."""
        fuse = fuse or Fuse()
        site = self.build_site(FusedBmcs(self.transport, fuse))
        bracket = LockdownBracket(Context(self.store, self.clock, self.settings), site)
        hold: Any = FusedHold(await self.hold(), fuse)
        return await bracket.enter(hold, await self.store.nodes.get(self.node))

    async def write(self) -> Blocker | None:
        """A change of the BIOS, which the lockdown refuses."""
        node = await self.store.nodes.get(self.node)
        client = await self.build_site().reach.redfish(node, "host")
        assert not isinstance(client, Blocker)
        return await reset_bios(client.service)


def test_a_locked_bmc_takes_a_change_within_the_bracket_and_is_locked_afterwards() -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        refused = await bench.write()
        assert isinstance(refused, Blocker)
        assert "Lockdown" in refused.detail
        assert await bench.turn() is None
        assert not bench.locked
        assert await bench.write() is None
        await bench.enter(State.VALIDATING)
        assert await bench.turn() is None
        assert bench.locked

    run(scenario())


def test_a_host_that_is_not_fenced_stays_locked() -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        bench.placement = Placement.CUSTOMER
        await bench.enter(State.DRAINING)
        assert await bench.turn() is None
        assert bench.locked

    run(scenario())


def test_a_bmc_that_was_not_locked_is_not_locked_afterwards() -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        bench.machine.host.first_boot[ATTRIBUTE] = "Disabled"
        assert await bench.turn() is None
        await bench.enter(State.VALIDATING)
        assert await bench.turn() is None
        assert not bench.locked
        assert await (await bench.hold()).list_entries() == ()

    run(scenario())


@pytest.mark.parametrize("fate", ["killed before it", "killed after it", "answer lost"])
def test_no_death_leaves_a_bmc_unlocked(fate: str) -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        lift = Fuse()
        assert await bench.turn(lift) is None
        await bench.enter(State.VALIDATING)
        lock = Fuse()
        assert await bench.turn(lock) is None
        for at in range(1, lift.seen + lock.seen + 1):
            await bench.begin()
            with suppress(Killed):
                await bench.turn(Fuse(at, fate))
            if not bench.locked:
                assert is_lifted(await (await bench.hold()).list_entries()), at
            if at > lift.seen:
                await bench.enter(State.VALIDATING)
                with suppress(Killed):
                    await bench.turn(Fuse(at - lift.seen, fate))
            await bench.enter(State.VALIDATING)
            assert await bench.turn() is None, at
            assert bench.locked, at
            assert not is_lifted(await (await bench.hold()).list_entries()), at

    run(scenario())


def test_a_bmc_that_is_silent_when_it_should_be_locked_holds_the_node_back() -> None:
    async def scenario() -> None:
        bench = await Bench().begin()
        assert await bench.turn() is None
        await bench.enter(State.VALIDATING)
        bench.bmc.gone_until = bench.clock.now() + 600.0
        refused = await bench.turn()
        assert isinstance(refused, Blocker)
        assert refused.reason is Reason.UNREACHABLE
        await bench.clock.sleep(601.0)
        assert await bench.turn() is None
        assert bench.locked

    run(scenario())

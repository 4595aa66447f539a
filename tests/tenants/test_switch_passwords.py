"""A switch's password is changed for life: by one revision, whatever dies in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from leaf_rig import Rig

from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.rotation import change_switch_login
from provisioner.integrations.sim.switches.switch import Switch
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.credential_rotation import list_logins
from provisioner.ports import Call, LoginRefused, Reply, Secret, SwitchAddress, Unreachable
from provisioner.runtime.switch_systems import make_switches
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

LEAF = "leaf-su0-r0"
NAME = f"{LEAF}/api"
FAILED_MAX = 2  # the switch locks its user at the fifth
FATES = ("killed before it", "killed after it", "answer lost")


class Killed(BaseException):
    """The process is gone."""


class Fuse:
    """Counts requests and writes of the vault, and burns at one of them."""

    def __init__(self, at: int = 0, fate: str = "") -> None:
        self.at, self.fate, self.seen = at, fate, 0

    async def moment(self, act: Callable[[], Awaitable[Any]], *, wire: bool) -> Any:
        self.seen += 1
        if self.seen != self.at:
            return await act()
        if "before" not in self.fate:
            await act()
        if wire and "lost" in self.fate:
            raise Unreachable(self.fate, maybe_executed=True)
        raise Killed


class FusedSwitches:
    """`SwitchTransport` whose requests are moments; wrong passwords are counted."""

    def __init__(self, inner: Any, fuse: Fuse, *, raises: bool) -> None:
        self.inner, self.fuse, self.raises = inner, fuse, raises
        self.refused = 0

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        reply = await self.fuse.moment(lambda: self.inner.request(switch, call), wire=True)
        self.refused += reply.status == 401
        if reply.status == 401 and self.raises:
            raise LoginRefused("401")
        return reply

    async def close(self) -> None:
        return None


class FusedVault(Vault):
    """The vault, whose writes are moments."""

    fuse = Fuse()

    async def begin(self, name: str, username: str, secret: Secret) -> None:
        await self.fuse.moment(lambda: Vault.begin(self, name, username, secret), wire=False)

    async def expect_pending(self, name: str) -> None:
        await self.fuse.moment(lambda: Vault.expect_pending(self, name), wire=False)

    async def confirm(self, name: str) -> None:
        await self.fuse.moment(lambda: Vault.confirm(self, name), wire=False)


class Bench:
    """One leaf, a vault with its password, and daemons that come and go."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.raises = True  # as the daemon's own wire does; the twin's answers with the status
        self.switch: Switch = rig.site.switches[LEAF]
        self.node: Node = rig.nodes[LEAF]
        self.vault = FusedVault(open_store(":memory:", inline=True), MasterKey.generate())

    async def begin(self) -> None:
        await self.vault.put(NAME, self.switch.username, Secret(self.switch.password))

    async def change(self, fuse: Fuse) -> tuple[Blocker | None, int]:
        """What a new daemon does; why not, and how many logins failed."""
        self.vault.fuse = fuse
        wire = FusedSwitches(self.rig.switches, fuse, raises=self.raises)
        reach = Reach(self.rig.bmcs, make_switches(wire), self.vault)
        site: Site = replace(self.rig.effects, reach=reach)
        return await change_switch_login(site, self.node), wire.refused

    async def settled(self) -> None:
        self.vault.fuse = Fuse()
        stored = await self.vault.current(NAME)
        assert stored is not None
        assert stored[1].reveal() == self.switch.password
        assert await self.vault.pending(NAME) is None
        assert self.switch.startup == self.switch.applied, "it survives a restart"
        assert self.switch.password not in str(self.switch.applied)


def lived(story: Callable[[Bench], Awaitable[None]]) -> None:
    async def live() -> None:
        rig = await Rig(nodes=1).open()
        try:
            await story(Bench(rig))
        finally:
            await rig.close()

    asyncio.run(live())


@pytest.mark.parametrize("raises", [False, True])
def test_a_password_of_a_switch_is_changed_and_saved(raises: bool) -> None:
    async def story(bench: Bench) -> None:
        bench.raises = raises
        await bench.begin()
        before = bench.switch.password
        assert await bench.change(Fuse()) == (None, 1)
        assert bench.switch.password != before
        await bench.settled()

    lived(story)


@pytest.mark.parametrize("fate", FATES)
def test_a_death_at_any_moment_loses_no_password_of_a_switch(fate: str) -> None:
    async def story(bench: Bench) -> None:
        await bench.begin()
        fuse = Fuse()
        assert (await bench.change(fuse))[0] is None
        for at in range(1, fuse.seen + 1):
            with suppress(Killed, Unreachable):
                await bench.change(Fuse(at, fate))
            problem, refused = await bench.change(Fuse())
            assert problem is None, (at, problem)
            assert refused <= FAILED_MAX, at
            await bench.settled()

    lived(story)


def test_a_switch_whose_password_was_changed_by_hand_is_named() -> None:
    async def story(bench: Bench) -> None:
        await bench.begin()
        bench.switch.password = "By-Hand.1"
        problem, refused = await bench.change(Fuse())
        assert problem is not None
        assert problem.reason is Reason.LOGIN_REFUSED
        assert refused <= FAILED_MAX
        assert bench.switch.password == "By-Hand.1"

    lived(story)


def test_logins_of_switches_are_kept_only_where_the_site_says_so() -> None:
    api = BmcRef(name="api", url="https://10.0.0.1", kind="switch", rotated=True)
    leaf = Node(id="l", kind=NodeKind.SWITCH, address="https://10.0.0.1", bmcs=(api,))
    assert list_logins(leaf) == ()
    assert list_logins(leaf, switches=True) == (api,)
    sonic = leaf.model_copy(update={"os": "sonic", "address": "ssh://10.0.0.1"})
    assert list_logins(sonic, switches=True) == ()

"""A switch with its factory password at intake: changed once, whatever crashes in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from leaf_rig import Rig

from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.identify import take_over
from provisioner.integrations.sim.switches.switch import Switch
from provisioner.model.node import Node
from provisioner.model.outcome import Reason
from provisioner.ports import LoginRefused, PortError, Secret, Unreachable
from provisioner.runtime.switch_systems import make_switches

LEAF = "leaf-su0-r0"


class Vault:
    """Credentials in memory, with what is pending."""

    def __init__(self, password: str) -> None:
        self.now: tuple[str, Secret] | None = ("cumulus", Secret(password))
        self.next: tuple[str, Secret] | None = None

    async def current(self, name: str) -> tuple[str, Secret] | None:
        return self.now

    async def pending(self, name: str) -> tuple[str, Secret] | None:
        return self.next

    async def begin(self, name: str, username: str, secret: Secret) -> None:
        self.next = (username, secret)

    async def confirm(self, name: str) -> None:
        self.now, self.next = self.next, None


class Console:
    """The switch's own dialogue; `dies` before or after it took the password."""

    def __init__(self, switch: Switch, vault: Vault, dies: str = "") -> None:
        self.switch, self.vault, self.dies = switch, vault, dies
        self.changes = 0

    async def change(self, name: str, address: str, username: str, old: Any, new: Any) -> None:
        assert self.vault.next == (username, new)  # it is stored before the switch hears of it
        if self.dies == "before":
            raise Unreachable("gone", maybe_executed=True)
        if old.reveal() != self.switch.password:
            raise LoginRefused("no")
        self.switch.password, self.switch.password_expired = new.reveal(), False
        self.changes += 1
        if self.dies == "after":
            raise Unreachable("gone", maybe_executed=True)


def lived(story: Callable[[Site, Node, Switch, Vault], Awaitable[None]]) -> None:
    async def live() -> None:
        rig = await Rig(nodes=1).open()
        switch = rig.site.switches[LEAF]
        switch.password_expired = True
        vault = Vault(switch.password)
        console = Console(switch, vault)
        reach = Reach(rig.bmcs, make_switches(rig.switches), vault, console)
        try:
            await story(replace(rig.effects, reach=reach), rig.nodes[LEAF], switch, vault)
        finally:
            await rig.close()

    asyncio.run(live())


def test_a_factory_password_is_changed_to_ours():
    async def story(site: Site, node: Node, switch: Switch, vault: Vault) -> None:
        console = site.reach.passwords
        assert isinstance(console, Console)
        assert await take_over(site, node, "") is None
        assert vault.now == ("cumulus", Secret(switch.password))
        assert vault.next is None
        assert await take_over(site, node, "") is None
        assert console.changes == 1

    lived(story)


@pytest.mark.parametrize("dies", ["before", "after"])
def test_whoever_dies_in_between_is_followed_by_one_who_can_log_in(dies):
    async def story(site: Site, node: Node, switch: Switch, vault: Vault) -> None:
        site.reach.passwords = Console(switch, vault, dies)
        with pytest.raises(PortError):
            await take_over(site, node, "")
        assert vault.next is not None

        site.reach.passwords = Console(switch, vault)
        assert await take_over(site, node, "") is None
        assert vault.now == ("cumulus", Secret(switch.password))

    lived(story)


def test_a_password_of_the_site_s_own_stays_and_a_wrong_one_is_refused():
    async def story(site: Site, node: Node, switch: Switch, vault: Vault) -> None:
        switch.password_expired = False
        assert await take_over(site, node, "") is None
        assert vault.next is None

        vault.now = ("cumulus", Secret("wrong"))
        refused = await take_over(site, node, "")
        assert refused is not None
        assert (refused.reason, vault.next) == (Reason.LOGIN_REFUSED, None)

    lived(story)


def test_where_nobody_can_change_it_a_person_is_told_how():
    async def story(site: Site, node: Node, switch: Switch, vault: Vault) -> None:
        site.reach.passwords = None
        refused = await take_over(site, node, "")

        assert refused is not None
        assert "factory password" in refused.detail
        assert refused.unblock
        assert vault.next is None

    lived(story)

"""A card fresh from the factory over HTTPS: what its first login asks, and no more than that."""

from __future__ import annotations

import asyncio
import re
from functools import partial

from provisioner.adapters.redfish.discovery import probe_all
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.execution.observe import discover
from provisioner.execution.observe.discover import Found, introduce_bmcs
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.redfish.redfish_tree import Answer
from provisioner.integrations.sim.site.control import inject_fault
from provisioner.integrations.sim.site.serve import Addresses, Front, Server
from provisioner.integrations.sim.site.site import Site
from provisioner.ports import BmcAddress, Secret, Unreachable
from provisioner.runtime.event_loop import new_event_loop
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

CARD = "su0-n00/DPU_0"
EXPAND = "?$expand=.($levels=1)"


async def first_login(fault: str = "") -> tuple[list[str], Found, str]:
    """Every request that the card got, what was found, and its password now."""
    clock = FastClock(1.0)
    site = Site(1, 7, clock=clock)
    server, front = Server(clock, site.schedule, Addresses()), Front(site)
    if fault:
        inject_fault(site, fault, *CARD.split("/"))
    asked: list[str] = []

    def handle(method: str, path: str, query: dict[str, str], *rest: object) -> Answer:
        answer = front.handle(CARD, method, path, query, *rest)
        bare = re.sub(r"(?<=/Sessions)/.*|/$", "", path)
        asked.append(f"{method} {bare}{EXPAND * bool(query)} {answer.status}")
        return answer

    service = front.redfish[CARD]
    factory = {"nvidia_openbmc": (service.bmc.username, Secret(service.bmc.password))}
    transport = RedfishTransport()
    vault = Vault(open_store(":memory:", inline=True), MasterKey.generate())
    try:
        probes = await probe_all(transport, [await server.add(CARD, handle, service.bmc)])
        (found,), refused = await introduce_bmcs(transport, vault, probes, factory)
        assert not refused
        await transport.close()
    finally:
        await server.close()
    assert not service.sessions.sessions
    (account,) = service.accounts.accounts.values()
    return asked, found, account.password


def logged_in(fault: str = "") -> tuple[list[str], Found, str]:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(first_login(fault))


def test_a_factory_password_is_changed_by_one_login_one_request_and_a_logout() -> None:
    asked, found, password = logged_in()

    root = "/redfish/v1"
    assert asked == [
        f"GET {root} 200",
        f"POST {root}/SessionService/Sessions 201",
        f"PATCH {root}/AccountService/Accounts/root 200",
        f"DELETE {root}/SessionService/Sessions 204",
        f"POST {root}/SessionService/Sessions 201",
        f"GET {root}/Systems{EXPAND} 200",  # the new password's proof is who the card is
        f"GET {root}/Systems/Bluefield/Oem/Nvidia 200",
        f"DELETE {root}/SessionService/Sessions 204",
    ]
    assert found.secret.reveal() == password
    assert found.endpoint.rotated
    assert found.endpoint.serial


def test_a_card_that_wants_a_tag_all_the_same_gets_one_that_always_fits() -> None:
    asked, found, password = logged_in("if_match_needed")

    assert [a.split()[-1] for a in asked if a.startswith("PATCH")] == ["428", "200"]
    assert found.secret.reveal() == password


class Overrun(RedfishTransport):
    """Real BMCs, each silent at its first login; counts how many are asked at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: set[str] = set()
        self.now = 0
        self.most = 0

    async def password_change(self, bmc: BmcAddress) -> str | None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0.01)
            if bmc.url not in self.silent:
                self.silent.add(bmc.url)
                raise Unreachable("Connection timeout to host", maybe_executed=False)
            return await super().password_change(bmc)
        finally:
            self.now -= 1


async def introduce_site() -> tuple[int, int, int]:
    clock = FastClock(1.0)
    site = Site(1, 7, clock=clock)
    server, front = Server(clock, site.schedule, Addresses()), Front(site)
    transport = Overrun()
    vault = Vault(open_store(":memory:", inline=True), MasterKey.generate())
    cards = {n: service for n, service in front.redfish.items() if not n.endswith("/host")}
    one = next(iter(cards.values()))
    factory = {"nvidia_openbmc": (one.bmc.username, Secret(one.bmc.password))}
    try:
        urls = [
            await server.add(name, partial(front.handle, name), service.bmc)
            for name, service in cards.items()
        ]
        probes = await probe_all(transport, urls)
        found, silent = await introduce_bmcs(transport, vault, probes, factory)
        await transport.close()
    finally:
        await server.close()
    return len(found), len(silent), transport.most


def test_a_site_is_introduced_a_few_at_a_time_and_the_silent_are_asked_again(monkeypatch) -> None:
    monkeypatch.setattr(discover, "INTRODUCED_MAX", 3)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        found, silent, most = runner.run(introduce_site())

    assert (found, silent, most) == (10, 0, 3)

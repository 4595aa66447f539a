"""From a request to the leaves and back: one transaction, all devices or a named reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from leaf_rig import Rig

from provisioner.api.app import application, digest_of
from provisioner.control.tenant_keeper import TenantKeeper
from provisioner.execution.vrf_fabric import VrfIsolation
from provisioner.model.node import Placement, State
from provisioner.model.outcome import Reason
from provisioner.model.tenant import Phase, Tenant
from provisioner.planning.address_plan import AddressPlan
from provisioner.planning.tenants import Request
from provisioner.ports import StaleWrite

TOKEN = "t0ken"
ASKED = Request(name="green", nodes=1)


class Killed(Exception):
    """The process is gone."""


class World:
    """A simulated site with a keeper; `writes` counts what may change a leaf."""

    def __init__(self) -> None:
        self.rig = Rig(nodes=2, switch_apply_limit_s=60.0)

    async def open(self) -> World:
        await self.rig.open()
        self.keeper = self.new_keeper()
        return self

    def new_keeper(self) -> TenantKeeper:
        """As another process would have it, after a crash."""
        effects = self.rig.effects
        vrfs = VrfIsolation(
            self.rig.store, AddressPlan(), effects.reach, effects.clock, effects.settings
        )
        return TenantKeeper(self.rig.store, self.rig.clock, [vrfs], vrfs.fabric)

    async def close(self) -> None:
        await self.keeper.close()
        await self.rig.close()

    def writes(self) -> int:
        return sum(method != "GET" for _, method, _ in self.rig.switches.calls)

    def leaves_with(self, vrf: str) -> int:
        self.rig.site.advance()
        return sum(
            vrf in switch.operational["vrf"]
            for name, switch in self.rig.site.switches.items()
            if name.startswith("leaf")
        )

    async def row(self, name: str) -> Tenant | None:
        return next((t for t in await self.rig.store.tenants() if t.name == name), None)


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            world = await World().open()
            try:
                await scenario(world)
            finally:
                await world.close()

    asyncio.run(bounded())


def test_a_tenant_lives_from_create_to_delete():
    async def scenario(world: World) -> None:
        made = await world.keeper.create(ASKED)
        assert made.blockers == ()
        assert made.tenant is not None
        assert (made.tenant.phase, len(made.steps)) == (Phase.READY, 8)
        assert world.leaves_with("GREEN") == 8

        done = world.writes()
        again = await world.keeper.create(ASKED)
        assert (again.tenant, again.steps, world.writes()) == (made.tenant, (), done)
        grown = await world.keeper.change(Request(name="green", nodes=2))
        assert grown.tenant is not None
        assert (grown.tenant.nodes_wanted, grown.tenant.phase) == (2, Phase.READY)
        assert (await world.keeper.audit()).steps == ()

        gone = await world.keeper.delete("green")
        assert (gone.tenant, gone.blockers) == (None, ())
        assert world.leaves_with("GREEN") == 0
        assert await world.row("green") is None
        assert [
            r["detail"]["request"]
            for r in await world.rig.store.journal_rows()
            if r["kind"] == "tenant"
        ] == [*("create", "ready", "change", "delete", "gone")]
        assert (await world.keeper.delete("green")).blockers == ()

    run(scenario)


def test_a_dry_run_shows_each_leaf_s_lines_and_writes_nothing():
    async def scenario(world: World) -> None:
        found = await world.keeper.create(ASKED, dry_run=True)

        assert {s.device for s in found.steps} == {f"leaf-su0-r{r}" for r in range(8)}
        assert all("nv set vrf GREEN evpn vni 4001" in s.lines for s in found.steps)
        assert world.writes() == 0
        assert await world.row("green") is None

    run(scenario)


def test_a_silent_leaf_keeps_every_leaf_as_it_is_and_the_wish_is_not_forgotten():
    async def scenario(world: World) -> None:
        silent = world.rig.site.nvue["leaf-su0-r5"]
        silent.reachable = lambda: False
        found = await world.keeper.create(ASKED)

        assert [b.reason for b in found.blockers] == [Reason.UNREACHABLE]
        assert (world.writes(), world.leaves_with("GREEN")) == (0, 0)
        row = await world.row("green")
        assert row is not None
        assert row.phase is Phase.MAKING

        silent.reachable = lambda: True
        settled = await world.new_keeper().settle("green")
        assert settled.tenant is not None
        assert settled.tenant.phase is Phase.READY
        assert world.leaves_with("GREEN") == 8

    run(scenario)


@pytest.mark.parametrize("at", [1, 2, 3, 9, 20])
def test_whoever_is_interrupted_goes_on_where_the_leaves_are(at):
    async def scenario(world: World) -> None:
        count = 0
        passed = world.rig.switches.request

        async def request(*given: Any) -> Any:
            nonlocal count
            answer = await passed(*given)
            count += given[1].method != "GET"
            if count >= at:
                raise Killed  # the process is gone; the request was carried out
            return answer

        world.rig.switches.request = request  # type: ignore[method-assign]
        with pytest.raises(Killed):
            await world.keeper.create(ASKED)
        world.rig.switches.request = passed  # type: ignore[method-assign]

        again = await world.new_keeper().create(ASKED)

        assert again.blockers == ()
        assert again.tenant is not None
        assert again.tenant.phase is Phase.READY
        assert world.leaves_with("GREEN") == 8

    run(scenario)


def test_a_tenant_with_a_port_in_its_network_is_not_deleted_whatever_the_rows_say():
    async def scenario(world: World) -> None:
        await world.keeper.create(ASKED)
        ports = world.rig.nodes["su0-n00"].ports
        await world.rig.tenancy.move(ports, "GREEN")

        found = await world.keeper.delete("green")

        assert {b.reason for b in found.blockers} == {Reason.ISOLATION}
        assert len(found.blockers) == 8
        assert world.leaves_with("GREEN") == 8
        assert world.rig.truth("su0-n00") == {"GREEN"}

    run(scenario)


def test_shrinking_writes_tenant_and_nodes_together_or_neither():
    async def scenario(world: World) -> None:
        await world.keeper.create(ASKED)
        store = world.rig.store
        node = await store.save_node(
            world.rig.nodes["su0-n00"].model_copy(
                update={
                    "tenant": "green",
                    "vrf": "GREEN",
                    "state": State.RELEASED,
                    "placement": Placement.CUSTOMER,
                }
            )
        )
        row = await world.row("green")
        assert row is not None
        stale = node.model_copy(update={"generation": node.generation - 1})
        with pytest.raises(StaleWrite):
            await store.save_tenant(
                row.model_copy(update={"nodes_wanted": 0}),
                new=False,
                nodes=(stale,),
                request="shrink",
                now=1.0,
            )
        assert await world.row("green") == row

        found = await world.keeper.shrink("green", 0)

        assert [n.id for n in found.nodes] == ["su0-n00"]
        left = await store.node("su0-n00")
        assert left is not None
        assert (left.state, left.tenant, left.served) == (State.DRAINING, "", "green")
        assert [b.reason for b in (await world.keeper.delete("green")).blockers] == [
            Reason.ISOLATION
        ]

    run(scenario)


def test_two_tenants_at_one_time_get_two_numbers():
    async def scenario(world: World) -> None:
        found = await asyncio.gather(
            world.keeper.create(Request(name="a1")), world.new_keeper().create(Request(name="a2"))
        )

        numbers = [a.tenant.number for a in found if a.tenant is not None]
        assert len(set(numbers)) == len(numbers)
        assert len({t.number for t in await world.rig.store.tenants()}) == len(
            await world.rig.store.tenants()
        )

    run(scenario)


def test_a_listed_tenant_of_the_same_name_does_not_overwrite():
    async def scenario(world: World) -> None:
        made = (await world.keeper.create(ASKED)).tenant
        await world.rig.store.put_tenant(Tenant(name="green", vrf="OTHER"))

        assert await world.row("green") == made
        with pytest.raises(StaleWrite):
            await world.rig.store.put_tenant(Tenant(name="lime", vrf="GREEN"))

    run(scenario)


def test_the_api_does_what_the_command_line_does_for_whoever_has_the_token():
    async def scenario(world: World) -> None:
        app = application(world.keeper, world.rig.store, digest_of(TOKEN))
        key = {"Authorization": f"Bearer {TOKEN}"}
        path = "/api/v1/tenants/green"
        async with TestClient(TestServer(app)) as client:
            for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {TOKEN}"}):
                refused = await client.get("/api/v1/tenants", headers=headers)
                assert (refused.status, refused.content_type) == (401, "application/problem+json")
            dry = await client.put(path + "?dry_run=true", json={"nodes": 1}, headers=key)
            assert (dry.status, len((await dry.json())["steps"])) == (201, 8)
            assert (await client.get(path, headers=key)).status == 404

            made = await client.put(path, json={"nodes": 1}, headers=key)
            again = await client.put(path, json={"nodes": 1}, headers=key)
            assert (made.status, again.status) == (201, 200)
            assert (await again.json())["written"] is False
            shown = await (await client.get(path, headers=key)).json()
            assert (shown["tenant"]["phase"], shown["usage"]["gpus"]) == ("ready", 8)

            for body in (b"{", b'{"nodes": -1}', b'{"x": 1}', b"[" * 9999, b'{"nodes": 1e99}'):
                bad = await client.put(path, data=body, headers=key)
                assert (bad.status, (await bad.json())["status"]) == (400, 400)
            large = await client.put(path, data=b" " * 300_000, headers=key)
            assert large.status == 413
            fewer = await client.post(path + "/shrink", json={"to": 9}, headers=key)
            assert (fewer.status, (await fewer.json())["blockers"][0]["reason"]) == (409, "refused")
            nobody = await client.post("/api/v1/tenants/x/shrink", json={"to": 0}, headers=key)
            assert nobody.status == 404

            world.rig.site.nvue["leaf-su0-r0"].reachable = lambda: False
            waits = await client.delete(path, headers=key)
            assert (waits.status, (await waits.json())["tenant"]["phase"]) == (202, "leaving")
            world.rig.site.nvue["leaf-su0-r0"].reachable = lambda: True
            gone = await client.delete(path, headers=key)
            assert (gone.status, (await gone.json())["tenant"]) == (200, None)

    run(scenario)


def test_without_a_token_nobody_is_let_in():
    async def scenario(world: World) -> None:
        app = application(world.keeper, world.rig.store, "")
        async with TestClient(TestServer(app)) as client:
            for token in ("", " ", TOKEN):
                headers = {"Authorization": f"Bearer {token}"}
                assert (await client.get("/api/v1/tenants", headers=headers)).status == 401

    run(scenario)

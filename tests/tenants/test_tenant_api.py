"""The REST API of tenants: for whoever has the token, and the same as the command line."""

from __future__ import annotations

from aiohttp.test_utils import TestClient, TestServer
from worlds import World, run

from provisioner.api.app import application, digest_of

TOKEN = "t0ken"


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

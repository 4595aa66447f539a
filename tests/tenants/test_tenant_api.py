"""The REST API of tenants: the same as the command line, on a simulated site."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from aiohttp.test_utils import TestClient, TestServer
from worlds import World, run

from provisioner.access.tokens import new_token
from provisioner.api import table
from provisioner.api.app import build_application
from provisioner.control.context import Context
from provisioner.daemon.api import api_parts
from provisioner.daemon.data import read_matrix
from provisioner.model.access import Role
from provisioner.settings import Settings
from provisioner.store.rows import request_rows as token_rows

MATRIX = Path(__file__).parents[2] / "firmware_matrix.yaml"


async def set_groups(client: TestClient, path: str, key: dict[str, str]) -> None:
    rule = {"protocol": "tcp", "ports": [22], "source": "10.0.0.0/8"}
    groups = {"security_groups": [{"name": "web", "rules": [rule]}]}
    dry = await client.patch(path + "?dry_run=true", json=groups, headers=key)
    lines = (await dry.json())["result"]["steps"][0]["lines"]
    assert "filter provisioner_sg_GREEN_web: permit tcp port 22 from 10.0.0.0/8" in lines
    assert (await client.patch(path, json=groups, headers=key)).status == 200
    bad = await client.patch(path, json={"security_groups": [{"name": "Web"}]}, headers=key)
    assert (bad.status, (await bad.json())["blockers"][0]["reason"]) == (409, "refused")
    read = await (await client.get(path + "/filters", headers=key)).json()
    assert read == {"ports": [], "blockers": []}  # no node serves it yet
    await client.patch(path, json={"security_groups": None}, headers=key)


def test_the_api_does_what_the_command_line_does():
    async def scenario(world: World) -> None:
        store, clock = world.rig.store, world.rig.clock
        now = clock.now()
        token, record = new_token("ada", Role.OPERATOR, "", 1.0, now)
        await store.write(partial(token_rows.add_token, token=record, now=now))
        parts = api_parts(
            store,
            world.keeper,
            read_matrix([MATRIX]),
            Path("artifacts"),
            Context(store, clock, Settings()),
        )
        key, path = {"Authorization": f"Bearer {token}"}, "/v1/tenants/green"
        async with TestClient(TestServer(build_application(parts, table.ALL))) as client:
            dry = await client.put(path + "?dry_run=true", json={"nodes": 1}, headers=key)
            assert (dry.status, len((await dry.json())["result"]["steps"])) == (200, 8)
            assert (await client.get(path, headers=key)).status == 404

            made = await client.put(path, json={"nodes": 1}, headers=key)
            again = await client.put(path, json={"nodes": 1}, headers=key)
            assert (made.status, again.status) == (200, 200)
            written = [(await a.json())["result"]["written"] for a in (made, again)]
            assert written == [True, False]
            shown = await (await client.get(path, headers=key)).json()
            assert (shown["tenant"]["phase"], shown["usage"]["gpus"]) == ("ready", 8)

            quota = {"quota": {"nodes": 4, "gpus": None, "prefixes": None}}
            await client.patch(path, json=quota, headers=key)
            merged = await (await client.get(path, headers=key)).json()
            assert (merged["tenant"]["nodes_wanted"], merged["tenant"]["quota"]) == (
                1,
                quota["quota"],
            )
            reset = await client.patch(path, json={"quota": None}, headers=key)
            assert (await reset.json())["result"]["tenant"]["quota"]["nodes"] is None
            await client.patch(path, json=quota, headers=key)
            replaced = await client.put(path, json={"nodes": 1}, headers=key)
            assert (await replaced.json())["result"]["tenant"]["quota"]["nodes"] is None
            emptied = await client.put(path, json={}, headers=key)
            assert "Use shrink" in (await emptied.json())["blockers"][0]["unblock"]

            await set_groups(client, path, key)

            for body in (b"{", b'{"nodes": -1}', b'{"x": 1}', b"[" * 9999, b'{"nodes": 1e99}'):
                typed = {**key, "Content-Type": "application/json"}
                bad = await client.put(path, data=body, headers=typed)
                assert (bad.status, (await bad.json())["status"]) == (400, 400)
            large = await client.put(path, data=b" " * 300_000, headers=key)
            assert large.status == 413
            fewer = await client.post(path + "/shrink", json={"to": 9}, headers=key)
            assert (fewer.status, (await fewer.json())["blockers"][0]["reason"]) == (409, "refused")
            nobody = await client.post("/v1/tenants/x/shrink", json={"to": 0}, headers=key)
            assert nobody.status == 404

            world.rig.site.nvue["leaf-su0-r0"].reachable = lambda: False
            waits = await client.delete(path, headers=key)
            told = await waits.json()
            assert (waits.status, told["state"]) == (202, "unfinished")
            assert told["result"]["tenant"]["phase"] == "leaving"
            followed = await client.get(waits.headers["Location"], headers=key)
            assert await followed.json() == told
            world.rig.site.nvue["leaf-su0-r0"].reachable = lambda: True
            gone = await client.post(path + "/settle", headers=key)
            assert (gone.status, (await gone.json())["result"]["tenant"]) == (200, None)

    run(scenario)

"""SSH keys of a tenant over the API: its own requests, the operators', and nobody else's."""

from __future__ import annotations

from served import Served, run

KIND = "ssh-ed25519"
KEY = f"{KIND} AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
PRINT = "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA"
PATH = "/tenants/red/keys"


def test_a_tenant_keeps_its_own_keys_and_no_other_one_touches_them():
    async def scenario(served: Served) -> None:
        body = {"public_key": f"{KEY} ada@laptop"}
        foreseen = await served.ask("red", "PUT", f"{PATH}/laptop?dry_run=true", body)
        assert "the keys: laptop" in foreseen[1]["result"]["lines"][0]
        assert (await served.ask("red", "GET", PATH))[1] == {"items": []}

        made = await served.ask("red", "PUT", f"{PATH}/laptop", body)
        again = await served.ask("operator", "PUT", f"{PATH}/desk", body)
        others = [
            await served.ask("blue", verb, f"{PATH}/laptop", body if verb == "PUT" else None)
            for verb in ("GET", "PUT", "DELETE")
        ]
        bad = await served.ask("red", "PUT", f"{PATH}/x", {"public_key": f'command="id" {KEY}'})
        named = await served.ask("red", "PUT", f"{PATH}/No%20name", body)
        shown = (await served.ask("viewer", "GET", PATH))[1]["items"]

        assert (made[0], made[1]["state"]) == (200, "done"), made
        assert again[0] == 409, again
        assert PRINT in str(again[1]), again
        assert [status for status, _ in others] == [404] * 3
        assert (bad[0], named[0]) == (400, 400)
        assert [(k["name"], k["public_key"], k["fingerprint"]) for k in shown] == [
            ("laptop", KEY, PRINT)
        ]
        assert shown[0]["added_by"].startswith("red")
        tenant = next(t for t in await served.store.tenants.list() if t.name == "red")
        grown = await served.ask("operator", "GET", "/tenants/red")
        assert grown[1]["tenant"]["ssh_keys"][0]["name"] == "laptop"
        removed = await served.ask("operator", "DELETE", f"{PATH}/laptop")
        assert removed[1]["state"] == "done"
        assert (await served.ask("red", "GET", f"{PATH}/laptop"))[0] == 404
        after = next(t for t in await served.store.tenants.list() if t.name == "red")
        assert after.ssh_keys == ()
        assert after.generation == tenant.generation + 1

    run(scenario)

"""Before a write to a BMC, connections of readings that rest are closed but one: to it alone."""

from __future__ import annotations

import asyncio

from devices import Bmc, run

from provisioner.adapters.bounded_http import close_resting, open_session


def test_what_rests_is_closed_but_one_at_the_named_host_alone() -> None:
    async def scenario() -> None:
        async with Bmc() as device, Bmc() as other, open_session(per_host=2, keep_alive=True) as s:

            async def read(url: str) -> None:
                async with s.get(f"{url}/redfish", ssl=False) as answer:
                    await answer.read()

            await asyncio.gather(*(read(one.url) for one in (device, device, other, other)))
            assert s.connector is not None
            resting = {key.port: found for key, found in s.connector._conns.items()}
            counts = [len(found) for found in resting.values()]
            assert counts == [2, 2]

            close_resting(s, device.url, keep=1)
            close_resting(s, "https://127.0.0.1:1", keep=0)  # never seen
            assert sorted(len(found) for found in resting.values()) == [1, 2]
            await read(device.url)

    run(scenario())

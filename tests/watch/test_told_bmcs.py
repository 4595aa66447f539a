"""A BMC whose events come to us need not be asked at every look, if the site says so."""

from __future__ import annotations

from pathlib import Path

import virtual_time
from serving import Serving, world

HOUR_S = 3600.0


def asked(folder: Path, told_s: float, *, streams: bool) -> int:
    """Requests to the host's BMC in an hour of looks every two minutes."""

    async def main() -> int:
        settings = {"watch_node_s": 120.0, "watch_s": 1e6, "watch_told_s": told_s}
        serving = Serving(world(folder, **settings))
        await serving.release(30 * 86400)
        try:
            await serving.start(streams=streams)
            await serving.world.clock.sleep(600.0)
            service = serving.world.services[serving.url()]
            before = service.requests
            await serving.world.clock.sleep(HOUR_S)
            return service.requests - before
        finally:
            await serving.stop()
            await serving.world.store.close()

    return virtual_time.run(main())


def test_a_bmc_that_streams_is_left_alone_between_rarer_glances(tmp_path: Path) -> None:
    assert asked(tmp_path, 6 * HOUR_S, streams=True) <= 2


def test_a_bmc_that_tells_nothing_is_asked_at_every_look(tmp_path: Path) -> None:
    assert asked(tmp_path, 6 * HOUR_S, streams=False) >= 29

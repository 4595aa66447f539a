"""A BMC whose events come to us need not be asked at every look, if the site says so."""

from __future__ import annotations

from pathlib import Path

import virtual_time
from serving import Serving, world

from provisioner.planning.watch.watch_rules import turn_came

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


def test_the_turn_of_each_bmc_comes_once_a_day_and_those_of_all_are_spread_over_it() -> None:
    day, first = 24 * HOUR_S, 1_790_000_000.0
    names = [f"n{number}/NIC_{number % 11}" for number in range(2400)]

    for name in names[:50]:
        came = {turn_came(name, day, first + hour * HOUR_S) for hour in range(240)}
        assert len({round(at, 3) for at in came}) in (10, 11)  # within ten days
        assert all(at <= first + 239 * HOUR_S for at in came)
    in_an_hour = [n for n in names if turn_came(n, day, first + HOUR_S) > first]
    assert 60 <= len(in_an_hour) <= 140  # 100 of 2,400, whenever we began

    assert turn_came("n1/host", 0.0, first) > first  # no period: it is asked at every look

"""Commands tell the time that the daemon on their data directory goes by."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from program import run

from provisioner.daemon.data import open_data
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind, State
from provisioner.runtime.wall_clock import CLOCK_FILE, WallClock, read_clock, write_clock

DAY_S = 86_400.0


def test_a_request_on_a_fast_site_is_made_at_the_sites_time(tmp_path: Path) -> None:
    tomorrow = WallClock(speed=2.0, epoch=time.time() - DAY_S)

    async def fill() -> None:
        async with open_data(tmp_path, 1.0) as opened:
            write_clock(tmp_path, tomorrow)
            await opened.store.nodes.add(
                Node(id="n0", kind=NodeKind.HOST, state=State.QUARANTINED, profile="hgx")
            )

    async def asked_at() -> float:
        async with open_data(tmp_path, 1.0) as opened:
            return max(float(row["at"]) for row in await opened.store.journal.list())

    asyncio.run(fill())
    done = run(["node", "retry", "n0", "--data", str(tmp_path)], tmp_path)

    assert done.returncode == 0, done.stderr
    assert asyncio.run(asked_at()) > time.time() + DAY_S / 2


def test_a_daemon_in_real_time_takes_a_fast_clock_away(tmp_path: Path) -> None:
    write_clock(tmp_path, WallClock(speed=300.0, epoch=5.0))
    assert (read_clock(tmp_path).speed, read_clock(tmp_path).epoch) == (300.0, 5.0)

    write_clock(tmp_path, WallClock())

    assert read_clock(tmp_path).speed == 1.0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"speed": 0, "epoch": 1}', '{"speed": 1e9, "epoch": 1}',
     '{"speed": 2, "epoch": NaN}', '{"speed": "x", "epoch": 1}', "[" * 4000],
)  # fmt: skip
def test_what_tells_no_clock_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / CLOCK_FILE).write_text(text)

    with pytest.raises(InputError, match="tells no clock"):
        read_clock(tmp_path)

"""`provisioner watch status`: what the watch does is told as it is, also where it does nothing."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest
import virtual_time
from given_events import in_state
from program import run
from serving import HOST, Serving, world

from provisioner.control.watch.alert_keeper import PortReport
from provisioner.control.watch.watch_standing import read_standing
from provisioner.control.watch.watcher import PortWatches
from provisioner.daemon.data import STATUS_FILE, kept_status, open_data, read_status, write_status
from provisioner.model.alert import WatchStatus, Way
from provisioner.model.node import State
from provisioner.planning.watch.watch_rules import Counters


def shown(data: Path, *words: str) -> tuple[int, str]:
    done = run(["watch", "status", *words, "--data", str(data)], data)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> list[WatchStatus]:
    """A watch with streams; then one stream is broken, and somebody pushes counters."""

    async def main() -> list[WatchStatus]:
        folder = tmp_path_factory.mktemp("site")
        serving = Serving(world(folder, watch_s=300.0))
        await serving.release()
        clock = serving.world.clock
        try:
            await serving.start()
            begun = read_standing(serving.watcher, clock.now())
            async with kept_status(folder, clock) as begin:
                begin(serving.watcher)
                await clock.sleep(700.0)
                well, _ = read_status(folder)
            assert list(folder.glob("watch*")) == []  # nobody tells it any more
            counters = Counters(at=clock.now(), values={"rx_packets": 1})
            report = PortReport(node=HOST, port="rail3", counters=counters, at=clock.now())
            await serving.watcher.count([report])
            host = serving.world.site.machines[HOST].bmcs["host"]
            host.gone_until = clock.now() + 60  # a stream that lived is opened again at once
            serving.streams.break_off(serving.url())
            await clock.sleep(1.0)
            return [begun, well, read_standing(serving.watcher, clock.now())]
        finally:
            await serving.stop()
            await serving.world.store.close()

    return virtual_time.run(main())


def ways(status: WatchStatus) -> dict[str, Way]:
    return {b.bmc: b.way for b in status.nodes[0].bmcs}


def test_the_ways_of_each_bmc_are_told_as_they_are(looks: list[WatchStatus]) -> None:
    begun, well, broken = looks

    assert begun.nodes == ()  # nothing was looked at yet, and that is said
    assert set(ways(well).values()) == {Way.STREAM}
    assert ways(broken)["host"] is Way.STREAM_BROKEN
    (node,) = well.nodes
    assert all(0 < b.heard_at <= well.at for b in node.bmcs)
    assert well.at - node.looked_at <= 300.0
    assert sum(b.reports for b in node.bmcs) > 0
    assert (node.counted, node.ports) == (8, 8)
    assert node.counters_at == 0.0
    assert broken.nodes[0].counters_at > 0.0
    assert not well.listener


async def _empty(data: Path) -> None:
    async with open_data(data, 1.0):
        pass


def test_what_nobody_tells_is_said_and_so_is_silence(
    looks: list[WatchStatus], tmp_path: Path
) -> None:
    virtual_time.run(_empty(tmp_path))
    virtual_time.run(write_status(tmp_path / STATUS_FILE, looks[1], looks[1].nodes))

    code, text = shown(tmp_path)
    _, one = shown(tmp_path, HOST)
    _, document = shown(tmp_path, "--json")

    assert code == 0
    assert "nothing of QueueStuck, Rocet.*" in text
    assert "no --events-url" in text
    assert "nobody tells: QueueStuck, Rocet.*" in one
    assert "LinkFlap" not in one
    assert json.loads(document)["status"]["nodes"][0]["node"] == HOST

    # of a large fleet it tells less often, as it says itself
    rare = looks[1].model_copy(update={"every_s": 300.0})
    virtual_time.run(write_status(tmp_path / STATUS_FILE, rare, rare.nodes))
    ago = time.time() - 600.0
    os.utime(tmp_path / STATUS_FILE, (ago, ago))
    assert shown(tmp_path)[0] == 0

    # a daemon that tells nothing any more is no good watch
    assert stat.S_IMODE((tmp_path / STATUS_FILE).stat().st_mode) == 0o600
    os.utime(tmp_path / STATUS_FILE, (1.0, 1.0))
    code, text = shown(tmp_path, "--json")
    assert code == 1
    assert json.loads(text.splitlines()[0])["stale"] is True


def test_ports_that_are_listed_and_not_moved_are_shown(
    looks: list[WatchStatus], tmp_path: Path
) -> None:
    ports = {f"leaf-su0-r0/swp{n:02}": "the site declares it as its own" for n in range(60)}
    listed = looks[1].model_copy(update={"listed_ports": ports, "leaf_ports_read": {"leaf": 1.0}})
    virtual_time.run(_empty(tmp_path))
    virtual_time.run(write_status(tmp_path / STATUS_FILE, listed, listed.nodes))

    _, text = shown(tmp_path)
    _, whole = shown(tmp_path, "--all")
    _, document = shown(tmp_path, "--json")

    assert (text.count("leaf-su0-r0/"), whole.count("leaf-su0-r0/")) == (40, 60)
    assert "the site declares it as its own" in text
    assert "and 20 more ports: --all" in text
    assert "more ports" not in whole
    assert json.loads(document)["status"]["listed_ports"] == ports
    assert json.loads(document)["status"]["leaf_ports_read"] == {"leaf": "1970-01-01T00:00:01.000Z"}


def test_the_watch_of_leaves_tells_which_ports_it_lists(tmp_path: Path) -> None:
    """A storage port in a customer's network, in a site as `serve` runs it."""

    async def main() -> WatchStatus:
        serving = Serving(world(tmp_path, watch_ports_s=60.0, ports_not_ours=("leaf-*/swp60",)))
        await serving.release()
        store, clock = serving.world.store, serving.world.clock
        row = await store.nodes.get("leaf-su0-r0")
        assert row is not None
        await store.nodes.save(in_state(row, State.RELEASED, clock.now()))
        leaf = serving.world.site.switches["leaf-su0-r0"]
        leaf.add_port("swp60", "172.9.9.1/31")
        for tree in (leaf.operational, leaf.applied, leaf.startup):
            tree["interface"]["swp60"].setdefault("ip", {})["vrf"] = "RED"
        try:
            await serving.start()
            await serving.world.clock.sleep(200.0)
            assert serving.daemon is not None
            beside = PortWatches(serving.daemon.leaf_watch)
            return read_standing(serving.watcher, serving.world.clock.now(), beside)
        finally:
            await serving.stop()
            await serving.world.store.close()

    status = virtual_time.run(main())

    assert status.listed_ports == {
        "leaf-su0-r0/swp60": "the site declares it as its own (ports_not_ours)"
    }
    assert status.leaf_ports_read["leaf-su0-r0"] > 0.0

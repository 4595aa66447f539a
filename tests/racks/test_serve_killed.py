"""`provisioner serve` is killed (SIGKILL) in the middle of a rack's update, and started again.

The rack is simulated, in accelerated time, behind real HTTPS.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from duty_rig import FLASH, WANT
from served_rack import Served, ServedRack
from typer.testing import CliRunner

from provisioner.daemon.data import open_data
from provisioner.integrations.demo.rack_site import TARGETS, RackSite
from provisioner.integrations.racks.duty.approval import RackCampaignState, read_state
from provisioner.integrations.racks.rack_commands import app
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.ports import Secret

SPEED = 60.0
TRAY = {"compute-tray": {"hgx-bundle": TARGETS["compute-tray"]["hgx-bundle"]}}


def read_held(data: Path) -> list[tuple[str, str]]:
    """Return the active operations by the database's own rows."""
    with closing(sqlite3.connect(f"file:{data / 'provisioner.db'}?mode=ro", uri=True)) as db:
        query = "SELECT node, want FROM operations WHERE status = 'active'"
        return [(node, want) for node, want in db.execute(query)]


async def add_node(data: Path, url: str, pin: str) -> None:
    """Have the rack's tray be a node that rests."""
    bmc = BmcRef(name="host", url=url, pin=pin, rotated=True)
    node = Node(id="n0", kind=NodeKind.HOST, state=State.QUARANTINED, bmcs=(bmc,))
    node = node.model_copy(update={"placement": Placement.MAINTENANCE})
    async with open_data(data, time.time()) as opened:
        await opened.store.nodes.add(node)
        await opened.vault.put("n0/host", "admin", Secret("p"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("targets", "kills"), [(FLASH, 5), (TRAY, 6)], ids=["shelf", "tray"])
def test_a_daemon_killed_at_its_writes_writes_nothing_twice_and_loses_nothing(
    tmp_path: Path, targets: Any, kills: int
) -> None:
    campaign = tmp_path / "racks" / "campaigns" / "winter"
    campaign.mkdir(parents=True)
    site = RackSite(campaign, trays=1, switches=1, shelves=1, targets=targets)
    rack = ServedRack(site, tmp_path, SPEED)
    folder = tmp_path / "racks"
    daemon = Served(tmp_path, rack, {"racks_folder": str(folder), "racks_update": True})
    writes: list[tuple[str, str]] = []
    sent = threading.Event()
    dead = threading.Event()
    deaths = 0

    def watch(url: str, path: str) -> None:
        """Hold the answer to a write back until its sender is dead."""
        writes.append((url, path))
        if len(writes) > deaths and deaths < kills:
            gone = dead
            sent.set()
            gone.wait()

    with rack.serve():
        (folder / "racks.yaml").write_text(site.plan().model_dump_json())
        (campaign / "campaign.yaml").write_text(site.campaign().model_dump_json())
        (tmp_path / "data").mkdir(mode=0o700)
        asyncio.run(add_node(tmp_path / "data", site.units[0]["bmc"], rack.pin))
        words = ["approve", str(folder), "winter", "r01", "--who", "amy", "--why", "a CVE"]
        more = ["--user", "admin", "--nvos-user", "admin", "--yes"]
        assert CliRunner().invoke(app, [*words, *more]).exit_code == 0
        rack.watch = watch
        while deaths < kills:
            daemon.start()
            daemon.until("a write", sent.is_set)
            daemon.kill()
            deaths += 1
            sent.clear()
            dead.set()
            dead = threading.Event()
            assert read_held(tmp_path / "data") == [("n0", WANT)]
        daemon.start()
        daemon.until("done", lambda: is_done(campaign))
        daemon.until("freed", lambda: ("n0", WANT) not in read_held(tmp_path / "data"))
        daemon.kill()
    assert len(writes) >= kills
    assert [f"{e.unit}: {e.detail}" for e in site.rack.find("violation")] == []
    pushes = [(event.unit, event.detail) for event in site.rack.find("push")]
    assert len(pushes) == len(set(pushes)) == (2 if targets is FLASH else 1)
    steps = [json.loads(line) for line in (campaign / "journal").read_text().splitlines()]
    began = [(s["key"], s["what"]) for s in steps if s["kind"] == "began"]
    assert len(began) == len(writes), (began, writes)
    assert len(began) == len(set(began))


def is_done(campaign: Path) -> bool:
    state = read_state(campaign)
    return state is not None and state.state is RackCampaignState.DONE

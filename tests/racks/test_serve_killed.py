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
from duty_rig import FLASH, read_mark
from served_rack import Served, ServedRack
from typer.testing import CliRunner

from provisioner.daemon.data import open_data
from provisioner.integrations.demo.rack_site import TARGETS, RackSite
from provisioner.integrations.racks.duty.approval import RackCampaignState, read_state
from provisioner.integrations.racks.duty.node_holds import build_want
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.sim.racks.logins import Account
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


def make_served(folder: Path, targets: Any) -> tuple[RackSite, ServedRack, Served]:
    campaign = folder / "racks" / "campaigns" / "winter"
    campaign.mkdir(parents=True)
    site = RackSite(campaign, trays=1, switches=1, shelves=1, targets=targets)
    rack = ServedRack(site, folder, SPEED)
    settings = {"racks_folder": str(folder / "racks"), "racks_update": True}
    return site, rack, Served(folder, rack, settings)


def approve(folder: Path, site: RackSite, rack: ServedRack) -> None:
    """Write plan and campaign with the served addresses, and say that the daemon may begin."""
    racks = folder / "racks"
    (racks / "racks.yaml").write_text(site.plan().model_dump_json())
    (racks / "campaigns" / "winter" / "campaign.yaml").write_text(site.campaign().model_dump_json())
    (folder / "data").mkdir(mode=0o700)
    asyncio.run(add_node(folder / "data", site.units[0]["bmc"], rack.pin))
    words = ["approve", str(racks), "winter", "r01", "--who", "amy", "--why", "a CVE"]
    more = ["--user", "admin", "--nvos-user", "admin", "--yes"]
    told = CliRunner().invoke(app, [*words, *more])
    assert told.exit_code == 0, told.output


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("targets", "kills"), [(FLASH, 5), (TRAY, 6)], ids=["shelf", "tray"])
def test_a_daemon_killed_at_its_writes_writes_nothing_twice_and_loses_nothing(
    tmp_path: Path, targets: Any, kills: int
) -> None:
    site, rack, daemon = make_served(tmp_path, targets)
    campaign = tmp_path / "racks" / "campaigns" / "winter"
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
        approve(tmp_path, site, rack)
        rack.watch = watch
        while deaths < kills:
            daemon.start()
            daemon.until("a write", sent.is_set)
            daemon.kill()
            deaths += 1
            sent.clear()
            dead.set()
            dead = threading.Event()
            held = [("n0", build_want((read_mark(campaign),)))]
            assert read_held(tmp_path / "data") == held
        daemon.start()
        daemon.until("done", lambda: is_done(campaign))
        daemon.until("freed", lambda: held[0] not in read_held(tmp_path / "data"))
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


@pytest.mark.slow
@pytest.mark.long
def test_an_update_beside_the_watch_of_water_asks_two_things_at_one_time_in_one_session(
    tmp_path: Path,
) -> None:
    """Counted by the simulated BMCs, over HTTPS. A push has a connection of its own, beside one of
    readings that rests open.
    """
    site, rack, daemon = make_served(tmp_path, FLASH)
    for unit in site.units:
        rack.accounts[unit["bmc"]] = Account("admin", "p", must_change=False)
    with rack.serve():
        approve(tmp_path, site, rack)
        daemon.start()
        daemon.until("done", lambda: is_done(tmp_path / "racks" / "campaigns" / "winter"))
        daemon.kill()
    assert (tmp_path / "racks" / "water.json").exists()
    bmcs = {url: most for url, most in rack.most.items() if not url.startswith("https://10.0.2.")}
    assert len(bmcs) == 3
    assert max(bmcs.values()) <= 2, bmcs
    assert max(rack.asked_most[url] for url in bmcs) <= 2, rack.asked_most
    assert [account.most for account in rack.accounts.values()] == [1, 1, 1]

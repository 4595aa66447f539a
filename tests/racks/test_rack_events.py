"""Events of racks' BMCs: each is a reason to look at once, and decides nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from heard_site import DETECTORS, HeardSite

from provisioner.adapters.redfish.eventing.events import read_document
from provisioner.integrations.racks.duty.rack_events import GAP_S
from provisioner.integrations.racks.water_file import wait_for_water
from provisioner.integrations.sim.racks.rack import tell_leak
from provisioner.integrations.twin import loop
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.ports import Call, Reply, Secret

REACTION_S = 2.0
LEAK = tell_leak(f"{DETECTORS}/Chassis_0_LeakDetector_0_ColdPlate", "Degraded")


def live(
    site_of: Callable[[], HeardSite], act: Callable[[HeardSite], Coroutine[Any, Any, None]]
) -> HeardSite:
    """Run the watch in virtual time beside what a test does once it hears; return the site."""

    async def run() -> HeardSite:
        site = site_of()
        watching = asyncio.create_task(site.watch.run())
        await asyncio.sleep(90.0)
        await act(site)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return site

    return loop.run(run())


def test_a_leak_of_which_an_event_tells_is_off_in_two_seconds_beside_the_poll(
    tmp_path: Path,
) -> None:
    """`make soak NAME=racks ARGS="leaks 256"` has 256 racks."""

    async def act(site: HeardSite) -> None:
        for n in range(40):
            await asyncio.sleep(7.3)
            site.leak(f"r{n % 2}-t{n % 18}")

    site = live(lambda: HeardSite(tmp_path, 2), act)
    late = [site.off[name] - at for name, at in site.leaked.items()]
    assert len(late) == 18
    assert max(late) <= REACTION_S


def test_a_leak_waits_for_no_mute_unit_of_its_rack_whether_it_is_heard_or_polled(
    tmp_path: Path,
) -> None:
    """A mute BMC holds the file of the latch, and the turn of the poll, for minutes."""

    async def act(site: HeardSite) -> None:
        site.wires.mute.add("r0-t1")
        await asyncio.sleep(61.0)
        site.leak("r0-t0")
        site.leak("r0-t2", heard=False)
        await asyncio.sleep(400.0)

    site = live(lambda: HeardSite(tmp_path, 1, 3, 1), act)
    assert site.off["r0-t0"] - site.leaked["r0-t0"] <= REACTION_S
    assert site.off["r0-t2"] > site.leaked["r0-t2"]
    assert set(site.offs) == {"r0-t0", "r0-t2"}


def test_a_lost_event_and_a_broken_stream_leave_a_leak_to_the_poll(tmp_path: Path) -> None:
    async def act(site: HeardSite) -> None:
        site.rack.send("r0-t0", None)  # it breaks
        site.leak("r0-t0")
        await asyncio.sleep(site.watch.poll_s + 5.0)
        site.leak("r0-t1")  # and is followed again
        await asyncio.sleep(5.0)

    site = live(lambda: HeardSite(tmp_path, 1, 2, 1), act)
    assert REACTION_S < site.off["r0-t0"] - site.leaked["r0-t0"] <= site.watch.poll_s + 5.0
    assert site.off["r0-t1"] - site.leaked["r0-t1"] <= REACTION_S


@pytest.mark.parametrize(
    "sent",
    [
        [LEAK],
        [{"Events": [{"Message": "LeakDetector", "Severity": "OK"}]}],  # no id, no type, no origin
        [LEAK] * 60,
        [{"Events": [{"OriginOfCondition": {"@odata.id": DETECTORS}}]}, LEAK, LEAK],
        [{"Events": [None]}],
        ["leak", 7, {"Events": "leak"}],
        [{"Events": [{"MessageId": "Environmental.1.1.LeakDetectedNormal"}]}],
    ],
)
def test_events_without_ids_repeated_or_forged_cost_one_look_and_change_nothing(
    tmp_path: Path, sent: list[Any]
) -> None:
    """Each look is two requests of a BMC that is dry; a burst costs one more look at its end."""
    before: dict[str, Any] = {}

    async def act(site: HeardSite) -> None:
        await asyncio.sleep(10.0)
        before["asked"] = site.wires.asked["r0-t0"]
        before["file"] = (tmp_path / "water.json").read_bytes()
        for document in sent:
            site.rack.send("r0-t0", document)
        await asyncio.sleep(10.0)
        before["cost"] = site.wires.asked["r0-t0"] - before["asked"]
        before["same"] = (tmp_path / "water.json").read_bytes() == before["file"]

    site = live(lambda: HeardSite(tmp_path, 1, 2, 1), act)
    assert 0 < before["cost"] <= 2 * 4
    assert before["same"]
    assert not site.offs


def test_a_flood_of_events_costs_a_look_each_second_at_its_own_bmc_alone(tmp_path: Path) -> None:
    async def act(site: HeardSite) -> None:
        await asyncio.sleep(10.0)
        before = site.wires.asked.copy()
        for _ in range(5_000):
            site.rack.send("r0-t0", LEAK)
        await asyncio.sleep(15.0)
        cost = site.wires.asked - before
        assert 0 < cost["r0-t0"] <= 15 / GAP_S * 7
        assert not cost["r0-t1"]
        site.leak("r0-t0", heard=False)
        await asyncio.sleep(5.0)
        assert "r0-t0" in site.off  # it is still heard

    live(lambda: HeardSite(tmp_path, 1, 2, 1), act)


def test_an_event_of_dryness_clears_nothing(tmp_path: Path) -> None:
    async def act(site: HeardSite) -> None:
        site.leak("r0-t0")
        await asyncio.sleep(10.0)
        tray = site.tray("r0-t0")
        tray.detectors = dict.fromkeys(tray.detectors, "OK")
        tray.shown.change()
        for _ in range(9):
            site.rack.send("r0-t0", tell_leak(f"{DETECTORS}/x", "OK"))
            await asyncio.sleep(1.0)
        known = json.loads((tmp_path / "water.json").read_text())["units"]["r0-t0"]
        assert (known["state"], known["latched"], known["dry_looks"]) == ("wet", True, 0)

    live(lambda: HeardSite(tmp_path, 1, 2, 1), act)


def test_events_of_a_released_host_come_by_the_watch_that_follows_it(tmp_path: Path) -> None:
    """No second stream is opened to its BMC; among several daemons that watch is another one's."""

    async def act(site: HeardSite) -> None:
        url = next(url for url, told in site.rack.hosts.items() if told[0] == "r0-t0")
        bmc = BmcRef(name="host", url=f"{url}:443")
        site.rack.hosts[bmc.url] = site.rack.hosts[url]
        node = Node(id="n0", kind=NodeKind.HOST, state=State.RELEASED, bmcs=(bmc,))
        await site.parts.store.nodes.add(node)
        await site.parts.credentials.put("n0/host", "admin", Secret("p"))
        await asyncio.sleep(130.0)
        assert site.rack.streams["r0-t0"] == []
        assert len(site.rack.streams["r0-t1"]) == 1
        site.leak("r0-t0")
        for tell in site.watch_parts.heard:
            tell("n0", "host", read_document(LEAK))
        await asyncio.sleep(REACTION_S)
        assert site.off["r0-t0"] - site.leaked["r0-t0"] <= REACTION_S
        site.parts.shared = ()
        await asyncio.sleep(130.0)
        assert len(site.rack.streams["r0-t0"]) == 1

    live(lambda: HeardSite(tmp_path, 1, 2, 1), act)


def test_the_streams_of_units_rest_while_their_campaign_runs(tmp_path: Path) -> None:
    """Its rounds read their water, and a BMC has two connections of ours at most."""

    async def act(site: HeardSite) -> None:
        assert len(site.rack.streams["r0-t0"]) == 1
        site.watch.duty.busy = frozenset({"r0-t0"})
        site.watch.duty.on_busy(site.watch.duty.busy)
        await asyncio.sleep(130.0)
        assert site.rack.streams["r0-t0"] == []
        assert len(site.rack.streams["r0-t1"]) == 1
        site.watch.duty.busy = ()
        await asyncio.sleep(130.0)
        assert len(site.rack.streams["r0-t0"]) == 1

    live(lambda: HeardSite(tmp_path, 1, 2, 1), act)


def test_a_wet_unit_that_does_not_go_off_keeps_the_latch_from_no_command_nor_other_leak(
    tmp_path: Path,
) -> None:
    """It takes each Off and stays on, which is looked at for two minutes, and sends events."""
    waited: list[float] = []
    polled = {60: "r0-t1", 100: "r0-t2", 140: "r1-t0", 180: "r1-t2"}

    async def act(site: HeardSite) -> None:
        now = asyncio.get_running_loop().time
        request = site.wires.request

        async def refuse(address: Any, call: Call) -> Reply:
            name = site.rack.hosts[address.url.rstrip("/")][0]
            if call.method == "POST" and name == "r0-t0":
                return Reply(204, {}, b"")
            return await request(address, call)

        site.wires.request = refuse  # type: ignore[method-assign]
        site.leak("r0-t0")
        for number in range(300):
            await asyncio.sleep(1.0)
            site.rack.send("r0-t0", LEAK)
            if number % 37 == 5:
                begun = now()
                async with wait_for_water(tmp_path / "water.json", asyncio.sleep) as store:
                    waited.append(now() - begun)
                    assert store.units["r0-t0"].latched
            if number in polled:
                site.leak(polled[number], heard=False)
            if number == 200:
                site.leak("r1-t1")

    site = live(lambda: HeardSite(tmp_path, 2, 3, 1), act)
    assert len(waited) == 8
    assert max(waited) <= 30.0
    late = [site.off[name] - site.leaked[name] for name in polled.values()]
    assert max(late) <= site.watch.poll_s + 15.0
    assert site.off["r1-t1"] - site.leaked["r1-t1"] <= REACTION_S

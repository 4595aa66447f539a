"""A node that serves is watched through its BMCs alone; what is found revokes, no more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import virtual_time
from given_events import in_state
from serving import HOST, Serving, world

from provisioner.control.watch.alert_keeper import PortReport
from provisioner.integrations.sim.redfish.bmc import mount_registry
from provisioner.model.alert import ANY, Override
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import State

Result = TypeVar("Result")
XID_79 = ["GPU_SXM_3 Driver Event Message",
          "[1700000000][12][1] XID 79 pid=1, GPU has fallen off the bus."]  # fmt: skip


def lived(folder: Path, story: Callable[[Serving], Awaitable[Result]], **settings: float) -> Result:
    """Tell a story about a released node."""

    async def main() -> Result:
        serving = Serving(world(folder, **settings))
        await serving.release()
        try:
            return await story(serving)
        finally:
            await serving.stop()
            await serving.world.store.close()

    return virtual_time.run(main())


def fall_off_the_bus(serving: Serving) -> None:
    text = "The resource property GPU_SXM_3 Driver Event Message has detected errors"
    now = serving.world.clock.now()
    serving.events().emit("ResourceEvent.1.0.ResourceErrorsDetected", text, XID_79, now)


def test_a_well_node_raises_nothing_and_writes_nothing(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[Any, ...]:
        await serving.start()
        await serving.world.clock.sleep(120)
        before = len(await serving.world.store.journal.list())
        await serving.world.clock.sleep(2000)
        rows = len(await serving.world.store.journal.list()) - before
        return await serving.standing(), rows, serving.watcher.looked.keys()

    standing, rows, looked = lived(tmp_path, story)

    assert (standing, rows, set(looked)) == ({}, 0, {HOST})


def test_a_fatal_event_on_the_stream_revokes_and_the_node_goes_on_serving(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[Any, ...]:
        await serving.start()
        assert await serving.until(lambda _: bool(serving.streams.open_now), 900)
        await serving.world.clock.sleep(30)
        fall_off_the_bus(serving)
        came = await serving.until(lambda s: ("Xid79", "GPU_SXM_3") in s, 10)
        await serving.world.clock.sleep(60)
        return came, await serving.node(), await serving.world.store.evidence.is_revoked("c1")

    came, node, revoked = lived(tmp_path, story)

    assert came
    assert revoked
    assert node.state is State.RELEASED
    assert any("Xid79/GPU_SXM_3" in str(b) for b in node.blockers)


PUMPS = {  # as DSP8011 writes registries: the severity is the registry's, and the end too
    "PumpLost": {"Message": "Pump %1.", "MessageSeverity": "Critical"},
    "PumpNoted": {"Message": "Pump %1.", "MessageSeverity": "OK"},
    "PumpBack": {
        "Message": "Pump %1.",
        "MessageSeverity": "OK",
        "ClearingLogic": {"ClearsIf": "SameOriginOfCondition", "ClearsMessage": ["PumpLost"]},
    },
}


def test_an_event_without_a_severity_has_the_one_of_the_registry_that_its_bmc_serves(
    tmp_path: Path,
) -> None:
    async def story(serving: Serving) -> tuple[bool, bool, bool]:
        service = serving.world.services[serving.url()]
        mount_registry(service.tree, "Acme", "1.0.0", PUMPS)

        def tell(key: str) -> None:
            now = serving.world.clock.now()
            serving.events().emit(f"Acme.1.0.{key}", "words", ["Pump_1"], now, severity="")

        await serving.start()
        assert await serving.until(lambda _: bool(serving.streams.open_now), 900)
        await serving.world.clock.sleep(30)
        tell("PumpNoted")
        await serving.world.clock.sleep(60)
        quiet = not await serving.standing()
        tell("PumpLost")
        came = await serving.until(lambda s: ("Acme.PumpLost", "Pump_1") in s, 60)
        tell("PumpBack")
        ended = await serving.until(lambda s: ("Acme.PumpLost", "Pump_1") not in s, 60)
        return quiet, came, ended

    assert lived(tmp_path, story) == (True, True, True)


def test_an_override_keeps_the_certificate_until_it_ends(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[bool, bool]:
        now = serving.world.clock.now()
        await serving.book.put_override(
            Override(
                node=HOST,
                id="Xid79",
                target=ANY,
                by="me",
                why="known",
                made_at=now,
                until=now + 7200,
            ),
            RequestCarriedOut(about=HOST, request="alert.override", by="me"),
            now,
        )
        await serving.start()
        assert await serving.until(lambda _: bool(serving.streams.open_now), 900)
        await serving.world.clock.sleep(30)
        fall_off_the_bus(serving)
        assert await serving.until(lambda s: ("Xid79", "GPU_SXM_3") in s, 10)
        await serving.world.clock.sleep(600)
        held = await serving.world.store.evidence.is_revoked("c1")
        await serving.world.clock.sleep(7200)
        return held, await serving.world.store.evidence.is_revoked("c1")

    assert lived(tmp_path, story) == (False, True)


def test_a_daemon_that_comes_back_knows_the_alerts_and_carries_them_out(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[Any, ...]:
        await serving.start()
        assert await serving.until(lambda _: bool(serving.streams.open_now), 900)
        await serving.world.clock.sleep(30)
        fall_off_the_bus(serving)
        while not await serving.standing():
            await serving.world.clock.sleep(0.01)
        await serving.stop()  # at once: perhaps before anybody was told
        before = await serving.standing()
        await serving.start(streams=False)
        await serving.world.clock.sleep(60)
        return before, await serving.standing(), await serving.world.store.evidence.is_revoked("c1")

    before, after, revoked = lived(tmp_path, story)

    assert before == after == {("Xid79", "GPU_SXM_3"): "redfish/host"}
    assert revoked


def test_another_driver_in_the_host_is_seen_from_its_baseboard(tmp_path: Path) -> None:
    """Its host is the tenant's and is not asked: the HGX baseboard tells."""

    async def story(serving: Serving) -> tuple[Any, ...]:
        await serving.start(streams=False)
        serving.world.site.machines[HOST].host.loaded["host.driver"] = "999.99"
        came = await serving.until(lambda s: any(id_ == "Drift" for id_, _ in s), 3600)
        await serving.world.clock.sleep(60)
        return came, await serving.standing(), await serving.world.store.evidence.is_revoked("c1")

    came, standing, revoked = lived(tmp_path, story)

    assert came
    assert revoked
    assert {id_ for id_, _ in standing} == {"Drift"}
    assert all(target.startswith("hgx.driver/") for _, target in standing)


def test_a_bmc_that_is_silent_is_told_and_heard_again(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[Any, ...]:
        await serving.start(streams=False)
        await serving.world.clock.sleep(900)
        bmc = serving.world.site.machines[HOST].bmcs["DPU_0"]
        bmc.gone_until = serving.world.clock.now() + 3600
        told = await serving.until(lambda s: ("BmcSilent", "DPU_0") in s, 3000)
        over = await serving.until(lambda s: not s, 7200)
        return told, over, await serving.world.store.evidence.is_revoked("c1")

    assert lived(tmp_path, story) == (True, True, False)


def test_a_stream_that_breaks_is_opened_again_after_the_last_event(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[Any, ...]:
        await serving.start()
        url = serving.url()
        assert await serving.until(lambda _: url in serving.streams.open_now, 900)
        await serving.world.clock.sleep(30)
        serving.events().emit("Base.1.18.Success", "nothing", [], serving.world.clock.now())
        await serving.world.clock.sleep(5)
        serving.streams.break_off(url)
        fall_off_the_bus(serving)  # while nobody listens
        came = await serving.until(lambda s: ("Xid79", "GPU_SXM_3") in s, 60)
        return came, [last for opened, last in serving.streams.opened if opened == url]

    came, last_ids = lived(tmp_path, story)

    assert came
    assert last_ids == ["", "1"]


def test_a_node_that_serves_no_more_is_let_alone(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[bool, int, Any, Any]:
        await serving.start()
        assert await serving.until(lambda _: bool(serving.streams.open_now), 900)
        at = serving.world.clock.now() - 600
        await serving.watcher.count([PortReport(node=HOST, port="rail0", link="down", at=at)])
        flat = await serving.until(lambda s: ("LinkDown", "rail0") in s, 60)
        node = await serving.node()
        await serving.world.store.nodes.save(
            in_state(node, State.QUARANTINED, serving.world.clock.now())
        )
        await serving.world.clock.sleep(60)
        watcher = serving.watcher
        return flat, watcher.feeds.followed, watcher.ports.list_nodes(), await serving.standing()

    assert lived(tmp_path, story) == (True, 0, frozenset(), {})


def test_a_wet_host_is_alerted_at_the_next_glance_and_only_a_person_ends_it(tmp_path: Path) -> None:
    """A leak does not move a tenant; it stands when the detector is dry again."""

    async def story(serving: Serving) -> tuple[Any, ...]:
        machine = serving.world.site.machines[HOST]
        machine.leak_detectors = {"plate": "OK", "manifold": "OK"}
        await serving.start()
        await serving.world.clock.sleep(30)
        await serving.watcher.leaks.take(*await parts_of(serving))
        machine.leak_detectors["manifold"] = "LeakDetected"
        key = ("CoolantLeak", "1/manifold")
        came = await serving.until(lambda s: key in s, serving.world.settings.watch_node_s + 60)
        machine.leak_detectors["manifold"] = "OK"
        await serving.world.clock.sleep(600)
        return came, key in await serving.standing(), await serving.watcher.keeper.list_held_nodes()

    came, stands, held = lived(tmp_path, story)

    assert came
    assert stands
    assert held == {HOST}


async def parts_of(serving: Serving) -> tuple[Any, ...]:
    node = await serving.node()
    host = next(b for b in node.bmcs if b.kind == "host")
    return node, host, await serving.watcher.eyes.read_versions(node, host, parts=True)

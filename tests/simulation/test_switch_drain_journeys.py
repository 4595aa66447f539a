"""A switch goes down only when nothing goes through it any more; its own log is the judge."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from leaf_rig import Rig

from provisioner.execution.actions.once import Sent
from provisioner.execution.steps.methods_switch import boot_image
from provisioner.model.inventory import Activation
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Step, StepKind

SPINE, NEW = "spine-0", "5.12.1.100"
STEP = Step(
    kind=StepKind.ACTIVATE,
    activation=Activation.IMAGE_REBOOT,
    activates=(("switch.os/switch", NEW),),
    disruption=Disruption.SWITCH,
    duration_s=600,
    expected=(),
    reason="test",
)
Story = Callable[[Rig], Awaitable[None]]


def lived(story: Story, **settings: Any) -> Rig:
    """One story on a rig whose spine-0 has the new image beside the running one."""

    async def live() -> Rig:
        rig = await Rig(nodes=3, **settings).open()
        rig.site.switches[SPINE].partitions[2] = NEW
        try:
            await story(rig)
        finally:
            await rig.close()
        return rig

    return asyncio.run(live())


async def upgraded(rig: Rig, name: str = SPINE) -> tuple[Any, Blocker | None]:
    """(what sending said, what finishing said) of one reboot into the new image."""
    work = await boot_image(rig.effects, rig.nodes[name], STEP)
    assert not isinstance(work, Blocker)
    seen = await work.act.look()
    if isinstance(seen, Blocker):
        return seen, seen
    sent = await work.act.send()
    if isinstance(sent, Blocker):
        return sent, sent
    return sent, await work.finish(entry(seen))


def entry(seen: Mapping[str, Any]) -> LedgerEntry:
    return LedgerEntry(
        operation="o",
        node=SPINE,
        action="boot",
        attempt=1,
        status=ActionStatus.SENT,
        intended_at=0.0,
        before={"seen": dict(seen)},
    )


def kinds(rig: Rig, name: str = SPINE) -> list[str]:
    """What truly happened to a switch, in order."""
    rig.site.advance()
    shown = {"config_applied", "reset", "boot", "traffic_lost"}
    return [e.kind for e in rig.site.switches[name].log if e.kind in shown]


def shut(rig: Rig, name: str = SPINE) -> str:
    """What the switch starts with: is it drained?"""
    found = rig.site.switches[name].startup
    return str(found.get("router", {}).get("bgp", {}).get("graceful-shutdown", "off"))


def test_a_spine_is_drained_rebooted_seen_well_and_put_back() -> None:
    said: list[Any] = []

    async def story(rig: Rig) -> None:
        said.extend(await upgraded(rig))

    rig = lived(story)

    assert said == [Sent(), None]
    assert rig.site.switches[SPINE].version == NEW
    assert kinds(rig) == ["config_applied", "reset", "boot", "config_applied"]
    assert shut(rig) == "off"


def test_a_switch_that_others_cannot_go_around_is_not_rebooted_and_comes_back_into_service() -> (
    None
):
    said: list[Any] = []

    async def story(rig: Rig) -> None:
        for name in rig.site.nvue:
            if name.startswith("spine") and name != SPINE:
                rig.site.switches[name].down_until = float("inf")
        said.extend(await upgraded(rig))

    rig = lived(story)

    assert said[0].reason is Reason.BUSY
    assert "more ports carry traffic" in said[0].detail
    assert kinds(rig) == ["config_applied", "config_applied"]
    assert (rig.site.switches[SPINE].boots, shut(rig)) == (0, "off")


def test_a_switch_that_refuses_to_boot_the_image_comes_back_into_service() -> None:
    said: list[Any] = []

    async def story(rig: Rig) -> None:
        rig.site.switches[SPINE].partitions[2] = None
        said.extend(await upgraded(rig))

    rig = lived(story)

    assert said[0].reason is Reason.UPDATE_FAILED
    assert kinds(rig) == ["config_applied", "config_applied"]
    assert (rig.site.switches[SPINE].boots, shut(rig)) == (0, "off")


def test_without_the_drain_the_simulator_would_have_seen_the_loss() -> None:
    async def story(rig: Rig) -> None:
        site = rig.site
        site.nvue[SPINE].fabric.lose_traffic(site.advance())

    assert kinds(lived(story)) == ["traffic_lost"]


def test_a_switch_whose_sessions_do_not_come_back_stays_drained() -> None:
    said: list[Any] = []

    async def story(rig: Rig) -> None:
        work = await boot_image(rig.effects, rig.nodes[SPINE], STEP)
        assert not isinstance(work, Blocker)
        seen = dict(await work.act.look())
        assert isinstance(await work.act.send(), Sent)
        said.append(await work.finish(entry({**seen, "sessions": [*seen["sessions"], "swp63"]})))

    rig = lived(story, switch_settle_limit_s=60.0)

    assert said[0].reason is Reason.FABRIC
    assert "BGP session swp63" in said[0].detail
    assert shut(rig) == "on"


class Growing(dict[str, int]):
    """A counter that grows with each look at it."""

    seen = 0

    def get(self, name: str, otherwise: int = 0) -> int:  # type: ignore[override]
        self.seen += 1
        return self.seen


def test_a_switch_that_counts_broken_packets_after_its_reboot_stays_drained() -> None:
    async def story(rig: Rig) -> None:
        rig.site.switches[SPINE].planted.errors = Growing()
        _, problem = await upgraded(rig)

        assert problem is not None
        assert problem.reason is Reason.FABRIC
        assert "count broken packets" in problem.detail
        assert rig.site.nvue[SPINE].fabric.is_drained()

    lived(story, switch_settle_limit_s=120.0)


class Booting(dict[str, Any]):
    """Two hosts that are never up both at a time: each port is down for two minutes of four."""

    def __init__(self, now: Callable[[], float], one: str, other: str) -> None:
        super().__init__({one: {}, other: {}})
        self._now, self._one = now, one

    def get(self, name: str, otherwise: Any = None) -> Any:
        if name not in self:
            return otherwise
        return {"down": (self._now() % 240 < 120) == (name == self._one)}


def test_hosts_that_come_and_go_below_a_leaf_do_not_keep_it_from_being_well() -> None:
    leaf = "leaf-su0-r0"

    async def story(rig: Rig) -> None:
        switch = rig.site.switches[leaf]
        hosts = [n for n, cable in switch.neighbours.items() if cable.system.startswith("su")]
        switch.partitions[2] = NEW
        work = await boot_image(rig.effects, rig.nodes[leaf], STEP)
        assert not isinstance(work, Blocker)
        seen = await work.act.look()
        assert not isinstance(seen, Blocker)
        assert {*hosts[:2]} < {*seen["ports"]}
        switch.planted.links = Booting(rig.effects.clock.now, *hosts[:2])
        assert isinstance(await work.act.send(), Sent)
        assert await work.finish(entry(seen)) is None

    lived(story, poll_s=30.0)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("link/stats", {"in-bytes": "many"}),
        ("link/stats", {"in-bytes": -1, "out-bytes": 0}),
        ("router/bgp", ["on"]),
        ("router/bgp/neighbor", {"swp1": {}}),
        ("/interface", {"swp1": {"link": {"state": "down"}}}),
        ("/interface", {"swp1": 1}),
        ("evpn/vni", "none"),
    ],
)
def test_what_cannot_be_read_is_never_taken_for_silence(path: str, answer: Any) -> None:
    said: list[Any] = []

    async def story(rig: Rig) -> None:
        service = rig.site.nvue[SPINE]
        true = service.handle

        def lying(method: str, at: str, *rest: Any) -> Any:
            told = true(method, at, *rest)
            if method == "GET" and at.endswith(path):
                return type(told)(200, {}, json.dumps(answer).encode())
            return told

        service.handle = lying  # type: ignore[method-assign]
        said.extend(await upgraded(rig))

    rig = lived(story)

    assert isinstance(said[0], Blocker)
    assert rig.site.switches[SPINE].boots == 0


def test_who_takes_over_a_drained_switch_begins_at_the_top() -> None:
    said: list[Any] = []

    async def story(rig: Rig) -> None:
        # the answer to the reboot is lost before the switch did anything
        rig.switches.lose = lambda _n, method, path: method == "POST" and path.endswith("/system")
        said.extend(await upgraded_or_lost(rig))

    rig = lived(story)

    assert said[-1] is None
    assert kinds(rig).count("reset") == 1
    assert "traffic_lost" not in kinds(rig)
    assert shut(rig) == "off"


async def upgraded_or_lost(rig: Rig) -> list[Any]:
    """Send once with its answer lost; a successor looks, adopts, and finishes."""
    work = await boot_image(rig.effects, rig.nodes[SPINE], STEP)
    assert not isinstance(work, Blocker)
    seen = await work.act.look()
    assert not isinstance(seen, Blocker)
    with pytest.raises(Exception, match="the answer was lost"):
        await work.act.send()
    rig.switches.lose = lambda _n, _method, _path: False
    await rig.clock.sleep(rig.effects.settings.switch_limit_s)
    now = await work.act.look()
    assert not isinstance(now, Blocker)
    assert work.act.happened(seen, now) is True
    return [now, await work.finish(entry(seen))]

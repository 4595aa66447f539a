"""A switch that forgets its jobs: what became of them is read from its state, at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from leaf_rig import Rig

from provisioner.execution.actions.once import Sent
from provisioner.execution.observe.rotation import open_switch, turn_of
from provisioner.execution.steps.methods_switch import boot_image
from provisioner.integrations.sim.switches.nvue import NvueService
from provisioner.model.inventory import Activation
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Step, StepKind

SPINE, NEW = "spine-0", "5.12.1.100"


def lived(story: Callable[[Rig], Awaitable[Any]]) -> Any:
    """A story on a rig whose spine forgets each job as soon as it has ended."""

    async def live() -> Any:
        rig = await Rig(nodes=1).open()
        rig.site.switches[SPINE].partitions[2] = NEW
        forgetful(rig.site.nvue[SPINE])
        try:
            return await story(rig)
        finally:
            await rig.close()

    return asyncio.run(live())


def forgetful(api: NvueService) -> None:
    """As after a restart of the API: the id of a job that has ended leads nowhere."""
    handle = api.handle

    def answered(method: str, path: str, *rest: Any) -> Any:
        told = handle(method, path, *rest)
        ended = "/action/" in path and b'"running"' not in told.body
        return handle(method, f"{path}x", *rest) if ended else told

    api.handle = answered  # type: ignore[method-assign]


async def booted(rig: Rig) -> Any:
    """What sending the reboot said."""
    step = Step(
        kind=StepKind.ACTIVATE,
        activation=Activation.IMAGE_REBOOT,
        activates=(("switch.os/switch", NEW),),
        disruption=Disruption.SWITCH,
        duration_s=600,
        expected=(),
        reason="test",
    )
    work = await boot_image(rig.effects, rig.nodes[SPINE], step)
    assert not isinstance(work, Blocker)
    return await work.act.send()


def test_a_forgotten_job_is_not_waited_for() -> None:
    async def story(rig: Rig) -> tuple[str, float]:
        switch = await open_switch(rig.effects, rig.nodes[SPINE])
        assert not isinstance(switch, Blocker)
        began = rig.clock.now()
        await switch.choose_other_image(lambda: turn_of(rig.nodes[SPINE]), 600.0)
        return (await switch.read_images()).next, rig.clock.now() - began

    following, took_s = lived(story)

    assert following == NEW
    assert took_s < 60.0


def test_a_switch_that_would_start_with_the_image_is_rebooted() -> None:
    async def story(rig: Rig) -> Any:
        switch = rig.site.switches[SPINE]
        boots, sent = switch.boots, await booted(rig)
        await rig.clock.sleep(3600.0)
        rig.site.advance()
        return isinstance(sent, Sent), switch.boots - boots

    assert lived(story) == (True, 1)


def test_a_switch_that_would_start_with_the_old_image_is_not_rebooted() -> None:
    async def story(rig: Rig) -> Any:
        switch = rig.site.switches[SPINE]
        switch.partitions[2] = "5.10.1.0007"  # somebody else put another image there
        boots = switch.boots
        return await booted(rig), switch.boots == boots

    problem, untouched = lived(story)

    assert problem.reason is Reason.NOT_ACTIVATED
    assert untouched

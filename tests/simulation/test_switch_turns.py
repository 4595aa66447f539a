"""Whatever writes to a switch waits for that switch's turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from leaf_rig import Rig

from provisioner.execution.actions.reach import share_turns, turn
from provisioner.execution.observe.rotation import open_switch, turn_of
from provisioner.execution.steps.methods_switch_settings import Drain
from provisioner.model.outcome import Blocker
from provisioner.ports import Switch

LEAF = "leaf-su0-r0"


async def drains(rig: Rig, switch: Switch) -> Any:
    return await Drain(rig.effects, rig.nodes[LEAF], switch).begin()


async def undrains(rig: Rig, switch: Switch) -> Any:
    return await Drain(rig.effects, rig.nodes[LEAF], switch).end()


async def chooses_the_other_image(rig: Rig, switch: Switch) -> Any:
    return await switch.choose_other_image(lambda: turn_of(rig.nodes[LEAF]), 30.0)


async def reboots(rig: Rig, switch: Switch) -> Any:
    return await switch.reboot(lambda: turn_of(rig.nodes[LEAF]))


@pytest.mark.parametrize("write", [drains, undrains, chooses_the_other_image, reboots])
def test_a_write_to_a_switch_waits_for_its_turn(write: Callable[..., Awaitable[Any]]) -> None:
    async def scenario() -> tuple[list[str], bool]:
        rig = await Rig(nodes=2).open()
        rig.site.switches[LEAF].partitions[2] = "5.12.1.100"
        try:
            switch = await open_switch(rig.effects, rig.nodes[LEAF])
            assert not isinstance(switch, Blocker)
            if write is undrains:
                assert await drains(rig, switch) is None
            rig.switches.calls.clear()
            held, over = asyncio.Event(), asyncio.Event()

            async def hold() -> None:
                async with turn(LEAF):
                    held.set()
                    await over.wait()

            holding = asyncio.create_task(hold())
            await held.wait()
            writing = asyncio.create_task(write(rig, switch))  # type: ignore[arg-type]
            await rig.effects.clock.sleep(60.0)
            early = [call[1] for call in rig.switches.calls if call[1] != "GET"]
            over.set()
            await asyncio.gather(holding, writing)
            return early, any(call[1] != "GET" for call in rig.switches.calls)
        finally:
            await rig.close()

    assert asyncio.run(scenario()) == ([], True)


class Others:
    """Turns of other processes: who took which, and gave it back."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    async def take(self, name: str) -> None:
        self.noted.append(f"take {name}")

    async def give_back(self, name: str) -> None:
        self.noted.append(f"back {name}")


def test_turns_are_shared_with_other_processes_while_it_says_so() -> None:
    others = Others()

    async def scenario() -> None:
        with share_turns(others):
            async with turn("a"):
                pass
        async with turn("b"):
            pass

    asyncio.run(scenario())

    assert others.noted == ["take a", "back a"]


@pytest.mark.parametrize("again", ["a", "b"])
def test_a_turn_that_is_held_is_not_taken_again_within(again: str) -> None:
    async def scenario() -> None:
        async with turn("a"), turn("b"), turn(again):
            pass

    with pytest.raises(AssertionError, match="within itself"):
        asyncio.run(scenario())

"""All passwords are demanded at once, those of switches too: with a whole daemon."""

from __future__ import annotations

from pathlib import Path

import virtual_time
from rig import World

from provisioner.model.credential import RotationCause

HOUR_S = 3600.0


def test_the_keeper_changes_the_passwords_of_switches_as_it_does_those_of_bmcs(
    tmp_path: Path,
) -> None:
    async def story() -> tuple[dict[str, str], dict[str, str], dict[str, str], list[str]]:
        world = World(tmp_path, nodes=1, seed=11, credential_switches=True)
        await world.take_in()
        await world.start()
        await world.clock.sleep(0.5 * HOUR_S)
        before = {name: s.password for name, s in world.site.switches.items()}
        await world.store.credential_standings.demand(RotationCause.EMERGENCY, world.clock.now())
        await world.clock.sleep(0.25 * HOUR_S)
        after = {name: s.password for name, s in world.site.switches.items()}
        stored = {}
        for name in after:
            login = await world.vault.current(f"{name}/api")
            assert login is not None
            stored[name] = login[1].reveal()
        wrong = await world.violations()
        await world.crash()
        return before, after, stored, wrong

    before, after, stored, wrong = virtual_time.run(story())

    assert stored == after
    assert not any(after[name] == before[name] for name in after), after.keys()
    assert wrong == []

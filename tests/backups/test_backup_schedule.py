"""The daemon backs up by schedule: when one is due, what is removed, and what never is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from provisioner.daemon.data import DATABASE, Data, open_data
from provisioner.daemon.recovery import NEWEST, Backups, scheduled_backups
from provisioner.model.input_error import InputError
from provisioner.planning.watch.membership import (
    choose_removals,
    find_newest,
    name_backup,
    read_time,
)
from provisioner.ports import Secret
from provisioner.runtime import permit as process_scope
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.database.backup import check_backup, restore_backup
from provisioner.store.repositories.signing_keys import MasterKey, read_key_file

DAY_S = 86400.0
NOW = 20_000 * DAY_S


class HandClock:
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def scheduled(
    folder: Path, story: Callable[[Backups, HandClock, Data], Awaitable[None]], **settings: object
) -> Path:
    """Run a story with a schedule on a real data directory; return where backups go."""
    target = folder / "backups"
    target.mkdir()

    async def main() -> None:
        chosen = Settings.model_validate({"backup_directory": str(target)} | settings)
        clock = HandClock()
        async with open_data(folder / "data", NOW) as data:
            await story(Backups(folder / "data", "", chosen, clock, data.master), clock, data)

    asyncio.run(main())
    return target


def test_a_backup_is_made_when_it_is_due_and_restores(tmp_path: Path):
    async def story(backups: Backups, clock: HandClock, data: Data) -> None:
        await data.vault.put("n1/host", "root", Secret("hunter2"))
        assert await backups.look()
        assert not await backups.look()
        clock.at += DAY_S - 1
        assert not await backups.look()
        clock.at += 1
        assert await backups.look()
        assert process_scope.get_scope().counts[NEWEST] == NOW + DAY_S

    target = scheduled(tmp_path, story)
    first, second = sorted(target.iterdir())
    again = tmp_path / "again"
    again.mkdir(mode=0o700)
    key = read_key_file(tmp_path / "data" / "master.key")
    restore_backup(second, again, str(again / DATABASE), key)

    assert first.name == name_backup(NOW) == "provisioner-20241004T000000Z.tar"
    assert check_backup(first, key).made_at == NOW
    assert (again / DATABASE).is_file()
    assert not (again / "master.key").exists()


def test_only_scheduled_backups_beyond_the_newest_are_removed(tmp_path: Path):
    own = {"provisioner-monday.tar", "provisioner-20240231T000000Z.tar", "notes.txt"}

    async def story(backups: Backups, clock: HandClock, _data: Data) -> None:
        for name in own:
            (tmp_path / "backups" / name).write_text("a person's")
        for _ in range(5):
            assert await backups.look()
            clock.at += DAY_S

    target = scheduled(tmp_path, story, backup_keep=2)

    kept = {name_backup(NOW + 3 * DAY_S), name_backup(NOW + 4 * DAY_S)}
    assert {p.name for p in target.iterdir()} == own | kept


def test_a_backup_that_failed_is_tried_again_and_removes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def story(backups: Backups, clock: HandClock, _data: Data) -> None:
        assert await backups.look()
        clock.at += DAY_S
        (tmp_path / "backups").rename(tmp_path / "unmounted")
        (tmp_path / "backups").write_text("no directory any more")
        assert not await backups.look()
        assert not await backups.look()  # the next try waits an hour
        (tmp_path / "backups").unlink()
        (tmp_path / "unmounted").rename(tmp_path / "backups")
        clock.at += 3600
        assert await backups.look()

    target = scheduled(tmp_path, story, backup_keep=5)

    assert caplog.text.count("the scheduled backup failed") == 1
    assert len(list(target.iterdir())) == 2


def test_the_alert_counts_from_the_start_while_no_backup_was_ever_made(tmp_path: Path):
    async def story(backups: Backups, clock: HandClock, _data: Data) -> None:
        (tmp_path / "backups").rmdir()
        (tmp_path / "backups").write_text("")
        clock.at += 3 * DAY_S
        assert not await backups.look()
        assert process_scope.get_scope().counts[NEWEST] == NOW

    scheduled(tmp_path, story)


@pytest.mark.parametrize("where", ["nowhere", "file"])
def test_a_directory_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path, where: str):
    (tmp_path / "file").write_text("")

    async def main() -> None:
        chosen = Settings(backup_directory=str(tmp_path / where))
        async with scheduled_backups(tmp_path, "", chosen, WallClock(), MasterKey.generate()):
            pass

    with pytest.raises(InputError, match="backup_directory"):
        asyncio.run(main())


def test_names_are_read_exactly():
    names = ["provisioner-20241004T000000Z.tar", "provisioner-20991231T235959Z.tar"]

    assert read_time(names[0]) == NOW
    assert read_time("provisioner-20241004T000000Z.tar.part") is None
    assert read_time("provisioner-20241399T000000Z.tar") is None
    assert find_newest(names, NOW + 5) == NOW  # the other was named by a wrong clock
    assert find_newest(["x"], NOW) == 0.0
    assert choose_removals(names, 1) == (names[0],)

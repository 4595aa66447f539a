"""Playbook runs whose daemon is killed: the next one finds them, nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import Host, hosts, why_not
from plays import COUNT, call, end_runs, make_runner, processes_of, write_plays

from provisioner.integrations.playbooks.folder import find_marked
from provisioner.integrations.playbooks.runner import AnsibleRunner
from provisioner.ports import PlaybookResult, Run
from provisioner.store.repositories.agents import SqlRunRepository

KILLS = int(os.environ.get("KILLS", "50"))
SEED = int(os.environ.get("SEED", "7"))
LIMIT_S = 240.0

# a role in small: under the lock of the host's tools look, act, count
BURN = """\
    - name: Burn once
      ansible.builtin.command:
        argv: [flock, /run/lock/provisioner-tools, sh, -c, "{{ script }}"]
      vars:
        version: "{{ packages['host.driver'] }}"
        script: |
          [ "$(cat /root/flash 2>/dev/null)" = "{{ version }}" ] && exit 0
          echo "{{ version }}" >>/root/burns
          sleep 0.4
          echo "{{ version }}" >/root/flash
      changed_when: true

    - name: Read it back
      ansible.builtin.command: {argv: [cat, /root/flash]}
      register: flash
      changed_when: false

    - name: Say what it shows
      ansible.builtin.set_fact:
        provisioner_result: "{{ {'installed': {'host.driver': flash.stdout}} }}"
"""

Then = Callable[[AnsibleRunner], Awaitable[Any]]


def daemon(plays: Path, data: Path, then: Then, **settings: float) -> Any:
    """One life of a daemon, from attaching to a graceful stop."""

    async def life() -> Any:
        runner, store = make_runner(plays, data, **settings)
        try:
            await runner.attach()
            return await then(runner)
        finally:
            await runner.close()
            await store.close()

    return asyncio.run(life())


def left_rows(data: Path, plays: Path) -> list[Run]:
    async def read() -> list[Run]:
        _, store = make_runner(plays, data)
        try:
            return list(await SqlRunRepository(store).list_open())
        finally:
            await store.close()

    return asyncio.run(read())


def begin(plays: Path, data: Path, asked: Any, until: Callable[[], bool]) -> None:
    """A daemon that asks for a play and stops in the middle of it; the run goes on."""

    async def work(runner: AnsibleRunner) -> None:
        task = asyncio.create_task(runner.run(asked))
        limit = time.monotonic() + 60.0
        while not until():
            assert not task.done()
            assert time.monotonic() < limit
            await asyncio.sleep(0.02)
        task.cancel()

    daemon(plays, data, work)


@pytest.fixture
def plays(tmp_path: Path) -> Iterator[Path]:
    yield write_plays(tmp_path / "ansible", burn=COUNT, host_software=BURN)
    end_runs(tmp_path / "data")


def test_the_next_daemon_finds_a_run_and_gives_its_result_to_who_asks_again(
    tmp_path: Path, plays: Path
) -> None:
    file, data = tmp_path / "disk", tmp_path / "data"
    asked = call("n1", "burn", file=str(file), version="2", burn_s=3)
    other = call("n1", "burn", file=str(file), version="3")
    since = time.time()
    begin(plays, data, asked, Path(f"{file}.burns").exists)

    async def ask(runner: AnsibleRunner) -> list[PlaybookResult | None]:
        again = await runner.recall(asked, since)
        await runner.idle()
        return [
            again,
            await runner.recall(asked, since),
            await runner.recall(asked, time.time()),
            await runner.recall(other, since),
        ]

    running, finished, later, never = daemon(plays, data, ask)

    assert running == finished == PlaybookResult("ok", {"burned": "2"})
    assert (later, never) == (None, None)
    assert Path(f"{file}.burns").read_text() == "burn\n"
    assert left_rows(data, plays) == []


def test_a_host_is_given_no_second_play_while_the_first_goes_on(
    tmp_path: Path, plays: Path
) -> None:
    file, data = tmp_path / "disk", tmp_path / "data"
    first = call("n1", "burn", file=str(file), version="2", burn_s=3)
    begin(plays, data, first, Path(f"{file}.burns").exists)

    async def ask(runner: AnsibleRunner) -> list[PlaybookResult]:
        second = call("n1", "burn", file=str(file), version="3")
        return list(await asyncio.gather(runner.run(second), runner.run(first)))

    second, joined = daemon(plays, data, ask)

    assert joined.facts == {"burned": "2"}
    assert second.facts == {"burned": "3"}
    assert Path(f"{file}.burns").read_text() == "burn\nburn\n"


def test_a_run_that_died_is_unknown_and_nothing_of_it_lives(tmp_path: Path, plays: Path) -> None:
    file, data = tmp_path / "disk", tmp_path / "data"
    asked = call("n1", "burn", file=str(file), version="2", burn_s=60)
    begin(plays, data, asked, Path(f"{file}.burns").exists)
    (run,) = left_rows(data, plays)
    for pid in find_marked(run.id):
        if b"ansible_runner" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)  # the wrapper's shell too: it has the command in its own

    result = daemon(plays, data, lambda runner: runner.recall(asked, 0.0))

    assert result.status == "unknown"
    assert "Burn once" in result.detail
    assert find_marked(run.id) == []
    assert left_rows(data, plays) == []


def test_a_row_without_folder_is_lost_and_its_hosts_are_unknown(
    tmp_path: Path, plays: Path
) -> None:
    data, asked = tmp_path / "data", call("n1", "burn", file="x", version="2")
    run = Run("a1", "burn", {"n1": asked.digest}, str(data / "runs" / "burn-a1"), 5.0, 60.0)

    async def write() -> None:
        _, store = make_runner(plays, data)
        await SqlRunRepository(store).begin(run)
        await store.close()

    asyncio.run(write())

    result = daemon(plays, data, lambda runner: runner.recall(asked, 1.0))

    assert result.status == "unknown"
    assert left_rows(data, plays) == []


def test_a_cancelled_run_leaves_no_process_and_no_verdict(tmp_path: Path, plays: Path) -> None:
    file, data = tmp_path / "disk", tmp_path / "data"
    asked = call("n1", "burn", file=str(file), version="2", burn_s=600)
    begin(plays, data, asked, Path(f"{file}.burns").exists)
    (run,) = left_rows(data, plays)

    async def cancel(runner: AnsibleRunner) -> PlaybookResult | None:
        waits = asyncio.create_task(runner.recall(asked, 0.0))
        await asyncio.sleep(0.1)
        await runner.cancel("n1")
        return await waits

    result = daemon(plays, data, cancel)

    assert result is not None
    assert result.status == "unknown"
    assert find_marked(run.id) == []
    assert processes_of(str(file)) == []
    assert left_rows(data, plays) == []


@dataclass
class Drivers:
    """The process that forks drivers, and what each is asked."""

    process: subprocess.Popen[str]
    asked: dict[str, Any]

    def run(self, version: str, kill_after_s: float | None) -> bool:
        """One driver's life; whether it came to its end before it was killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({**self.asked, "version": version}) + "\n")
        self.process.stdin.flush()
        pid = int(self.process.stdout.readline())
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            os.kill(pid, signal.SIGKILL)  # a zombie until its status is read: never another's
        return self.process.stdout.readline() == "0\n"


@pytest.fixture
def drivers(tmp_path: Path, plays: Path) -> Iterator[tuple[Drivers, list[Host]]]:
    if reason := why_not():
        pytest.skip(reason)
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with hosts(2, tmp_path / "hosts") as made:
        at = {host.name: host.address for host in made}
        asked = {"plays": str(plays), "data": str(data), "hosts": at, "key": str(made[0].key)}
        driver = Path(__file__).with_name("run_driver.py")
        process = subprocess.Popen(
            [sys.executable, driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield Drivers(process, asked), made
        finally:
            process.kill()
            process.communicate()


@pytest.mark.slow
@pytest.mark.long
def test_killed_at_random_moments_every_node_recovers_and_nothing_is_burned_twice(
    tmp_path: Path, plays: Path, drivers: tuple[Drivers, list[Host]]
) -> None:
    daemons, made = drivers
    rng, version, kills, until = random.Random(SEED), 1, 0, time.monotonic() + LIMIT_S
    while kills < KILLS:
        assert time.monotonic() < until, f"{kills} kills, version {version}"
        if daemons.run(str(version), rng.uniform(0.0, 1.5)):
            version += 1
        else:
            kills += 1
    finished = daemons.run(str(version), None)
    errors = tmp_path / "data" / "driver-errors"
    runs = [p.name.rpartition("-")[2] for p in (tmp_path / "data" / "runs").iterdir()]

    assert finished, errors.read_text()
    assert not errors.exists() or errors.read_text() == ""
    for host in made:
        assert host.get("/root/burns").split() == [str(v) for v in range(1, version + 1)]
        assert (
            host.run("grep -lsz ^PROVISIONER_RUN=. /proc/[0-9]*/environ", check=False).stdout == ""
        )
    assert version > 1
    assert left_rows(tmp_path / "data", plays) == []
    assert [pid for run in runs for pid in find_marked(run, f"provisioner-run-{run}")] == []

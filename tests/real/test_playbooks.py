"""Playbook runs with the real ansible-runner, on this machine: batches, verdicts, bad results."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from plays import COUNT, call, end_runs, make_runner, processes_of, write_plays

from provisioner.integrations.playbooks.runner import AnsibleRunner
from provisioner.ports import PlaybookResult, Secret
from provisioner.store.sql_store import SqlStore

FAIL = """\
    - name: Refuse
      ansible.builtin.fail: {msg: "no {{ thing }} here"}
"""
RESULTS = """\
    - name: Look at each
      ansible.builtin.command: {argv: ["true"]}
      loop: [1, 2]
      failed_when: kind == "loop" and item == 2
      changed_when: false

    - name: Fail and be rescued
      when: kind == "rescued"
      block:
        - name: Fail
          ansible.builtin.fail: {msg: at first}
      rescue:
        - name: Go on
          ansible.builtin.debug: {msg: rescued}

    - name: Fail but go on
      ansible.builtin.fail: {msg: nobody minds}
      ignore_errors: true
      when: kind == "ignored"

    - name: Say nothing
      ansible.builtin.meta: end_host
      when: kind == "silent"

    - name: Say what it is
      ansible.builtin.set_fact:
        provisioner_result: "{{ {'list': [1], 'text': 'words', 'large': {'x': 'y' * 1200000},
          'rescued': {'ok': true}, 'ignored': {'ok': true}}[kind] }}"
"""
SECRET = """\
    - name: Use it
      ansible.builtin.command:
        argv: [sh, -c, "cat >/dev/null; sleep {{ wait_s }}"]
        stdin: "{{ password }}"
      no_log: true
      changed_when: false

    - name: Tell it to everybody
      ansible.builtin.fail: {msg: "the password is {{ password }}"}
"""


@pytest.fixture
def plays(tmp_path: Path) -> Iterator[Path]:
    yield write_plays(
        tmp_path / "ansible",
        burn=COUNT,
        fail=FAIL,
        results=RESULTS,
        secret=SECRET,
        broken="    - name: No such module\n      ansible.builtin.no_such_module:\n",
    )
    end_runs(tmp_path / "data")


def with_runner(plays: Path, data: Path, work: Any, **settings: float) -> tuple[Any, AnsibleRunner]:
    async def run() -> tuple[Any, AnsibleRunner]:
        runner, store = make_runner(plays, data, **settings)
        try:
            found = await work(runner)
            await over(store)
            return found, runner
        finally:
            await runner.close()
            await store.close()

    return asyncio.run(run())


async def over(store: SqlStore, limit_s: float = 60.0) -> None:
    """Until the store knows the end of every run."""
    from provisioner.store.repositories.agents import SqlRunRepository

    until = time.monotonic() + limit_s
    while await SqlRunRepository(store).list_open():
        assert time.monotonic() < until, "a run does not end"
        await asyncio.sleep(0.1)


def gather(*work: Coroutine[Any, Any, PlaybookResult]) -> Any:
    return asyncio.gather(*work)


def test_each_host_of_a_batch_has_its_own_verdict_and_all_are_one_run(
    tmp_path: Path, plays: Path
) -> None:
    async def three(runner: AnsibleRunner) -> Sequence[PlaybookResult]:
        kinds = ["rescued", "ignored", "loop", "silent", "list", "text", "large"]
        found: Sequence[PlaybookResult] = await gather(
            *(runner.run(call(kind, "results", kind=kind)) for kind in kinds)
        )
        return dict(zip(kinds, found, strict=True))

    results, _ = with_runner(plays, tmp_path / "data", three)

    assert {k: r.status for k, r in results.items()} == {
        "rescued": "ok",
        "ignored": "ok",
        "loop": "failed",
        "silent": "failed",
        "list": "failed",
        "text": "failed",
        "large": "failed",
    }
    assert results["rescued"].facts == {"ok": True}
    assert results["loop"].detail.startswith("Look at each: ")
    assert results["silent"].detail == "the play ended without a result"
    assert results["list"].detail == "malformed provisioner_result: it is no object"
    assert "larger than" in results["large"].detail
    assert len(list((tmp_path / "data" / "runs").iterdir())) == 1


def test_a_slow_host_and_a_failed_one_hold_nobody_up(tmp_path: Path, plays: Path) -> None:
    order: list[str] = []

    async def race(runner: AnsibleRunner) -> None:
        async def one(host: str, play: str, **variables: object) -> None:
            await runner.run(call(host, play, **variables))
            order.append(host)

        await asyncio.gather(
            one("slow", "burn", file=str(tmp_path / "slow"), version="2", burn_s=5),
            one("bad", "burn", file="/no/such/folder", version="2"),
            one("fast", "burn", file=str(tmp_path / "fast"), version="2"),
        )

    with_runner(plays, tmp_path / "data", race)

    assert sorted(order[:2]) == ["bad", "fast"]
    assert order[2] == "slow"
    assert len(list((tmp_path / "data" / "runs").iterdir())) == 1


def test_values_from_devices_are_no_templates_and_stay_text(tmp_path: Path, plays: Path) -> None:
    told = {"version": "24.10", "file": str(tmp_path / "x"), "other": "{{ lookup('pipe', 'id') }}"}

    async def one(runner: AnsibleRunner) -> Sequence[PlaybookResult]:
        found: Sequence[PlaybookResult] = await gather(
            runner.run(call("n1", "burn", **told)),
            runner.run(call("n2", "fail", thing="{{ lookup('pipe', 'id') }} 𝄞 \u007f \\ ' \"")),
        )
        return found

    (burned, failed), _ = with_runner(plays, tmp_path / "data", one)

    assert burned.facts == {"burned": "24.10"}
    assert failed.detail == "Refuse: no {{ lookup('pipe', 'id') }} 𝄞 \\ ' \" here"


def test_a_play_that_cannot_be_read_failed_and_says_why(tmp_path: Path, plays: Path) -> None:
    async def two(runner: AnsibleRunner) -> Sequence[PlaybookResult]:
        found: Sequence[PlaybookResult] = await gather(
            runner.run(call("n1", "broken")), runner.run(call("n1", "nowhere"))
        )
        return found

    (broken, nowhere), _ = with_runner(plays, tmp_path / "data", two)

    assert broken.status == "failed"
    assert "no_such_module" in broken.detail
    assert nowhere == PlaybookResult("failed", {}, "there is no playbook nowhere.yml")


def test_at_its_limit_a_run_is_ended_and_no_process_is_left(tmp_path: Path, plays: Path) -> None:
    file = tmp_path / "disk"

    async def slow(runner: AnsibleRunner) -> PlaybookResult:
        asked = call("n1", "burn", file=str(file), version="2", burn_s=600, limit_s=4.0)
        return await runner.run(asked)

    result, _ = with_runner(plays, tmp_path / "data", slow)

    assert result.status == "timeout"
    assert processes_of(str(file)) == []
    runs = [p.name.rpartition("-")[2] for p in (tmp_path / "data" / "runs").iterdir()]
    assert [pid for run in runs for pid in processes_of(f"provisioner-run-{run}")] == []


def test_secrets_are_in_no_argument_environment_or_file_on_disk(
    tmp_path: Path, plays: Path
) -> None:
    secret = 'hush-"42" ü'
    seen: list[str] = []

    async def watched(runner: AnsibleRunner) -> PlaybookResult:
        asked = call("n1", "secret", password=Secret(secret), wait_s=2)
        work = asyncio.create_task(runner.run(asked))
        while not work.done():
            seen.extend(str(pid) for word in ("hush-", "ü") for pid in processes_of(word + '"42'))
            seen.extend(str(pid) for pid in processes_of("hush-"))
            await asyncio.sleep(0.2)
        return await work

    result, _ = with_runner(plays, tmp_path / "data", watched)
    kept = [p for p in (tmp_path / "data").rglob("*") if p.is_file()]

    assert result == PlaybookResult("failed", {}, "Tell it to everybody: the password is (secret)")
    assert seen == []
    assert any(p.name == "events" for p in kept)
    assert [p for p in kept if b"hush" in p.read_bytes()] == []
    assert [p for p in kept if p.stat().st_mode & 0o77] == []
    assert json.loads(next(p for p in kept if p.name == "request.json").read_text())["hosts"]


@pytest.mark.long
def test_old_runs_are_pruned_and_bad_ones_are_kept_longer(tmp_path: Path, plays: Path) -> None:
    async def some(runner: AnsibleRunner) -> None:
        for play, variables in (
            ("burn", {"file": str(tmp_path / "a"), "version": "1"}),
            ("fail", {"thing": "x"}),
            ("burn", {"file": str(tmp_path / "a"), "version": "2"}),
        ):
            await runner.run(call("n1", play, **variables))
        await runner.idle()

    with_runner(plays, tmp_path / "data", some, runs_keep_days=1e-9)
    with_runner(plays, tmp_path / "data", lambda r: r.attach(), runs_keep_days=1e-9)

    assert [p.name.split("-")[0] for p in (tmp_path / "data" / "runs").iterdir()] == ["fail"]

"""The playbook runner with the real ansible-runner, on this machine over a local connection."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from provisioner.playbooks import AnsibleRunner, Remote
from provisioner.ports import PlaybookCall

PLAYBOOKS = Path(__file__).parents[2] / "ansible" / "playbooks"


def call(host: str, *commands: tuple[str, str], play: str = "run_commands") -> PlaybookCall:
    listed = [{"name": n, "command": c, "timeout_s": 20} for n, c in commands]
    return PlaybookCall(play, host, "127.0.0.1", {"commands": listed}, 120.0)


def runner(tmp_path: Path) -> AnsibleRunner:
    return AnsibleRunner(
        PLAYBOOKS, tmp_path / "runs", Remote(connection="local", python=sys.executable)
    )


@pytest.mark.slow
def test_one_process_serves_two_hosts_and_neither_sees_the_other_fail(tmp_path: Path) -> None:
    async def run() -> tuple[object, object]:
        ansible = runner(tmp_path)
        good = call("n1", ("hello", "echo hello"), ("bad", "echo oops >&2; exit 3"))
        lost = PlaybookCall("run_commands", "n2", "127.0.0.1", {}, 120.0)
        return await asyncio.gather(ansible.run(good), ansible.run(lost))

    good, lost = asyncio.run(run())

    assert good.status == "ok"
    assert good.facts["commands"]["hello"] == {"rc": 0, "stdout": "hello", "stderr": ""}
    assert good.facts["commands"]["bad"] == {"rc": 3, "stdout": "", "stderr": "oops"}
    assert lost.status == "failed"
    assert "commands" in lost.detail
    assert not any((tmp_path / "runs").iterdir())


def test_an_unknown_play_fails_with_its_name(tmp_path: Path) -> None:
    result = asyncio.run(runner(tmp_path).run(call("n1", play="no_such_play")))

    assert result.status == "failed"
    assert "no_such_play" in result.detail

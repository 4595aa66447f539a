"""What tests of playbook runs share: tiny plays in a folder, a runner on a store of its own."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from provisioner.integrations.playbooks.folder import RunFolder, kill_all
from provisioner.integrations.playbooks.runner import AnsibleRunner
from provisioner.ports import PlaybookCall, Remote
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.repositories.agents import SqlRunRepository
from provisioner.store.sql_store import SqlStore, open_store

ANSIBLE = Path(__file__).parents[2] / "ansible"
LOCAL = Remote(connection="local", python=sys.executable)

PLAY = """\
- name: {name}
  hosts: all
  gather_facts: false
  environment: {{PROVISIONER_RUN: "{{{{ provisioner_run }}}}"}}
  tasks:
{tasks}
"""

# what a role that burns does: under a lock, look, act, count; `file` is the host's own disk
COUNT = """\
    - name: Burn once
      ansible.builtin.command:
        argv: [flock, "{{ file }}.lock", sh, -c, "{{ script }}"]
      vars:
        script: |
          [ "$(cat {{ file }} 2>/dev/null)" = "{{ version }}" ] && exit 0
          echo burn >>{{ file }}.burns
          sleep {{ burn_s | default(0) }}
          echo "{{ version }}" >{{ file }}
      changed_when: true

    - name: Say what it shows
      ansible.builtin.set_fact:
        provisioner_result: "{{ {'burned': version} }}"
"""


def write_plays(folder: Path, **plays: str) -> Path:
    """A folder like ansible/, with the real callback and settings, and these plays' tasks."""
    shutil.copytree(ANSIBLE / "callback_plugins", folder / "callback_plugins")
    shutil.copy(ANSIBLE / "ansible.cfg", folder / "ansible.cfg")
    (folder / "playbooks").mkdir()
    for name, tasks in plays.items():
        (folder / "playbooks" / f"{name}.yml").write_text(PLAY.format(name=name, tasks=tasks))
    return folder / "playbooks"


def make_runner(
    plays: Path, data: Path, remote: Remote = LOCAL, **settings: float
) -> tuple[AnsibleRunner, SqlStore]:
    """A runner whose rows are in a database beside its work folder."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = open_store(data / "provisioner.db")
    chosen = Settings.model_validate(settings)
    runner = AnsibleRunner(
        plays, data / "runs", remote, SqlRunRepository(store), WallClock(), chosen
    )
    return runner, store


def call(host: str, play: str, address: str = "127.0.0.1", **variables: object) -> PlaybookCall:
    limit_s = float(str(variables.pop("limit_s", 120.0)))
    return PlaybookCall(play, host, address, variables, limit_s)


def end_runs(data: Path) -> None:
    """Whatever a test left running, also a failed one: its processes and what is in memory."""
    for path in (data / "runs").glob("*"):
        if (found := RunFolder.find(path)) is not None:
            assert kill_all(path.name.rpartition("-")[2], found.cgroup, found.control)
            found.settle()


def processes_of(text: str) -> list[int]:
    """Every process of ours that carries a text in its environment, arguments or title."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            for name in ("environ", "cmdline"):
                try:
                    content = Path(entry.path, name).read_bytes()
                except OSError:
                    continue
                if text.encode() in content:
                    found.append(int(entry.name))
                    break
    return found

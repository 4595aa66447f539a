"""A small daemon to be killed: runner, shell, ledger and store as in the real one, nothing else.

Reads lines of JSON from its standard input, forks a driver for each and tells its process id: what
takes long, importing, is done once. A driver exits with 0 when every node runs the version.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from plays import make_runner

from provisioner.adapters.ssh import SshShell
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.work import Site, do_work
from provisioner.execution.steps import methods_inband
from provisioner.model.inventory import Activation
from provisioner.model.node import Node, NodeKind
from provisioner.model.operation import ActionStatus
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.ports import Remote
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

COMPONENT = "host.driver"


def step(version: str) -> Step:
    return Step(
        kind=StepKind.UPDATE,
        component=COMPONENT,
        slots=("host",),
        to_version=version,
        method="playbook_host_software",
        activation=Activation.WARM_REBOOT,
        disruption=Disruption.NONE,
        duration_s=1,
        expected=(),
        reason="a test",
    )


async def drive(asked: dict[str, Any]) -> None:
    """Take up what the last driver left, and bring every host to the version."""
    remote = Remote(
        user="root",
        private_key=Path(asked["key"]),
        known_hosts=Path(asked["data"]) / "known_hosts",
        learn=True,
        python=sys.executable,
    )
    settings = {"poll_s": 0.2, "playbook_limit_s": 60.0}
    runner, store = make_runner(Path(asked["plays"]), Path(asked["data"]), remote, **settings)
    await runner.attach()
    site = Site(
        clock=WallClock(),
        settings=Settings.model_validate(settings),
        reach=None,  # type: ignore[arg-type] # no BMC is asked
        runner=runner,
        shell=SshShell(remote, 8),
        agents=None,  # type: ignore[arg-type]
        artifacts=None,  # type: ignore[arg-type]
    )
    hosts: dict[str, str] = asked["hosts"]
    nodes = [Node(id=name, kind=NodeKind.HOST, address=at) for name, at in hosts.items()]
    await asyncio.gather(*(_one(site, store, node, asked["version"]) for node in nodes))
    await runner.idle()
    await store.close()


async def _one(site: Site, store: SqlStore, node: Node, version: str) -> None:
    if await store.nodes.get(node.id) is None:
        await store.nodes.add(node)
    await store.operations.open(node.id, "test", 0.0)
    mine = next(o for o in await store.operations.list_active() if o.node == node.id)
    hold = Hold(store, site.clock, await store.operations.take(mine.id))
    work = methods_inband.install_software(site, node, step(version))
    entry = await store.operations.get_last_entry(mine.id, work.act.name)
    if entry is not None and entry.status is ActionStatus.CONFIRMED:
        return
    left = entry is not None and entry.status in (ActionStatus.INTENDED, ActionStatus.SENT)
    problem = await do_work(site, hold, work, entry if left else None)
    assert problem is None, problem


def main() -> None:
    """Fork a driver for each line."""
    last = 0
    for line in sys.stdin:
        if last:
            os.waitpid(last, 0)
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.run(drive(asked))
                code = 0
            except BaseException:
                with (Path(asked["data"]) / "driver-errors").open("a") as file:
                    traceback.print_exc(file=file)
            os._exit(code)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its id stays its own
        sys.stdout.write(f"{ended.si_status}\n")
        sys.stdout.flush()
        last = pid


if __name__ == "__main__":
    main()

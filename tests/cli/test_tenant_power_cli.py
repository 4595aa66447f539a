"""The command line with a tenant's token: power of its own node, and of no other."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest
from local_daemon import daemon
from program import Done, alone
from served import node

from provisioner.access.tokens import new_token
from provisioner.daemon.data import open_data
from provisioner.model.access import Role
from provisioner.model.node import State
from provisioner.model.tenant import Tenant
from provisioner.store.rows import request_rows as token_rows


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a data directory `var` of two tenants, and the token of one."""
    for name in ("SERVER", "DATA", "TOKEN_FILE", "CA"):
        monkeypatch.delenv(f"PROVISIONER_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    now = time.time()
    token, record = new_token("portal", Role.TENANT, "red", 1.0, now)

    async def fill() -> None:
        async with open_data(tmp_path / "var", now) as opened:
            for number, tenant in ((1, "red"), (3, "blue")):
                await opened.store.tenants.put(Tenant(name=tenant, vrf=tenant.upper()))
                await opened.store.nodes.add(node(number, tenant, State.RELEASED))
            await opened.store.write(partial(token_rows.add_token, token=record, now=now))

    asyncio.run(fill())
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(token, encoding="utf-8")
    return tmp_path


def test_a_tenants_token_switches_its_own_node_only(place: Path) -> None:
    with daemon(place / "var", api_serve=True, api_tenant_power=("off",)) as url:

        def ask(*words: str) -> Done:
            ca = str(place / "var" / "agent-ca.pem")
            reach = ["--server", url, "--ca", ca, "--token-file", "token"]
            return alone(["node", *words, *reach], place)

        shown = ask("power", "su0-n01", "off", "--dry-run")
        done = ask("power", "su0-n01", "off", "--yes")
        cycled = ask("power", "su0-n01", "cycle", "--yes")
        foreign = ask("power", "su0-n03", "off", "--yes")
        state = ask("power-state", "su0-n03")

    assert (shown.returncode, done.returncode) == (0, 0), shown.stderr + done.stderr
    assert "The work of red on it ends" in shown.stdout
    assert "r1 node.power su0-n01: running" in done.stdout
    assert (cycled.returncode, "It lets them ask for: off" in cycled.stderr) == (1, True)
    assert (foreign.returncode, state.returncode) == (4, 4)
    assert "There is no such node" in foreign.stderr

"""The daemon's own runner with our plays, over a real sshd: what it believes of a host."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from hosts import Host
from profiles import NV_CONFIG
from role_lab import ANSIBLE, NIC_A, refresh, state_of

from provisioner.integrations.playbooks.runner import AnsibleRunner
from provisioner.ports import PlaybookCall, PlaybookResult, Remote
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.repositories.agents import SqlRunRepository
from provisioner.store.sql_store import open_store


@pytest.mark.slow
def test_a_play_of_ours_ends_as_one_fact_for_each_host(furnished: list[Host], tmp_path: Path):
    good, lacking, _ = furnished
    for host in furnished:
        refresh(host)
    parameters = {good: NV_CONFIG, lacking: {"NO_SUCH_PARAMETER": "1"}}
    calls = [
        PlaybookCall(
            "nic_config", h.name, h.address, {"devices": [NIC_A], "parameters": p}, timeout_s=240.0
        )
        for h, p in parameters.items()
    ]

    async def run() -> list[PlaybookResult]:
        remote = Remote(user="root", private_key=good.key, known_hosts=good.known_hosts)
        store = open_store(tmp_path / "provisioner.db")
        runner = AnsibleRunner(
            ANSIBLE / "playbooks",
            tmp_path / "runs",
            remote,
            SqlRunRepository(store),
            WallClock(),
            Settings(),
        )
        try:
            return await asyncio.gather(*(runner.run(call) for call in calls))
        finally:
            until = time.monotonic() + 60.0
            while await SqlRunRepository(store).list_open():
                assert time.monotonic() < until, "the run does not end"
                await asyncio.sleep(0.1)
            await runner.close()
            await store.close()

    done, refused = asyncio.run(run())

    assert done.status == "ok", done.detail
    assert done.facts["next_boot"] == {NIC_A: NV_CONFIG}
    assert refused.status == "failed"
    assert "has no parameter NO_SUCH_PARAMETER" in refused.detail
    table = state_of(lacking)["cards"][NIC_A]["config"]
    assert [v for v in table.values() if v["current_value"] != v["next_value"]] == []

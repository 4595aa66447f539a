"""`provisioner demo` as a script meets it: its last line is one JSON object, its exit code 0."""

from __future__ import annotations

import asyncio
import io
import json
import re
import ssl
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from rich.console import Console

from provisioner.daemon.artifacts import serve_artifacts
from provisioner.daemon.data import open_data, read_matrix
from provisioner.integrations.demo.demo_commands import ProgressLines, draw_end, serve_console
from provisioner.integrations.demo.running import Asked, Progress, Summary
from provisioner.integrations.demo.stay import build_settings, is_served
from provisioner.model.access import Role
from provisioner.model.node import Node, NodeKind, State
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings

ROOT = Path(__file__).parents[2]
KEYS = {
    "nodes",
    "switches",
    "released",
    "quarantined",
    "uncertified_in_customer_vrf",
    "redfish_requests",
    "wall_s",
}


@pytest.mark.long  # the tutorial, which CI runs, begins with it
@pytest.mark.slow
def test_a_small_site_ends_with_both_nodes_released_and_says_so(tmp_path: Path) -> None:
    asked = ["--nodes", "2", "--speed", "600", "--directory", str(tmp_path / "demo"), "--json"]

    done = subprocess.run(
        [sys.executable, "-m", "provisioner", "demo", *asked],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=420,  # it ends itself after 300 s, however slow the machine is
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) >= KEYS
    assert (found["nodes"], found["released"], found["quarantined"]) == (2, 2, [])
    assert found["uncertified_in_customer_vrf"] == 0
    assert found["switches"] > 0
    assert found["redfish_requests"] > 0
    assert (found["storage_own"], found["storage_foreign"]) == (2, 0)


def summary(redfish_requests: int, wall_s: float) -> Summary:
    return Summary(
        nodes=2,
        switches=1,
        released=1,
        quarantined=({"node": "su0-n01", "blocker": "check_failed: a GPU"},),
        uncertified_in_customer_vrf=0,
        violations=(),
        storage_own=1,
        storage_foreign=0,
        redfish_requests=redfish_requests,
        wall_s=wall_s,
        ran_out_of_time=False,
        as_planned=True,
    )


def test_the_picture_of_the_end_is_the_same_on_a_busy_machine() -> None:
    nodes = [
        Node(id="leaf", kind=NodeKind.SWITCH, state=State.RELEASED),
        Node(id="su0-n00", kind=NodeKind.HOST, state=State.RELEASED),
        Node(id="su0-n01", kind=NodeKind.HOST, state=State.QUARANTINED),
    ]

    idle = draw_end(Progress(nodes, 36_000.0, 80.0, "driving"), summary(4_000, 81.0))
    busy = draw_end(Progress(nodes, 99_000.0, 390.0, "driving"), summary(4_700, 391.0))

    assert idle == busy
    assert "su0-n01" in idle


def test_a_site_serves_when_only_so_many_hosts_are_spare() -> None:
    served = Node(id="su0-n00", kind=NodeKind.HOST, state=State.RELEASED, tenant="red")
    spare = Node(id="su0-n01", kind=NodeKind.HOST, state=State.CERTIFIED)
    leaf = Node(id="leaf", kind=NodeKind.SWITCH, state=State.RELEASED)

    assert is_served([leaf, served, spare], spare=1)
    assert not is_served([leaf, served, spare], spare=0)
    assert not is_served([leaf, served, spare.model_copy(update={"tenant": "red"})], spare=1)
    assert not is_served([leaf.model_copy(update={"state": State.CONVERGING}), served], spare=0)
    assert not is_served([], spare=0)


@pytest.mark.parametrize("speed", [1.0, 300.0, 2000.0])
def test_other_commands_can_read_the_settings_of_a_fast_site(speed: float) -> None:
    chosen = build_settings(Asked(nodes=4, speed=speed), Path("references"))

    assert Settings.model_validate(chosen.model_dump(mode="json", exclude_defaults=True)) == chosen


def test_the_first_line_of_a_demonstration_leads_into_the_console(tmp_path: Path) -> None:
    asyncio.run(follow_the_first_line(tmp_path))


async def follow_the_first_line(tmp_path: Path) -> None:
    printed = io.StringIO()
    settings, matrix = Settings(site="demo"), read_matrix([ROOT / "firmware_matrix.yaml"])
    async with (
        open_data(tmp_path, 1.0) as data,
        serve_artifacts(tmp_path, "127.0.0.1", 0, settings) as files,
        serve_console(
            *(Console(file=printed, width=40), Role.OPERATOR, tmp_path, 0),
            *(data, WallClock(), settings, matrix, files),
        ),
        aiohttp.ClientSession() as client,
    ):
        (line,) = printed.getvalue().splitlines()
        address, token = re.findall(r"https://\S+|prv_\S+", line)
        trusted = ssl.create_default_context(cafile=tmp_path / "agent-ca.pem")
        signed = {"Authorization": f"Bearer {token}"}
        page = await client.get(address, ssl=trusted)
        signed_in = await client.get(f"{address}v1/nodes", ssl=trusted, headers=signed)
        stranger = await client.get(f"{address}v1/nodes", ssl=trusted)

        assert (page.status, signed_in.status, stranger.status) == (200, 200, 401)
        assert "text/html" in page.headers["Content-Type"]


def test_without_a_terminal_progress_is_lines_one_for_each_change_of_states() -> None:
    out = io.StringIO()
    lines = ProgressLines(Console(file=out))
    host = Node(id="n0", kind=NodeKind.HOST, state=State.INTAKE, entered_at=0.0)
    later = host.model_copy(update={"state": State.CERTIFIED})

    for nodes, wall_s in (((host,), 0.0), ((host,), 9.0), ((later,), 10.0), ((host,), 11.0)):
        lines.show(Progress(nodes, wall_s * 300, wall_s, "taking in"))

    assert out.getvalue().splitlines() == [
        "   0 s  taking in: 1 intake",
        "  10 s  taking in: 1 certified",
    ]

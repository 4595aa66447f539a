"""Daemons on one PostgreSQL over longer times: memory, clocks, two sites.

Real processes, each with its own supervisor; minutes each, so that only `make test-long` has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import next_release
import pytest
from fleet import MATRIX, SPEED, Daemon, Fleet, fleet
from postgres_server import Server

from provisioner.control.campaigns.campaign_requests import CampaignRequests
from provisioner.control.context import Context
from provisioner.daemon.data import read_matrix
from provisioner.model.campaign import CampaignState, Policy, Progress
from provisioner.model.node import Node, State
from provisioner.planning.lifecycle.operator_requests import reclaim_node
from provisioner.ports.errors import StaleWrite
from provisioner.settings import Settings

MINUTES = float(os.environ.get("HA_MINUTES", "10"))
LIMIT_S = 1200.0
LOOK_S = 10.0  # between two looks at memory and descriptors
GROWTH_MAX = 1.1  # of the last third's median memory against the second's
DESCRIPTORS_MORE = 8  # so many connections a daemon opens and closes at any time

pytestmark = pytest.mark.long


@pytest.fixture
def server(monkeypatch):
    server = Server()
    try:
        server.start()
        monkeypatch.setenv("PGPASSWORD", server.environment["PGPASSWORD"])
        yield server
    finally:
        server.remove()


async def all_released(there: Fleet) -> bool:
    return all(n.state is State.RELEASED for n in await there.nodes())


def footprint(daemon: Daemon) -> tuple[float, int] | None:
    """MiB in memory, and open descriptors; None of a daemon that has just ended."""
    assert daemon.process is not None
    if daemon.process.poll() is not None:
        return None
    proc = Path("/proc") / str(daemon.process.pid)
    pages = int((proc / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20, len(list((proc / "fd").iterdir()))


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


async def change_hands(there: Fleet, tenants: dict[str, str]) -> int:
    """Take every released host back, to be erased; give each one that is certified away again.

    Return how many were taken back.
    """
    count = 0
    for node in await there.nodes():
        tenants.setdefault(node.id, node.tenant)
        back = reclaim_node(node, there.clock.now())
        given = node.model_copy(update={"tenant": tenants[node.id]})
        is_free = node.state is State.CERTIFIED and not node.tenant
        with contextlib.suppress(StaleWrite):  # a daemon was faster: at the next look
            if isinstance(back, Node) or is_free:
                await there.store.nodes.save(back if isinstance(back, Node) else given)
                count += isinstance(back, Node)
    return count


def test_three_daemons_that_work_for_minutes_grow_neither_in_memory_nor_in_descriptors(
    server, tmp_path, capsys
):
    lives: dict[tuple[str, int], list[tuple[float, int]]] = {}
    handed: list[int] = []

    async def scenario() -> list[list[int]]:
        async with fleet(server, tmp_path, hosts=2) as there:
            await there.until(lambda: all_released(there), LIMIT_S, "every host is released")
            tenants: dict[str, str] = {}
            ends = time.monotonic() + 60.0 * MINUTES
            while time.monotonic() < ends:
                handed.append(await change_hands(there, tenants))
                for daemon in there.daemons:
                    daemon.look_after()
                    assert daemon.process is not None
                    if (seen := footprint(daemon)) is not None:
                        lives.setdefault((daemon.name, daemon.process.pid), []).append(seen)
                await asyncio.sleep(LOOK_S)
            return [daemon.ends for daemon in there.daemons]

    ended = asyncio.run(scenario())

    # a daemon that a loaded machine kept from its lease began anew: what lived long is judged
    whole = max(map(len, lives.values()))
    told = []
    for (name, _), seen in lives.items():
        if len(seen) < whole / 2:
            continue
        third = len(seen) // 3
        parts = (seen[:third], seen[third : 2 * third], seen[2 * third :])
        memory = [median([m for m, _ in part]) for part in parts]
        most = [max(fd for _, fd in part) for part in parts]
        told.append(f"{name}: MiB {[round(m) for m in memory]}, descriptors at most {most}")
        assert memory[2] < memory[1] * GROWTH_MAX, told
        assert most[2] <= most[1] + DESCRIPTORS_MORE, told
    with capsys.disabled():
        sys.stdout.write(f"\n{sum(handed)} hosts taken back; {'; '.join(told)}; ends {ended}\n")
    assert len(told) >= 2
    assert sum(handed) >= 2, "nothing was done meanwhile"
    assert {code for codes in ended for code in codes} <= {os.EX_TEMPFAIL}


CAMPAIGN = {
    "canary": {"size": 1, "soak_s": 300},
    "waves": [{"upto": {"count": 1}, "soak_s": 300}, {}],
    "tenants": {"notice_s": 60},
    "allow_irreversible": True,
}


async def begin_campaign(there: Fleet) -> str:
    requests = CampaignRequests(
        Context(there.store, there.clock, Settings()),
        there.store.campaigns,
        read_matrix([MATRIX, there.files.overlay]),
    )
    drawn = await requests.create(next_release.NEXT, "kind=host", Policy.model_validate(CAMPAIGN))
    assert drawn.campaign is not None, drawn.blockers
    found = await requests.survey(drawn.campaign)
    steps = sorted({s for r in found.rows for s in r.facts.one_way})
    begun = await requests.start(drawn.campaign.id, "ann", steps)
    assert begun.blockers == (), begun.blockers
    return drawn.campaign.id


async def borders(there: Fleet, name: str) -> tuple[tuple[int, str], ...]:
    """Where each wave of a campaign stands: a border lies between two answers that differ."""
    rows = await there.store.campaigns.list_rows(name)
    waves: dict[int, Counter[Progress]] = {}
    for row in rows:
        waves.setdefault(row.progress.wave, Counter())[row.progress.state] += 1
    return tuple((w, ",".join(sorted(map(str, states)))) for w, states in sorted(waves.items()))


def test_a_campaign_whose_leader_dies_at_each_border_of_a_wave_admits_each_host_once(
    server, tmp_path, capsys
):
    seen: list[Any] = []
    killed: list[str] = []

    async def scenario() -> tuple[dict[str, Any], list[Any], Any]:
        async with fleet(server, tmp_path, hosts=3, offer=next_release.offer) as there:
            await there.until(lambda: all_released(there), LIMIT_S, "every host is released")
            name = await begin_campaign(there)

            async def over() -> bool:
                now = await borders(there, name)
                if not seen or seen[-1] != now:
                    seen.append(now)
                    for daemon in [d for d in there.daemons if d.leads()]:
                        killed.append(daemon.name)
                        daemon.kill()
                        daemon.start()
                campaign = await there.store.campaigns.get(name)
                assert campaign is not None
                return campaign.state is not CampaignState.STARTED

            await there.until(over, LIMIT_S, "the campaign ends")
            events = await there.store.journal.list(limit=100_000)
            return await there.truth(), list(events), await there.store.campaigns.get(name)

    truth, events, campaign = asyncio.run(scenario())

    admitted = [
        (str(r["node"]), float(r["at"]))
        for r in events
        if r["kind"] == "campaign_node" and r["detail"]["progress"] == "admitted"
    ]
    done = {
        str(r["node"]): float(r["at"])
        for r in events
        if r["kind"] == "campaign_node" and r["detail"]["progress"] == "done"
    }
    with capsys.disabled():
        sys.stdout.write(f"\n{len(killed)} leaders died at {len(seen)} borders\n")
    assert (campaign.state, campaign.reason) == (CampaignState.DONE, "")
    assert truth["violations"] == []
    assert sorted(Counter(name for name, _ in admitted).values()) == [1, 1, 1]
    (canary, begun_at), (_, followed_at), _ = sorted(admitted, key=lambda a: a[1])
    # the canary is through its soak before anybody follows
    assert followed_at >= done[canary] >= begun_at + CAMPAIGN["canary"]["soak_s"]
    assert len(killed) >= 4


AHEAD_S = (28.0, -28.0, 60.0)  # of the daemons' wall clocks; the limit is 30 s on either side


def test_daemons_whose_clocks_are_a_minute_apart_work_by_the_databases(server, tmp_path, capsys):
    """The two within the limit do all the work; the third is refused, and stops nobody."""
    logs: list[str] = []
    waited_s: list[float] = []

    async def scenario() -> tuple[dict[str, Any], list[list[int]], list[float]]:
        async with fleet(server, tmp_path, hosts=2, ahead_s=AHEAD_S) as there:
            *near, beyond = there.daemons

            async def led() -> bool:
                return any(d.leads() for d in near)

            async def refused() -> bool:
                return len(beyond.ends) > 1

            await there.until(refused, LIMIT_S, "the third is refused, and again")
            await there.until(led, LIMIT_S, "one of the two leads")
            [victim] = [d for d in near if d.leads()]
            victim.kill()  # it must be missed by a peer whose clock is a minute from its own
            began = time.monotonic()
            await there.until(led, LIMIT_S, "the other leads")
            waited_s.append(time.monotonic() - began)
            victim.start()
            await there.until(lambda: all_released(there), LIMIT_S, "every host is released")
            logs.extend(d.log.read_text(errors="replace") for d in there.daemons)
            times = [float(r["at"]) for r in await there.store.journal.list(limit=100_000)]
            return await there.truth(), [d.ends for d in there.daemons], times

    truth, ends, times = asyncio.run(scenario())

    with capsys.disabled():
        sys.stdout.write(f"\nthe other leads after {waited_s[0]:.1f} s; ends {ends}\n")
    assert truth["violations"] == []
    # what one daemon writes a moment late is no clock of a machine
    back_s = max(before - after for before, after in pairwise(times)) / SPEED
    assert back_s < AHEAD_S[0] / 2, "the journal goes back by a machine's clock"
    assert sorted(map(len, ends[:2])) == [0, 1]
    assert set(ends[2]) <= {2}, ends
    for log, words in zip(
        logs, ("ahead of the database's", "behind the database's", "ahead of the database's"),
        strict=True,
    ):  # fmt: skip
        assert words in log


def test_two_sites_on_one_server_do_not_know_of_each_other(server, tmp_path):
    """A database for each: locks, leads, queues and restarts are each site's own."""

    async def scenario() -> tuple[list[dict[str, Any]], list[list[list[int]]]]:
        async with AsyncExitStack() as stack:
            sites = [
                await stack.enter_async_context(fleet(server, tmp_path / name, hosts=1, daemons=2))
                for name in ("one", "two")
            ]
            for site in sites:

                async def led(site: Fleet = site) -> bool:
                    return any(d.leads() for d in site.daemons)

                await site.until(led, LIMIT_S, "each site has a leader of its own")
            [victim] = [d for d in sites[0].daemons if d.leads()]
            victim.kill()  # its peer takes over, and nobody of the other site
            for site in sites:
                await site.until(lambda site=site: all_released(site), LIMIT_S, "it is released")
            return [await s.truth() for s in sites], [[d.ends for d in s.daemons] for s in sites]

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    truths, ends = asyncio.run(scenario())

    assert [t["violations"] for t in truths] == [[], []]
    assert [len(t["nodes"]) for t in truths] == [1, 1]
    assert sorted(map(len, ends[0])) == [0, 1]
    assert ends[1] == [[], []]

"""Hosts in maintenance on real FRRouting: packets reach the daemon, and no other host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from frr_boxes import why_not
from frr_probes import connects, listening, pings
from frr_site import DAEMON, IN_BAND, IN_BAND_PORTS, FrrSite, frr_site
from frr_world import World, opened

from provisioner.execution.tenancy.release_sequence import HostsApart
from provisioner.integrations.cumulus import nvue_calls as cumulus
from provisioner.integrations.cumulus.port_filter import NAME
from provisioner.integrations.cumulus.revisions import NvueLine
from provisioner.model.fabric_session import FabricMember, FabricSession
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import GateCheck, RowVerdict

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

A, B, C, D = range(4)  # nodes
ON = {
    "lookup_networks": (IN_BAND,),
    "lookup_reached": ("10.98.0.0/24",),
    "lookup_ports": ("leaf-*/swp2[89]s*",),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrrSite]:
    with frr_site(tmp_path_factory.mktemp("apart") / "site") as made:
        yield made


def play(site: FrrSite, scenario: Callable[[World, HostsApart], Awaitable[Any]]) -> Any:
    """A scenario on fenced nodes whose leaves were prepared, and a tenant."""

    async def main() -> Any:
        async with opened(site, **ON) as world:
            fenced = await asyncio.gather(*(world.fence(n) for n in (A, B, C, D)))
            assert list(fenced) == [()] * 4, fenced
            await world.tenant("red")
            apart = HostsApart(world.effects, world.store, world.tenancy)
            assert await bring(world, apart) == ()
            return await scenario(world, apart)

    return asyncio.run(main())


async def bring(world: World, apart: HostsApart) -> Any:
    return await apart.bring([await world.node(n) for n in (A, B, C, D)])


def box(site: FrrSite, node: int) -> Any:
    return site.boxes[site.nodes[node]]


def to_hosts(site: FrrSite) -> list[Any]:
    """From the in-band address and both rails of one host to another, and from a third back."""
    sources = (site.in_band(A), site.address(A, 0), site.address(A, 1))
    outward = [(box(site, A), source, site.in_band(B)) for source in sources]
    return [*outward, (box(site, C), site.in_band(C), site.in_band(A))]


def to_daemon(site: FrrSite) -> list[Any]:
    """From each host to the daemon, and the other way."""
    hosts = [(box(site, n), site.in_band(n), DAEMON) for n in (A, B, C, D)]
    back = [(site.boxes["daemon"], DAEMON, site.in_band(n)) for n in (A, B, C, D)]
    return [*hosts, *back]


def rails(site: FrrSite) -> list[Any]:
    """From rail to rail of two hosts, as tests among nodes send."""
    ends = [(0, 0), (0, 1), (1, 1)]
    return [(box(site, A), site.address(A, r), site.address(B, q)) for r, q in ends]


@pytest.mark.slow
def test_hosts_reach_the_daemon_and_each_others_rails_and_no_other_host(site: FrrSite) -> None:
    async def scenario(world: World, apart: HostsApart) -> Any:
        with listening([*(site.boxes[n] for n in site.nodes), site.boxes["daemon"]]):
            connected = connects([*to_hosts(site), *to_daemon(site)])
        echoed = pings([*to_hosts(site), *to_daemon(site)]), pings(rails(site), patience_s=10)
        rows = await apart.rows(await world.node(A))
        released = await world.release(A, "red")
        free = pings([(box(site, A), site.address(A, 0), site.address(B, 0))], patience_s=0.3)
        back = await world.fence(A)
        return connected, *echoed, rows, released, free, back, pings(to_hosts(site))

    connected, echoed, on_rails, rows, released, free, back, again = play(site, scenario)

    assert echoed == connected == [False] * 4 + [True] * 8
    assert on_rails == [True] * 3
    assert {row.verdict for row in rows} == {RowVerdict.PASS}
    assert len(rows) == 2 + 5  # both leaves; two partners, both ways, and one from a rail
    assert (released, back) == ((), ())
    assert free == [False]  # in its tenant's network it reaches no host in maintenance
    assert again == [False] * 4
    for api in site.leaf_apis():
        assert api.startup == api.applied


async def unbind(world: World, site: FrrSite) -> None:
    """Somebody takes the filter off one port, by the API, and saves it."""
    api = site.nvue[site.leaves[0]]
    address = await world.tenancy._lookup(site.leaves[0])()
    assert not isinstance(address, Blocker)
    line = NvueLine(site.leaves[0], address, world.transport)
    made = cumulus.read_revision_id(await line.ask(cumulus.new_revision()))
    assert made is not None
    change = {"interface": {port: {"acl": {NAME: None}} for port in IN_BAND_PORTS}}
    await line.ask(cumulus.Ask("PATCH", f"{cumulus.PREFIX}/?rev={made}", change))
    await line.ask(cumulus.apply(made))
    while NAME in api.applied["interface"][IN_BAND_PORTS[0]].get("acl", {}):
        await world.clock.sleep(0.1)
    await line.ask(cumulus.save())


async def flush(world: World, site: FrrSite) -> None:
    """Somebody removes the rules from the kernel, behind the API's back."""
    site.leaf(0).run("ip", "netns", "exec", "MAINT", "iptables", "-t", "mangle", "-F")


@pytest.mark.parametrize("hand", [unbind, flush], ids=["by the API", "in the kernel"])
def test_with_the_filter_removed_packets_pass_the_row_fails_and_it_is_put_back(
    site: FrrSite, hand: Callable[[World, FrrSite], Awaitable[None]]
) -> None:
    async def scenario(world: World, apart: HostsApart) -> Any:
        await hand(world, site)
        passed = pings(to_hosts(site)[:1])
        rows = await apart.rows(await world.node(A))
        refused = await world.release(A, "red")
        vrf = site.leaf(0).interfaces()[site.ports.name_leaf_port(site.end(A, 0).other)][0]
        settled = await bring(world, apart)
        return passed, refused, rows, vrf, settled, pings(to_hosts(site), patience_s=0.5)

    passed, refused, rows, vrf, settled, after = play(site, scenario)

    assert passed == [True]
    assert any("hosts_apart" in b.detail for b in refused), refused
    assert [r.subject for r in rows if r.bad] == [site.leaves[0]]
    assert vrf == "MAINT"
    assert settled == ()
    assert after == [False] * 4


def test_a_rule_that_lets_packets_pass_is_told_by_packets(site: FrrSite) -> None:
    """The filter stands in every tree with as many rules, and does not do what it says."""

    async def scenario(world: World, apart: HostsApart) -> Any:
        inside = ("ip", "netns", "exec", "MAINT", "iptables", "-t", "mangle")
        for chain, number in ((NAME, "2"),):
            site.leaf(0).run(*inside, "-R", chain, number, "-d", IN_BAND, "-j", "RETURN")
        rows = await apart.rows(await world.node(A))
        site.leaf(0).run(*inside, "-R", NAME, "2", "-d", IN_BAND, "-j", "DROP")
        return rows

    rows = play(site, scenario)

    bad = [row for row in rows if row.bad]
    assert bad
    assert all(row.check is GateCheck.HOSTS_APART for row in bad)
    assert {row.seen for row in bad} == {"it was answered"}


def test_a_tests_doors_let_two_hosts_connect_while_it_runs_and_nobody_else(site: FrrSite) -> None:
    async def scenario(world: World, apart: HostsApart) -> Any:
        members = []
        for n in (A, B):
            node = await world.node(n)
            given = {"node": node.id, "seeks": True, "bound": "", "entered_at": 0.0}
            members.append(FabricMember.model_validate({**given, "ports": node.ports}))
        session = FabricSession(
            id="s",
            vrf="MAINT",
            release="given",
            profile="given",
            opened_at=1.0,
            members=tuple(members),
            doors=((site.nodes[A], site.nodes[B]),),
        )
        stored = await world.store.fabric.put_session(session)
        assert await bring(world, apart) == ()
        probes = [
            (box(site, A), site.in_band(A), site.in_band(B)),
            (box(site, B), site.in_band(B), site.in_band(A)),
            (box(site, C), site.in_band(C), site.in_band(A)),
        ]
        with listening([site.boxes[n] for n in site.nodes]):
            opened_ = connects(probes)
            # the daemon that ran the test died; the next one ends the session
            await world.store.fabric.put_session(stored.model_copy(update={"ended_at": 2.0}))
            assert await bring(world, apart) == ()
            return opened_, connects(probes)

    opened_, closed = play(site, scenario)

    assert opened_ == [True, True, False]
    assert closed == [False, False, False]

"""Descriptions at a leaf's ports, and every tree in which a port may stand: on one small leaf."""

from __future__ import annotations

from typing import Any

import pytest
from small_site import NOT_SENT, SmallSite, ok, play, replacing

from provisioner.integrations.cumulus.port_filter import NAME
from provisioner.model.outcome import Reason
from provisioner.model.switch import Move
from provisioner.ports import Reply

OURS = "provisioner: "
FIRST = Move("swp1", "RED", "172.16.0.3/31", description=OURS + "node-1")
SECOND = Move("swp2", "RED", "172.16.0.5/31", description=OURS + "node-2")
PLAIN = Move("swp3", "RED", "172.16.0.7/31")
APART = Move("swp1", "MAINT", "172.16.0.3/31", apart=True)
ON = {"lookup_networks": ("10.64.0.0/16",)}


def sent(site: SmallSite) -> dict[str, str | None]:
    """The description that the last revision gave each port."""
    bodies = [a.body for a in site.transport.asked if a.line.startswith("PATCH /?rev=")]
    return {name: entry.get("description") for name, entry in bodies[-1]["interface"].items()}


def test_a_sites_own_description_stays_and_ours_is_written_again() -> None:
    async def scenario(site: SmallSite) -> Any:
        ports = site.switch.applied["interface"]
        ports["swp1"]["description"] = "uplink of the old rack"
        ports["swp2"]["description"] = OURS + "another node"
        await site.leaf().move([FIRST, SECOND, PLAIN])
        return sent(site)

    assert play(scenario) == {"swp1": None, "swp2": SECOND.description, "swp3": None}


def test_descriptions_are_not_read_where_none_is_written() -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.leaf().move([PLAIN])
        return "GET /interface?rev=applied" in site.lines()

    assert not play(scenario)


def test_ports_that_cannot_be_read_are_moved_and_not_described() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = replacing({"GET /interface?rev=applied": ok([])})
        outcome = await site.leaf().move([FIRST])
        return outcome.blockers, sent(site)

    assert play(scenario) == ((), {"swp1": None})


def test_a_leaf_may_have_as_many_described_ports_as_the_bound() -> None:
    async def scenario(site: SmallSite) -> Any:
        whole = ok({f"swp{n}": {} for n in range(8192)})
        site.transport.answer = replacing({"GET /interface?rev=applied": whole})
        return await site.leaf().labels()

    assert play(scenario) == {}


# --- every tree


@pytest.mark.parametrize("tree", ["applied", "startup", "operational"])
def test_a_customers_port_is_found_in_whichever_tree_it_stands(tree: str) -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp2", "RED", tree)
        return await site.leaf().tenant_ports({"", "default", "mgmt"})

    assert {name: set(port.vrfs) for name, port in play(scenario).items()} == {"swp2": {"RED"}}


@pytest.mark.parametrize("tree", ["applied", "operational"])
def test_a_filter_has_to_be_on_a_port_in_every_tree(tree: str) -> None:
    async def scenario(site: SmallSite) -> Any:
        moves = (APART, Move("swp1", "", apart=True))
        done = []
        for move in moves:
            await site.leaf().move([APART])
            getattr(site.switch, tree)["interface"]["swp1"]["acl"].pop(NAME)
            done.append((await site.leaf().move([move])).revision)
        entries = [site.switch.applied, site.switch.operational]
        return done, [NAME in entry["interface"]["swp1"]["acl"] for entry in entries]

    done, bound = play(scenario, **ON)

    assert all(done)
    assert bound == [True, True]


def test_what_to_do_about_a_refusal_is_not_what_to_do_about_silence() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = lambda _asked: NOT_SENT
        silent = await site.leaf().vrfs(["swp1"])
        site.transport.answer = lambda _asked: Reply(400, {}, b"no")
        return silent, await site.leaf().vrfs(["swp1"])

    silent, refused = play(scenario)

    assert (silent.reason, refused.reason) == (Reason.UNREACHABLE, Reason.SWITCH_REFUSED)
    assert "changes and log" in refused.unblock
    assert "revisions and log" not in silent.unblock

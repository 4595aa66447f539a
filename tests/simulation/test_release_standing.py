"""A release whose node loses its standing while its ports move is stopped and fenced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from port_soak import Soak
from port_truth import MAINTENANCE
from port_world import PortWorld
from virtual_time import run

from provisioner.model.node import Node, State
from provisioner.model.tenant import Tenant


async def _until(soak: Soak, holds: Callable[[], bool], limit_s: float = 600.0) -> None:
    end = soak.clock.now() + limit_s
    while not holds():
        assert soak.clock.now() < end, "it did not come to that"
        await soak.clock.sleep(0.25)
        soak.advance()


def _vrfs(soak: Soak) -> list[str]:
    return [s.get_vrf("swp1") for s in soak.switches.values()]


async def _revoke(soak: Soak, node: Node) -> None:
    await soak.store.evidence.revoke(node.certificate, "an alert came", soak.clock.now())


async def _swap(soak: Soak, node: Node) -> None:
    soak.truth.swap(node.id, "another drive")


async def _reallocate(soak: Soak, node: Node) -> None:
    await soak.store.nodes.save(node.model_copy(update={"tenant": "blue"}))


async def _rename(soak: Soak, node: Node) -> None:
    await soak.store.tenants.put(Tenant(name="red", vrf="RED2", nodes_wanted=9))


async def _expire(soak: Soak, node: Node) -> None:
    certificate = await soak.store.evidence.get_certificate(node.certificate)
    await soak.clock.sleep(certificate.expires_at - soak.clock.now())


Act = Callable[[Soak, Node], Awaitable[None]]


async def _release(soak: Soak, act: Act, entered: int) -> list[list[str]]:
    """Begin a release; `act` once so many ports are in the customer's VRF. VRFs seen since then."""
    await soak.open()
    soak.wire.lost = 0.0
    await _until(soak, lambda: soak.truth.rows["node-0"].state == "certified")
    await _until(soak, lambda: not [t for t in soak.driving.values() if not t.done()])
    soak.driving.clear()
    node = await soak.store.nodes.get("node-0")
    await soak.store.nodes.save(node.model_copy(update={"tenant": "red"}))
    await soak._operation(node.id)
    await _until(soak, lambda: _vrfs(soak).count("RED") == entered)
    stored = await soak.store.nodes.get(node.id)
    assert stored.state is State.CERTIFIED
    await act(soak, stored)
    seen = [_vrfs(soak)]

    def fenced() -> bool:
        if (now := _vrfs(soak)) != seen[-1]:
            seen.append(now)
        return now == [MAINTENANCE] * 2

    await _until(soak, fenced)
    # only now: until then the row must not say that it was handed over
    assert soak.truth.rows["node-0"].state != "released"
    for task in soak.driving.values():
        task.cancel()
    await soak.close()
    soak.truth.judge()
    return seen


@pytest.mark.parametrize("act", [_revoke, _reallocate, _rename])
def test_no_further_leaf_is_changed_once_the_standing_is_lost(act: Act) -> None:
    seen = run(_release(Soak(3, nodes=1), act, entered=1))

    assert seen == [["RED", MAINTENANCE], [MAINTENANCE] * 2]


@pytest.mark.parametrize("act", [_revoke, _swap, _reallocate, _rename, _expire])
def test_nothing_is_handed_over_that_lost_its_standing_after_the_last_leaf(act: Act) -> None:
    soak = Soak(4, nodes=1)
    soak.valid_s = 25.0 if act is _expire else soak.valid_s
    soak.settings = soak.settings.model_copy(update={"release_confirm_s": 30.0})
    seen = run(_release(soak, act, entered=2))

    assert seen[0] == ["RED", "RED"]
    assert seen[-1] == [MAINTENANCE] * 2


async def _into_blue(soak: Soak, _node: Node) -> None:
    """A person puts the port that has entered already into another customer's network."""
    switch = soak.switches["leaf-0"]
    soak.truth.hand("leaf-0", "swp1", "BLUE")
    soak.truth.disturbed["node-0"] = soak.clock.now()
    revision = switch.new_revision()
    revision.changes.append(((), {"interface": {"swp1": {"ip": {"vrf": "BLUE"}}}}))
    switch.apply(revision, soak.clock.now())
    await _until(soak, lambda: "BLUE" in _vrfs(soak))


def test_a_release_that_meets_another_customers_network_owes_an_erasure() -> None:
    """The watch of leaves may come later: who gives the release up records what it met."""

    def watch_no_leaf(world: PortWorld) -> None:
        async def look(_leaf: str) -> None:
            return None

        world.leaf_watch.check_leaf = look  # type: ignore[method-assign]

    soak = Soak(3, nodes=1, sabotage=watch_no_leaf)

    run(_release(soak, _into_blue, entered=1))

    assert soak.truth.rows["node-0"].served == "red, VRF BLUE"

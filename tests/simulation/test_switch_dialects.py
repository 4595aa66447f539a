"""An upgrade over Cumulus Linux 5.15, which renames and revalues switches of the configuration.

The stand-in refuses what each release refuses by the guide's table, so that a body in the wrong
dialect leaves the switch as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from leaf_rig import Rig

from provisioner.execution.actions.once import Sent
from provisioner.execution.steps.methods_switch import boot_image
from provisioner.execution.steps.methods_switch_settings import Drain
from provisioner.integrations.cumulus import revisions as dialect
from provisioner.integrations.cumulus import services as bgp_drain
from provisioner.integrations.cumulus import tenant_networks as network_tree
from provisioner.integrations.sim.switches.nvue_schema import ROWS, find_violation, take_over
from provisioner.model.inventory import Activation
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.ports import Switch

LEAF, OLD, NEW = "leaf-su0-r0", "5.12.1.100", "5.16.1.10"
STEP = Step(
    kind=StepKind.ACTIVATE,
    activation=Activation.IMAGE_REBOOT,
    activates=(("switch.os/switch", NEW),),
    disruption=Disruption.SWITCH,
    duration_s=600,
    expected=(),
    reason="test",
)
Result = TypeVar("Result")


def lived(story: Callable[[Rig], Awaitable[Result]], running: str = OLD) -> Result:
    """A story on a rig whose leaf runs one release and has the new one beside it."""

    async def live() -> Result:
        rig = await Rig(nodes=3).open()
        switch = rig.site.switches[LEAF]
        switch.partitions = {1: running, 2: NEW}
        for name in ("applied", "startup", "operational"):
            setattr(switch, name, take_over(running, getattr(switch, name)))
        try:
            return await story(rig)
        finally:
            await rig.close()

    return asyncio.run(live())


def drain_state(rig: Rig) -> tuple[str, str]:
    """How the switch would start, and how it runs."""
    switch = rig.site.switches[LEAF]
    trees = (switch.startup, switch.applied)
    first, second = (t.get("router", {}).get("bgp", {}).get("graceful-shutdown") for t in trees)
    return first, second


async def open_leaf(rig: Rig) -> Switch:
    effects = rig.effects
    address = await effects.reach.switch(rig.nodes[LEAF])
    assert not isinstance(address, Blocker)
    return effects.reach.switches.open(LEAF, address, effects.clock, effects.settings)


def test_a_drained_leaf_upgraded_over_the_border_ends_undrained_and_undisturbed() -> None:
    async def story(rig: Rig) -> tuple[Any, ...]:
        before = await (await open_leaf(rig)).read_state(())
        work = await boot_image(rig.effects, rig.nodes[LEAF], STEP)
        assert not isinstance(work, Blocker)
        seen = await work.act.look()
        assert not isinstance(seen, Blocker)
        sent = await work.act.send()
        drained = drain_state(rig)
        entry = LedgerEntry(
            operation="o",
            node=LEAF,
            action="boot",
            attempt=1,
            status=ActionStatus.SENT,
            intended_at=0.0,
            before={"seen": dict(seen)},
        )
        finished = await work.finish(entry)
        after = await (await open_leaf(rig)).read_state(())
        return sent, drained, finished, before, after, drain_state(rig), rig.site.switches[LEAF]

    sent, drained, finished, before, after, ended, switch = lived(story)

    assert isinstance(sent, Sent)
    assert drained[0] in ("on", "enabled")
    assert finished is None
    assert switch.version == NEW
    assert ended == ("disabled", "disabled")
    assert after.qos == before.qos != ""
    assert after.adaptive_routing == before.adaptive_routing != ""
    assert switch.applied["evpn"] == {"state": "enabled"}


@pytest.mark.parametrize(
    ("running", "spelled"), [(OLD, "on"), ("5.14.0.5", "on"), (NEW, "enabled")]
)
def test_a_drain_is_spelled_for_the_release_that_runs(running: str, spelled: str) -> None:
    async def story(rig: Rig) -> tuple[Any, ...]:
        drain = Drain(rig.effects, rig.nodes[LEAF], await open_leaf(rig))
        on = (await drain.begin(), drain_state(rig)[0])
        return (*on, await drain.end(), drain_state(rig)[0])

    begun, on, ended, off = lived(story, running)

    assert (begun, ended) == (None, None)
    assert on == spelled
    assert off == {"on": "off", "enabled": "disabled"}[spelled]


@pytest.mark.parametrize(
    ("version", "body"),
    [
        ("5.15.0", {"router": {"bgp": {"graceful-shutdown": "off"}}}),
        ("5.15.0", {"qos": {"roce": {"enable": "on"}}}),
        ("5.15.0", {"router": {"adaptive-routing": {"enable": "on"}}}),
        ("5.14.0", {"router": {"adaptive-routing": {"state": "enabled"}}}),
        ("5.14.0", {"router": {"bgp": {"graceful-shutdown": "disabled"}}}),
        ("5.15.0", {"vrf": {"RED": {"router": {"bgp": {"enable": "on"}}}}}),
    ],
)
def test_the_stand_in_refuses_the_other_dialect(version: str, body: dict[str, Any]) -> None:
    release = tuple(int(n) for n in version.split("."))

    assert find_violation(version, (), body)
    older = dialect.decode_document(body, ())
    assert find_violation(version, (), dialect.encode_body(older, release)) == ""
    assert dialect.decode_document(dialect.encode_body(older, release), ()) == older


@pytest.mark.parametrize("version", ["5.12.1", "5.16.1"])
@pytest.mark.parametrize("on", [True, False])
def test_every_body_of_a_drain_is_taken_by_its_release(version: str, on: bool) -> None:
    release = tuple(int(n) for n in version.split("."))

    body = bgp_drain.change_drain("7", release, on=on).body

    assert find_violation(version, (), body) == ""


def test_tenants_networks_and_the_table_name_the_same_border() -> None:
    rows = {(*r.path, r.before) for r in ROWS}

    assert rows <= set(dialect.SWITCHES)
    assert network_tree.make_switch("5.14.9") == {"enable": "on"}
    assert network_tree.make_switch("5.15.0") == {"state": "enabled"}

"""A leaf with SONiC among leaves with Cumulus: released, drained and upgraded by the same code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from leaf_rig import Rig
from sonic_standin import NEW, OLD, SonicSwitch

from provisioner.adapters.switches.routing import RoutedSwitches
from provisioner.adapters.switches.sonic.sonic import SonicTransport
from provisioner.execution.actions.once import Sent
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe.switch_api import SwitchApi
from provisioner.execution.steps.methods_sonic import install_sonic_image
from provisioner.execution.steps.methods_switch import boot_image
from provisioner.execution.steps.switch_drain import Drain
from provisioner.execution.tenancy.hosts_apart import HostsApart
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.inventory import Activation
from provisioner.model.node import Node
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.model.tenant import MAINTENANCE_VRF
from provisioner.ports import PlaybookCall, PlaybookResult

LEAF = "leaf-su0-r0"


class Runner:
    """The role, as it leaves the switch."""

    def __init__(self, switch: SonicSwitch) -> None:
        self.switch = switch
        self.calls: list[PlaybookCall] = []

    async def run(self, call: PlaybookCall) -> PlaybookResult:
        self.calls.append(call)
        self.switch.install(call.variables["version"])
        return PlaybookResult("ok", {"next": self.switch.next})

    async def recall(self, call: PlaybookCall, since: float) -> PlaybookResult | None:
        return None


class Pull:
    """Where a switch fetches a file."""

    def pull_url(self, name: str) -> str:
        return f"http://artifacts.test/{name}"


class Bench:
    """A site whose first leaf runs SONiC."""

    async def open(self) -> Bench:
        self.rig = await Rig(nodes=2, switch_apply_limit_s=60.0, switch_drain_limit_s=120.0).open()
        mine = [p for n in self.rig.nodes.values() for p in n.ports if p.switch == LEAF]
        self.switch = SonicSwitch([(p.interface, p.address) for p in mine])
        leaf = self.rig.nodes[LEAF].model_copy(update={"address": f"ssh://{LEAF}"})
        self.leaf = self.rig.nodes[LEAF] = await self.rig.store.save_node(leaf)
        transport = RoutedSwitches(self.rig.switches, SonicTransport(self.switch))
        reach = Reach(self.rig.bmcs, transport, self.rig.effects.reach.credentials)
        self.runner = Runner(self.switch)
        self.site = replace(self.rig.effects, reach=reach, runner=self.runner, artifacts=Pull())
        self.tenancy = Tenancy(self.site, self.rig.store)
        return self

    async def close(self) -> None:
        await self.tenancy.close()
        await self.rig.close()


def run(story: Callable[[Bench], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            bench = await Bench().open()
            try:
                await story(bench)
            finally:
                await bench.close()

    asyncio.run(bounded())


def test_a_node_is_moved_over_leaves_of_both_systems_and_back():
    async def story(bench: Bench) -> None:
        node = bench.rig.nodes["su0-n00"]
        port = next(p for p in node.ports if p.switch == LEAF)
        for vrf, theirs in (("RED", "VrfRED"), (MAINTENANCE_VRF, "VrfMAINT")):
            moved = await bench.tenancy.move(node.ports, vrf)
            placements = await bench.tenancy.read(node.ports)

            assert moved.blockers == ()
            assert moved.persisted
            assert bench.switch.vrf_of(port.interface) == theirs
            assert bench.switch.startup == bench.switch.config
            assert not isinstance(placements, Blocker)
            assert {p.vrf for p in placements} == {vrf}

    run(story)


def test_a_leaf_that_takes_no_filter_between_hosts_is_fenced_all_the_same():
    async def story(bench: Bench) -> None:
        node = bench.rig.nodes["su0-n00"]
        changes = {"lookup_networks": ("10.64.0.0/16",)}
        settings = bench.site.settings.model_copy(update=changes)
        tenancy = Tenancy(replace(bench.site, settings=settings), bench.rig.store)
        apart = HostsApart(replace(bench.site, settings=settings), bench.rig.store, tenancy)

        fenced = await tenancy.fence(node.ports)
        rows = {row.subject: row for row in await apart.rows(node)}
        await tenancy.close()

        assert fenced.blockers == ()
        assert {p.vrf for p in fenced.placements} == {MAINTENANCE_VRF}
        assert [name for name, row in rows.items() if row.bad] == [LEAF]

    run(story)


def test_a_port_that_sonic_s_kernel_does_not_move_is_no_release():
    async def story(bench: Bench) -> None:
        bench.switch.faults.add("kernel_lags")
        moved = await bench.tenancy.move(bench.rig.nodes["su0-n00"].ports, "RED")

        assert {b.reason for b in moved.blockers} == {Reason.ISOLATION}
        assert moved.blockers[0].subject.startswith(LEAF)

    run(story)


def test_the_gate_of_a_release_can_read_a_sonic_leaf():
    async def story(bench: Bench) -> None:
        node = bench.rig.nodes["su0-n00"]
        await bench.tenancy.move(node.ports, "RED")
        port = next(p for p in node.ports if p.switch == LEAF)

        seen = await bench.tenancy.look([port])

        assert not isinstance(seen, Blocker), seen
        state = seen[LEAF]
        assert (state.ports[port.interface].vrf, state.ports[port.interface].mtu) == ("RED", 9216)
        assert state.unsaved == frozenset()
        assert state.issues == ()
        routes = state.vrfs["RED"].routes
        assert [(r.selected, r.offloaded) for r in routes] == [(True, True)]

        bench.switch.faults.add("unhealthy")
        sick = await bench.tenancy.look([port])
        assert not isinstance(sick, Blocker)
        assert sick[LEAF].issues

    run(story)


def step(kind: StepKind, **more: Any) -> Step:
    given: dict[str, Any] = {"component": "switch.os", "slots": ("switch",), "from_version": OLD}
    given |= {"activation": Activation.IMAGE_REBOOT, "disruption": Disruption.SWITCH}
    given |= {"duration_s": 900, "expected": (), "to_version": NEW, "reason": "a test"}
    return Step(kind=kind, **{**given, **more})


UPDATE = step(StepKind.UPDATE, method="sonic_installer", artifact="sonic-mellanox.bin")
BOOT = step(StepKind.ACTIVATE, activates=(("switch.os/switch", NEW),))


async def carried_out(work: Work | Blocker) -> Blocker | None:
    """Look, act, finish, as the ledger drives them."""
    assert isinstance(work, Work), work
    before = await work.act.look()
    assert not isinstance(before, Blocker), before
    sent = await work.act.send()
    if isinstance(sent, Blocker):
        return sent
    assert isinstance(sent, Sent)
    entry = LedgerEntry(
        operation="o",
        node=LEAF,
        action=work.act.name,
        attempt=1,
        status=ActionStatus.INTENDED,
        intended_at=0.0,
        before={"seen": before},
    )
    return await work.finish(entry)


def upgraded(bench: Bench, leaf: Node, site: Site) -> Awaitable[Blocker | None]:
    async def both() -> Blocker | None:
        problem = await carried_out(await install_sonic_image(site, leaf, UPDATE))
        return problem or await carried_out(await boot_image(site, leaf, BOOT))

    return both()


def test_an_image_is_installed_by_the_role_and_booted_when_the_traffic_has_moved():
    async def story(bench: Bench) -> None:
        assert await upgraded(bench, bench.leaf, bench.site) is None

        (call,) = bench.runner.calls
        assert (call.play, call.address) == ("switch_sonic", LEAF)
        assert call.variables["phases"] == ["preflight", "stage"]
        assert (bench.switch.current, bench.switch.boots) == (NEW, 1)
        assert not bench.switch.drained
        lines = [c for c in bench.switch.calls if c in ("TSA", "TSB") or "reboot" in c]
        assert lines[0] == "TSA"
        assert lines[-1] == "TSB"

    run(story)


@pytest.mark.parametrize(
    ("fault", "reason", "boots", "drained"),
    [("keeps_traffic", Reason.BUSY, 0, False), ("session_down", Reason.FABRIC, 1, True)],
)
def test_it_is_not_booted_while_it_carries_and_stays_drained_while_it_is_not_well(
    fault, reason, boots, drained
):
    async def story(bench: Bench) -> None:
        bench.switch.faults.add(fault)
        problem = await upgraded(bench, bench.leaf, bench.site)

        assert problem is not None
        assert problem.reason is reason
        assert (bench.switch.boots, bench.switch.drained) == (boots, drained)

    run(story)


def test_a_refused_drain_changes_nothing_and_is_told():
    async def story(bench: Bench) -> None:
        bench.switch.faults.add("refuses")
        api = await SwitchApi.open(bench.site, bench.leaf)
        assert isinstance(api, SwitchApi)
        problem = await Drain(bench.site, bench.leaf, api).begin()

        assert problem is not None
        assert problem.reason is Reason.SWITCH_REFUSED
        assert not bench.switch.drained

    run(story)


def test_sonic_s_method_is_not_taken_for_cumulus():
    async def story(bench: Bench) -> None:
        other = bench.rig.nodes["leaf-su0-r1"]
        refused = await install_sonic_image(bench.site, other, UPDATE)

        assert isinstance(refused, Blocker)
        assert refused.reason is Reason.NOT_OFFERED

    run(story)

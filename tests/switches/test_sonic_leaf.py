"""A leaf with SONiC among leaves with Cumulus: released, drained and upgraded by the same code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from leaf_rig import Rig
from sonic_standin import NEW, OLD, SonicSwitch

from provisioner.execution.actions.once import Sent
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe.rotation import open_switch
from provisioner.execution.steps.methods_switch import boot_image, install_sonic_image
from provisioner.execution.steps.methods_switch_settings import Drain
from provisioner.execution.tenancy.release_sequence import HostsApart
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.integrations.sonic.acl_rows import NAME
from provisioner.model.inventory import Activation
from provisioner.model.node import Node
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.model.tenant import MAINTENANCE_VRF
from provisioner.ports import PlaybookCall, PlaybookResult
from provisioner.runtime.switch_systems import make_switches

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
        self.leaf = self.rig.nodes[LEAF] = await self.rig.store.nodes.save(leaf)
        transport = make_switches(self.rig.switches, self.switch)
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


def apart_on(bench: Bench) -> tuple[Tenancy, HostsApart]:
    """The tenancy of a site whose leaves keep hosts apart."""
    changes = {"lookup_networks": ("10.64.0.0/16",), "lookup_reached": ("10.64.0.2/32",)}
    settings = bench.site.settings.model_copy(update=changes)
    site = replace(bench.site, settings=settings)
    tenancy = Tenancy(site, bench.rig.store)
    return tenancy, HostsApart(site, bench.rig.store, tenancy)


def test_a_fence_on_sonic_brings_the_filter_between_hosts_and_a_tenant_takes_it_off():
    async def story(bench: Bench) -> None:
        node = bench.rig.nodes["su0-n00"]
        port = next(p for p in node.ports if p.switch == LEAF)
        tenancy, apart = apart_on(bench)

        fenced = await tenancy.fence(node.ports)
        await apart.bring([node])
        rows = {row.subject: row for row in await apart.rows(node)}
        table, rules = bench.switch.config["ACL_TABLE"][NAME], bench.switch.config["ACL_RULE"]
        bound = set(table["ports"])
        released = await tenancy.move(node.ports, "RED")
        await tenancy.close()

        assert fenced.blockers == ()
        assert {p.vrf for p in fenced.placements} == {MAINTENANCE_VRF}
        assert [name for name, row in rows.items() if row.bad] == []
        assert (table["type"], table["stage"]) == ("L3", "ingress")
        assert port.interface in bound
        assert rules == {
            f"{NAME}|RULE_20000": {
                "PRIORITY": "4999",
                "PACKET_ACTION": "FORWARD",
                "DST_IP": "10.64.0.2/32",
            },
            f"{NAME}|RULE_30000": {
                "PRIORITY": "1999",
                "PACKET_ACTION": "DROP",
                "DST_IP": "10.64.0.0/16",
            },
        }
        assert released.blockers == ()
        assert port.interface not in bench.switch.config["ACL_TABLE"][NAME]["ports"]
        assert bench.switch.startup == bench.switch.config

    run(story)


@pytest.mark.parametrize(
    "hand",
    [
        lambda switch: switch.config["ACL_RULE"].pop(f"{NAME}|RULE_30000"),
        lambda switch: switch.config["ACL_RULE"][f"{NAME}|RULE_30000"].update(PRIORITY="1"),
        lambda switch: switch.config["ACL_RULE"].update(
            {f"{NAME}|mine": {"PRIORITY": "9999", "PACKET_ACTION": "FORWARD"}}
        ),
        lambda switch: switch.config["ACL_TABLE"][NAME].update(ports=[]),
        lambda switch: switch.startup.pop("ACL_TABLE"),
        lambda switch: switch.config["ACL_TABLE"][NAME].update(stage="egress"),
    ],
    ids=["rule", "priority", "foreign rule", "ports", "startup", "stage"],
)
def test_a_filter_that_foreign_hands_changed_on_sonic_is_found_and_put_back(hand):
    async def story(bench: Bench) -> None:
        node = bench.rig.nodes["su0-n00"]
        tenancy, apart = apart_on(bench)
        await tenancy.fence(node.ports)
        assert await apart.bring([node]) == ()

        hand(bench.switch)
        broken = [row.subject for row in await apart.rows(node) if row.bad]
        settled = await apart.bring([node])
        mended = [row.subject for row in await apart.rows(node) if row.bad]
        await tenancy.close()

        assert broken == [LEAF]
        assert (settled, mended) == ((), [])

    run(story)


def test_the_doors_of_a_test_among_nodes_are_opened_and_closed_on_sonic():
    async def story(bench: Bench) -> None:
        port = next(p for p in bench.rig.nodes["su0-n00"].ports if p.switch == LEAF)
        tenancy, _ = apart_on(bench)

        opened = await tenancy.keep_apart(LEAF, [port.interface], [("10.64.0.7", "10.64.0.8")])
        rules = dict(bench.switch.config["ACL_RULE"])
        closed = await tenancy.keep_apart(LEAF, [port.interface], [])
        left = set(bench.switch.config["ACL_RULE"])
        await tenancy.close()

        assert (opened.blockers, closed.blockers) == ((), ())
        assert rules[f"{NAME}|RULE_1"] == {
            "PRIORITY": "9998",
            "PACKET_ACTION": "FORWARD",
            "SRC_IP": "10.64.0.7/32",
            "DST_IP": "10.64.0.8/32",
            "IP_PROTOCOL": "6",
        }
        assert left == {f"{NAME}|RULE_20000", f"{NAME}|RULE_30000"}

    run(story)


def test_a_filter_that_sonic_s_asic_does_not_have_is_no_filter():
    async def story(bench: Bench) -> None:
        node = bench.rig.nodes["su0-n00"]
        tenancy, apart = apart_on(bench)
        bench.switch.faults.add("acl_lags")

        fenced = await tenancy.fence(node.ports)
        rows = {row.subject: row for row in await apart.rows(node)}
        await tenancy.close()

        # the fence itself does not wait for its filter
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
        switch = await open_switch(bench.site, bench.leaf)
        assert not isinstance(switch, Blocker)
        problem = await Drain(bench.site, bench.leaf, switch).begin()

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

"""A tenant's own power request, from the route to the BMC, and the cases that withhold a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from served import MATRIX, no_leaves
from test_power_requests import HOST, SERVES, Bench, with_bench

from provisioner.api.parts import ApiParts, Ask
from provisioner.api.problem import Refused
from provisioner.api.route import Nothing
from provisioner.api.routes.node_power import PowerView, change_power, show_power
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.daemon.api import api_parts
from provisioner.model.access import Caller, ChangeKind, ChangeRequest, RequestState, Role
from provisioner.model.case import Case, JoinedReport, Origin, Service, Stage
from provisioner.model.inventory import Power
from provisioner.model.node import Node, Placement, State
from provisioner.model.operation import OperationStatus
from provisioner.planning.lifecycle.power_requests import find_tenant_objection, is_held

RED = Caller(subject="ada", roles=frozenset({Role.TENANT}), tenant="red")
VIEWER = Caller(subject="vi", roles=frozenset({Role.VIEWER}))
NOW = 1_800_000_000.0


def serve_parts(bench: Bench) -> ApiParts:
    world = bench.world
    keeper = TenantKeeper(world.store, world.clock, [], no_leaves)
    context = Context(world.store, world.clock, world.settings)
    folder = Path("artifacts")
    return api_parts(
        world.store, keeper, MATRIX, folder, context, vault=world.vault, transport=world.transport
    )


async def read_power(parts: ApiParts, caller: Caller) -> Power:
    path = f"/v1/nodes/{HOST}/power"
    request = make_mocked_request("GET", path, match_info={"node": HOST})
    reply = await show_power(Ask(parts, request, caller, Nothing(), None, parts.clock.now(), ()))
    assert isinstance(reply.body, PowerView)
    return reply.body.power


def test_a_tenants_request_switches_its_host_and_the_tenant_reads_it(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        parts = serve_parts(bench)
        assert await read_power(parts, RED) is Power.ON
        asked = ChangeRequest(
            kind=ChangeKind.NODE_POWER,
            subject=HOST,
            tenant="red",
            arguments={"action": "off", "tenant": True, "owner": "red"},
            asked_by=RED.subject,
            asked_at=parts.clock.now(),
        )
        outcome = await change_power(parts, asked)
        assert outcome.state is RequestState.UNDER_WAY, outcome.blockers
        (operation,) = await bench.world.store.operations.list_active()
        await bench.daemon.reconciler.drive(operation.id)
        ended = await bench.world.store.operations.get(operation.id)
        assert ended is not None
        assert ended.status is OperationStatus.DONE
        assert bench.acts() == ["ForceOff"]
        assert await read_power(parts, RED) is Power.OFF

    with_bench(tmp_path, story, **SERVES)


def test_a_tenant_gets_no_address_of_a_silent_bmc(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        parts = serve_parts(bench)
        bench.world.wire.lost = 1.0
        for caller, shows in ((RED, False), (VIEWER, True)):
            with pytest.raises(Refused) as refused:
                await read_power(parts, caller)
            assert refused.value.problem.status == 503
            assert refused.value.problem.unblock
            assert bool(refused.value.problem.detail) is shows

    with_bench(tmp_path, story, **SERVES)


def make_case(**changes: Any) -> Case:
    return Case(
        **{
            "id": f"{HOST}-c0001",
            "node": HOST,
            "origin": Origin.TENANT,
            "reason": "jobs hang",
            "service": Service.DRAIN,
            "tenant": "red",
            "opened_at": NOW - 60.0,
            "drain_at": NOW + 60.0,
            **changes,
        }
    )


PLANNED = JoinedReport(origin=Origin.MAINTENANCE, reason="a fan", by="ada", at=NOW - 30.0)


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({}, False),  # it has its notice, and works on until then
        ({"drain_at": NOW - 1.0}, True),
        ({"service": Service.CUT_OFF, "drain_at": NOW - 60.0}, True),
        ({"service": Service.KEEP, "drain_at": 0.0}, False),
        ({"service": Service.KEEP, "drain_at": 0.0, "origin": Origin.MAINTENANCE}, True),
        ({"service": Service.KEEP, "drain_at": 0.0, "reports": (PLANNED,)}, True),
        ({"origin": Origin.MAINTENANCE}, False),  # the work begins when it is drained
        ({"stage": Stage.HARDWARE}, True),
        ({"stage": Stage.DIAGNOSIS}, True),
        ({"stage": Stage.RETURNING}, False),  # it is back at its tenant
        ({"stage": Stage.RETURNING, "retire_at": NOW + 60.0}, False),
        ({"stage": Stage.RETURNING, "retire_at": NOW - 1.0}, True),
    ],
)
def test_a_case_holds_a_node_while_people_work_on_it_or_it_is_taken_back(
    changes: dict[str, Any], *, held: bool
) -> None:
    bmcs = ({"name": "host", "url": "https://10.0.0.9"},)
    bare = Node.model_validate({"id": HOST, "kind": "host", "bmcs": bmcs}, strict=False)
    case = make_case(**changes)
    assert is_held(case, NOW) is held
    objection = find_tenant_objection(bare.model_copy(update=SERVES), "red", case, NOW)
    assert (objection is not None and case.id in objection.detail) is held


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"tenant": "blue"}, "it is not yours any more"),
        ({"tenant": ""}, "it is not yours any more"),
        ({"state": State.REPAIRING}, "it is not released to you now"),
        ({"placement": Placement.MIXED}, "it is not released to you now"),
        ({"bmcs": ()}, "it is no host with a BMC"),
    ],
)
def test_only_a_host_that_serves_the_tenant_is_its_own(changes: dict[str, Any], why: str) -> None:
    bmcs = ({"name": "host", "url": "https://10.0.0.9"},)
    bare = Node.model_validate({"id": HOST, "kind": "host", "bmcs": bmcs}, strict=False)
    objection = find_tenant_objection(bare.model_copy(update=SERVES | changes), "red", None, NOW)
    assert ("" if objection is None else objection.detail) == why
    assert objection is None or objection.unblock

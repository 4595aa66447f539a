"""The operator between an API server in memory and the served API: tenants, claims, campaigns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, building, find_condition
from served import NOW, RELEASE

from provisioner.model.access import ChangeKind
from provisioner.model.campaign import CampaignState
from provisioner.model.events.fleet_events import describe_change
from provisioner.model.node import State
from provisioner.store.rows import page_rows

pytestmark = pytest.mark.long  # it waits for a loop of real time

GREEN = ("tenants", "green")
CLAIM = ("nodeclaims", "train", "team-a")
DRAFT = {"release": "spectrum-x-2.1.2", "select": "kind=host"}


def try_operator(
    folder: Path, scenario: Callable[[Cluster], Awaitable[None]], **settings: Any
) -> None:
    """Run a scenario while the operator runs."""

    async def bounded() -> None:
        async with (
            asyncio.timeout(600), building(folder, **settings) as (cluster, start), start()
        ):  # fmt: skip
            await scenario(cluster)

    asyncio.run(bounded())


async def give(cluster: Cluster, tenant: str, *names: str, state: State = State.RELEASED) -> None:
    """Allocate nodes to a tenant as the daemon does."""
    for name in names:
        node = await cluster.served.store.nodes.get(name)
        assert node is not None
        changes = {"tenant": tenant, "state": state}
        await cluster.served.store.nodes.save(node.model_copy(update=changes))


async def count_rows(cluster: Cluster) -> int:
    """Return the number of rows of the journal."""
    head: int = (await cluster.served.store.read(page_rows.journal_head))[0]
    return head


async def read_tenant(cluster: Cluster, name: str = "green") -> Any:
    rows = {t.name: t for t in await cluster.served.store.tenants.list()}
    return rows.get(name)


def test_a_tenant_is_created_changed_and_deleted_and_then_left_alone(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        spec = {"nodes": 2, "spread": True, "quota": {"nodes": 4}}
        assert await cluster.apply("tenants", "green", spec) == 200
        status = await cluster.wait_condition("Ready", "ShortOfNodes", *GREEN)
        assert find_condition(status, "Accepted")["status"] == "True"
        assert (status["phase"], status["nodesWanted"], status["nodes"]) == ("ready", 2, 0)

        await give(cluster, "green", "su0-n04", "su0-n06")
        await cluster.wait_condition("Ready", "Ready", *GREEN)
        rows = await count_rows(cluster)
        await asyncio.sleep(0.6)  # some looks
        assert await count_rows(cluster) == rows

        # a change by another hand is brought back
        row = await read_tenant(cluster)
        assert (row.spread, row.quota.nodes) == (True, 4)
        body = {"quota": {"nodes": 9}}
        assert (await cluster.served.ask("operator", "PATCH", "/tenants/green", body))[0] == 200
        for _ in range(200):
            await asyncio.sleep(0.05)
            if (await read_tenant(cluster)).quota.nodes == 4:
                break
        assert (await read_tenant(cluster)).quota.nodes == 4

        assert await cluster.delete(*GREEN) == 200
        status = await cluster.wait_condition("Accepted", "Isolation", *GREEN)
        assert "2 nodes are its" in find_condition(status, "Accepted")["message"]
        assert status["blockers"][0]["unblock"] == "Shrink it to 0 and wait until they left."
        await give(cluster, "", "su0-n04", "su0-n06", state=State.CERTIFIED)
        await cluster.wait_until(lambda seen: seen is None, *GREEN)
        assert await read_tenant(cluster) is None

    try_operator(tmp_path, scenario)


def test_a_refusal_is_a_condition_with_the_remedy_and_writes_no_row_at_each_look(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.apply("tenants", "green", {"nodes": 3, "quota": {"nodes": 2}})
        status = await cluster.wait_condition("Accepted", "Quota", *GREEN)
        assert "Unblock: " in find_condition(status, "Ready")["message"]
        since = find_condition(status, "Ready")["lastTransitionTime"]
        rows = await count_rows(cluster)
        await asyncio.sleep(0.6)
        assert await count_rows(cluster) == rows

        await cluster.apply("tenants", "green", {"quota": {"nodes": 3}})
        status = await cluster.wait_condition("Ready", "ShortOfNodes", *GREEN)
        ready = find_condition(status, "Ready")
        assert (ready["observedGeneration"], ready["lastTransitionTime"]) == (2, since)
        assert "blockers" not in status

    try_operator(tmp_path, scenario)


def test_a_tenant_that_waits_for_approval_is_asked_for_once(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.apply("tenants", "green", {"nodes": 1})
        status = await cluster.wait_condition("Ready", "OperationOpen", *GREEN)
        assert "another person has to approve it" in find_condition(status, "Ready")["message"]
        await asyncio.sleep(0.6)
        _, waiting = await cluster.served.ask("approver", "GET", "/requests?waiting=true")
        assert [o["id"] for o in waiting["items"]] == [status["operation"]]
        path = f"/requests/{status['operation']}/approve"
        assert (await cluster.served.ask("approver", "POST", path, {}))[0] == 200
        status = await cluster.wait_condition("Ready", "ShortOfNodes", *GREEN)
        assert "operation" not in status

    try_operator(tmp_path, scenario, api_four_eyes=(ChangeKind.TENANT_PUT,))


def test_claims_add_up_keep_their_nodes_and_give_their_own_back(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        other = ("nodeclaims", "serve", "team-b")
        await cluster.apply("nodeclaims", "train", {"tenant": "green", "nodes": 1}, "team-a")
        await cluster.wait_condition("Accepted", "TenantMissing", *CLAIM)
        await cluster.apply("tenants", "green", {"namespaces": ["team-a"]})
        status = await cluster.wait_condition("Ready", "ShortOfNodes", *CLAIM)
        assert status["claimed"] == 1
        await cluster.apply("nodeclaims", "serve", {"tenant": "green", "nodes": 1}, "team-b")
        status = await cluster.wait_condition("Accepted", "NamespaceNotNamed", *other)
        await cluster.apply("tenants", "green", {"namespaces": ["team-a", "team-b"]})
        await cluster.wait_condition("Ready", "ShortOfNodes", *other)
        assert (await read_tenant(cluster)).nodes_wanted == 2

        await give(cluster, "green", "su0-n06")
        status = await cluster.wait_condition("Ready", "Ready", *CLAIM)
        assert status["nodes"] == [{"name": "su0-n06", "state": "released"}]
        await give(cluster, "green", "su0-n04")
        status = await cluster.wait_condition("Ready", "Ready", *other)
        assert [n["name"] for n in status["nodes"]] == ["su0-n04"]

        # a node that served needs an operating system to serve again: a person has to decide
        assert await cluster.delete(*CLAIM) == 200
        status = await cluster.wait_condition("Accepted", "MissingArtifact", *CLAIM)
        assert "with image and digest" in status["blockers"][0]["unblock"]
        body = {"to": 1, "nodes": ["su0-n06"], "accept_no_return": True}
        path = "/tenants/green/shrink"
        assert (await cluster.served.ask("operator", "POST", path, body))[0] == 200
        await cluster.wait_until(lambda seen: seen is None, *CLAIM)
        nodes = {n.id: n for n in await cluster.served.store.nodes.list()}
        assert nodes["su0-n06"].state is State.DRAINING
        assert (await read_tenant(cluster)).nodes_wanted == 1

        # one that is only allocated leaves without more, and the other claim keeps its own
        await cluster.apply("nodeclaims", "train", {"tenant": "green", "nodes": 2}, "team-a")
        await cluster.wait_condition("Ready", "ShortOfNodes", *CLAIM)
        await give(cluster, "green", "su0-n05", state=State.CERTIFIED)
        await cluster.wait_until(lambda seen: bool(seen and seen["status"]["nodes"]), *CLAIM)
        assert (await read_tenant(cluster)).nodes_wanted == 3
        await cluster.apply("nodeclaims", "train", {"nodes": 0}, "team-a")
        await cluster.wait_condition("Ready", "Ready", *CLAIM)
        nodes = {n.id: n for n in await cluster.served.store.nodes.list()}
        assert (nodes["su0-n05"].tenant, nodes["su0-n04"].tenant) == ("", "green")
        status = await cluster.wait_condition("Ready", "Ready", *other)
        assert [n["name"] for n in status["nodes"]] == ["su0-n04"]

    try_operator(tmp_path, scenario)


def test_a_campaign_is_drafted_started_paused_and_resumed_by_its_resource(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        place = ("campaigns", "winter")
        await cluster.apply("campaigns", "winter", DRAFT)
        await cluster.wait_condition("Ready", "Draft", *place)
        _, seen = await cluster.served.ask("viewer", "GET", "/campaigns/winter")
        assert seen["campaign"]["created_by"] == "operator@example"
        # its nodes are bare records: the daemon refuses to start, and says what would help
        await cluster.apply("campaigns", "winter", {"run": "Running"})
        status = await cluster.wait_condition("Accepted", "Refused", *place)
        assert status["blockers"][0]["unblock"].startswith("Add a profile for this model")
        book = cluster.served.store.campaigns
        draft = await book.get("winter")
        assert draft is not None
        started = draft.model_copy(update={"state": CampaignState.STARTED})
        await book.save(started, describe_change(started, "test"), NOW)
        await cluster.wait_condition("Ready", "Started", *place)

        await cluster.apply("campaigns", "winter", {"run": "Paused"})
        await cluster.wait_condition("Ready", "Paused", *place)
        await cluster.apply("campaigns", "winter", {"run": "Running"})
        await cluster.wait_condition("Ready", "Started", *place)
        # a person's pause is a person's to end
        body = {"reason": "the fabric is busy"}
        path = "/campaigns/winter/pause"
        assert (await cluster.served.ask("operator", "POST", path, body))[0] == 200
        status = await cluster.wait_condition("Ready", "Paused", *place)
        assert "the fabric is busy" in find_condition(status, "Ready")["message"]

        await cluster.apply("campaigns", "winter", {"release": RELEASE})
        status = await cluster.wait_condition("Accepted", "Duplicate", *place)
        assert "never change" in find_condition(status, "Accepted")["message"]
        assert await cluster.delete(*place) == 200
        await cluster.wait_until(lambda seen: seen is None, *place)
        _, seen = await cluster.served.ask("viewer", "GET", "/campaigns/winter")
        assert seen["campaign"]["state"] == "aborted"

    try_operator(tmp_path, scenario)

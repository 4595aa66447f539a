"""Hosts of an InfiniBand site are adopted by their partitions, and moved by grant alone."""

from __future__ import annotations

import sys
from pathlib import Path

import virtual_time
from rig import World
from ufm_standin import Ufm
from ufm_thread import Elsewhere, ufm_over_https

from provisioner.adapters.granted.hosts import GrantedPartitions
from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.model.adoption.capability import LADDER, Grant, GrantScope
from provisioner.model.expected import Expected
from provisioner.model.node import NodeKind, Placement
from provisioner.model.outcome import Reason
from provisioner.model.tenant import PKEY_MAINTENANCE
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Member

sys.path.append(str(Path(__file__).parents[1] / "simulation"))
from test_adopting import adopt, open_site

RED_KEY = 0x21
SERVING, FOREIGN, SPLIT = "su0-n00", "su0-n01", "su0-n02"


def guid(node: int, rail: int) -> str:
    return f"506b4b0300a1{node:02x}{rail:02x}"


async def open_infiniband(directory: Path, partitions: Elsewhere) -> tuple[World, Expected]:
    """A site of six hosts whose ports have GUIDs; tenant red has a partition that others made."""
    world, expected = await open_site(
        directory, isolation="infiniband", fabrics=Fabrics(AddressPlan(), partitions)
    )
    nodes = []
    for number, node in enumerate(expected.nodes):
        ports = node.ports
        if node.kind is NodeKind.HOST:
            number = int(node.name[-2:])
            ports = tuple(
                p.model_copy(update={"guid": guid(number, i)}) for i, p in enumerate(node.ports)
            )
        nodes.append(node.model_copy(update={"ports": ports}))
    tenants = [
        t.model_copy(update={"pkey": RED_KEY if t.name == "red" else 0, "nodes_wanted": 0})
        for t in expected.tenants
    ]
    return world, expected.model_copy(update={"nodes": tuple(nodes), "tenants": tuple(tenants)})


def fill(ufm: Ufm, pkey: int, guids: list[str]) -> None:
    members = ufm.partitions.setdefault(f"{pkey:#x}", {"ip_over_ib": True, "guids": {}})["guids"]
    members |= dict.fromkeys(guids, "full")


async def live(directory: Path, ufm: Ufm, partitions: Elsewhere) -> None:
    world, expected = await open_infiniband(directory, partitions)
    fill(ufm, RED_KEY, [guid(0, rail) for rail in range(8)])
    fill(ufm, 0x99, [guid(1, rail) for rail in range(8)])
    fill(ufm, RED_KEY, [guid(2, rail) for rail in range(4)])
    fill(ufm, PKEY_MAINTENANCE, [guid(3, rail) for rail in range(8)])
    before = {key: dict(one["guids"]) for key, one in ufm.partitions.items()}
    await adopt(world, expected)

    second = await adopt(world, expected)
    rows = {n.id: n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST}
    reasons = {b.subject: (b.reason, b.detail) for b in second.blockers}
    assert set(rows) == {SERVING}
    assert (rows[SERVING].tenant, rows[SERVING].vrf) == ("red", "RED")
    assert rows[SERVING].placement is Placement.CUSTOMER
    assert reasons[FOREIGN][0] is Reason.NOT_EXPECTED
    assert "0x0099" in reasons[FOREIGN][1]
    assert reasons[SPLIT][0] is Reason.ISOLATION
    assert reasons["su0-n03"][0] is Reason.PRECONDITION
    assert {key: dict(one["guids"]) for key, one in ufm.partitions.items()} == before

    assert world.daemon is not None
    gate = world.daemon.context.get_gate()
    await gate.open()
    guarded = world.daemon.parts.fabrics
    assert guarded is not None
    assert isinstance(guarded.partitions, GrantedPartitions)
    tenants = await world.store.tenants.list()
    members = [Member("", guid(0, rail)) for rail in range(8)]
    (refused,) = await guarded.partitions.place(members, "MAINT", tenants)
    assert (refused.reason, refused.subject) == (Reason.NOT_GRANTED, SERVING)
    assert {key: dict(one["guids"]) for key, one in ufm.partitions.items()} == before
    would = [r for r in await world.store.journal.list(0, 1000) if r["kind"] == "would"]
    assert any("partition of MAINT" in str(r) for r in would), would

    # ports of no adopted node are not held up by it
    own = [Member("", guid(9, 0))]
    assert await guarded.partitions.place(own, "RED", tenants) == ()

    for capability in LADDER:
        grant = Grant(
            capability=capability,
            scope=GrantScope.NODE,
            name=SERVING,
            granted=True,
            by="ada",
            at=world.clock.now(),
            reason="a test",
        )
        await world.store.grants.put([grant], world.clock.now())
    assert await guarded.partitions.place(members, "MAINT", tenants) == ()
    assert set(before[f"{RED_KEY:#x}"]) & set(ufm.members(RED_KEY)) == {
        guid(2, rail) for rail in range(4)
    }
    gate.close()


def test_an_infiniband_host_is_adopted_by_its_partition_and_moved_only_by_grant(
    tmp_path: Path,
) -> None:
    with ufm_over_https() as (ufm, partitions):
        virtual_time.run(live(tmp_path, ufm, partitions))

"""A fleet of rows that is to be upgraded, and what is true of it, counted apart from a campaign."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import bench_campaign
from sqlalchemy import Connection, insert

from provisioner.integrations.twin.loop import EPOCH
from provisioner.model.campaign import CampaignNode, Domain, Limit
from provisioner.model.cohort import Sample
from provisioner.model.inventory import Activation, Component, Device, DeviceKind, Inventory
from provisioner.model.location import Location, Port
from provisioner.model.matrix import Edge, Match, Matrix, Pin, Profile, Release
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.store.rows import evidence_rows
from provisioner.store.rows import evidence_rows as cohort_rows
from provisioner.store.rows.node_rows import _columns
from provisioner.store.schema.schema import nodes

SHARE = 5  # percent of the fleet that may be out at once
POLICY = bench_campaign.POLICY.model_copy(
    update={"limits": {**bench_campaign.POLICY.limits, Domain.TOTAL: Limit(percent=SHARE)}}
)
MEASURED = {"busbw_gb_s/host": 400.0, "hbm_copy_gb_s/host": 2500.0}


def matrix() -> Matrix:
    """Three drivers in the field, each with its own way to the next release, of its own length."""

    def release(version: str) -> Release:
        pin = Pin(version=version, evidence="x")
        return Release(profiles={"host": Profile(match=Match(), pins={"host.doca": pin})})

    edges = tuple(
        Edge(
            from_versions=(f"1.{revision}",),
            to="2.0",
            activates_by=Activation.WARM_REBOOT,
            evidence="x",
            duration_s=minutes * 60,
        )
        for revision, minutes in bench_campaign.REVISIONS
    )
    back = Edge(
        from_versions=("2.0",),
        to="1.A",
        activates_by=Activation.WARM_REBOOT,
        evidence="x",
        duration_s=600,
        downgrade=True,
    )
    releases = {"base": release("1.A"), "next": release("2.0")}
    return Matrix(releases=releases, edges={"host.doca": (*edges, back)})


def row(seen: CampaignNode) -> Node:
    """A host that serves its tenant, or is certified and nobody's."""
    unit, number = int(seen.unit.rpartition("su")[2]), int(seen.name.rpartition("-")[2])
    ports = (
        Port(switch=leaf, interface=f"swp{number % 32}", rail=rail, nic_slot=f"NIC_{rail}")
        for rail, leaf in enumerate(seen.leaves)
    )
    return Node(
        id=seen.name,
        kind=NodeKind.HOST,
        state=State.RELEASED if seen.tenant else State.CERTIFIED,
        placement=Placement.CUSTOMER if seen.tenant else Placement.MAINTENANCE,
        release="base",
        profile="host",
        tenant=seen.tenant,
        served=seen.tenant,
        location=Location(scalable_unit=unit, rack=seen.rack),
        ports=tuple(ports),
    )


def fill(connection: Connection, facts: Sequence[CampaignNode]) -> None:
    """Rows, what is installed, and what was measured before."""
    values, seen_rows = [], []
    for seen in facts:
        node = row(seen)
        number = int(seen.name.rpartition("-")[2])
        values.append({"id": node.id, **_columns(node), "changed": number + 1})
        driver = Component(kind="host.doca", slot="host", version=f"1.{seen.revision}", source="x")
        gpus = (
            Device(kind=DeviceKind.GPU, slot=f"GPU_{n}", serial=f"{node.id}-{n}") for n in range(8)
        )
        inventory = Inventory(
            node=node.id,
            vendor="generic",
            model=f"board-{seen.revision}",
            components=(driver,),
            devices=tuple(gpus),
        )
        seen_rows.append((inventory, sample(node, "1", EPOCH - 86_400)))
    connection.execute(insert(nodes), values)
    for inventory, measured in seen_rows:
        evidence_rows.put_inventory(connection, inventory, EPOCH)
        cohort_rows.put_sample(connection, measured)


def sample(node: Node, versions: str, at: float) -> Sample:
    """Every node measures a little more or less than the others, by chance."""
    chance = random.Random(f"{node.id} {versions}")
    return Sample(
        node=node.id,
        rack=node.location.rack,
        profile=node.profile,
        versions=versions,
        measured={name: value * chance.gauss(1, 0.01) for name, value in MEASURED.items()},
        sound=True,
        taken_at=at,
    )


@dataclass
class Truth:
    """What is out of service, counted at each admission and return, apart from the campaign."""

    limits: Counter[tuple[str, str]]
    out: Counter[tuple[str, str]] = field(default_factory=Counter)
    began: Counter[str] = field(default_factory=Counter)
    away: set[str] = field(default_factory=set)
    most: int = 0
    wrong: list[str] = field(default_factory=list)

    def leaves(self, node: Node) -> None:
        self.began[node.id] += 1
        self.away.add(node.id)
        for key in domains(node):
            self.out[key] += 1
            if self.out[key] > self.limits[key]:
                self.wrong.append(f"{key}: {self.out[key]} are out, {self.limits[key]} may be")
        self.most = max(self.most, self.out["total", ""])

    def returns(self, node: Node) -> None:
        if node.id not in self.away:
            return  # it was only looked at
        self.away.remove(node.id)
        for key in domains(node):
            self.out[key] -= 1


def domains(node: Node) -> list[tuple[str, str]]:
    owner = ("tenant", node.tenant) if node.tenant else ("idle", "")
    unit = f"pod{node.location.pod}/su{node.location.scalable_unit}"
    return [("rack", node.location.rack), ("scalable_unit", unit), ("total", ""), owner]


def limits(fleet: Sequence[Node]) -> Counter[tuple[str, str]]:
    """How many of each domain may be out, as `bench_campaign` counts it."""
    members = Counter(key for node in fleet for key in domains(node))
    return Counter({key: bench_campaign.may(POLICY, key, n) for key, n in members.items()})


def well(node: Node) -> bool:
    """Back where it was, with the release."""
    serves = State.RELEASED if node.tenant else State.CERTIFIED
    return (node.state, node.release) == (serves, "next")

"""Expressions over versions, pins, serials, cases: the fields that other records have."""

from __future__ import annotations

from pathlib import Path

import pytest
from gathered_versions import gather_versions

from provisioner.daemon.data import read_matrix
from provisioner.model.inventory import Component, Device, DeviceKind, Inventory, list_serials
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.campaigns.fleet_fields import (
    ABOUT_FIELDS,
    TENANT_FIELDS,
    FleetRecords,
    Reading,
)
from provisioner.planning.campaigns.select_expression import ExpressionError, parse, pick

MATRIX = read_matrix([Path(__file__).parents[2] / "firmware_matrix.yaml"])
RELEASE, PROFILE = "spectrum-x-1.3.0", "hgx-h100-bf3"
PINS = MATRIX.releases[RELEASE].profiles[PROFILE].pins
KIND = next(kind for kind, pin in PINS.items() if pin.known and kind.startswith("bluefield."))
PINNED = PINS[KIND].version


def host(name: str) -> Node:
    port = Port(switch="leaf-1", interface=f"swp{name[-1]}s0", rail=0, nic_slot="NIC_0")
    return Node(id=name, kind=NodeKind.HOST, state=State.RELEASED, release=RELEASE,
                profile=PROFILE, ports=(port,))  # fmt: skip


def seen(name: str, driver: str, card: str, staged: str | None = None) -> Inventory:
    return Inventory(
        node=name,
        vendor="v",
        system_serial=f"SYS-{name}",
        components=(
            Component(kind="host.driver", slot="host", version=driver, source="s"),
            Component(kind=KIND, slot="DPU_1", version=card, source="s"),
            Component(kind="host.bios", slot="host", version="1", staged=staged, source="s"),
        ),
        devices=(Device(kind=DeviceKind.GPU, slot="GPU_1", model="H100", serial=f"G-{name}"),),
    )


NODES = (host("n1"), host("n2"), host("n3"))
SEEN = {"n1": seen("n1", "535.1.2", "1.0"), "n2": seen("n2", "550.1", PINNED, "2")}
RECORDS = FleetRecords(
    versions=gather_versions(SEEN),
    serials={
        n: tuple(line.partition("\t")[0] for line in list_serials(i)) for n, i in SEEN.items()
    },
    models=dict.fromkeys(SEEN, ("H100",)),
    cases={"n1": ("n1-c0001",)},
    alerts={"n2": ("FanFailed",)},
)


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        ("driver=535.*", ["n1"]),
        ("host.driver=535.*", ["n1"]),
        ("driver!=535.*", ["n2", "n3"]),
        (f"{KIND}.pinned={PINNED}", ["n1", "n2", "n3"]),
        ("bios.staged=2", ["n2"]),
        (f"drift={KIND}", ["n1"]),
        ("serial=g-N1", ["n1"]),
        ("serial=SYS-*", ["n1", "n2"]),
        ("model=H100", ["n1", "n2"]),
        ("port=leaf-1/swp3s0", ["n3"]),
        ("case=?*", ["n1"]),
        ('case=""', ["n2", "n3"]),
        ("case=n1-*", ["n1"]),
        ("alert=FanFailed or driver=535.*", ["n1", "n2"]),
        ("campaign=c*", []),
    ],
)
def test_a_field_of_another_record_picks_as_one_of_the_node(text: str, picked: list[str]) -> None:
    expression = parse(text, ABOUT_FIELDS)
    more = Reading(expression.fields, RECORDS, MATRIX, 0.0)

    assert [n.id for n in pick(expression, NODES, more.read)] == picked


@pytest.mark.parametrize(
    ("text", "at", "length", "expected"),
    [
        ("rack=a drivr=1", 8, 5, "driver"),
        ("driver 5", 8, 1, "="),
        ("(rack=a", 8, 0, ")"),
        ("rack=a )", 8, 1, "and"),
        ("", 1, 0, "node"),
        ("rack=a and", 11, 0, "not"),
    ],
)
def test_a_mistake_has_its_place_and_what_is_allowed_there(
    text: str, at: int, length: int, expected: str
) -> None:
    with pytest.raises(ExpressionError) as mistake:
        parse(text, ABOUT_FIELDS)

    assert (mistake.value.at, mistake.value.length) == (at, length)
    assert expected in mistake.value.expected


def test_a_tenant_has_no_field_of_the_staffs_records() -> None:
    with pytest.raises(ExpressionError, match="no field 'case'"):
        parse("case=x", TENANT_FIELDS)

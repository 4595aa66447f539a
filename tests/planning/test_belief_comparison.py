"""Matching the records of another system with our hosts: by serial, BMC address, then name."""

from __future__ import annotations

import pytest

from provisioner.integrations.inventories.deciding.belief import Aspect, Belief
from provisioner.integrations.inventories.deciding.belief_comparison import (
    compare_beliefs,
    format_address,
)
from provisioner.integrations.inventories.deciding.netbox_beliefs import list_beliefs
from provisioner.integrations.inventories.deciding.netbox_records import NetBoxKind, NetBoxObject
from provisioner.model.inventory import Inventory
from provisioner.model.location import Location
from provisioner.model.node import BmcRef, Node, NodeKind, State


def host(name: str, number: int) -> Node:
    return Node(
        id=name,
        kind=NodeKind.HOST,
        state=State.RELEASED,
        tenant="red",
        vrf="RED",
        location=Location(site="Fra 1", rack="r01"),
        bmcs=(BmcRef(name="host", url=f"https://10.0.0.{number}", serial=f"S{number}"),),
    )


HOSTS = (host("n1", 1), host("n2", 2))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://10.0.0.1", "10.0.0.1:443"),
        ("10.0.0.1", "10.0.0.1:443"),
        ("https://BMC.example:8443/redfish/v1", "bmc.example:8443"),
        ("[2001:db8::1]", "2001:db8::1:443"),
        ("", ""),
        ("https://[x", ""),
    ],
)
def test_an_address_has_one_form(text: str, address: str) -> None:
    assert format_address(text) == address


def test_a_serial_decides_before_an_address_and_an_address_before_a_name() -> None:
    beliefs = [
        Belief(key="a", name="n2", address="10.0.0.2:443", serial="s1"),
        Belief(key="b", name="n1", address="10.0.0.2:443"),
    ]
    assert compare_beliefs(HOSTS, {}, {}, beliefs) == ()


def test_a_host_that_answers_with_another_serial_is_named() -> None:
    beliefs = [Belief(key="a", address="10.0.0.1:443", serial="S9"), Belief(key="b", serial="S2")]
    (difference,) = compare_beliefs(HOSTS, {}, {}, beliefs)
    assert (difference.node, difference.aspect) == ("n1", Aspect.IDENTITY)
    assert (difference.here, difference.there) == ("s1", "S9")


def test_two_records_of_one_host_and_none_of_another_are_named() -> None:
    beliefs = [Belief(key="a", serial="S1"), Belief(key="b", name="n1")]
    differences = compare_beliefs(HOSTS, {}, {}, beliefs)
    assert [(d.node, d.there) for d in differences] == [("n1", "a and b"), ("n2", "not there")]


def test_a_field_that_one_side_does_not_record_is_no_difference() -> None:
    beliefs = [
        Belief(key="a", serial="S1", power="On", versions={"host.bios": "1.4"}, rack="r01"),
        Belief(key="b", serial="S2", state="failed", site="fra 1"),
    ]
    inventory = Inventory(node="n1", vendor="unknown")
    assert compare_beliefs(HOSTS, {"n1": inventory}, {}, beliefs) == ()


def test_the_devices_of_a_netbox_are_compared_by_place_tenant_and_status() -> None:
    def device(name: str, **fields: str) -> NetBoxObject:
        fields = {"role": "gpu-server", "site": "fra-1", "rack": "fra-1/r01"} | fields
        return NetBoxObject(kind=NetBoxKind.DEVICE, key=name, fields=fields, number=7)

    objects = [
        NetBoxObject(kind=NetBoxKind.SITE, key="fra-1", fields={"name": "Fra 1"}),
        device("n1", serial="S1", status="active", tenant="red", rack="fra-1/r02"),
        device("n2", status="planned", tenant="blue"),
        device("leaf", role="switch"),
        NetBoxObject(kind=NetBoxKind.ADDRESS, key="10.0.0.2/24", fields={"interface": "n2/bmc"}),
    ]
    beliefs = list_beliefs(objects, "gpu-server")
    assert beliefs[1].address == "10.0.0.2:443"
    shown = [(d.node, d.aspect, d.here, d.there) for d in compare_beliefs(HOSTS, {}, {}, beliefs)]
    assert shown == [
        ("n1", Aspect.PLACE, "r01", "r02"),
        ("n2", Aspect.STATE, "released", "planned"),
        ("n2", Aspect.TENANT, "red", "blue"),
    ]

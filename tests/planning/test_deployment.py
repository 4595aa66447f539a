"""Which disk an image goes to, what is compared afterwards, and what the new system is told."""

from __future__ import annotations

import json

import pytest

from provisioner.model.erasure import Disk
from provisioner.model.inventory import Component, Device, DeviceKind, Inventory
from provisioner.model.location import Bond, Port
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import History
from provisioner.planning.certification.host_settings import list_rail_links, write_bonds
from provisioner.planning.erasure.deployment import (
    MIB,
    ImageFile,
    first_boot,
    plan_network,
    read_range,
    system_first,
    target_disk,
    write_command,
)
from provisioner.settings import Settings

NODE = Node(
    id="n0",
    kind=NodeKind.HOST,
    ports=(
        Port(switch="leaf0", interface="swp1s0", rail=0, nic_slot="NIC_0", address="172.0.0.1/31"),
        Port(switch="leaf1", interface="swp1s0", rail=1, nic_slot="NIC_1", address="172.32.0.1/31"),
        Port(switch="leaf9", interface="swp1s0", rail=-1, nic_slot="DPU_0", address="10.0.0.1/31"),
    ),
)
SEEN = Inventory(
    node="n0",
    vendor="dell_idrac",
    boot_id="b",
    devices=(
        Device(kind=DeviceKind.NIC, slot="NIC_0", mac="00:00:00:00:00:01"),
        Device(kind=DeviceKind.NIC, slot="NIC_1", mac="00:00:00:00:00:02"),
    ),
)
IMAGE = ImageFile(
    name="os.raw", url="https://d/images/os.raw", size=8 * MIB, sha256="a" * 64, checked="b" * 64
)
SMALL, FIRST, SECOND = (
    Disk(name="/dev/nvme2n1", serial="M2", wwn="eui.1", size_bytes=480 * MIB),
    Disk(name="/dev/nvme0n1", serial="D1", size_bytes=3840 * MIB),
    Disk(name="/dev/nvme1n1", serial="D2", size_bytes=3840 * MIB),
)

CHOICES = {
    "the smallest that fits": ("", (FIRST, SMALL, SECOND), 8 * MIB, "M2"),
    "of equal ones the first serial": ("", (SECOND, FIRST), 8 * MIB, "D1"),
    "not one that is too small": ("", (SMALL, SECOND), 900 * MIB, "D2"),
    "the one that is named by serial": ("d2", (SMALL, FIRST, SECOND), 8 * MIB, "D2"),
    "the one that is named by WWN": ("EUI.1", (SMALL, FIRST, SECOND), 8 * MIB, "M2"),
    "none that is not there": ("D7", (SMALL, FIRST), 8 * MIB, Reason.NOT_EXPECTED),
    "none that is named and too small": ("M2", (SMALL, FIRST), 900 * MIB, Reason.PRECONDITION),
    "none of two that shall mirror each other": ("M2,D1", (SMALL, FIRST), MIB, Reason.NOT_OFFERED),
    "none if nothing fits": ("", (SMALL,), 900 * MIB, Reason.NOT_OFFERED),
    "none if there is none": ("", (), 8 * MIB, Reason.NOT_OFFERED),
}


@pytest.mark.parametrize("case", CHOICES)
def test_the_system_goes_to(case: str) -> None:
    named, disks, size, wanted = CHOICES[case]

    found = target_disk(NODE.model_copy(update={"os_disk": named}), disks, size)

    assert (found.reason if isinstance(found, Blocker) else found.serial) == wanted


def test_the_order_in_which_disks_are_listed_changes_nothing() -> None:
    found = [target_disk(NODE, order, MIB) for order in ((FIRST, SECOND), (SECOND, FIRST))]

    assert found[0] == found[1]


def test_what_is_read_back_leaves_the_partition_tables_out_of_all_but_tiny_images() -> None:
    assert read_range(3 * MIB) == (0, 3 * MIB)
    assert read_range(10 * MIB) == (MIB, 8 * MIB)


def test_the_command_that_writes_names_disk_digest_and_source_together() -> None:
    command = write_command({"uuid": "u"}, SMALL, IMAGE, "drive")

    assert command["node"]["properties"] == {"root_device": {"serial": "M2", "wwn": "eui.1"}}
    info = command["step"]["args"]["image_info"]
    assert (info["os_hash_algo"], info["os_hash_value"]) == ("sha256", "a" * 64)
    assert (info["disk_format"], info["stream_raw_images"]) == ("raw", True)
    assert info["urls"] == [IMAGE.url]
    assert command["step"]["args"]["configdrive"] == "drive"


def test_rails_are_addressed_as_planned_and_everything_else_asks_dhcp() -> None:
    macs = ["00:00:00:00:00:01", "00:00:00:00:00:0a"]
    found = plan_network(list_rail_links(NODE, SEEN, Settings()), macs)["ethernets"]

    assert {name: card.get("addresses") for name, card in found.items()} == {
        "rail0": ["172.0.0.0/31"],
        "rail1": ["172.32.0.0/31"],
        "other0": None,
    }
    assert found["other0"]["match"] == {"macaddress": "00:00:00:00:00:0a"}


LEGS = tuple(
    Port(
        switch=f"front{leg}", interface="vlan5", rail=-1, nic_slot=f"NIC_{leg}",
        address="10.9.0.1/31",
        bond=Bond(name="bond1", members=("swp1",), mlag=5, made=True, mtu=9000),
    )
    for leg in (0, 1)
)  # fmt: skip


def test_a_bond_that_is_made_has_its_host_end_and_its_cards_ask_no_dhcp() -> None:
    node = NODE.model_copy(update={"ports": LEGS})
    macs = ["00:00:00:00:00:01", "00:00:00:00:00:0a"]

    found = plan_network((), macs, write_bonds(node, SEEN))

    assert found["bonds"] == {
        "front0": {
            "interfaces": ["front0a", "front0b"],
            "addresses": ["10.9.0.0/31"],
            "parameters": {"mode": "802.3ad", "lacp-rate": "fast", "mii-monitor-interval": 100},
            "optional": True,
            "routes": [{"to": "0.0.0.0/0", "via": "10.9.0.1", "table": 180}],
            "routing-policy": [{"from": "10.9.0.0", "table": 180, "priority": 2900}],
            "mtu": 9000,
        }
    }
    assert {c["match"]["macaddress"]: c.get("dhcp4") for c in found["ethernets"].values()} == {
        "00:00:00:00:00:01": None, "00:00:00:00:00:02": None, "00:00:00:00:00:0a": True,
    }  # fmt: skip


def test_a_bond_of_the_site_or_with_an_unknown_card_is_left_to_the_image() -> None:
    unknown = (LEGS[0], LEGS[1].model_copy(update={"nic_slot": "NIC_9"}))
    site = tuple(
        p.model_copy(update={"bond": Bond(name="bond1", members=("swp1",), mlag=5)}) for p in LEGS
    )
    wide = tuple(
        p.model_copy(update={"bond": p.bond.model_copy(update={"members": ("swp1", "swp2")})})
        for p in LEGS
        if p.bond
    )
    for ports in (unknown, site, wide):
        node = NODE.model_copy(update={"ports": ports})
        assert write_bonds(node, SEEN) == {}


def test_a_rail_has_full_frames_and_packets_from_it_leave_by_its_leaf() -> None:
    rail = plan_network(list_rail_links(NODE, SEEN, Settings()), [])["ethernets"]["rail1"]

    assert rail["mtu"] == 9216
    assert rail["routes"] == [{"to": "172.0.0.0/8", "via": "172.32.0.1", "table": 101}]
    assert rail["routing-policy"] == [{"from": "172.32.0.0", "table": 101, "priority": 3001}]


def test_a_network_for_each_rail_is_reached_without_a_source_address_too() -> None:
    settings = Settings(rail_networks=("172.0.0.0/11", "172.32.0.0/11"), rail_mtu=9000)

    rail = plan_network(list_rail_links(NODE, SEEN, settings), [])["ethernets"]["rail1"]

    assert rail["mtu"] == 9000
    assert [r["to"] for r in rail["routes"] if r.get("table") == 101] == list(
        settings.rail_networks
    )
    assert [r for r in rail["routes"] if "table" not in r] == [
        {"to": "172.32.0.0/11", "via": "172.32.0.1"}
    ]


def test_the_first_boot_is_told_whom_to_trust_and_what_it_was_made_from() -> None:
    files = first_boot(
        NODE,
        list_rail_links(NODE, SEEN, Settings()),
        IMAGE,
        "ubuntu-1",
        instance="7",
        user="provisioner",
        authorized_key="ssh-ed25519 AAAA us",
        host_key=("PRIVATE", "ssh-ed25519 BBBB"),
        other_macs=(),
    )

    head, _, body = files["user-data"].partition("\n")
    config = json.loads(body)
    assert head == "#cloud-config"
    assert config["users"][0]["ssh_authorized_keys"] == ["ssh-ed25519 AAAA us"]
    assert config["ssh_keys"]["ed25519_private"] == "PRIVATE"
    assert config["ssh_pwauth"] is False
    assert config["write_files"][0]["content"] == f"IMAGE=ubuntu-1\nSHA256={'a' * 64}\n"
    assert json.loads(files["meta-data"]) == {"instance-id": "n0-7", "local-hostname": "n0"}
    assert "runcmd" not in config


def matrix(pinned: bool) -> Matrix:
    pins = {"host.driver": {"version": "535.1"}}
    if pinned:
        pins["host.os"] = {"version": "ubuntu-1", "artifact": "os.raw", "sha256": "a" * 64}
    return Matrix.model_validate(
        {
            "releases": {"r": {"profiles": {"p": {"match": {}, "pins": pins}}}},
            "edges": {
                "host.os": [
                    {"from": ["*"], "to": "ubuntu-1", "activates_by": "none", "evidence": "site"}
                ]
            },
        }
    )


def first(seen: Inventory, *, pinned: bool = True, running: bool = True) -> object:
    found = system_first(
        seen, matrix(pinned), "r", "p", running=running, history=History(), production=True
    )
    if found is None:
        return None
    return found.blockers[0].reason if found.blockers else [s.title for s in found.steps]


def runs(version: str) -> Inventory:
    system = Component(kind="host.os", slot="host", version=version, source="stamp")
    return SEEN.model_copy(update={"components": (system,)})


def test_a_system_comes_before_everything_that_lives_in_it() -> None:
    assert first(runs("ubuntu-1")) is None
    assert first(runs("debian 12")) == ["host.os debian 12 → ubuntu-1"]
    assert first(SEEN, running=False) == ["host.os none → ubuntu-1"]


def test_where_no_system_is_pinned_one_that_runs_is_left_alone() -> None:
    assert first(runs("debian 12"), pinned=False) is None
    assert first(SEEN, pinned=False, running=False) is Reason.MISSING_ARTIFACT


def test_a_running_host_that_does_not_say_its_system_is_left_to_the_planner() -> None:
    assert first(SEEN) is None

"""One thing with two names: every form that tools and people write means the same thing."""

from __future__ import annotations

import pytest

from provisioner.checks import lldp
from provisioner.checks.readers.sysfs import pci_of_interface
from provisioner.integrations.sonic import config_db
from provisioner.model.expected import ExpectedDpu
from provisioner.model.host_packages import classify_package, name_driver_packages
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.location import Port
from provisioner.model.names import find_pci, is_named, normalize_pci, resolve_system, spell_port
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.planning.repair.diagnosis import device_of
from provisioner.planning.repair.part_names import names_of, slot_in
from provisioner.planning.repair.repair_report import ports_of
from provisioner.planning.watch.pushed_alerts import Directory


@pytest.mark.parametrize(
    ("written", "one"),
    [
        ("0000:1b:00.0", "0000:1b:00.0"),  # sysfs, lspci -D
        ("1b:00.0", "0000:1b:00.0"),  # lspci, mlxfwmanager
        ("00000000:1B:00.0", "0000:1b:00.0"),  # nvidia-smi
        ("00000008:01:00.0", "0008:01:00.0"),  # nvidia-smi on a Grace host with several domains
        ("00010000:E1:00.0", "10000:e1:00.0"),  # a domain behind a volume management device
        ("10000:e1:00.0", "10000:e1:00.0"),
        ("0000:1B:00", "0000:1b:00"),  # an Xid leaves the function out
        (" 0000:1B:00.1 ", "0000:1b:00.1"),
        ("pci@0000:1b:00.0", "0000:1b:00.0"),  # lshw, and so MAAS
        ("pci/0000:1b:00.1", "0000:1b:00.1"),  # devlink
        ("PCI:0000:1B:00", "0000:1b:00"),  # the kernel's driver
        ("PCI:1:0:0", "1:0:0"),  # decimal, of Xorg: no form of ours
        ("N/A", "n/a"),
        ("", ""),
    ],
)
def test_a_pci_address_has_one_form_wherever_it_is_stored(written: str, one: str) -> None:
    assert normalize_pci(written) == one
    assert Device(kind=DeviceKind.GPU, slot="x", pci=written).pci == one
    assert BmcRef(name="NIC_0", url="https://x", pci=written).pci == one
    assert ExpectedDpu(slot="NIC_0", pci=written).pci == one


@pytest.mark.parametrize(
    "text",
    [
        "0000:18:00.0", "18:00.0 fell off the bus", "GPU 00000000:18:00.0", "PCI:0000:18:00): 79",
        "pci/0000:18:00.1", "device 0000:18:00",
    ],
)  # fmt: skip
def test_a_part_is_found_by_its_address_in_any_form(text: str) -> None:
    devices = (
        Device(kind=DeviceKind.GPU, slot="GPU_SXM_1", pci="18:00.0"),
        Device(kind=DeviceKind.GPU, slot="GPU_SXM_2", pci="00010000:18:00.0"),  # the same bus
    )
    inventory = Inventory(node="n", vendor="x", devices=devices)
    names = names_of(Node(id="n", kind=NodeKind.HOST), inventory)

    found = device_of(text, inventory)

    assert find_pci(text) == "0000:18:00"
    assert slot_in(text, names) == "GPU_SXM_1"
    assert found is not None
    assert found.slot == "GPU_SXM_1"
    assert slot_in("0000:18:00.0".replace("0000:", "10000:"), names) == "GPU_SXM_2"
    assert slot_in("enP65536p24s0f0np0", names) == "GPU_SXM_2"
    assert pci_of_interface("enp24s0np0") == find_pci(text)


@pytest.mark.parametrize("text", ["12:18:00.5", "9c:05:91:18:00:01", "00:18:00", "fd00:18:00::1"])
def test_times_macs_and_addresses_are_no_pci_addresses(text: str) -> None:
    assert find_pci(text) == ""


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("leaf-1", "leaf-1"),
        ("leaf-1.dc.example", "leaf-1"),  # lldpd sends the name with its domain
        ("LEAF-1", "leaf-1"),
        ("leaf-1.dc.example.", "leaf-1"),
        ("leaf-2.a.example.", "leaf-2.a.example"),  # with the root's dot
        ("LEAF-2.A.Example", "leaf-2.a.example"),
        ("leaf-3.b.example.", "leaf-3.b.example"),
        ("LEAF-3.A.example", "leaf-3.a.example"),
        ("10.0.0.2", "10.0.0.2"),  # an address is no name with a domain
        ("10", "10"),
        (".", "."),
        ("leaf-10", "leaf-10"),
        ("leaf-2", "leaf-2.a.example"),
        ("leaf-2.b.example", "leaf-2.b.example"),  # another domain's
        ("leaf-3", "leaf-3"),  # two have that short name
        ("leaf-3.a.example", "leaf-3.a.example"),
    ],
)
def test_a_system_is_known_with_and_without_its_domain(said: str, meant: str) -> None:
    planned = ("leaf-1", "leaf-2.a.example", "leaf-3.a.example", "leaf-3.b.example", "10.0.0.1")

    assert resolve_system(said, planned) == meant


NAMES = {"leaf": {"etp1a": "Ethernet0", "Eth1/2": "Ethernet4", "Ethernet16": "Ethernet8",
                  "etp5": "Ethernet16"}}  # fmt: skip


@pytest.mark.parametrize("planned", ["Ethernet4", "Eth1/2"])
@pytest.mark.parametrize(
    ("port", "subtype"), [("Eth1/2", "local"), ("Eth1/2", "ifalias"), ("Ethernet4", "ifname")]
)
@pytest.mark.parametrize("chassis", ["leaf", "leaf.dc.example"])
def test_a_cable_is_sound_by_either_name_of_its_port_in_the_plan(
    planned: str, port: str, subtype: str, chassis: str
) -> None:
    heard = lldp.Heard(chassis, port, subtype, "su0-n00 NIC_0")

    assert heard.named(NAMES, {("leaf", planned)}) == ("leaf", planned)


def test_a_name_that_two_ports_share_in_two_meanings_is_never_taken_for_the_other() -> None:
    known = {("leaf", "Ethernet16")}

    # Ethernet8 is called Ethernet16, and Ethernet16 is another port
    assert spell_port("leaf", "Ethernet8", NAMES, known) == ("leaf", "Ethernet8")
    called = lldp.Heard("leaf", "Ethernet16", "local", "").named(NAMES, known)
    own = lldp.Heard("leaf", "Ethernet16", "ifname", "").named(NAMES, known)
    assert (called, own) == (("leaf", "Ethernet8"), ("leaf", "Ethernet16"))


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("leaf/swp1", ["swp1"]),
        ("leaf/swp1s0", ["swp1s0"]),  # not swp1's too
        ("leaf/swp10", ["swp10"]),
        ("optic of leaf/swp1: no light", ["swp1"]),
        ("(leaf/swp1s0), down", ["swp1s0"]),
        ("leaf/swp1s0@NONE", ["swp1s0"]),  # as `ip link` writes a port with a lower one
        ("leaf", ["swp1", "swp1s0", "swp10"]),
        # none of the ports: any may be meant, and a person is told all
        *(
            (f"leaf/{name}", ["swp1", "swp1s0", "swp10"])
            for name in ("swp01", "swp1s00", "swp1_0", "SWP1", "swp1.100", "swp1-4", "br_default")
        ),
    ],
)
def test_a_port_is_named_by_its_whole_name(text: str, ports: list[str]) -> None:
    listed = [
        Port(switch="leaf", interface=f"swp{n}", rail=0, nic_slot="NIC_0")
        for n in ("1", "1s0", "10")
    ]
    node = Node(id="n", kind=NodeKind.HOST, ports=tuple(listed))

    assert [p.interface for p in ports_of(text, node)] == ports
    assert is_named(["swp1"], "swp1s0 swp10") is False


@pytest.mark.parametrize(
    ("port", "subtype", "described", "meant"),
    [
        ("swp1s0", "ifname", "su0-n00 NIC_0", "swp1s0"),  # lldpd on Cumulus
        ("swp1s0", "local", "", "swp1s0"),
        ("su0-n00 NIC_0", "ifalias", "swp1s0", "swp1s0"),
        ("1/1/1", "local", "swp1s0", "swp1s0"),  # a cage's number on the faceplate
        ("swp1s0", "ifname", "swp1", "swp1s0"),  # the id counts, whatever is described
        # another port than the planned ones: a fault of the cable, never the planned port
        ("swp1", "ifname", "swp1s0", "swp1"),
        ("SWP1S0", "ifname", "swp1s0", "SWP1S0"),  # Linux tells cases apart
        ("swp1s00", "ifname", "swp1s0", "swp1s00"),
        ("eth0", "ifname", "swp1s0", "eth0"),  # the switch's management port
        ("swp1s0.100", "ifname", "swp1s0", "swp1s0.100"),
        ("bridge", "ifname", "swp1s0", "bridge"),
        ("br_default", "ifname", "swp1s0", "br_default"),
        ("48:b0:2d:00:00:01", "mac", "swp1s0", ""),  # not known, so not judged
        ("48-B0-2D-00-00-01", "local", "swp1s0", ""),
    ],
)
def test_a_port_of_cumulus_is_what_its_id_says(
    port: str, subtype: str, described: str, meant: str
) -> None:
    known = {("leaf", "swp1s0"), ("leaf", "swp1s1"), ("leaf", "swp10")}

    named = lldp.Heard("leaf", port, subtype, described).named({}, known)

    assert named == (("leaf", meant) if meant else None)


@pytest.mark.parametrize(
    ("names", "packaging"),
    [
        # NVIDIA's repository from 580 on pins by a package, and names Fabric Manager's packages
        # after the driver's
        (["nvidia-driver-pinning-580", "nvidia-open-580"], "nvidia-open"),
        (["cuda-drivers-fabricmanager-570", "nvidia-open-570"], "nvidia-open"),
        (["cuda-drivers-fabricmanager-570"], ""),
        (["nvidia-driver-assistant", "cuda-drivers"], "nvidia"),
        (["nvidia-open-580", "nvidia-driver-580-open"], "nvidia-open"),
        # parts without a whole: which packaging they are of is not known
        (["nvidia-headless-no-dkms-550-server-open"], ""),
        (["nvidia-dkms-580-open"], ""),
        (["nvidia-driver"], ""),
    ],
)
def test_packages_beside_a_driver_are_no_packaging_of_it(names: list[str], packaging: str) -> None:
    assert name_driver_packages(names) == packaging


@pytest.mark.parametrize(
    "package",
    ["nvidia-fabricmanager-dev", "nvidia-fabricmanager-dev-580", "libnccl-dev", "nvlink5-580"],
)
def test_a_package_whose_name_begins_alike_is_another(package: str) -> None:
    assert classify_package(package, "1") is None


@pytest.mark.parametrize("interface", ["Ethernet4", "Eth1/2"])
@pytest.mark.parametrize("switch", ["leaf", "LEAF", "leaf.dc.example"])
def test_an_alert_names_the_node_by_either_name_of_its_port(interface: str, switch: str) -> None:
    port = Port(switch="leaf", interface="Ethernet4", rail=1, nic_slot="NIC_1")
    nodes = [Node(id="n", kind=NodeKind.HOST, ports=(port,)), Node(id="leaf", kind=NodeKind.SWITCH)]
    directory = Directory(nodes, {}, port_names=NAMES)

    assert directory.find({"switch": switch, "interface": interface}) == "n"
    assert directory.find_target({"node": f"{switch}:9100", "interface": interface}) == "rail1"
    assert directory.find({"switch": switch, "interface": "Ethernet0"}) == ""


def test_a_move_of_a_port_that_the_plan_calls_by_its_alias_is_refused_with_its_name() -> None:
    rows = {"Ethernet0": {"alias": "etp1a"}, "Ethernet4": {"alias": "Eth1/2"}}

    assert config_db._why_no_port("etp1a", rows).endswith("write Ethernet0 in the plan")
    assert config_db._why_no_port("etp9", rows) == "there is no port etp9"

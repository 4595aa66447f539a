"""A network card that two sources list stands once in a node's inventory."""

from __future__ import annotations

from provisioner.execution.observe.collector import merge
from provisioner.model.inventory import Component, Inventory
from provisioner.model.node import BmcRef, Node
from provisioner.planning.intake.inband_facts import InbandFacts

HOST = BmcRef(name="host", kind="host", url="https://10.0.0.1")
CARD = BmcRef(name="DPU_0", kind="dpu", url="https://10.0.0.2")
PCI = "0000:2a:00.0"


def component(kind: str, slot: str, version: str) -> Component:
    return Component(kind=kind, slot=slot, version=version, source=slot)


def facts(*components: Component) -> InbandFacts:
    return InbandFacts(boot_id=None, components=components, devices=(), gaps=())


def cards(bmcs: tuple[BmcRef, ...], seen: list[tuple[Component, ...]], inband: InbandFacts) -> list:
    inventories = [Inventory(node="n1", vendor="x", components=each) for each in seen]
    merged = merge(Node(id="n1", kind="host", release="r", bmcs=bmcs), inventories, inband, None)
    return [(c.kind, c.slot, c.version) for c in merged.components]


def test_a_card_of_the_hosts_own_list_replaces_its_bmcs_spelling_of_it() -> None:
    # Supermicro SYS-821GE-TNHR prints 28.37.10.14 (NVIDIA/libredfish, tests/mockups/supermicro)
    listed = (component("nic.cx7", "NIC1", "28.37.10.14"), component("host.bios", "BIOS", "1.4"))

    actual = cards((HOST,), [listed], facts(component("nic.cx7", PCI, "28.37.1014")))

    assert actual == [("host.bios", "BIOS", "1.4"), ("nic.cx7", PCI, "28.37.1014")]


def test_a_card_that_only_the_bmc_lists_stays() -> None:
    listed = (component("nic.cx7", "NIC1", "28.37.10.14"),)

    assert cards((HOST,), [listed], facts()) == [("nic.cx7", "NIC1", "28.37.10.14")]


def test_a_bluefield_of_the_hosts_bmc_is_the_one_that_its_own_bmc_shows() -> None:
    # a GB200 tray lists its BlueField-3 as NIC_0 (NVIDIA/libredfish, tests/mockups/nvidia_gb200)
    listed = (component("bluefield.nic", "NIC_0", "32.41.1300"),)
    own = (component("bluefield.nic", "DPU_0", "32.41.1300"),)

    actual = cards((HOST, CARD), [listed, own], facts())

    assert actual == [("bluefield.nic", "DPU_0", "32.41.1300")]

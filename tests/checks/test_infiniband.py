"""Gate A on a host whose rails are InfiniBand ports."""

from __future__ import annotations

from provisioner.checks import lldp, rdma_links
from provisioner.checks.context import build_context
from provisioner.model.cohort import CheckResult, Evidence, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.location import Port
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind


def judge(layer: str, *, guid: str = "b8cef603000a1b2c") -> CheckResult:
    port = Port(switch="leaf", interface="swp1", rail=0, nic_slot="NIC_0", guid=guid)
    node = Node(id="n1", kind=NodeKind.HOST, ports=(port,), profile="hgx-h100")
    context = build_context(node, Inventory(node="n1", vendor=""), Matrix(releases={}))
    place = "/sys/class/infiniband/mlx5_0"
    facts = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
    lines = [f"{place}/ports/1/{k}:{v}" for k, v in (facts | {"link_layer": layer}).items()]
    lines.append(f"{place}/device/net/ibs0/mtu:2044")
    evidence = {"rdma_links": Evidence(source="", exit_code=0, text="\n".join(lines))}
    return rdma_links.CHECK.judge(evidence, context)


def test_an_infiniband_port_passes_on_an_infiniband_fabric() -> None:
    assert judge("InfiniBand").findings == ()


def test_a_port_of_the_other_link_layer_is_a_fault() -> None:
    assert [f.wanted for f in judge("Ethernet").findings][:1] == ["InfiniBand"]
    assert [f.wanted for f in judge("InfiniBand", guid="").findings][:1] == ["Ethernet"]


def test_lldp_looks_for_no_infiniband_switch() -> None:
    ports = (
        Port(switch="ib-leaf", interface="1/1", rail=0, nic_slot="NIC_0", guid="b8cef603000a1b2c"),
        Port(switch="leaf", interface="swp1", rail=-1, nic_slot="DPU_0"),
    )
    node = Node(id="n1", kind=NodeKind.HOST, ports=ports)
    context = build_context(node, Inventory(node="n1", vendor=""), Matrix(releases={}))

    assert context.neighbours == (("leaf", "swp1"),)
    evidence = {
        "lldp": Evidence(source="", exit_code=0, text='{"lldp": {}}'),
        "netdevs": Evidence(source="", exit_code=0, text="x"),
    }
    assert lldp.CHECK.judge(evidence, context).verdict is Verdict.FAIL  # the Ethernet port is

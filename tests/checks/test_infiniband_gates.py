"""Gates A to D of a host on an InfiniBand fabric, and the faults that its ports have.

The good examples are those of a host on Ethernet, changed to what an InfiniBand port gives. Forms:
mlxlink's names of speeds and codes (mstflint, mlxlink_maps.cpp), perftest's head (issue 132 of
linux-rdma/perftest), counters of a port (Linux, Documentation/ABI/stable/sysfs-class-infiniband).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from test_golden import CONTEXT, good

from provisioner import checks
from provisioner.checks.check import BEFORE, Check
from provisioner.model.cohort import CheckResult, Evidence, Gate, Verdict
from provisioner.model.node import NodeKind

HOST = [c for c in checks.ALL if c.kind is NodeKind.HOST]
BY_NAME = {check.name: check for check in HOST}
CONTEXT_OF_FABRIC = CONTEXT.model_copy(
    update={
        "link_layer": "InfiniBand",
        "nic_runtime": {},
        "rail_paths": (),
        "neighbours": (),
        "cabled_pci": {},
        "nic_parameters": {k: v for k, v in CONTEXT.nic_parameters.items() if k != "LINK_TYPE_P1"},
    }
)
PORT = "/sys/class/infiniband/{}/ports/1/"
PERFTEST = (("Link type       : Ethernet", "Link type       : IB"), (r" GID index.*\n", ""))
# what an InfiniBand port gives in the place of an Ethernet port
CHANGES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "rdma_links": (("link_layer:Ethernet", "link_layer:InfiniBand"), (r"/mtu:\d+", "/mtu:2044")),
    "nic_binding": ((r"(?m)^.*/operstate:.*\n", ""),),  # ib_ipoib is not loaded
    "mlxlink": (
        ('"Speed": "400G"', '"Speed": "IB-NDR"'),
        ("ETH_AN_FSM_ENABLE", "LinkUp"),
        (r"Standard_RS-FEC - \(544,514\)", "RS-FEC - (544,514) + PLR"),
    ),
    "gdr_loopback": PERFTEST,
    "rdma_pair": PERFTEST,
}


def change(name: str, output: Evidence) -> Evidence:
    text = output.text
    for pattern, words in CHANGES.get(name.removesuffix(BEFORE), ()):
        text = re.sub(pattern, words, text)
    return output.model_copy(update={"text": text})


def evidence_of(check: Check) -> dict[str, Evidence]:
    """A good host's outputs of the commands that the check runs on this fabric."""
    at_hand = {**good(BY_NAME["rdma_counters"]), **good(check)}
    names = {command.name for command in check.commands_of(CONTEXT_OF_FABRIC)}
    return {name: change(name, at_hand[name]) for name in names}


def judge(name: str, **texts: tuple[str, str]) -> CheckResult:
    """The verdict on a good host's outputs with one text changed."""
    evidence = evidence_of(BY_NAME[name])
    for command, (old, new) in texts.items():
        text = evidence[command].text
        assert old in text
        evidence[command] = evidence[command].model_copy(update={"text": text.replace(old, new, 1)})
    return BY_NAME[name].judge(evidence, CONTEXT_OF_FABRIC)


@pytest.mark.parametrize("gate", [Gate.A, Gate.B, Gate.C, Gate.D], ids=lambda g: g.value)
def test_a_gate_is_green_on_an_infiniband_host(gate: Gate) -> None:
    mine = [check for check in HOST if check.gate is gate]

    results = [check.judge(evidence_of(check), CONTEXT_OF_FABRIC) for check in mine]

    assert mine
    assert {r.check: r.findings for r in results if r.verdict is not Verdict.PASS} == {}


@pytest.mark.parametrize("name", ["link_flaps", "congestion", "mlxlink", "rdma_links"])
def test_ports_that_were_not_read_do_not_pass(name: str) -> None:
    assert BY_NAME[name].judge({}, CONTEXT_OF_FABRIC).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("speed", "code", "faults"),
    [
        ("IB-HDR", "RS-FEC - (544,514) + PLR", ["the link's speed"]),
        ("400G", "RS-FEC - (544,514) + PLR", ["the link's speed"]),
        ("IB-NDR", "LL-FEC - (271,257) + PLR", []),
        ("IB-XDR", "No FEC", ["the link's FEC code"]),
    ],
)
def test_speed_and_code_of_an_infiniband_link(speed: str, code: str, faults: list[str]) -> None:
    evidence = evidence_of(BY_NAME["mlxlink"])
    text = evidence["mlxlink"].text.replace("IB-NDR", speed, 1)
    text = text.replace("RS-FEC - (544,514) + PLR", code, 1)
    changed = {"mlxlink": evidence["mlxlink"].model_copy(update={"text": text})}

    result = BY_NAME["mlxlink"].judge(changed, CONTEXT_OF_FABRIC)

    assert [f.detail for f in result.findings] == faults


def test_a_link_of_ethernet_is_not_read_as_infiniband() -> None:
    text = good(BY_NAME["mlxlink"])["mlxlink"].text.replace('"400G"', '"IB-NDR"')
    evidence = {"mlxlink": Evidence(source="", exit_code=0, text=text)}

    result = BY_NAME["mlxlink"].judge(evidence, CONTEXT)

    assert {f.detail for f in result.findings} == {"the link's speed"}


def test_a_port_that_went_down_often_is_named() -> None:
    counter = PORT.format("mlx5_0") + "counters/link_downed:"

    result = judge("link_flaps", rdma_counters=(f"{counter}0", f"{counter}7"))

    assert [(f.part, f.measured) for f in result.findings] == [("mlx5_0", "7 losses")]


@pytest.mark.parametrize(
    ("name", "counter"), [("congestion", "port_xmit_discards"), ("link_flaps", "link_downed")]
)
def test_a_counter_that_grows_under_load_is_a_fault(name: str, counter: str) -> None:
    row = PORT.format("mlx5_0") + f"counters/{counter}:"
    before = evidence_of(BY_NAME[name])["rdma_counters"]
    later = before.text.replace("uptime:1000.00", "uptime:1900.00").replace(f"{row}0", f"{row}2")
    evidence = {
        f"rdma_counters{BEFORE}": before,
        "rdma_counters": before.model_copy(update={"text": later}),
    }

    result = BY_NAME[name].judge(evidence, CONTEXT_OF_FABRIC)

    assert [(f.part, f.measured) for f in result.findings] == [("mlx5_0", "2")]


def test_two_devices_of_one_card_are_named_without_an_interface() -> None:
    text = evidence_of(BY_NAME["nic_binding"])["nic_binding"].text
    first = next(row for row in text.splitlines() if "PCI_SLOT_NAME=0000:18:00.0" in row)
    again = first.replace("mlx5_0", "mlx5_9")

    result = judge("nic_binding", nic_binding=(first, f"{first}\n{again}"))

    assert "RDMA devices of this card" in {f.detail for f in result.findings}

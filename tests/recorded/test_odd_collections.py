"""Collections that lose members, and processors that several systems behind one BMC list."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tree_transport import ADDRESS, TreeTransport

from provisioner.adapters.redfish.client import Redfish
from provisioner.model.inventory import Inventory
from provisioner.model.outcome import Reason
from provisioner.quirks import Quirk

V1 = "/redfish/v1"
FIRMWARE = f"{V1}/UpdateService/FirmwareInventory"


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def collection(path: str, *names: str, **more: Any) -> dict[str, Any]:
    return {path: {"Members": [link(f"{path}/{name}") for name in names], **more}}


def tree(systems: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """A service with these systems, each with its processors, and two items of firmware."""
    found: dict[str, Any] = {
        V1: {n: link(f"{V1}/{n}") for n in ("Systems", "Chassis", "Managers", "UpdateService")},
        **collection(f"{V1}/Systems", *systems),
        **collection(f"{V1}/Chassis"),
        **collection(f"{V1}/Managers"),
        f"{V1}/UpdateService": {"FirmwareInventory": link(FIRMWARE)},
        **collection(FIRMWARE, "BIOS", "BMC"),
        f"{FIRMWARE}/BIOS": {"Id": "BIOS", "Version": "1"},
        f"{FIRMWARE}/BMC": {"Id": "BMC", "Version": "2"},
    }
    for name, processors in systems.items():
        path = f"{V1}/Systems/{name}"
        found[path] = {"Id": name, "SerialNumber": name, "Processors": link(f"{path}/Processors")}
        found |= collection(f"{path}/Processors", *(p["Id"] for p in processors))
        found |= {f"{path}/Processors/{p['Id']}": {"ProcessorType": "CPU", **p} for p in processors}
    return found


def collected(found: dict[str, Any]) -> Inventory:
    client = Redfish(TreeTransport(found), ADDRESS, Quirk(name="x", title="x"))
    return asyncio.run(client.collect("node", ""))


@pytest.mark.parametrize(
    ("counted", "names", "reason"),
    [
        (106, (), Reason.BUSY),  # a Supermicro after its restart: nothing gathered yet
        (106, ("BIOS", "BMC"), Reason.MALFORMED),
        (2, ("BIOS", "BMC"), None),
        (2, ("BIOS", "BIOS"), None),  # GH200 lists one twice, and counts it twice
        (0, (), None),
        (None, (), None),
    ],
)
def test_members_that_are_counted_and_not_listed_are_a_gap(
    counted: int | None, names: tuple[str, ...], reason: Reason | None
) -> None:
    more = {"Members@odata.count": counted}
    gaps = collected(tree({"1": []}) | collection(FIRMWARE, *names, **more)).gaps

    lost = [gap.reason for gap in gaps if "are counted" in gap.detail]
    assert lost == ([] if reason is None else [reason])


def test_members_that_an_expanded_answer_loses_are_read_without_expanding() -> None:
    found = tree({"1": []})
    expand = {"ExpandQuery": {"Levels": True, "NoLinks": True}}
    found[V1] |= {"ProtocolFeaturesSupported": expand}

    class Losing(TreeTransport):
        async def request(self, bmc: Any, call: Any) -> Any:
            plain = self.tree
            if "$expand" in call.path:
                lost = {"Members": [], "Members@odata.count": 2}
                self.tree = {**plain, call.path.split("?")[0]: lost}
            try:
                return await super().request(bmc, call)
            finally:
                self.tree = plain

    client = Redfish(Losing(found), ADDRESS, Quirk(name="x", title="x"))
    seen = asyncio.run(client.read_firmware("node", "host"))

    assert [(c.kind, c.version) for c in seen.components] == [("host.bios", "1"), ("host.bmc", "2")]


def test_only_the_hosts_own_manager_is_a_host_bmc() -> None:
    """A baseboard's BMC is listed as a manager too, also where there is no firmware inventory."""
    found = tree({"System_0": [], "HGX_Baseboard_0": []}) | collection(FIRMWARE)
    found |= collection(f"{V1}/Managers", "HGX_BMC_0", "BMC_0")
    for name, version, system in (("HGX_BMC_0", "HGX-1", "HGX_Baseboard_0"),
                                  ("BMC_0", "2.0", "System_0")):  # fmt: skip
        served = {"ManagerForServers": [link(f"{V1}/Systems/{system}")]}
        found[f"{V1}/Managers/{name}"] = {"Id": name, "FirmwareVersion": version, "Links": served}

    seen = collected(found).components

    assert [(c.kind, c.slot, c.version) for c in seen] == [("host.bmc", "BMC_0", "2.0")]


def cpu(name: str, serial: str | None, **more: str) -> dict[str, Any]:
    return {"Id": name, "SerialNumber": serial, **more}


@pytest.mark.parametrize(
    ("systems", "found"),
    [
        # GB200 (NVIDIA/libredfish, tests/mockups/nvidia_gb200): the same, with a model at the board
        (
            {"HGX_Baseboard_0": [cpu("CPU_0", "0x17", Model="Grace A02"), cpu("CPU_1", "0x18")],
             "System_0": [cpu("CPU_0", "0x17"), cpu("CPU_1", "0x18")]},
            {("CPU_0", "0x17", "Grace A02"), ("CPU_1", "0x18", None)},
        ),
        # GH200 (tests/mockups/nvidia_gh200): other Ids and no serials, at the same sockets
        (
            {"HGX_Baseboard_0": [cpu("HGX_CPU_0", None, Socket="G1:0.0"),
                                 cpu("HGX_CPU_1", None, Socket="G1:1.0")],
             "System_0": [cpu("CPU_0", "0x17", Socket="G1:0.0"),
                          cpu("CPU_1", "0x18", Socket="G1:1.0")]},
            {("CPU_0", "0x17", None), ("CPU_1", "0x18", None)},
        ),
        # two hosts behind one BMC
        (
            {"Node_0": [cpu("CPU_0", None), cpu("CPU_1", "b")], "Node_1": [cpu("CPU_0", None)]},
            {("Node_0/CPU_0", None, None), ("CPU_1", "b", None), ("Node_1/CPU_0", None, None)},
        ),
        (
            {"Node_0": [cpu("CPU_0", "a")], "Node_1": [cpu("CPU_0", "b")]},
            {("Node_0/CPU_0", "a", None), ("Node_1/CPU_0", "b", None)},
        ),
        # one host
        ({"1": [cpu("CPU1", "a"), cpu("CPU2", None)]}, {("CPU1", "a", None), ("CPU2", None, None)}),
    ],
)  # fmt: skip
def test_processors_of_several_systems_are_each_counted_once(
    systems: dict[str, Any], found: set[tuple[str, str | None, str | None]]
) -> None:
    devices = [d for d in collected(tree(systems)).devices if d.kind == "cpu"]

    assert len(devices) == len(found)
    assert {(d.slot, d.serial, d.model) for d in devices} == found

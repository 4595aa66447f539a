"""Trees that never end, in every way that a hostile or broken BMC can grow one: each reading ends.

A BMC answers each request at once here, so that only the number and the bytes bound a reading.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import virtual_time
from scripted_bmc import V1
from tree_transport import ADDRESS, TreeTransport

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.walk import Allowance
from provisioner.model.inventory import Inventory
from provisioner.ports import BmcAddress, Call, PortError, Reply, TooLarge
from provisioner.quirks import Quirk

REQUESTS_MAX = 400
BYTES_MAX = 4_000_000
ROOTS = ("Systems", "Chassis", "Managers", "UpdateService", "Fabrics", "Cables")
PARTS = ("Processors", "Memory", "Storage", "PCIeDevices", "Sensors", "NetworkAdapters", "Drives",
         "Ports", "Assembly", "FirmwareInventory", "EthernetInterfaces", "LeakDetection",
         "ThermalSubsystem", "LeakDetectors")  # fmt: skip


def to(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def links(path: str, names: tuple[str, ...] = PARTS) -> dict[str, Any]:
    return {name: to(f"{path}/{name}") for name in names}


def is_list(path: str) -> bool:
    return path.partition("?")[0].rstrip("/").rpartition("/")[2] in {*ROOTS, *PARTS}


def turn(path: str) -> int:
    return int((re.findall(r"\d+", path) or ["0"])[-1])


def page(path: str, **more: Any) -> dict[str, Any]:
    bare = path.partition("?")[0]
    return {"Members": [to(f"{bare}/1")], "Members@odata.count": 1, **more}


def item(path: str, **more: Any) -> dict[str, Any]:
    return {"Id": path.rpartition("/")[2], "SerialNumber": "S", **more}


NEXT = "Members@odata.nextLink"
# a path -> what is there; each is a service root's part that has no end
TREES: dict[str, Callable[[str], Any]] = {
    "a page that is its own next one": lambda p: page(p, **{NEXT: p}) if is_list(p) else item(p),
    "two pages that lead to each other": lambda p: (
        page(p, **{NEXT: p.partition("?")[0] + f"?$skip={1 - turn(p)}"}) if is_list(p) else item(p)
    ),
    "a next page after each page": lambda p: (
        page(p, **{NEXT: p.partition("?")[0] + f"?$skip={turn(p) + 1}"}) if is_list(p) else item(p)
    ),
    "a next page without a member": lambda p: (
        {"Members": [], NEXT: p.partition("?")[0] + f"?$skiptoken={turn(p) + 1}"}
        if is_list(p) else item(p)
    ),
    "parts below parts for ever": lambda p: page(p) if is_list(p) else item(p, **links(p)),
    "a chassis that contains itself": lambda p: (
        page(p) if is_list(p) else item(p, Links={"Contains": [to(p)], "Chassis": [to(p)]})
    ),
    "a chassis that contains a new one each time": lambda p: (
        page(p) if is_list(p)
        else item(p, Links={"Contains": [to(f"{V1}/Chassis/{turn(p) + 1}")],
                            "Chassis": [to(f"{V1}/Chassis/{turn(p) + 1}")]})
    ),
    "one path in many spellings": lambda p: (
        {"Members": [to(p.partition("?")[0] + "/1" + "/" * n) for n in range(2000)]}
        if is_list(p) else item(p)
    ),
    "one path under many names of hosts": lambda p: (
        {"Members": [to(f"https://host{n}.example{p.partition('?')[0]}/1") for n in range(2000)]}
        if is_list(p) else item(p)
    ),
    "members that are lists": lambda p: {"Members": [to(f"{p}/Chassis") for _ in range(20)]},
    "objects in objects": lambda p: '{"a":' * 50_000,
    "lists in lists": lambda p: page(p, Members=json.loads("[" * 300 + "]" * 300)),
    "a text without an end": lambda p: '{"Id": "' + "x" * 300_000,
    "keys without an end": lambda p: {f"k{n}": n for n in range(20_000)},
    "no page and a next one": lambda p: {NEXT: p.partition("?")[0] + f"?$skip={turn(p) + 1}"},
}  # fmt: skip
ANSWERS: dict[str, Reply] = {
    "a login that is refused each time": Reply(401, {}, b""),
    "busy for ever": Reply(503, {"Retry-After": "1"}, b""),
    "busy for an age": Reply(503, {"Retry-After": "99999999999999999999"}, b""),
    "busy until a date that is none": Reply(503, {"Retry-After": "never"}, b""),
    "busy since before": Reply(429, {"Retry-After": "-1"}, b""),
    "elsewhere, which is here": Reply(301, {"Location": f"{V1}/Systems"}, b""),
    "nothing": Reply(200, {}, b""),
    "made already": Reply(202, {"Location": f"{V1}/TaskService/Tasks/1"}, b""),
}


class Endless(TreeTransport):
    """A root, and below it what `grow` says of each path, or the same answer to all."""

    def __init__(self, grow: Callable[[str], Any] | None, answer: Reply | None = None) -> None:
        super().__init__({})
        self._grow = grow
        self._answer = answer
        self.given_bytes = 0

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        self.asked.append(f"{call.method} {call.path}")
        if call.path.rstrip("/") == V1:
            return Reply(200, {}, json.dumps({"@odata.id": V1, **links(V1, ROOTS)}).encode())
        if self._answer is not None:
            return self._answer
        assert self._grow is not None
        made = self._grow(call.path)
        body = (made if isinstance(made, str) else json.dumps(made)).encode()
        if len(body) > call.size_max_bytes:
            raise TooLarge("over the limit of the request")
        self.given_bytes += len(body)
        return Reply(200, {}, body)


def read(bmc: Endless) -> tuple[Inventory, float]:
    async def main() -> tuple[Inventory, float]:
        allowance = Allowance(900.0, REQUESTS_MAX, BYTES_MAX)
        client = Redfish(bmc, ADDRESS, Quirk(name="x", title="x"), allowance=allowance)
        began = asyncio.get_running_loop().time()
        inventory, _ = await client.collect_tree("", "")
        return inventory, asyncio.get_running_loop().time() - began

    return virtual_time.run(main())


@pytest.mark.parametrize("name", TREES)
def test_a_tree_without_an_end_is_left_with_a_gap(name: str) -> None:
    bmc = Endless(TREES[name])

    inventory, took_s = read(bmc)

    assert len(bmc.asked) <= REQUESTS_MAX
    assert bmc.given_bytes <= BYTES_MAX
    assert took_s < 900.0
    assert inventory.gaps
    assert len(inventory.devices) < 10
    assert any("do not end" in g.detail for g in inventory.gaps) is ("page" in name)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_never_changes_ends_a_reading_soon(name: str) -> None:
    bmc = Endless(None, ANSWERS[name])

    if ANSWERS[name].status in (401, 429, 503):  # nothing was read: no fact about the machine
        with pytest.raises(PortError):
            read(bmc)
    else:
        inventory, took_s = read(bmc)
        assert took_s < 60.0
        assert {g.source for g in inventory.gaps} >= {f"{V1}/Systems", f"{V1}/Chassis"}
        assert inventory.devices == ()
    assert len(bmc.asked) < 20

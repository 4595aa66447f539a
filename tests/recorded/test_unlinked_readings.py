"""What a tree does not link to may be there: before an erasure or a release it is looked for.

The kind of `tests/sim/test_leak_shapes.py` (LambdaLabs/redfish_exporter, chassis_collector.go:
makers leave links out), in the readings that say that a BMC holds nothing of a former tenant, and
which drives a host has.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tree_transport import ADDRESS, TreeTransport

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings.bios_writes import read_secure_boot_keys
from provisioner.adapters.redfish.upkeep.bmc_time import read_remainders
from provisioner.model.erasure import Result
from provisioner.model.machine.settings import BmcRemainders
from provisioner.planning.erasure.bmc_defaults import judge_keys, judge_remainders
from provisioner.ports import Unreachable

V1 = "/redfish/v1"
SYSTEM, STORAGE = f"{V1}/Systems/1", f"{V1}/Systems/1/Storage"
ACCOUNTS, ENDS = f"{V1}/AccountService/Accounts", f"{V1}/EventService/Subscriptions"
BOOT = f"{SYSTEM}/SecureBoot"
Tree = dict[str, dict[str, Any]]


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def members(path: str, *names: str) -> dict[str, Any]:
    return {"Members": [link(f"{path}/{n}") for n in names], "Members@odata.count": len(names)}


def left_by_a_tenant() -> Tree:
    """A BMC with an account and a subscription that a tenant left, and two drives."""
    return {
        V1: {n: link(f"{V1}/{n}") for n in ("Systems", "AccountService", "EventService")},
        f"{V1}/Systems": members(f"{V1}/Systems", "1"),
        SYSTEM: {"Id": "1", "Storage": link(STORAGE), "SecureBoot": link(BOOT)},
        f"{V1}/AccountService": {"Accounts": link(ACCOUNTS)},
        ACCOUNTS: members(ACCOUNTS, "1", "2"),
        f"{ACCOUNTS}/1": {"UserName": "root", "RoleId": "Administrator", "Enabled": True},
        f"{ACCOUNTS}/2": {"UserName": "left", "RoleId": "Administrator", "Enabled": True},
        f"{V1}/EventService": {"Subscriptions": link(ENDS)},
        ENDS: members(ENDS, "1"),
        f"{ENDS}/1": {"Destination": "https://203.0.113.9/x"},
        STORAGE: members(STORAGE, "1"),
        f"{STORAGE}/1": {
            "Drives": [link(f"{STORAGE}/1/Drives/{n}") for n in "ab"],
            "Drives@odata.count": 2,
        },
        f"{STORAGE}/1/Drives/a": {"SerialNumber": "S-A"},
        f"{STORAGE}/1/Drives/b": {"SerialNumber": "S-B"},
        BOOT: {"SecureBootMode": "SetupMode", "SecureBootEnable": False},
    }


def transport_of(tree: Tree) -> TreeTransport:
    return TreeTransport(
        {path: json.dumps({"@odata.id": path, **body}) for path, body in tree.items()}
    )


def service_of(tree: Tree) -> Service:
    return Service(transport_of(tree), ADDRESS, quirks.ALL["unknown"])


def remainders(tree: Tree) -> BmcRemainders:
    return asyncio.run(read_remainders(service_of(tree)))


def left_over(reading: BmcRemainders) -> set[str]:
    rows = judge_remainders("host", reading, ["root"], [])
    return {part for part, result, _ in rows if result is Result.NOT_DONE}


def drop(path: str, key: str) -> Callable[[Tree], None]:
    return lambda tree: tree[path].pop(key)


def gone(path: str) -> Callable[[Tree], None]:
    return lambda tree: tree.pop(path)


def put(path: str, **more: Any) -> Callable[[Tree], None]:
    return lambda tree: tree[path].update(more)


SHAPES: dict[str, tuple[Callable[[Tree], Any], set[str]]] = {
    "all links in place": (lambda _: None, {"host accounts", "host events"}),
    "AccountService is not linked": (
        drop(V1, "AccountService"), {"host accounts", "host events"}),
    "Accounts is not linked": (
        drop(f"{V1}/AccountService", "Accounts"), {"host accounts", "host events"}),
    "AccountService leads nowhere": (
        put(V1, AccountService=link(f"{V1}/Elsewhere")), {"host resources", "host events"}),
    "the list of accounts is gone": (gone(ACCOUNTS), {"host resources", "host events"}),
    "the list of accounts is empty": (
        put(ACCOUNTS, **members(ACCOUNTS)), {"host accounts", "host events"}),
    "the list of accounts is shorter than it says": (
        put(ACCOUNTS, Members=[link(f"{ACCOUNTS}/1")]), {"host resources", "host events"}),
    "an account is gone": (gone(f"{ACCOUNTS}/2"), {"host resources", "host events"}),
    "an account's name is no text": (
        put(f"{ACCOUNTS}/2", UserName=["left"]), {"host accounts", "host events"}),
    "an account's name is null": (
        put(f"{ACCOUNTS}/2", UserName=None), {"host accounts", "host events"}),
    "an error beside the accounts": (
        put(ACCOUNTS, Members=[link(f"{ACCOUNTS}/1")], **{"Members@odata.count": 1},
            error={"code": "Base.1.4.0.InternalError"}), {"host resources", "host events"}),
    "EventService is not linked": (drop(V1, "EventService"), {"host accounts", "host events"}),
    "Subscriptions is not linked": (
        drop(f"{V1}/EventService", "Subscriptions"), {"host accounts", "host events"}),
    "the list of subscriptions is gone": (gone(ENDS), {"host accounts", "host resources"}),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_of_the_tree_hides_what_a_tenant_left(shape: str) -> None:
    change, expected = SHAPES[shape]
    tree = left_by_a_tenant()
    change(tree)

    # an account that the list does not show is at least a resource that was not read
    assert left_over(remainders(tree)) >= expected


def test_what_a_bmc_does_not_have_is_still_absent() -> None:
    tree = left_by_a_tenant()
    for path in [p for p in tree if "EventService" in p]:
        del tree[path]
    del tree[V1]["EventService"]

    reading = remainders(tree)

    assert reading.destinations is None
    assert not reading.gaps


@pytest.mark.parametrize("change", [lambda _: None, drop(SYSTEM, "SecureBoot")])
def test_secure_boot_is_looked_for_where_it_is_not_linked(change: Callable[[Tree], Any]) -> None:
    tree = left_by_a_tenant()
    change(tree)

    keys = asyncio.run(read_secure_boot_keys(service_of(tree)))

    assert [p for p, result, _ in judge_keys("host", keys, ()) if result is Result.NOT_DONE] == [
        "host mode"
    ]


def test_a_mode_that_is_not_shown_is_not_said_to_be_in_order() -> None:
    tree = left_by_a_tenant()
    del tree[BOOT]["SecureBootMode"]

    keys = asyncio.run(read_secure_boot_keys(service_of(tree)))
    rows = {part: result for part, result, _ in judge_keys("host", keys, ())}

    assert rows["host mode"] is Result.UNSUPPORTED


def drives(tree: Tree) -> tuple[str, ...]:
    client = Redfish(transport_of(tree), ADDRESS, quirks.ALL["unknown"])
    return asyncio.run(client.drive_serials())


LIST = f"{STORAGE}/1/Drives"
WHOLE: dict[str, Callable[[Tree], Any]] = {
    "all links in place": lambda _: None,
    "Storage is not linked": drop(SYSTEM, "Storage"),
    "drives without a count": drop(f"{STORAGE}/1", "Drives@odata.count"),
    "drives behind a list": lambda tree: tree.update(
        {f"{STORAGE}/1": {"Drives": link(LIST)}, LIST: members(LIST, "a", "b")}),
}  # fmt: skip
PARTS: dict[str, Callable[[Tree], Any]] = {
    "fewer drives than are counted": put(f"{STORAGE}/1", Drives=[link(f"{LIST}/a")]),
    "none of the drives that are counted": put(f"{STORAGE}/1", Drives=[]),
    "a drive that is no link": put(f"{STORAGE}/1", Drives=[link(f"{LIST}/a"), {"Name": "b"}]),
    "a drive that is an error": put(f"{LIST}/b", error={"code": "Base.1.4.0.InternalError"}),
    "fewer controllers than are counted": put(STORAGE, **{"Members@odata.count": 2}),
}  # fmt: skip


@pytest.mark.parametrize("shape", WHOLE)
def test_the_drives_of_a_host_are_found(shape: str) -> None:
    tree = left_by_a_tenant()
    WHOLE[shape](tree)

    assert drives(tree) == ("S-A", "S-B")


@pytest.mark.parametrize("shape", PARTS)
def test_a_part_of_the_drives_is_not_the_drives(shape: str) -> None:
    tree = left_by_a_tenant()
    PARTS[shape](tree)

    with pytest.raises(Unreachable):
        drives(tree)


def test_a_host_without_storage_has_no_drives() -> None:
    tree = left_by_a_tenant()
    for path in [p for p in tree if p.startswith(STORAGE)]:
        del tree[path]
    del tree[SYSTEM]["Storage"]

    assert drives(tree) == ()

"""A whole reading has limits of time, requests and bytes, whatever each of its requests takes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from scripted_bmc import V1
from tree_transport import ADDRESS, TreeTransport

from provisioner.adapters import redfish
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.tasks import list_running_tasks
from provisioner.adapters.redfish.walk import Allowance, Walk
from provisioner.model.inventory import Inventory
from provisioner.ports import BmcAddress, Call, PortError, Reply, TooLarge, Unreachable
from provisioner.quirks import Quirk

LIMIT_S = 90.0
MANY = 100_000


def to(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def tree(members: int = 60, size_bytes: int = 0) -> dict[str, Any]:
    """A service with one system, and so many chassis."""
    system = f"{V1}/Systems/1"
    chassis = [f"{V1}/Chassis/{n}" for n in range(members)]
    filled = {"AssetTag": "x" * size_bytes} if size_bytes else {}
    return {
        V1: {name: to(f"{V1}/{name}") for name in ("Systems", "Chassis")},
        f"{V1}/Systems": {"Members": [to(system)], "Members@odata.count": 1},
        system: {"Id": "1", "SerialNumber": "S1", "Manufacturer": "M", "Model": "N"},
        f"{V1}/Chassis": {"Members": [to(p) for p in chassis], "Members@odata.count": members},
        **{p: {"Id": p.rpartition("/")[2], "Name": "c", **filled} for p in chassis[:2048]},
    }


class Slow(TreeTransport):
    """Gives each answer after `takes_s`; none if that is over the limit of the request."""

    def __init__(self, tree: Mapping[str, Any], takes_s: float) -> None:
        super().__init__(tree)
        self.takes_s = takes_s
        self.given_bytes = 0

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        await asyncio.sleep(min(self.takes_s, call.timeout_s))
        if self.takes_s > call.timeout_s:
            self.asked.append(f"GET {call.path}")
            raise Unreachable("it drips", maybe_executed=False)
        reply = await super().request(bmc, call)
        if len(reply.body) > call.size_max_bytes:
            raise TooLarge("over the limit of the request")
        self.given_bytes += len(reply.body)
        return reply


def read(transport: Slow, allowance: Allowance) -> tuple[Inventory, float]:
    """Return what `inspect` collects, and the seconds that it took."""

    async def main() -> tuple[Inventory, float]:
        client = Redfish(transport, ADDRESS, Quirk(name="x", title="x"), allowance=allowance)
        began = asyncio.get_running_loop().time()
        inventory, _ = await client.collect_tree("", "")
        return inventory, asyncio.get_running_loop().time() - began

    return virtual_time.run(main())


@pytest.mark.parametrize("takes_s", [5.0, 20.0, 29.0])
def test_a_bmc_that_drips_ends_with_a_named_gap(takes_s: float) -> None:
    inventory, took_s = read(Slow(tree(), takes_s), Allowance(LIMIT_S))

    assert took_s <= LIMIT_S + 1
    assert any("took more than 90 s" in gap.detail for gap in inventory.gaps)


def test_a_bmc_that_is_well_is_read_wholly_within_the_same_limits() -> None:
    inventory, _ = read(Slow(tree(), 0.2), Allowance(LIMIT_S))

    assert not any("took more than" in gap.detail for gap in inventory.gaps)
    assert {gap.detail for gap in inventory.gaps} == {"no Managers", "no UpdateService"}


def test_a_collection_of_a_hundred_thousand_members_ends_with_a_named_gap() -> None:
    transport = Slow(tree(MANY), 0.01)

    inventory, took_s = read(transport, Allowance(LIMIT_S, requests=500))

    assert took_s <= LIMIT_S + 1
    assert len(transport.asked) <= 500
    assert any("more than 2048 members" in gap.detail for gap in inventory.gaps)
    assert any("took more than 500 requests" in gap.detail for gap in inventory.gaps)
    assert len(inventory.gaps) < 200  # not one for each of them


def test_the_bytes_of_all_walks_are_counted_together() -> None:
    limit = 4 * 1024 * 1024
    transport = Slow(tree(500, size_bytes=40_000), 0.0)

    inventory, _ = read(transport, Allowance(LIMIT_S, size_bytes=limit))

    assert transport.given_bytes <= limit + 4 * 50_000  # four reads at once
    assert any("gave more than" in gap.detail for gap in inventory.gaps)


def test_one_allowance_holds_for_several_walks() -> None:
    async def main() -> tuple[list[str], list[str]]:
        transport = Slow(tree(), 1.0)
        allowance = Allowance(requests=3)
        first = Walk(transport, ADDRESS, Quirk(name="x", title="x"), allowance=allowance)
        await first.read_several([f"{V1}/Chassis/{n}" for n in range(3)])
        second = Walk(transport, ADDRESS, Quirk(name="x", title="x"), allowance=allowance)
        await second.read(f"{V1}/Systems/1")
        return [g.detail for g in first.gaps], [g.detail for g in second.gaps]

    assert virtual_time.run(main()) == ([], ["reading this BMC took more than 3 requests"])


def test_a_walk_without_an_allowance_has_limits_of_its_own() -> None:
    async def main() -> tuple[float, str]:
        walk = Walk(Slow(tree(2000), 29.0), ADDRESS, Quirk(name="x", title="x"))
        began = asyncio.get_running_loop().time()
        await walk.read_members(f"{V1}/Chassis")
        return asyncio.get_running_loop().time() - began, walk.gaps[-1].detail

    took_s, detail = virtual_time.run(main())

    assert took_s <= 901
    assert detail == "reading this BMC took more than 900 s"


def test_a_silent_bmc_is_gone_and_not_cut_off() -> None:
    with pytest.raises(Unreachable):
        read(Slow(tree(), 3600.0), Allowance(LIMIT_S))


# --- requests beside a walk: each operation of a client has one allowance for all that it sends


def with_tasks(count: int) -> dict[str, Any]:
    """A service that lists so many tasks, each of which says that it runs."""
    tasks = f"{V1}/TaskService/Tasks"
    listed = [f"{tasks}/{n}" for n in range(count)]
    return {
        **tree(1),
        V1: {name: to(f"{V1}/{name}") for name in ("Systems", "Chassis")}
        | {"Tasks": to(tasks[:-6])},
        tasks[:-6]: {"Id": "TaskService", "Tasks": to(tasks)},
        tasks: {"Members": [to(p) for p in listed], "Members@odata.count": count},
        **{p: {"Id": p.rpartition("/")[2], "TaskState": "Running"} for p in listed},
    }


Operation = Callable[[Redfish], Awaitable[object]]


def operate(transport: Slow, work: Operation, allowance: Allowance | None = None) -> float:
    """Return the seconds that an operation took, whatever it returned or raised."""

    async def main() -> float:
        client = Redfish(transport, ADDRESS, Quirk(name="x", title="x"), allowance=allowance)
        began = asyncio.get_running_loop().time()
        with suppress(PortError):
            await work(client)
        return asyncio.get_running_loop().time() - began

    return virtual_time.run(main())


def test_direct_calls_of_an_operation_are_counted_with_its_walks() -> None:
    many = with_tasks(1500)

    whole = Slow(many, 0.01)
    operate(whole, lambda client: list_running_tasks(client.service))
    dripping = Slow(many, 29.0)
    took_s = operate(dripping, lambda client: list_running_tasks(client.service))
    few = Slow(many, 0.01)
    operate(few, lambda c: list_running_tasks(c.service), Allowance(requests=100))

    assert len(whole.asked) > 1500
    assert took_s <= 901  # 1,500 direct calls of 29 s were 12 hours
    assert len(few.asked) <= 100


@pytest.mark.parametrize(
    "work",
    [
        lambda client: client.service.get(f"{V1}/Chassis/0"),
        lambda client: client.service.call("GET", f"{V1}/Chassis/0"),
        lambda client: client.service.patch(f"{V1}/Chassis/0", {"AssetTag": "a"}, "x"),
        lambda client: client.service.post(f"{V1}/Chassis/0", {}, "x"),
        lambda client: client.service.read_system(),
        lambda client: client.service.find_part("Tasks"),
        lambda client: client.read_tasks(),
        lambda client: client.power(),
        lambda client: client.reset_system("On"),
        lambda client: client.read_remainders(),
        lambda client: client.collect("n", "b"),
        lambda client: client.admits(),
    ],
)
def test_nothing_is_sent_by_any_way_once_an_allowance_is_used_up(work: Operation) -> None:
    transport = Slow(with_tasks(3), 0.0)

    operate(transport, work, Allowance(requests=0))

    assert transport.asked == []


def test_each_operation_has_an_allowance_of_its_own_and_paths_are_kept() -> None:
    async def main() -> tuple[set[int], int]:
        transport = Slow(tree(1), 0.0)
        client = Redfish(transport, ADDRESS, Quirk(name="x", title="x"))
        services = [client.service for _ in range(3)]
        assert all(service.allowance is not None for service in services)
        await services[0].read_system()
        before = len(transport.asked)
        await services[1].read_system()
        return {id(service.allowance) for service in services}, len(transport.asked) - before

    allowances, again = virtual_time.run(main())
    assert (len(allowances), again) == (3, 1)


def test_pauses_between_polls_and_writes_are_no_waiting_for_answers() -> None:
    async def main() -> list[int]:
        transport = Slow(tree(1), 1.0)
        client = Redfish(transport, ADDRESS, Quirk(name="x", title="x"), allowance=Allowance(10.0))
        statuses = []
        for _ in range(5):
            statuses.append((await client.service.call("GET", f"{V1}/Chassis/0")).status)
            transport.takes_s = 60.0  # longer than the allowance has left
            with suppress(Unreachable):
                await client.service.ask(Call("PATCH", f"{V1}/Chassis/0", {}, {}, timeout_s=100.0))
            transport.takes_s = 1.0
            await asyncio.sleep(600.0)
        return statuses

    assert virtual_time.run(main()) == [200] * 5


def test_no_request_to_a_bmc_passes_by_the_allowance() -> None:
    folder = Path(redfish.__file__).parent
    beside = re.compile(r"service\.transport\.request\(")
    found = {
        file.name: len(beside.findall(file.read_text(encoding="utf-8")))
        for file in folder.rglob("*.py")
        if beside.search(file.read_text(encoding="utf-8"))
    }
    assert found == {"client.py": 1}  # is_silent: one request, without a login

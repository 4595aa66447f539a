"""Partitions of which the manager's list or its controller says something else than the manager."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from proved_domain import see
from test_handed_over_partitions import Rig, Wire, make_manager, make_node, owners, write_plan

from provisioner.integrations.racks.partitions.handed_over import TrayPartitions
from provisioner.integrations.racks.partitions.nmx_client import UNLISTED_S, NmxClient
from provisioner.model.node import Node, State
from provisioner.ports import SwitchAddress


class Lasting:
    """A daemon's partitions over one manager, on a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.manager = make_manager()
        self.wire = Wire(self.manager)
        self.begin(write_plan(folder))

    def begin(self, plan: Path) -> None:
        client = NmxClient(
            self.wire, SwitchAddress("https://m"), self.pass_time, lambda: self.manager.now
        )
        self.partitions = TrayPartitions(plan, client, self.pass_time)

    async def pass_time(self, seconds: float) -> None:
        self.manager.now += seconds

    def do(self, verb: str, node: Node) -> list[str]:
        asked = getattr(self.partitions, verb)
        return [
            f"{b.subject}: {b.detail}" for b in asyncio.run(asked(node, [node], see(node.id[2:])))
        ]


def test_a_partition_that_is_listed_an_hour_late_is_waited_for_and_not_made_twice(
    tmp_path: Path,
) -> None:
    """infra-controller#572: completed, and over an hour until NMX Manager's list had it."""
    rig = Lasting(tmp_path)
    rig.manager.faults.late_s = 4000.0
    node = make_node("t0", "acme")
    for _ in range(6):
        (refused,) = rig.do("admit", node)
        assert refused.startswith("create acme.d01: 4 GPUs: the manager ")
        (kept,) = rig.do("expel", make_node("t0", "acme", State.DRAINING))
        assert "does not list it yet; nothing is sent for it" in kept  # in none by the list alone
        assert rig.do("expel", make_node("t1", "acme", State.DRAINING)) == []
        rig.manager.now += 600.0
    rig.manager.now += 600.0
    assert rig.do("admit", node) == []
    assert rig.manager.log == ["PUT Default 12", "POST acme.d01 4", "PUT Default 8"]
    assert owners(rig.manager, "t0") == {"acme.d01"}


def test_a_partition_that_is_never_listed_is_asked_for_again_after_two_hours(
    tmp_path: Path,
) -> None:
    rig = Lasting(tmp_path)
    rig.manager.partitions.clear()
    rig.manager.faults.lies = True
    node = make_node("t0", "acme")
    rig.do("admit", node)
    rig.manager.faults.lies = False
    assert "does not list it yet" in rig.do("admit", node)[0]
    rig.manager.now += UNLISTED_S
    assert rig.do("admit", node) == []
    assert rig.manager.log == ["POST acme.d01 4"] * 2


def test_a_limit_of_18_multicast_groups_that_the_controller_refuses_is_named(
    tmp_path: Path,
) -> None:
    """infra-controller#2681: it is 0 or a multiple of 4. The manager's REST has no field for it, so
    that none is sent here: what the manager asked its controller for is told in its own words.
    """
    rig = Rig(tmp_path)
    sent: list[Any] = []
    request = rig.manager.request

    def note(method: str, path: str, body: Any) -> Any:
        sent.append(body) if method == "POST" else None
        return request(method, path, body)

    rig.manager.request = note  # type: ignore[method-assign]
    rig.manager.groups = 18
    node = make_node("t0", "acme")
    (refused,) = rig.do("admit", node)
    assert refused == (
        "create acme.d01: 4 GPUs: failed: the controller refused a limit of 18 groups"
    )
    assert owners(rig.manager, "t0") == {""}
    assert [set(body) for body in sent] == [{"Name", "Members"}]
    rig.manager.groups = 16
    assert rig.do("admit", node) == []
    assert owners(rig.manager, "t0") == {"acme.d01"}

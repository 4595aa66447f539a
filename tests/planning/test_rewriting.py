"""Firmware that fits is written once more where a source documents a force; else it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.model.plan import StepKind
from provisioner.planning.erasure.rewriting import (
    Rewriting,
    Writer,
    find_wrong_versions,
    plan_rewriting,
)

FORCED = Writer("NVIDIA OpenBMC", forces=True)
FILE = {"artifact": "a.fwpkg", "sha256": "a" * 64}
NODE = Node(
    id="n1",
    kind=NodeKind.HOST,
    release="r",
    profile="p",
    fenced_at=5.0,
    bmcs=(
        BmcRef(name="host", url="https://h"),
        BmcRef(name="DPU_0", url="https://d", kind="dpu"),
    ),
)


def part(kind: str, slot: str, version: str, bmc: str, **more: Any) -> Component:
    return Component(kind=kind, slot=slot, version=version, source="test", bmc=bmc, **more)


PARTS = (
    part("host.bios", "BIOS", "2.0", "host"),
    part("host.bmc", "BMC", "1.0", "host"),
    part("hgx.gpu", "GPU_SXM_1", "96.00.68.00.01", "host"),
    part("bluefield.bundle", "DPU_0", "bf-bundle-2.9.0-90_24.10_ubuntu-22.04_prod", "DPU_0"),
    part("nic.cx7", "NIC_0", "28.43.1014", ""),
)


def edge(to: str, reset: str, **more: str) -> dict[str, Any]:
    return {"from": ["before"], "to": to, "activates_by": reset, **FILE, **more}


def matrix(**edges: Any) -> Matrix:
    pins = {
        "host.bios": {"version": "2.0", **FILE},
        "host.bmc": {"version": "1.0", **FILE},
        "hgx.bundle": {"version": "T1", **FILE},
    }
    listed = {
        "host.bios": [edge("2.0", "cold_boot")],
        "host.bmc": [edge("1.0", "bmc_reset")],
        "hgx.bundle": [edge("T1", "ac_cycle")],
        "bluefield.bundle": [edge("2.9.0-90", "cold_boot")],
        **edges,
    }
    return Matrix.model_validate(
        {
            "releases": {"r": {"profiles": {"p": {"match": {}, "pins": pins}}}},
            "edges": listed,
            "bundles": {"hgx.bundle": {"T1": {"hgx.gpu": "96.00.68.00.01"}}},
        }
    )


def planned(
    *groups: str,
    parts: tuple[Component, ...] = PARTS,
    writer: Writer = FORCED,
    no_ac_cycle: str = "",
    pinned: Matrix | None = None,
) -> Rewriting:
    inventory = Inventory(node="n1", vendor="x", components=parts)
    writers = {"host": writer, "DPU_0": FORCED}
    return plan_rewriting(
        groups, NODE, inventory, pinned or matrix(), writers, no_ac_cycle=no_ac_cycle
    )


def test_a_bmc_is_written_and_restarted_first_and_one_reset_ends_everything() -> None:
    plan = planned("bios", "gpu", "card", "bmc")

    order = [s.component or str(s.activation) for s in plan.steps]
    assert order == ["host.bmc", "bmc_reset", "host.bios", "hgx.bundle", "bluefield.bundle"]
    assert plan.reset is Activation.AC_CYCLE  # it covers the cold boots
    assert plan.refused == ()
    assert all(s.force and s.from_version == s.to_version for s in plan.list_writes())
    assert plan.steps[1].bmcs == ("host",)


def test_without_a_root_of_trust_the_boot_of_the_image_is_reset_enough() -> None:
    assert planned("bios", "card").reset is Activation.COLD_BOOT
    assert planned("bmc").reset is Activation.NONE


DELL = Writer("Dell iDRAC", forces=False)
OTHER_GPU = (part("hgx.gpu", "GPU_SXM_1", "96.00.99.00.01", "host"),)
REFUSALS: dict[str, tuple[tuple[str, ...], dict[str, Any], str, str]] = {
    "no force is documented": (
        ("bios",),
        {"writer": DELL},
        "host.bios/BIOS",
        "Dell iDRAC: no source documents a force",
    ),
    "it is written in the host's system": (
        ("nic",),
        {},
        "nic.cx7/NIC_0",
        "none runs between two tenants",
    ),
    "the BMC takes no update of it": (
        ("bios",),
        {"parts": (part("host.bios", "BIOS", "2.0", "host", updateable=False),)},
        "host.bios/BIOS",
        "takes no update",
    ),
    "no file of the version that runs": (
        ("bios",),
        {"parts": (part("host.bios", "BIOS", "1.9", "host"),)},
        "host.bios/BIOS",
        "names no file of 1.9",
    ),
    "a bundle that is not the pinned one": (
        ("gpu",),
        {"parts": OTHER_GPU},
        "hgx.bundle/bundle",
        "another one runs: hgx.gpu/GPU_SXM_1 runs 96.00.99.00.01",
    ),
    "an AC cycle that nothing offers": (
        ("gpu",),
        {"no_ac_cycle": "the service has no such action"},
        "hgx.bundle/bundle",
        "needs an AC cycle: the service has no such action",
    ),
    "a card whose BMC shows no bundle": (
        ("card",),
        {"parts": (part("bluefield.bmc", "DPU_0", "BF-24.10-10", "DPU_0"),)},
        "bluefield.bundle/DPU_0",
        "shows no bundle",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_written_is_refused_by_name(case: str) -> None:
    groups, more, device, why = REFUSALS[case]

    plan = planned(*groups, **more)

    reasons = {r.device: r.why for r in plan.refused}
    assert why in reasons[device]
    assert device not in {f"{s.component}/{slot}" for s in plan.steps for slot in s.slots}


def test_a_version_that_an_earlier_release_brought_is_written_from_the_file_of_its_edge() -> None:
    older = matrix(**{"host.bios": [edge("1.9", "cold_boot", artifact="old.bin")]})
    plan = planned("bios", parts=(part("host.bios", "BIOS", "1.9", "host"),), pinned=older)

    (write,) = plan.steps
    assert (write.to_version, write.artifact) == ("1.9", "old.bin")


def test_what_was_written_is_judged_by_the_version_that_is_read_afterwards() -> None:
    bios, bundle = (s for s in planned("bios", "gpu").steps if s.kind is StepKind.UPDATE)
    after = Inventory(
        node="n1",
        vendor="x",
        components=(part("host.bios", "BIOS", "2.1", "host"), *OTHER_GPU),
    )
    same = Inventory(node="n1", vendor="x", components=PARTS)

    assert find_wrong_versions(bios, "BIOS", after, matrix()) == "it runs 2.1 afterwards"
    assert "96.00.99.00.01" in find_wrong_versions(bundle, "bundle", after, matrix())
    assert find_wrong_versions(bios, "BIOS", same, matrix()) == ""
    assert find_wrong_versions(bundle, "bundle", same, matrix()) == ""
    bare = Inventory(node="n1", vendor="x")
    assert "not readable" in find_wrong_versions(bios, "BIOS", bare, matrix())

"""The fabric's graph in the words of schedulers and monitors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from provisioner.integrations.topology.graph import (
    build_targets,
    group_units,
    list_uncabled,
    write_gnmic,
    write_labels,
    write_slurm,
)

ROOT = Path(__file__).parents[2]


def host(name: str, *leaves: str, address: str = "10.0.0.1", **more: object) -> dict[str, Any]:
    ports = [{"switch": leaf, "interface": "swp1", "rail": n} for n, leaf in enumerate(leaves)]
    return {"id": name, "kind": "host", "ports": ports, "address": address, "tenant": "red",
            "state": "released", **more}  # fmt: skip


LEAF = {"id": "leaf-a0", "kind": "switch", "ports": [], "address": "https://[fd00::1]:8765",
        "tenant": "", "state": "certified"}  # fmt: skip
FLEET = [
    host("n2", "leaf-a0", "leaf-a1"),
    host("n1", "leaf-a1", "leaf-a0"),
    host("n3", "leaf-b0", "leaf-b1", address="fd00::3"),
    host("n4", ""),
    LEAF,
]


def test_hosts_on_the_same_leaves_are_one_unit_whatever_the_order_of_their_rails() -> None:
    assert group_units(FLEET) == {"leaf-a0": ["n1", "n2"], "leaf-b0": ["n3"]}
    assert list_uncabled(FLEET) == ["n4"]
    shared = [host("n1", "leaf-a0", "leaf-a1"), host("n2", "leaf-a0", "leaf-b1")]
    assert list(group_units(shared)) == ["leaf-a0+leaf-a1", "leaf-a0+leaf-b1"]


def test_slurms_tree_has_every_unit_under_one_root() -> None:
    (topology,) = yaml.safe_load(write_slurm(group_units(FLEET), {"n3": "gpu003"}))

    assert topology["cluster_default"] is True
    assert topology["tree"]["switches"] == [
        {"switch": "fabric", "children": "leaf-a0,leaf-b0"},
        {"switch": "leaf-a0", "nodes": "n1,n2"},
        {"switch": "leaf-b0", "nodes": "gpu003"},
    ]


def test_labels_are_values_that_kubernetes_takes() -> None:
    lines = write_labels({"leaf a0/+" + "x" * 80: ["n1"]}, {}).splitlines()

    assert len(lines) == 1
    assert lines[0].startswith("kubectl label --overwrite node n1 network.topology.nvidia.com/leaf")
    assert len(lines[0].rpartition("=")[2]) <= 63


def test_targets_name_node_tenant_and_unit_and_bracket_addresses() -> None:
    rows = build_targets(FLEET)
    found = {(t, r["labels"]["job"]) for r in rows for t in r["targets"]}

    assert ("10.0.0.1:9100", "node") in found
    assert ("[fd00::3]:9400", "dcgm") in found
    assert {job for _, job in found} == {"node", "dcgm"}
    assert {r["labels"].get("unit") for r in rows if r["labels"]["node"] == "n1"} == {"leaf-a0"}
    assert build_targets([host("n5", "leaf-a0", address="")]) == []


def test_gnmic_samples_every_leaf_at_its_own_port() -> None:
    document = yaml.safe_load(write_gnmic(FLEET, 9339))

    assert document["targets"] == {"leaf-a0": {"address": "[fd00::1]:9339"}}
    assert set(document["subscriptions"]) == {"optics", "counters", "queues"}

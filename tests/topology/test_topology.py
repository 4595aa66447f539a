"""The fabric's graph in the words of schedulers and monitors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from provisioner.integrations.topology.graph import (
    PATHS,
    build_targets,
    group_pods,
    group_units,
    list_uncabled,
    write_gnmic,
    write_labels,
    write_slurm,
    write_slurm_conf,
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


def superspines() -> list[dict[str, Any]]:
    """Two pods, of two units and of one."""
    return [
        host(
            f"n{pod}{unit}{n}",
            f"leaf-{pod}{unit}-r0",
            f"leaf-{pod}{unit}-r1",
            location={"pod": pod},
        )
        for pod, unit in ((0, 0), (0, 1), (1, 0))
        for n in range(2)
    ]


def test_pods_under_superspines_are_a_tier_of_slurms_tree_and_a_label() -> None:
    fleet = superspines()
    units = group_units(fleet)
    pods = group_pods(fleet, units)

    (topology,) = yaml.safe_load(write_slurm(units, {}, pods))
    assert topology["tree"]["switches"][:3] == [
        {"switch": "fabric", "children": "spines-of-pod-0,spines-of-pod-1"},
        {"switch": "spines-of-pod-0", "children": "leaf-00-r0,leaf-01-r0"},
        {"switch": "spines-of-pod-1", "children": "leaf-10-r0"},
    ]
    assert write_slurm_conf(units, {}, pods).splitlines()[:3] == [
        "SwitchName=fabric Switches=spines-of-pod-0,spines-of-pod-1",
        "SwitchName=spines-of-pod-0 Switches=leaf-00-r0,leaf-01-r0",
        "SwitchName=spines-of-pod-1 Switches=leaf-10-r0",
    ]
    assert (
        write_labels(units, {}, pods)
        .splitlines()[0]
        .endswith(
            "n000 network.topology.nvidia.com/leaf=leaf-00-r0"
            " network.topology.nvidia.com/spine=spines-of-pod-0"
        )
    )


def test_one_pod_is_no_tier_and_neither_are_pods_that_are_not_known() -> None:
    assert group_pods(superspines()[:4], group_units(superspines()[:4])) == {}
    unknown = [*superspines(), host("n9", "leaf-9", "leaf-8")]
    assert group_pods(unknown, group_units(unknown)) == {}
    torn = [host("a", "leaf-a0", location={"pod": 0}), host("b", "leaf-a0", location={"pod": 1})]
    assert group_pods(torn, group_units(torn)) == {}


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


# source: SchedMD/slurm, doc/man/man5/topology.yaml.5 (25.05)
KINDS = {"block", "flat", "tree"}
OF_TOPOLOGY = {"topology", "cluster_default", *KINDS}
OF_SWITCH = {"switch", "children", "nodes"}
SWITCH_NAME_MAX = 64


def pods(count: int) -> list[dict[str, Any]]:
    """Hosts of which each two share their first leaf alone: names of sets are long."""
    many = [f"leaf-p0-pod0-su0-r{n}" for n in range(8)]
    return [host(f"n{i:03}", *many[:-1], f"leaf-p0-pod0-su{i}-r7") for i in range(count)]


@pytest.mark.parametrize("fleet", [FLEET, pods(5)], ids=["two units", "long names"])
def test_slurms_tree_is_one_by_its_manual(fleet: list[dict[str, Any]]) -> None:
    units = group_units(fleet)
    (topology,) = yaml.safe_load(write_slurm(units, {}))

    assert next(iter(topology)) == "topology"  # it must be the first attribute
    assert set(topology) <= OF_TOPOLOGY
    assert len(KINDS & set(topology)) == 1
    assert list(topology["tree"]) == ["switches"]
    switches = topology["tree"]["switches"]
    names = [s["switch"] for s in switches]
    assert all(set(s) <= OF_SWITCH and ("nodes" in s) != ("children" in s) for s in switches)
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= SWITCH_NAME_MAX
    assert [c for s in switches for c in s.get("children", "").split(",") if c] == list(units)
    hosts = [n for s in switches for n in s.get("nodes", "").split(",") if n]
    assert sorted(hosts) == sorted(n for named in units.values() for n in named)


def test_units_whose_names_are_long_stay_apart_as_labels() -> None:
    labels = [line.rpartition("=")[2] for line in write_labels(group_units(pods(5)), {}).split()]

    assert len({label for label in labels if label.startswith("leaf-p0")}) == 5


# source: openconfig/gnmic, its user guide (main, read on 2026-11-30): the keys that "Targets",
# "Subscriptions" and "Prometheus output" document
OF_TARGET = {"name", "address", "username", "password", "token", "timeout", "insecure", "tls-ca",
    "tls-cert", "tls-key", "tls-max-version", "tls-min-version", "tls-version", "log-tls-secret",
    "skip-verify", "tls-server-name", "subscriptions", "encoding", "outputs", "buffer-size",
    "retry", "tags", "event-tags", "proto-files", "proto-dirs", "gzip", "proxy", "cipher-suites",
    "tcp-keepalive"}  # fmt: skip
OF_SUBSCRIPTION = {"prefix", "target", "set-target", "paths", "models", "mode", "stream-mode",
    "encoding", "qos", "sample-interval", "heartbeat-interval", "suppress-redundant",
    "updates-only", "stream-subscriptions", "history"}  # fmt: skip
OF_PROMETHEUS = {"type", "listen", "path", "expiration", "metric-prefix",
    "append-subscription-name", "override-timestamps", "export-timestamps", "strings-as-labels",
    "tls", "cache", "timeout", "debug", "add-target", "target-template", "event-processors",
    "num-workers", "service-registration"}  # fmt: skip
DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")  # Go's, as far as it is used here


def seconds(words: str) -> int:
    found = DURATION.fullmatch(words)
    assert words
    assert found is not None, words
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + rest


def test_gnmics_configuration_is_one_by_its_documents() -> None:
    document = yaml.safe_load(write_gnmic(FLEET, 9339))

    assert set(document) == {"targets", "subscriptions", "outputs"}
    for target in document["targets"].values():
        assert set(target) <= OF_TARGET
        place = urlsplit(f"//{target['address']}")
        assert (place.hostname, place.port) == ("fd00::1", 9339)
        assert target["gzip"] is True
    # a Cumulus leaf answers "CANCELLED: System is busy" to a request beside another (NVIDIA,
    # "gNMI Streaming", 5.19)
    (subscription,) = document["subscriptions"].values()
    assert set(subscription) <= OF_SUBSCRIPTION
    assert subscription["paths"] == list(PATHS.values())
    assert subscription["mode"].upper() in {"ONCE", "STREAM", "POLL"}
    assert subscription["stream-mode"].upper() in {"SAMPLE", "TARGET_DEFINED", "ON_CHANGE"}
    (output,) = document["outputs"].values()
    assert set(output) <= OF_PROMETHEUS
    assert output["type"] == "prometheus"
    # "a zero value defaults to 60s": between two samples no series would be there
    assert seconds(output["expiration"]) > 2 * seconds(subscription["sample-interval"])


def test_an_older_slurm_gets_the_same_tree_as_lines() -> None:
    assert write_slurm_conf(group_units(FLEET), {"n3": "gpu003"}).splitlines() == [
        "SwitchName=fabric Switches=leaf-a0,leaf-b0",
        "SwitchName=leaf-a0 Nodes=n1,n2",
        "SwitchName=leaf-b0 Nodes=gpu003",
    ]
    assert write_slurm_conf({}, {}) == ""

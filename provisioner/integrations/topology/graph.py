"""Scalable units of a rail-optimised fabric from its cables, in the words of others. Pure.

Nodes on the same set of leaves are one hop apart on every rail: such a set is a unit, which is what
Slurm calls a switch and NVIDIA's topograph a leaf. A node without cables is in none of them.
Where a fabric has several pods under superspines, each pod's spines are a tier between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import yaml

# as NVIDIA/topograph writes it
LABEL = "network.topology.nvidia.com"
# of a label's value in Kubernetes; Slurm takes one more (topology.yaml(5))
NAME_MAX = 63
_NO_PODS: Mapping[str, Sequence[str]] = {}
EXPORTERS = {"node": 9100, "dcgm": 9400}  # the ports of node_exporter and dcgm-exporter


def group_units(nodes: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return unit -> its hosts, both in order; a unit has the name of its first leaf.

    Where another set has that leaf too, it has the names of all, or their digest if these are long.
    """
    units: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        own = {str(p["switch"]) for p in node["ports"] if p["rail"] >= 0 and p["switch"]}
        if node["kind"] == "host" and own:
            units.setdefault(tuple(sorted(own)), []).append(str(node["id"]))
    firsts = [leaves[0] for leaves in units]
    named: dict[str, list[str]] = {}
    for leaves, hosts in sorted(units.items()):
        name = leaves[0] if firsts.count(leaves[0]) == 1 else "+".join(leaves)
        if len(name) > NAME_MAX:  # cut, it could be another unit's
            name = f"{name[:46]}-{sha256(name.encode()).hexdigest()[:16]}"
        named[name] = sorted(hosts)
    return named


def group_pods(
    nodes: Sequence[Mapping[str, Any]], units: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the spines of each pod -> its units; {}: there is one pod, or a unit is of several."""
    pod_of: dict[str, Any] = {str(n["id"]): (n.get("location") or {}).get("pod") for n in nodes}
    pods: dict[int, list[str]] = {}
    for unit, hosts in units.items():
        own = {pod_of[host] for host in hosts}
        if len(own) > 1 or None in own:
            return {}
        pods.setdefault(int(own.pop()), []).append(unit)
    return {f"spines-of-pod-{pod}": pods[pod] for pod in sorted(pods)} if len(pods) > 1 else {}


def list_uncabled(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    placed = {host for hosts in group_units(nodes).values() for host in hosts}
    return sorted(n["id"] for n in nodes if n["kind"] == "host" and n["id"] not in placed)


def write_slurm(
    units: Mapping[str, Sequence[str]],
    names: Mapping[str, str],
    pods: Mapping[str, Sequence[str]] = _NO_PODS,
) -> str:
    """Return a topology.yaml (Slurm 25.05): a tree of pods, if any, and units under one root."""
    above = {"fabric": list(pods or units), **pods}
    switches = [{"switch": name, "children": ",".join(below)} for name, below in above.items()]
    switches += [
        {"switch": unit, "nodes": ",".join(names.get(host, host) for host in hosts)}
        for unit, hosts in units.items()
    ]
    document = [{"topology": "rails", "cluster_default": True, "tree": {"switches": switches}}]
    return "---\n" + yaml.safe_dump(document, sort_keys=False)


def write_slurm_conf(
    units: Mapping[str, Sequence[str]],
    names: Mapping[str, str],
    pods: Mapping[str, Sequence[str]] = _NO_PODS,
) -> str:
    """Return the same tree as a topology.conf, for Slurm before 25.05."""
    above = {"fabric": list(pods or units), **pods} if units else {}
    lines = [f"SwitchName={name} Switches={','.join(below)}" for name, below in above.items()]
    lines += [
        f"SwitchName={unit} Nodes={','.join(names.get(host, host) for host in hosts)}"
        for unit, hosts in units.items()
    ]
    return "".join(f"{line}\n" for line in lines)


def write_labels(
    units: Mapping[str, Sequence[str]],
    names: Mapping[str, str],
    pods: Mapping[str, Sequence[str]] = _NO_PODS,
) -> str:
    """Return lines of `kubectl label` that bring each node's unit, and its pod, up to date."""
    spines = {unit: f" {LABEL}/spine={pod}" for pod, listed in pods.items() for unit in listed}
    return "".join(
        f"kubectl label --overwrite node {names.get(host, host)} {LABEL}/leaf={_clean(unit)}"
        f"{spines.get(unit, '')}\n"
        for unit, hosts in units.items()
        for host in hosts
    )


def _clean(unit: str) -> str:
    """Return a label's value: 63 characters of letters, digits, '-', '_' and '.'."""
    kept = "".join(c if (c.isascii() and c.isalnum()) or c in "-_." else "-" for c in unit)
    return kept[:NAME_MAX].strip("-_.")


def build_targets(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return targets for Prometheus' file discovery: the exporters of hosts."""
    unit_of = {host: unit for unit, hosts in group_units(nodes).items() for host in hosts}
    targets = []
    for node in sorted(nodes, key=lambda n: str(n["id"])):
        address = str(node.get("address") or "")
        if not address:
            continue
        labels = {"node": node["id"], "tenant": node.get("tenant") or "", "state": node["state"]}
        if node["kind"] == "switch":
            continue  # gnmic reads it, and is a target itself
        for job, port in EXPORTERS.items():
            named = {**labels, "job": job, "unit": unit_of.get(str(node["id"]), "")}
            targets.append({"targets": [f"{_bracket(address)}:{port}"], "labels": named})
    return targets


# OpenConfig's paths of what this product reads by itself: optics, counters, queues
PATHS = {
    "optics": "/components/component/transceiver/physical-channels/channel/state",
    "counters": "/interfaces/interface/state/counters",
    "queues": "/qos/interfaces/interface/output/queues/queue/state",
}


def write_gnmic(nodes: Sequence[Mapping[str, Any]], port: int) -> str:
    """Return a configuration of gnmic: every leaf, sampled in five minutes, for Prometheus.

    All paths are one request: a leaf may refuse a second one while it sets up the first. A
    value outlives a sample that is missed; gnmic itself would drop each after a minute.
    """
    leaves = {
        str(n["id"]): {"address": f"{_bracket(str(n['address']), bare=True)}:{port}", "gzip": True}
        for n in sorted(nodes, key=lambda n: str(n["id"]))
        if n["kind"] == "switch" and n.get("address")
    }
    sampled = {
        "paths": list(PATHS.values()),
        "mode": "stream",
        "stream-mode": "sample",
        "sample-interval": "5m",
    }
    output = {"type": "prometheus", "listen": ":9804", "expiration": "11m"}
    document = {
        "targets": leaves,
        "subscriptions": {"rails": sampled},
        "outputs": {"prometheus": output},
    }
    return yaml.safe_dump(document, sort_keys=False)


def _bracket(address: str, *, bare: bool = False) -> str:
    """Return a host as it stands before a port. `bare`: of a URL, without the port of its API."""
    host = address.partition("://")[2].partition("/")[0] if "://" in address else address
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    if host.count(":") > 1:
        return f"[{host}]"
    return host.partition(":")[0] if bare else host

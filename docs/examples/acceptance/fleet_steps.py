"""Steps that read the whole fleet: capacity, health, places, and erasures between tenants."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from daemon_client import (
    Daemon,
    count_devices,
    count_rows,
    list_hosts,
    read_age_s,
    read_inventories,
)

DELIVERED = ("certified", "released", "draining", "quarantined", "repairing")
POLLS = 3
POLL_INTERVAL_S = 2
HEALTH = "Status.Health"
CATEGORIES = {
    "device": {"gpu", "nvswitch", "cpu"},
    "network": {"nic", "dpu"},
    "memory": {"memory"},
    "drive": {"storage"},
}
Answer = dict[str, Any]


def _read_alerts(daemon: Daemon) -> dict[str, list[Answer]]:
    """Return the active alerts and the blockers of each host."""
    alerts: dict[str, list[Answer]] = defaultdict(list)
    for row in daemon.list_all("/alerts"):
        if row["active"]:
            fields = {k: row[k] for k in ("id", "target", "message", "classifications")}
            alerts[row["node"]].append(fields)
    return alerts


def _describe_blockers(host: Answer) -> list[Answer]:
    return [
        {
            "id": b["reason"],
            "target": b["subject"],
            "message": b["detail"],
            "classifications": [b["reason"]],
        }
        for b in host["blockers"]
    ]


def _read_health(daemon: Daemon) -> dict[str, tuple[Answer, list[Answer]]]:
    """Return each host with its alerts and blockers."""
    alerts = _read_alerts(daemon)
    return {h["id"]: (h, alerts[h["id"]] + _describe_blockers(h)) for h in list_hosts(daemon)}


def verify_ingestion(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Compare the list of expected hardware with the hosts that the daemon took in, by serial."""
    listed = json.loads(Path(os.environ["ACCEPTANCE_EXPECTED"]).read_text(encoding="utf-8"))
    expected = {n["bmc"]["serial"]: n["name"] for n in listed["nodes"] if n.get("kind") == "host"}
    problems = _read_health(daemon)
    machines = []
    for host, inventory in read_inventories(daemon):
        serials = {d["serial"] for d in inventory["devices"]} | {inventory["system_serial"]}
        matching = sorted(serials & set(expected), key=str)
        status = {"released": "InUse", "certified": "Ready"}.get(host["state"], host["state"])
        machines.append(
            {
                "chassis_serial": inventory["system_serial"],
                "expected_machine_id": expected[matching[0]] if matching else "",
                "machine_id": host["id"],
                "status": status,
                "health": "unhealthy" if problems[host["id"]][1] else "healthy",
                "gpu_count": count_devices(inventory, "gpu"),
                "dpu_count": count_devices(inventory, "dpu"),
                "capabilities": sorted({d["kind"] for d in inventory["devices"]}),
            }
        )
    matched = {m["expected_machine_id"] for m in machines} - {""}
    return {
        "expected_count": len(expected),
        "ingested_count": len(machines),
        "matched_count": len(matched),
        "missing": sorted(set(expected.values()) - matched),
        "extra": [m["machine_id"] for m in machines if not m["expected_machine_id"]],
        "machines": machines,
    }


def query_governance_metrics(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Count nodes and GPUs by state."""
    problems = _read_health(daemon)
    counts = {
        name: {"nodes": 0, "gpus": 0} for name in ("delivered", "healthy", "reserved", "active")
    }
    for host, inventory in read_inventories(daemon):
        if host["state"] not in DELIVERED:
            continue
        names = ["delivered"]
        names += [] if problems[host["id"]][1] else ["healthy"]
        names += ["reserved"] if host["tenant"] else []
        names += ["active"] if host["tenant"] and host["state"] == "released" else []
        for name in names:
            counts[name]["nodes"] += 1
            counts[name]["gpus"] += count_devices(inventory, "gpu")
    return {"metrics": counts}


def query_fleet_inventory(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return a record for each host; it was created when the daemon took it in."""
    problems = _read_health(daemon)
    rows = []
    for host, inventory in read_inventories(daemon):
        events = daemon.list_all("/events", node=host["id"], kind="discovered")
        rows.append(
            {
                "node_id": host["id"],
                "health_state": "unhealthy" if problems[host["id"]][1] else "healthy",
                "created_at": events[0]["at"] if events else "",
                "hardware_type": inventory["model"] or host["profile"],
                "gpu_count": count_devices(inventory, "gpu"),
                "region": host["location"]["site"],
                "in_use": host["state"] == "released",
                "instance_id": host["id"] if host["tenant"] else "",
                "account_id": host["tenant"] or host["location"]["site"],
                "project_id": host["vrf"] if host["tenant"] else "",
            }
        )
    return count_rows("nodes", rows)


def query_resource_discovery(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the list of nodes several times and compare the identifiers."""
    polls = []
    for number in range(POLLS):
        if number:
            time.sleep(POLL_INTERVAL_S)
        polls.append(list_hosts(daemon))
    first = {h["id"] for h in polls[0]}
    last = {h["id"] for h in polls[-1]}
    resources = [
        {"resource_id": h["id"], "discovered": h["state"] != "discovered", "delivery_reason": ""}
        for h in polls[-1]
    ]
    return {
        "polls": len(polls),
        "poll_interval_seconds": POLL_INTERVAL_S,
        "unstable_identifiers": sorted(first - last),
        **count_rows("resources", resources),
    }


def query_host_health(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the alerts of each host, and its last health report."""
    rows = []
    for name, (host, alerts) in _read_health(daemon).items():
        report = daemon.get(f"/nodes/{name}/report")
        rows.append(
            {
                "host_id": name,
                "status": host["state"],
                "health_present": bool(report["results"]),
                "healthy": not alerts,
                "observed_age_seconds": read_age_s(daemon, report["ended_at"]),
                "probe_ids": sorted(r["check"] for r in report["results"]),
                "alerts": alerts,
            }
        )
    return count_rows("hosts", rows)


def query_health_aggregation(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Count sound hosts and others by rack."""
    racks: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for name, (host, alerts) in _read_health(daemon).items():
        racks[host["location"]["rack"]].append((name, not alerts))
    groups = []
    for rack, hosts in sorted(racks.items()):
        bad = [name for name, sound in hosts if not sound]
        groups.append(
            {
                "group_id": rack,
                "group_type": "rack",
                "name": rack,
                "total": len(hosts),
                "healthy": len(hosts) - len(bad),
                "unhealthy": len(bad),
                "status": "Degraded" if bad else "Healthy",
                "unhealthy_hosts": bad,
            }
        )
    return {"aggregation_level": "nodegroup", "groups": groups}


def query_topology(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the rack of each host."""
    hosts = [
        {"host_id": h["id"], "failure_domain": h["location"]["rack"]} for h in list_hosts(daemon)
    ]
    return count_rows("hosts", hosts)


def query_stable_ips(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the addresses by which each host and its BMC are managed."""
    hosts = []
    for host in list_hosts(daemon):
        bmc = next((b["url"] for b in host["bmcs"] if b["name"] == "host"), "")
        addresses = {host["address"], urlsplit(bmc).hostname or ""} - {""}
        hosts.append(
            {
                "host_id": host["id"],
                "hw_sku_device_type": "gpu",
                "primary_ip_addresses": sorted(addresses),
            }
        )
    return count_rows("hosts", hosts)


def query_oob_health(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the classes of devices whose health (Status.Health) each host's BMCs report."""
    hosts = []
    for host, inventory in read_inventories(daemon):
        reported = {d["kind"] for d in inventory["devices"] if d["health"] is not None}
        probes = sorted(f"{HEALTH}/{kind}" for kind in reported)
        categories = {
            name: {
                "observable": bool(kinds & reported),
                "probe_ids": [f"{HEALTH}/{kind}" for kind in sorted(kinds & reported)],
            }
            for name, kinds in CATEGORIES.items()
        }
        hosts.append(
            {
                "host_id": host["id"],
                "oob_health_present": bool(reported),
                "bmc_probe_ids": probes,
                "failure_categories": categories,
            }
        )
    return count_rows("hosts", hosts)


STEPS = {
    "query_oob_health": query_oob_health,
    "verify_ingestion": verify_ingestion,
    "query_governance_metrics": query_governance_metrics,
    "query_fleet_inventory": query_fleet_inventory,
    "query_resource_discovery": query_resource_discovery,
    "query_host_health": query_host_health,
    "query_health_aggregation": query_health_aggregation,
    "query_topology": query_topology,
    "query_stable_ips": query_stable_ips,
}

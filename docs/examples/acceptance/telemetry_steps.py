"""Steps about counters that are read now: of leaf ports, and of NVLinks by the baseboard's BMC."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from daemon_client import Daemon, RefusedError, pick_host

EAST_WEST = range(8)
PORT_METRICS = ("carried_bytes", "in_errors", "carrier_changes")
PAUSE_S = 2.0
Answer = dict[str, Any]


def judge_metrics(source: str, present: str, names: Collection[str], facts: Answer) -> Answer:
    """Return the results of a plane's test in the suite's form."""
    probes = {"telemetry_source": source, "metric_names": sorted(names), **facts}
    return {
        "tests": {
            "telemetry_endpoint_reachable": {"passed": True, "probes": probes},
            present: {"passed": bool(names)},
            "samples_recent": {"passed": facts["sample_count"] > 0},
        }
    }


def _count_plane(daemon: Daemon, rails: Collection[int]) -> Answer:
    """Read the counters of the leaf ports of one plane, of one host."""
    node = pick_host(daemon)["id"]
    source = f"/nodes/{node}/ports"
    read = daemon.get(source)
    ports = [p for p in read["ports"] if p["rail"] in rails]
    names = {name for p in ports for name in PORT_METRICS if p[name] is not None}
    values = [p[name] for p in ports for name in PORT_METRICS if p[name] is not None]
    facts = {
        "sample_count": len(values),
        "latest_timestamp": read["read_at"],
        "ports_checked": len(ports),
        "gaps": read["gaps"],
    }
    return judge_metrics(f"/v1{source}", "plane_metrics_present", names, facts)


def east_west_network_telemetry(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the counters of the leaf ports of a host's rails."""
    return _count_plane(daemon, EAST_WEST)


def _count_links(daemon: Daemon, node: str, kind: str, present: str, counted: str) -> Answer:
    """Read the counters of the NVLinks of a host's first part of a kind."""
    node = node or pick_host(daemon)["id"]
    devices = daemon.get(f"/nodes/{node}/inventory")["devices"]
    part = next((d["slot"] for d in devices if d["kind"] == kind), "")
    source = f"/nodes/{node}/links"
    read = daemon.get(source, part=part)
    counters = read["counters"]
    facts = {
        "sample_count": len(counters),
        "latest_timestamp": read["read_at"],
        counted: len({c["port"] for c in counters}),
        "part": part,
        "gaps": read["gaps"],
    }
    return judge_metrics(f"/v1{source}", present, {c["name"] for c in counters}, facts)


def gpu_nvlink_telemetry(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Read the counters of the NVLinks of a GPU."""
    return _count_links(daemon, node, "gpu", "link_metrics_present", "links_checked")


def switch_nvlink_telemetry(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Read the counters of the ports of an NVSwitch."""
    return _count_links(daemon, node, "nvswitch", "port_metrics_present", "ports_checked")


def nvswitch_fabric_telemetry(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Read the counters of the ports of an NVSwitch, as those of the NVLink fabric."""
    return _count_links(daemon, node, "nvswitch", "plane_metrics_present", "ports_checked")


def sdn_latency_perf_logging(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the counters of a host's leaf ports twice: how much they carried, and what they lost."""
    node = pick_host(daemon)["id"]
    source = f"/nodes/{node}/ports"
    began = time.monotonic()
    first = {(p["switch"], p["interface"]): p for p in daemon.get(source)["ports"]}
    time.sleep(PAUSE_S)
    read = daemon.get(source)
    second = {(p["switch"], p["interface"]): p for p in read["ports"]}
    both = [k for k in first if k in second]
    carried = [
        second[k]["carried_bytes"] - first[k]["carried_bytes"]
        for k in both
        if None not in (first[k]["carried_bytes"], second[k]["carried_bytes"])
    ]
    damaged = [second[k]["in_errors"] for k in both if second[k]["in_errors"] is not None]
    return {
        "telemetry_namespace": f"/v1{source}",
        "sample_window_seconds": int(time.monotonic() - began) + 1,
        "probe_resource_id": node,
        "grown_bytes": sum(carried),
        "damaged_frames": sum(damaged),
        "tests": {
            "metrics_endpoint_reachable": {"passed": not read["gaps"]},
            "performance_metric_present": {"passed": bool(carried) and sum(carried) > 0},
            "packet_metric_present": {"passed": bool(damaged)},
            "samples_recent": {"passed": bool(both) and bool(read["read_at"])},
        },
    }


def sdn_hardware_fault_logging(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the journal's rows about switches, by the schema that the API states for their kind."""
    switches = [s["id"] for s in daemon.list_all("/switches")]
    rows = [r for s in switches for r in daemon.get("/events", node=s, limit=100)["items"]]
    if not switches:
        raise RefusedError(404, "the caller sees no switch")
    schemas = daemon.get("/openapi.json")["components"]["schemas"]
    fields = set(schemas.get("Event", {}).get("properties", {}))
    faults = [r for r in rows if r["detail"].get("blockers")]
    seen_by = {r["node"] for r in rows}
    return {
        "log_destination": "/v1/events",
        "recent_event_count": len(faults),
        "tests": {
            "logging_endpoint_reachable": {"passed": bool(rows)},
            "fault_event_source_queryable": {"passed": seen_by == set(switches)},
            "log_destination_configured": {"passed": bool(rows)},
            "event_schema_valid": {"passed": bool(fields) and all(set(r) <= fields for r in rows)},
        },
    }


STEPS = {
    "east_west_network_telemetry": east_west_network_telemetry,
    "gpu_nvlink_telemetry": gpu_nvlink_telemetry,
    "switch_nvlink_telemetry": switch_nvlink_telemetry,
    "nvswitch_fabric_telemetry": nvswitch_fabric_telemetry,
    "sdn_latency_perf_logging": sdn_latency_perf_logging,
    "sdn_hardware_fault_logging": sdn_hardware_fault_logging,
}

"""Steps that read a host's BMCs now: their logs, their metric reports, and those of its cards."""

from __future__ import annotations

import time
from typing import Any

from daemon_client import (
    Daemon,
    RefusedError,
    count_devices,
    count_rows,
    list_hosts,
    pick_host,
    read_inventories,
)

LINES = 20
JOURNAL = "/Journal"
SEL = "/SEL"
CARDS = "supernic", "dpu"
Answer = dict[str, Any]


def _read_logs(daemon: Daemon, node: str, bmc: str = "host") -> Answer:
    return dict(daemon.get(f"/nodes/{node}/logs", bmc=bmc, limit=LINES))


def query_bmc_kernel_logs(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the journal of the baseboard's BMC, which has its kernel's lines, at each host."""
    hosts = []
    for host in list_hosts(daemon):
        logs = [log for log in _read_logs(daemon, host["id"])["logs"] if JOURNAL in log["log"]]
        entries = sum(log["total"] for log in logs)
        hosts.append(
            {
                "host_id": host["id"],
                "kernel_log_available": bool(logs) and entries > 0,
                "log": logs[0]["log"] if logs else "",
                "entries": entries,
            }
        )
    return {"hosts": hosts}


def bmc_sel_logs(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the system event log of each host's BMC."""
    read = []
    for host in list_hosts(daemon):
        read += [log for log in _read_logs(daemon, host["id"])["logs"] if log["log"].endswith(SEL)]
    probes = {
        "bmc_endpoints_checked": len(read),
        "log_source": read[0]["log"] if read else "",
        "entry_count": sum(log["total"] for log in read),
    }
    return {
        "tests": {
            "sel_log_endpoint_reachable": {"passed": bool(read)},
            "sel_log_source_present": {"passed": bool(read), "probes": probes},
            "sel_entries_queryable": {"passed": bool(read)},
        }
    }


def telemetry_delivery_latency(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Measure a report's way from the BMC, which makes it when it is asked for, to the caller."""
    node = pick_host(daemon)["id"]
    began = time.monotonic()
    metrics = daemon.get(f"/nodes/{node}/metrics", bmc="host")["metrics"]
    seconds = int(time.monotonic() - began) + 1
    probes = {"telemetry_source": f"/v1/nodes/{node}/metrics", "observed_delivery_seconds": seconds}
    return {
        "tests": {
            "telemetry_endpoint_reachable": {"passed": True, "probes": probes},
            "delivery_sample_present": {"passed": bool(metrics)},
            "delivery_within_threshold": {"passed": bool(metrics) and seconds <= 120},
        }
    }


def _read_card(daemon: Daemon, node: str, bmc: str) -> str:
    """Return why the BMC of a card gives no sign of life; empty if it does."""
    try:
        answer = _read_logs(daemon, node, bmc)
    except RefusedError as error:
        return str(error)
    if answer["logs"] and not answer["gaps"]:
        return ""
    return "; ".join(answer["gaps"]) or "it shows no log"


def check_dpu_health(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Have the BMC of each card of each host answer now, with its parts' health."""
    alerts = {a["node"] for a in daemon.list_all("/alerts") if a["active"]}
    machines = []
    for host, inventory in read_inventories(daemon):
        cards = [b["name"] for b in host["bmcs"] if b["kind"] in CARDS]
        silent = {name: why for name in cards if (why := _read_card(daemon, host["id"], name))}
        parts = [d for d in inventory["devices"] if d["kind"] in ("dpu", "nic")]
        bad = [d["slot"] for d in parts if d["health"] not in (None, "OK")]
        machines.append(
            {
                "machine_id": host["id"],
                "status": host["state"],
                "dpu_count": count_devices(inventory, "dpu"),
                "health_summary": "unhealthy" if bad or host["id"] in alerts else "healthy",
                "health_alerts": bad,
                "dpu_agent_heartbeat": bool(cards) and not silent,
                "silent": silent,
            }
        )
    return count_rows("machines", machines)


STEPS = {
    "query_bmc_kernel_logs": query_bmc_kernel_logs,
    "bmc_sel_logs": bmc_sel_logs,
    "telemetry_delivery_latency": telemetry_delivery_latency,
    "check_dpu_health": check_dpu_health,
}

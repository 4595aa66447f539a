"""Steps about maintenance and repair: cases, notices, serial numbers, firmware, logs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from daemon_client import Daemon, count_rows, list_hosts, read_inventories, wait_for

REASON = "acceptance: returned for maintenance"
REMOVED_S = 120.0
SERIALS = {"chassis": "system", "baseboard": "baseboard", "cpu": "cpu", "gpu": "gpu", "nic": "nic"}
Answer = dict[str, Any]


def _open_case(daemon: Daemon, node: str, **more: Any) -> Answer:
    """Report a fault and return its case as the daemon has it then."""
    daemon.accept(f"/nodes/{node}/cases", {"reason": REASON, **more})
    cases = daemon.list_all("/cases", node=node)
    return next(c for c in cases if c["reason"] == REASON and c["closed_at"] is None)


def return_node_maintenance(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Give a node back for maintenance on its tenant's behalf."""
    case = _open_case(daemon, node, tenant=True)
    return {
        "operation": {
            "requested": True,
            "accepted": case["node"] == node,
            "machine_id": node,
            "maintenance_mode": case["stage"],
            "case": case["id"],
        }
    }


def return_rack_maintenance(daemon: Daemon, _node: str, rack: str) -> Answer:
    """Give a rack back: each of its hosts gets a case."""
    daemon.accept(f"/racks/{rack}/cases", {"reason": REASON})
    hosts = {h["id"] for h in list_hosts(daemon, f"kind=host and rack={rack}")}
    opened = {c["node"] for c in daemon.list_all("/cases") if c["closed_at"] is None}
    return {
        "operation": {
            "requested": True,
            "accepted": bool(hosts) and hosts <= opened,
            "rack_id": rack,
            "hosts": sorted(hosts & opened),
        }
    }


def request_host_replacement(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Cut a node off for replacement and wait until it is outside of the pool."""
    case = _open_case(daemon, node, service="cut_off")

    def read() -> Any:
        host = daemon.get(f"/nodes/{node}")
        out = host["state"] not in ("released", "certified") and host["placement"] == "maintenance"
        return host if out else None

    host = wait_for(read, REMOVED_S, "the node is outside of the pool")
    return {
        "operation": {
            "requested": True,
            "node_removed_from_pool": host["placement"] == "maintenance",
            "machine_id": node,
            "state": host["state"],
            "case": case["id"],
        }
    }


def retire_node(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Have a node retired: its tenant gets a notice."""
    case = _open_case(daemon, node)
    body = {"days": 14, "why": "its service life is over"}
    daemon.accept(f"/cases/{case['id']}/retire", body)
    retired = daemon.get(f"/cases/{case['id']}")["case"]
    return {"success": retired["retire_at"] is not None, "retire_at": retired["retire_at"]}


def query_maintenance_events(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the open cases."""
    cases = daemon.list_all("/cases")
    events = [
        {"machine_id": c["node"], "status": c["stage"], "message": c["reason"]}
        for c in cases
        if c["closed_at"] is None
    ]
    return {"events_queryable": True, "events": events}


def query_retirement_notices(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the notices of retirements."""
    notices = daemon.list_all("/notices", kind="retirement")
    fields = ("node", "tenant", "at", "effective_at", "text")
    return {"notices_queryable": True, "notices": [{f: n[f] for f in fields} for n in notices]}


def query_repair_history(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the stages and tries of each node's cases, of closed ones too."""
    entries = defaultdict(list)
    for line in daemon.list_all("/cases", open="false"):
        case = daemon.get(f"/cases/{line['id']}")["case"]
        if case is None:
            continue
        entries[line["node"]] += [{"case": line["id"], **stage} for stage in case["stages"]]
        entries[line["node"]] += [
            {"case": line["id"], "remedy": t["remedy"], "outcome": t["outcome"]}
            for t in case["tries"]
        ]
    records = [{"machine_id": node, "entries": rows} for node, rows in sorted(entries.items())]
    return {"history_queryable": True, "records": records}


def query_serial_numbers(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the serial numbers of each host's parts, by class."""
    machines = []
    for host, inventory in read_inventories(daemon):
        components = {}
        for name, kind in SERIALS.items():
            devices = [d for d in inventory["devices"] if d["kind"] == kind]
            serials = [d["serial"] or d["uuid"] for d in devices if d["serial"] or d["uuid"]]
            components[name] = {"present": bool(devices), "identifiers": serials}
        chassis = components["chassis"]
        if inventory["system_serial"] and not chassis["identifiers"]:
            components["chassis"] = {"present": True, "identifiers": [inventory["system_serial"]]}
        machines.append({"machine_id": host["id"], "components": components})
    return count_rows("machines", machines)


def query_switch_firmware(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the firmware of the NVSwitches on the baseboard of each host."""
    trays = [
        {"tray_id": f"{host['id']}/{part['slot']}", "firmware_version": part["version"] or ""}
        for host, inventory in read_inventories(daemon)
        for part in inventory["components"]
        if part["kind"] == "hgx.nvswitch"
    ]
    return {"trays": trays}


def _read_notifications(daemon: Daemon, kind: str) -> Answer:
    notices = daemon.list_all("/notices", kind=kind)
    return {
        "notification_channel_observable": True,
        "notifications": [
            {
                "machine_id": n["node"],
                "type": n["kind"],
                "message": n["text"],
                "notified_at": n["at"],
                "effective_at": n["effective_at"],
                "tenant": n["tenant"],
            }
            for n in notices
        ],
    }


def query_planned_notifications(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the notices of planned maintenance."""
    return _read_notifications(daemon, "maintenance")


def query_failure_notifications(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the notices of failures."""
    return _read_notifications(daemon, "failure")


def reset_gpus(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Reset the GPUs of a node at its tenant's wish, and read the operation's end."""
    operation = daemon.change("POST", f"/nodes/{node}/gpu-reset", {"tenant": True})
    ended = daemon.get(f"/operations/{operation['id']}")
    completed = ended["state"] == "done"
    asked = {"requested": bool(ended["opened_at"]), "completed": completed, "node_id": node}
    return {"operation": {**asked, "note": ended.get("note", "")}}


STEPS = {
    "reset_gpus": reset_gpus,
    "return_node_maintenance": return_node_maintenance,
    "return_rack_maintenance": return_rack_maintenance,
    "request_host_replacement": request_host_replacement,
    "retire_node": retire_node,
    "query_maintenance_events": query_maintenance_events,
    "query_retirement_notices": query_retirement_notices,
    "query_repair_history": query_repair_history,
    "query_serial_numbers": query_serial_numbers,
    "query_switch_firmware": query_switch_firmware,
    "query_planned_notifications": query_planned_notifications,
    "query_failure_notifications": query_failure_notifications,
}

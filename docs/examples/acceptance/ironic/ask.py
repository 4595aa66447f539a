#!/usr/bin/env python3
"""Answer one step of NVIDIA's ai-cloud-validation from the REST API of OpenStack Ironic alone.

    ask.py STEP [--node NODE]

The output is one JSON object. Each of its fields comes from an answer of this run, and the answers
are in the folder IRONIC_EVIDENCE. IRONIC_API is the address of an Ironic without authentication,
and IRONIC_MANIFEST a file with the serials that the operator ordered, as a JSON list. What the
operator enters in Ironic is in tests/bench/acceptance_ironic.py. Needs Python 3.11 and nothing
else. It was written in an hour by people who know another program better; corrections are welcome.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from ironic_client import Answer, Ironic, RefusedError, open_ironic

POLLS = 3
POLL_S = 2
GPU_CLASS = "03"  # display controllers, by PCI


def _describe(node: Answer) -> Answer:
    words = {"power on": "running", "power off": "stopped"}
    return {"instance_id": node["uuid"], "state": words.get(node["power_state"], "unknown")}


def launch_instance(ironic: Ironic, name: str) -> Answer:
    """Adopt a node for a tenant: its system is taken as it is, none is written."""
    ironic.move(name, "manage", "manageable")
    ironic.patch(name, lessee="project-1")
    ironic.move(name, "adopt", "active")
    ironic.allocate(node=name, name="acceptance")
    return {**_describe(ironic.power(name, "power on", "power on")), "instance_name": name}


def verify_tags(ironic: Ironic, name: str) -> Answer:
    """Write two tags into `extra`, which is free, and read them back."""
    ironic.patch(name, **{"extra/Name": name, "extra/CreatedBy": "acceptance"})
    node = ironic.node(name)
    return {"instance_id": node["uuid"], "tags": node["extra"], "tag_count": len(node["extra"])}


def topology_placement(ironic: Ironic, name: str) -> Answer:
    """Ask for a node by the trait of a rack, look where it is, and give it back."""
    racks = ironic.chassis()
    free = next(n for n in ironic.nodes("&provision_state=available"))
    trait = f"CUSTOM_{racks[free['chassis_uuid']].replace('-', '_').upper()}"
    ironic.send("PUT", f"/nodes/{free['uuid']}/traits/{trait}")
    made = ironic.allocate(resource_class=free["resource_class"], traits=[trait])
    placed = ironic.node(made["node_uuid"]) if made["node_uuid"] else None
    ironic.send("DELETE", f"/allocations/{made['uuid']}")
    left = [a["uuid"] for a in ironic.send("GET", "/allocations")["allocations"]]
    good = placed is not None and trait in placed["traits"]
    rack = racks[placed["chassis_uuid"]] if placed else ""
    operations = {"create": made["state"] == "active", "read": good}
    operations["delete"] = made["uuid"] not in left
    return {
        "instance_id": ironic.node(name)["uuid"],
        "placement_supported": good,
        "placement_strategy": f"allocation with the trait {trait}",
        "availability_zone": rack,
        "operations": {key: {"passed": done} for key, done in operations.items()},
    }


def stop_instance(ironic: Ironic, name: str) -> Answer:
    """Switch a node off."""
    return {"stop_initiated": True, **_describe(ironic.power(name, "power off", "power off"))}


def start_instance(ironic: Ironic, name: str) -> Answer:
    """Switch a node on."""
    return {"start_initiated": True, **_describe(ironic.power(name, "power on", "power on"))}


def reboot_instance(ironic: Ironic, name: str) -> Answer:
    """Reboot a node."""
    return {"reboot_initiated": True, **_describe(ironic.power(name, "rebooting", "power on"))}


def power_cycle_instance(ironic: Ironic, name: str) -> Answer:
    """Switch a node off, read that it is, and switch it on."""
    off = ironic.power(name, "power off", "power off")
    on = ironic.power(name, "power on", "power on")
    was_off = off["power_state"] == "power off"
    return {"power_cycle_initiated": True, "power_was_off": was_off, **_describe(on)}


def _read_inventories(ironic: Ironic) -> list[tuple[Answer, Answer]]:
    return [
        (node, ironic.send("GET", f"/nodes/{node['uuid']}/inventory")["inventory"])
        for node in ironic.nodes()
    ]


def verify_ingestion(ironic: Ironic, _name: str) -> Answer:
    """Compare the serials that were ordered with those that inspection read."""
    ordered = json.loads(Path(os.environ["IRONIC_MANIFEST"]).read_text(encoding="utf-8"))
    words = {"available": "Ready", "manageable": "Ready", "active": "InUse"}
    machines = [
        {
            "chassis_serial": stored["system_vendor"]["serial_number"],
            "machine_id": node["uuid"],
            "status": words.get(node["provision_state"], node["provision_state"]),
            "health": "healthy" if node["health"] == "OK" else str(node["health"]),
        }
        for node, stored in _read_inventories(ironic)
    ]
    read = [m["chassis_serial"] for m in machines]
    return {
        "expected_count": len(ordered),
        "ingested_count": len(machines),
        "matched_count": len(set(ordered) & set(read)),
        "missing": [{"chassis_serial": s} for s in ordered if s not in read],
        "extra": [{"chassis_serial": s} for s in read if s not in ordered],
        "machines": machines,
    }


def query_resource_discovery(ironic: Ironic, _name: str) -> Answer:
    """List the nodes several times."""
    polls = []
    for _ in range(POLLS):
        polls.append(ironic.nodes())
        time.sleep(POLL_S)
    last = {n["uuid"] for n in polls[-1]}
    return {
        "polls": len(polls),
        "poll_interval_seconds": POLL_S,
        "unstable_identifiers": [n["uuid"] for n in polls[0] if n["uuid"] not in last],
        "resources": [
            {"resource_id": n["uuid"], "discovered": n["inspection_finished_at"] is not None}
            for n in polls[-1]
        ],
    }


def _list_alerts(node: Answer) -> list[Answer]:
    health = [] if node["health"] in ("OK", None) else [f"its BMC reports {node['health']}"]
    reasons = [*health, *filter(None, (node["fault"], node["maintenance_reason"]))]
    return [{"id": "node", "message": str(reason), "classifications": []} for reason in reasons]


def query_host_health(ironic: Ironic, _name: str) -> Answer:
    """Return the health of each node, as its BMC reports it, with faults of Ironic's own."""
    hosts = [
        {
            "host_id": node["uuid"],
            "health_present": node["health"] is not None,
            "probe_ids": [] if node["health"] is None else ["health"],
            "alerts": _list_alerts(node),
        }
        for node in ironic.nodes()
    ]
    return {"hosts_checked": len(hosts), "hosts": hosts}


def query_health_aggregation(ironic: Ironic, _name: str) -> Answer:
    """Count sound nodes and others by chassis; the sum is this script's."""
    groups = []
    for uuid, rack in sorted(ironic.chassis().items()):
        nodes = ironic.nodes(f"&chassis_uuid={uuid}")
        bad = [n["uuid"] for n in nodes if n["health"] is None or _list_alerts(n)]
        row = {"group_id": uuid, "name": rack, "total": len(nodes), "unhealthy": len(bad)}
        status = "Degraded" if bad else "Healthy"
        groups.append({**row, "healthy": len(nodes) - len(bad), "status": status})
    return {"aggregation_level": "nodegroup", "groups": groups}


def query_topology(ironic: Ironic, _name: str) -> Answer:
    """Return the chassis of each node."""
    racks = ironic.chassis()
    return {
        "hosts": [
            {"host_id": n["uuid"], "failure_domain": racks.get(n["chassis_uuid"], "")}
            for n in ironic.nodes()
        ]
    }


def query_serial_numbers(ironic: Ironic, _name: str) -> Answer:
    """Return the identifiers that inspection stored; a part that it lists is present."""
    machines = []
    for node, stored in _read_inventories(ironic):
        parts = {
            "chassis": [stored["system_vendor"]],
            "cpu": [stored["cpu"]] * bool(stored["cpu"]["count"]),
            "nic": stored["interfaces"],
            "gpu": [d for d in stored.get("pci_devices", ()) if _is_gpu(d)],
        }
        # a host has a board, listed or not
        components: Answer = {"baseboard": {"present": True, "identifiers": []}}
        for kind, rows in parts.items():
            keys = [r.get("serial_number") or r.get("mac_address") for r in rows]
            named = [key for key in keys if key]
            components[kind] = {"present": bool(rows), "identifiers": named}
        machines.append({"machine_id": node["uuid"], "components": components})
    return {"machines_checked": len(machines), "machines": machines}


def _is_gpu(device: Answer) -> bool:
    return str(device.get("class", "")).removeprefix("0x").startswith(GPU_CLASS)


def return_node_maintenance(ironic: Ironic, name: str) -> Answer:
    """Put a node into maintenance and read it back."""
    ironic.send("PUT", f"/nodes/{name}/maintenance", {"reason": "acceptance: returned"})
    node = ironic.node(name)
    return {
        "operation": {
            "requested": True,
            "accepted": node["maintenance"],
            "machine_id": node["uuid"],
            "maintenance_mode": node["maintenance_reason"],
        }
    }


def return_rack_maintenance(ironic: Ironic, name: str) -> Answer:
    """Put each node of the chassis of a node into maintenance; the loop is this script's."""
    uuid = ironic.node(name)["chassis_uuid"]
    nodes = ironic.nodes(f"&chassis_uuid={uuid}")
    done = [return_node_maintenance(ironic, n["uuid"])["operation"]["accepted"] for n in nodes]
    good = bool(done) and all(done)
    return {"operation": {"requested": True, "accepted": good, "rack_id": ironic.chassis()[uuid]}}


def request_host_replacement(ironic: Ironic, name: str) -> Answer:
    """Retire a node, see that it can be neither offered nor picked, and pick another one."""
    ironic.move(name, "manage", "manageable")
    ironic.patch(name, retired=True, retired_reason="acceptance: replaced")
    node = ironic.node(name)
    offered = True
    try:
        ironic.send("PUT", f"/nodes/{name}/states/provision", {"target": "provide"})
    except RefusedError as error:
        offered = error.status != 400
    wish = {"resource_class": node["resource_class"]}
    same = ironic.allocate(**wish, candidate_nodes=[node["uuid"]])
    other = ironic.allocate(**wish)
    for made in (same, other):
        ironic.send("DELETE", f"/allocations/{made['uuid']}")
    return {
        "operation": {
            "requested": True,
            "node_removed_from_pool": not offered and same["state"] == "error",
            "machine_id": node["uuid"],
            "replacement": other["node_uuid"],
        }
    }


def query_maintenance_events(ironic: Ironic, _name: str) -> Answer:
    """Return the nodes that are in maintenance now."""
    rows = [
        {"machine_id": n["uuid"], "status": "maintenance", "message": n["maintenance_reason"]}
        for n in ironic.nodes("&maintenance=true")
    ]
    return {"events_queryable": True, "events": rows}


def query_retirement_notices(ironic: Ironic, _name: str) -> Answer:
    """Return the nodes that are retired."""
    rows = [
        {"machine_id": n["uuid"], "message": n["retired_reason"]}
        for n in ironic.nodes("&retired=true")
    ]
    return {"notices_queryable": True, "notices": rows}


def query_repair_history(ironic: Ironic, _name: str) -> Answer:
    """Return the history of each node: its failures, by Ironic's own record."""
    rows = [
        {
            "machine_id": n["uuid"],
            "entries": ironic.send("GET", f"/nodes/{n['uuid']}/history?detail=true")["history"],
        }
        for n in ironic.nodes()
    ]
    return {"history_queryable": True, "records": rows}


STEPS = {
    step.__name__: step
    for step in (
        launch_instance,
        verify_tags,
        topology_placement,
        verify_ingestion,
        query_resource_discovery,
        query_host_health,
        query_health_aggregation,
        query_topology,
        query_serial_numbers,
        stop_instance,
        start_instance,
        reboot_instance,
        power_cycle_instance,
        return_node_maintenance,
        request_host_replacement,
        return_rack_maintenance,
        query_maintenance_events,
        query_retirement_notices,
        query_repair_history,
    )
}


def main() -> int:
    """Print the answer to the step that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("step", choices=sorted(STEPS))
    parser.add_argument("--node", default="", help="name or id of the node that it is about")
    options = parser.parse_args()
    answer: Answer = {"platform": "ironic", "test_name": options.step}
    try:
        answer |= {"success": True, **STEPS[options.step](open_ironic(options.step), options.node)}
    except RefusedError as error:
        answer |= {"success": False, "error": str(error)}
    json.dump(answer, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Steps about the erasure between tenants: by the node's events and its signed erasure report."""

from __future__ import annotations

import base64
import json
from typing import Any

from daemon_client import Daemon, count_devices, count_rows, read_inventories, wait_for

Answer = dict[str, Any]
REPAIR_S = 300.0


class Stay:
    """One stay of a node with a tenant: who had it, and whether it was erased afterwards."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.ended = False
        self.erased = False
        self.next_tenant: str | None = None


def _read_stays(events: list[Answer]) -> tuple[list[Stay], list[str]]:
    """Return the stays with tenants in their order, and the transitions in the suite's words."""
    stays: list[Stay] = []
    transitions: list[str] = []
    for event in sorted(events, key=lambda e: e["seq"]):
        detail = event["detail"]
        if event["kind"] == "released":
            if stays and stays[-1].ended:
                stays[-1].next_tenant = detail["tenant"]
            stays.append(Stay(detail["tenant"]))
            transitions.append("in_use")
        elif event["kind"] == "sanitized" and stays:
            stays[-1].erased = True
            transitions.append("sanitizing")
        elif event["kind"] == "state" and detail.get("from") == "released" and stays:
            stays[-1].ended = True
        elif event["kind"] == "state" and detail.get("to") == "certified":
            transitions.append("available")
        elif event["kind"] == "state" and detail.get("to") == "repairing":
            transitions.append("maintenance")
    return stays, transitions


def _read_report(daemon: Daemon, node: str) -> Answer:
    """Return the last signed erasure report of a node; empty if there is none."""
    answer = daemon.find(f"/nodes/{node}/erasure")
    if answer is None:
        return {"records": []}
    return dict(json.loads(base64.b64decode(answer["envelope"]["payload"]))["report"])


def _is_kept(stay: Stay, host: Answer) -> bool:
    """Return whether the node went through maintenance for the tenant that has it still."""
    if stay.next_tenant is not None:
        return stay.next_tenant == stay.tenant
    return bool(host["tenant"] == stay.tenant)


def _describe(daemon: Daemon, host: Answer, inventory: Answer, holders: tuple[str, ...]) -> Answer:
    """Return the record of one machine; it is sanitized if each of these holders of data is."""
    stays, transitions = _read_stays(daemon.list_all("/events", node=host["id"]))
    ended = [s for s in stays if s.ended]
    skips = [s for s in ended if not s.erased and _is_kept(s, host)]
    left = [s for s in ended if s not in skips]
    records = _read_report(daemon, host["id"])["records"] if left else []
    done = {holder: [r["result"] for r in records if r["holder"] == holder] for holder in holders}
    erased = all(s.erased for s in left) and all(
        results and set(results) == {"done"} for results in (done.values() if left else ())
    )
    available = host["state"] == "certified" and not host["tenant"]
    bios = next((c["version"] for c in inventory["components"] if c["kind"] == "host.bios"), "")
    return {
        "machine_id": host["id"],
        "status": host["state"],
        "available": available,
        "in_use": host["state"] == "released",
        "has_gpu": count_devices(inventory, "gpu") > 0,
        "served_tenant": bool(stays),
        "sanitized": erased,
        "stale_tenant_binding": available and host["placement"] != "maintenance",
        "transitions": transitions,
        "returns": len(left),
        "results": done,
        "vendor": inventory["vendor"],
        "product_name": inventory["model"] or "",
        "bios_version": bios,
        "breakfix_skip_observed": bool(skips),
        "tenancy_preserved": all(_is_kept(s, host) for s in skips),
    }


def _query(daemon: Daemon, *holders: str) -> Answer:
    machines = [
        _describe(daemon, host, inventory, holders) for host, inventory in read_inventories(daemon)
    ]
    returns = sum(m["returns"] for m in machines)
    answer: Answer = {**count_rows("machines", machines), "returns": returns}
    if not returns:  # else the suite would pass a site that erased nothing
        answer |= {"success": False, "error": "no node has come back from a tenant yet"}
    return answer


def query_sanitization(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the stays of each node, and whether all disks were erased after each."""
    return _query(daemon, "disk")


def query_memory_sanitization(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """The same for the memory of the host."""
    return _query(daemon, "host_memory")


def query_gpu_sanitization(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """The same for the memory of the GPUs."""
    return _query(daemon, "gpu_memory")


def query_firmware_sanitization(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """The same for the TPM, and for the attributes of the BIOS."""
    return _query(daemon, "disk", "tpm", "bios")


def query_breakfix_sanitization(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Wait until a repaired node is back at its tenant, then return the stays of all nodes."""

    def read() -> bool:
        return bool(daemon.get(f"/nodes/{node}")["state"] == "released")

    wait_for(read, REPAIR_S, "the repaired node is back at its tenant")
    answer = _query(daemon, "disk")
    if not any(m["breakfix_skip_observed"] for m in answer["machines"]):
        answer |= {"success": False, "error": "no repaired node came back without an erasure"}
    return answer


STEPS = {
    "query_breakfix_sanitization": query_breakfix_sanitization,
    "query_sanitization": query_sanitization,
    "query_memory_sanitization": query_memory_sanitization,
    "query_gpu_sanitization": query_gpu_sanitization,
    "query_firmware_sanitization": query_firmware_sanitization,
}

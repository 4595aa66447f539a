"""Steps of the suites network and security: a tenant's VRF is the suite's VPC."""

from __future__ import annotations

import os
from typing import Any

from control_steps import create_key, open_as, revoke_key
from daemon_client import Daemon, RefusedError, list_hosts, wait_for
from node_steps import give_back
from rights_steps import try_denied

DELETE_S = 240.0
Answer = dict[str, Any]


def _is_gone(daemon: Daemon, name: str) -> bool:
    daemon.change("DELETE", f"/tenants/{name}")
    return bool(
        wait_for(lambda: daemon.find(f"/tenants/{name}") is None, DELETE_S, "the tenant is gone")
    )


def vpc_crud(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Make, read and delete the VRF of a tenant on the leaves."""
    name = "acceptance-vpc"
    daemon.change("PUT", f"/tenants/{name}", {"nodes": 0, "vrf": "ACC-VPC"})
    tenant = daemon.get(f"/tenants/{name}")["tenant"]
    attributes = {"vni": tenant["l3vni"], "vrf": tenant["vrf"]}
    return {
        "tests": {
            "create_vpc": {"passed": tenant["phase"] == "ready", "vpc_id": tenant["vrf"]},
            "read_vpc": {"passed": tenant["vrf"] == "ACC-VPC", "attributes": attributes},
            "delete_vpc": {"passed": _is_gone(daemon, name)},
        }
    }


def get_vpc(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the VRF of the first tenant of the list."""
    tenant = daemon.list_all("/tenants")[0]
    return {"vpc_id": str(tenant["l3vni"]), "vpc_name": tenant["vrf"]}


def list_vpcs(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the VRFs of all tenants."""
    rows = [{"vpc_id": str(t["l3vni"]), "vpc_name": t["vrf"]} for t in daemon.list_all("/tenants")]
    return {"vpcs": rows, "count": len(rows)}


def vpc_isolation(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Make two tenants, and compare every leaf with the records of all tenants."""
    names = ("acceptance-a", "acceptance-b")
    made = []
    for name in names:
        vrf = f"ACC-{name[-1].upper()}"
        daemon.change("PUT", f"/tenants/{name}", {"nodes": 0, "vrf": vrf})
        made.append(daemon.get(f"/tenants/{name}")["tenant"])
    audit = daemon.get("/fabric/audit")
    as_recorded = not audit["blockers"] and not audit["steps"]
    for name in names:
        _is_gone(daemon, name)
    own = {
        f"create_vpc_{letter}": {"passed": tenant["phase"] == "ready"}
        for letter, tenant in zip("ab", made, strict=True)
    }
    return {
        "tests": {
            **own,
            "no_peering": {"passed": as_recorded and not any(t["storage"] for t in made)},
            "no_cross_routes_a": {"passed": as_recorded and not made[0]["outside"]},
            "no_cross_routes_b": {"passed": as_recorded and not made[1]["outside"]},
        },
        "differences": len(audit["steps"]),
        "blockers": len(audit["blockers"]),
    }


def nvlink_domain(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Return the serial number of the baseboard that the node's NVSwitches are on."""
    devices = daemon.get(f"/nodes/{node}/inventory")["devices"]
    switches = [d for d in devices if d["kind"] == "nvswitch"]
    boards = [d["serial"] or d["uuid"] for d in devices if d["kind"] == "baseboard"]
    domain = next((b for b in boards if b), "")
    return {
        "node_id": node,
        "nvlink_supported": bool(switches),
        "nvlink_domain_id": domain,
        "tests": {
            "node_resolved": {"passed": bool(devices)},
            "nvlink_support_detected": {"passed": bool(switches)},
            "nvlink_domain_id_present": {"passed": bool(domain)},
        },
    }


def sa_credential_test(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Let a program outside of the daemon sign in with a token of its own."""
    key = create_key(daemon, "acceptance-service")["access_key_id"]
    me = open_as(key, "sa_credential_test").get("/me")
    row = next(t for t in daemon.get("/tokens")["items"] if t["id"] == key)
    revoke_key(daemon, key)
    return {
        "authenticated": me["subject"] == "acceptance-service",
        "credential_type": "bearer_token",
        "credential_source": me["via"],
        "identity": me["subject"],
        "expires_at": row["expires_at"],
    }


def least_privilege_test(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Let a viewer read, and try to switch a node, erase it, and make a tenant."""
    role = os.environ.get("ACCEPTANCE_ROLE", "viewer")  # another one is for the counter-proof
    key = create_key(daemon, "acceptance-viewer", role)["access_key_id"]
    caller = open_as(key, "least_privilege_test")
    me = caller.get("/me")
    reads = bool(caller.get(f"/nodes/{node}")["id"])
    tests = {
        "policy_dimensions_allowed_action_succeeds": {"passed": reads},
        "out_of_scope_compute_denied": try_denied(
            caller, "POST", f"/nodes/{node}/power?dry_run=true", {"action": "off"}
        ),
        "out_of_scope_storage_denied": try_denied(
            caller, "POST", f"/nodes/{node}/reclaim?dry_run=true", {}
        ),
        "out_of_scope_network_denied": try_denied(
            caller, "PUT", "/tenants/acceptance-none?dry_run=true", {"nodes": 0}
        ),
    }
    revoke_key(daemon, key)
    return {"test_identity": me["subject"], "allowed_resource": node, "tests": tests}


def capacity_reservation_grouping(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Pin a free node to a tenant, and see that no other tenant can pick it."""
    name = "acceptance-hold"
    free = [h["id"] for h in list_hosts(daemon, "kind=host and state=certified") if not h["tenant"]]
    body = {"nodes": 1, "vrf": "ACC-HOLD", "picked": free[:1]}
    daemon.change("PUT", f"/tenants/{name}", body)
    tenant = daemon.get(f"/tenants/{name}")["tenant"]
    refused = ""
    try:
        other = {"nodes": 1, "vrf": "ACC-OTHER", "picked": free[:1]}
        daemon.change("PUT", "/tenants/acceptance-other?dry_run=true", other)
    except RefusedError as error:
        refused = str(error)
    give_back(daemon, name)
    return {
        "reservation_id": str(tenant["l3vni"]),
        "account_id": tenant["name"],
        "resources": [
            {"resource_id": node, "account_id": tenant["name"], "pinned": True}
            for node in tenant["picked"]
        ],
        "pinned": bool(tenant["picked"]),
        "isolation_enforced": bool(refused),
        "refusal": refused,
    }


def _name_unit(host: Answer) -> str:
    place = host["location"]
    return f"pod{place['pod']}-su{place['scalable_unit']}"


def topology_block_atomic_allocation(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Reserve two nodes of one unit by one change, and see that a block is taken whole or not."""
    name = "acceptance-block"
    hosts = list_hosts(daemon, "kind=host")
    free = [h for h in hosts if h["state"] == "certified" and not h["tenant"]][:2]
    held = [h["id"] for h in hosts if h["tenant"]][:1]
    if len(free) < 2 or not held:
        raise RefusedError(404, "the caller sees no two free hosts and one of a tenant")
    block = _name_unit(free[0])
    body = {"nodes": 2, "vrf": "ACC-BLOCK", "picked": [free[0]["id"], *held]}
    refused = ""
    try:  # half of this block is another tenant's
        daemon.change("PUT", f"/tenants/{name}", body)
    except RefusedError as error:
        refused = str(error)
    nothing = daemon.find(f"/tenants/{name}") is None
    daemon.change("PUT", f"/tenants/{name}", {**body, "picked": [h["id"] for h in free]})
    tenant = daemon.get(f"/tenants/{name}")["tenant"]
    rows = [daemon.get(f"/nodes/{node}") for node in tenant["picked"]]
    give_back(daemon, name)
    whole = sorted(tenant["picked"]) == sorted(h["id"] for h in free)
    return {
        "refusal": refused,
        "topology_block": {
            "block_id": block,
            "reservation_id": str(tenant["l3vni"]),
            "tenant_id": tenant["name"],
            "allocated_as_unit": whole,
            "partial_allocation": not (refused and nothing and whole),
            "homogeneous": len({r["profile"] for r in rows}) == 1,
            "isolation_enforced": bool(refused),
            "requested": {"compute": 2, "network": 0, "storage": 0},
            "allocated": {"compute": len(rows), "network": 0, "storage": 0},
            "resources": [
                {
                    "resource_id": r["id"],
                    "resource_type": "compute",
                    "tenant_id": tenant["name"],
                    "topology_block_id": _name_unit(r),
                    "performance_domain": r["profile"],
                    "isolation_boundary": tenant["vrf"],
                }
                for r in rows
            ],
        },
    }


STEPS = {
    "vpc_crud": vpc_crud,
    "get_vpc": get_vpc,
    "list_vpcs": list_vpcs,
    "vpc_isolation": vpc_isolation,
    "nvlink_domain": nvlink_domain,
    "sa_credential_test": sa_credential_test,
    "least_privilege_test": least_privilege_test,
    "capacity_reservation_grouping": capacity_reservation_grouping,
    "topology_block_atomic_allocation": topology_block_atomic_allocation,
}

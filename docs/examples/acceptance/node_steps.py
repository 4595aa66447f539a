"""Steps about the one node that the suite orders, uses and gives back."""

from __future__ import annotations

from typing import Any

from daemon_client import Daemon, RefusedError, list_hosts, mark, wait_for
from guest_steps import NODE, describe_login, read_boot, set_key

TENANT = "acceptance"
ORDER_S = 240.0
TAGS = {"name": "Name", "createdby": "CreatedBy"}  # tags here are of small letters


def _read_state(daemon: Daemon, host: dict[str, Any]) -> str:
    """Return `running` for a host that is on, by its BMC, and serves its tenant."""
    if daemon.get(f"/nodes/{host['id']}/power")["power"] != "On":
        return "stopped"
    return "running" if host["state"] == "released" else str(host["state"])


def describe_node(daemon: Daemon, node: str) -> dict[str, Any]:
    """Return a node in the suite's words, as the daemon has it now."""
    host = daemon.get(f"/nodes/{node}")
    return {
        "instance_id": host["id"],
        "state": _read_state(daemon, host),
        "public_ip": host["address"],
        "private_ip": host["address"],
        "vpc_id": host["vrf"],
        "instance_type": host["profile"],
        "availability_zone": host["location"]["rack"],
        **describe_login(daemon, node),
    }


def order_node(daemon: Daemon, tenant: str, *, wish: str = "") -> dict[str, Any]:
    """Order one node for a tenant of its own and return it once it serves.

    `wish`: the node to pick; empty: a free one.
    """
    free = list_hosts(daemon, "kind=host and state=certified")
    names = [h["id"] for h in free if not h["tenant"] and h["id"] != NODE]
    picked = [wish] if wish else names[:1]
    order = {"nodes": 1, "vrf": tenant.upper(), "picked": picked}
    daemon.change("PUT", f"/tenants/{tenant}", order)
    where = f"kind=host and state=released and tenant={tenant}"
    served = wait_for(lambda: list_hosts(daemon, where), ORDER_S, "one node serves the tenant")
    return dict(served[0])


def launch_instance(daemon: Daemon, _node: str, _rack: str) -> dict[str, Any]:
    """Order one node, and tag it."""
    if NODE:
        if daemon.find(f"/tenants/{TENANT}") is None:
            daemon.change("PUT", f"/tenants/{TENANT}", {"nodes": 0, "vrf": TENANT.upper()})
        set_key(daemon, TENANT)
    node = order_node(daemon, TENANT, wish=NODE)["id"]
    tags = {f"name:{TENANT}": True, f"createdby:{daemon.get('/me')['subject']}": True}
    daemon.change("PATCH", f"/nodes/{node}/tags", {"tags": tags})
    return describe_node(daemon, node)


def launch_with_key(daemon: Daemon, _node: str, _rack: str) -> dict[str, Any]:
    """Order the node with a real system for a tenant with a key, and log in with that key.

    The tenant keeps it: the suite's own launch finds it so.
    """
    row = launch_instance(daemon, "", "")
    boot = read_boot(daemon, row["instance_id"])
    kept = daemon.get(f"/tenants/{TENANT}/keys")["items"]
    proof = daemon.get(f"/nodes/{row['instance_id']}/proof")["proof"]
    shown = [g["seen"] for g in proof["gate"] if g["check"] == "tenant_login"]
    named = any(key["fingerprint"] in text for key in kept for text in shown)
    return {**row, "boot_id": boot, **mark(specified=bool(kept), proved=named, login=bool(boot))}


def describe_instance(daemon: Daemon, node: str, _rack: str) -> dict[str, Any]:
    """Return the node as the daemon has it now."""
    return describe_node(daemon, node)


def list_instances(daemon: Daemon, node: str, _rack: str) -> dict[str, Any]:
    """Return the nodes of the tenant."""
    rows = [
        describe_node(daemon, h["id"]) for h in list_hosts(daemon, f"kind=host and tenant={TENANT}")
    ]
    return {
        "instances": rows,
        "count": len(rows),
        "target_instance": node,
        "found_target": any(row["instance_id"] == node for row in rows),
    }


def verify_tags(daemon: Daemon, node: str, _rack: str) -> dict[str, Any]:
    """Return the node's tags; `name:x` is the key Name with the value x."""
    pairs = [tag.partition(":") for tag in daemon.get(f"/nodes/{node}/tags")["tags"]]
    tags = {TAGS.get(key, key): value for key, _, value in pairs}
    return {"instance_id": node, "tags": tags, "tag_count": len(tags)}


def topology_placement(daemon: Daemon, node: str, _rack: str) -> dict[str, Any]:
    """Make, read, change and delete a tenant whose nodes have to be in the node's unit."""
    group = "acceptance-place"
    place = daemon.get(f"/nodes/{node}")["location"]
    units = [[place["pod"], place["scalable_unit"]]]
    path = f"/tenants/{group}"
    daemon.change("PUT", path, {"nodes": 0, "vrf": "ACC-PLACE", "units": units, "spread": False})
    made = daemon.get(path)["tenant"]
    daemon.change("PATCH", path, {"spread": True})
    changed = daemon.get(path)["tenant"]
    daemon.change("DELETE", path)
    left = wait_for(lambda: daemon.find(path) is None, ORDER_S, "the tenant is gone")
    return {
        "instance_id": node,
        "placement_supported": made["units"] == units,
        "placement_group": group,
        "placement_strategy": "spread" if made["spread"] else "cluster",
        "availability_zone": place["rack"],
        "operations": {
            "create": {"passed": made["phase"] == "ready"},
            "read": {"passed": made["units"] == units},
            "update": {"passed": changed["spread"] is True},
            "delete": {"passed": left},
        },
    }


def verify_image(daemon: Daemon, node: str, _rack: str) -> dict[str, Any]:
    """Return the system that the node runs, if it is the one that its release pins."""
    host = daemon.get(f"/nodes/{node}")
    rows = daemon.get(f"/nodes/{node}/parts")["components"]
    system = next(row for row in rows if row["kind"] == "host.os")
    profiles = daemon.get(f"/releases/{host['release']}")["profiles"]
    pin = next(p["pins"]["host.os"] for p in profiles if p["name"] == host["profile"])
    return {
        "success": system["running"] == pin["version"],
        "instance_id": node,
        "image_id": pin["sha256"],
        "image_name": system["running"],
        "instance_state": _read_state(daemon, host),
        "state": _read_state(daemon, host),
    }


def reinstall_node(daemon: Daemon, node: str, tenant: str) -> str:
    """Take a node back, so that it is erased and installed, and return who serves then."""
    before = daemon.get(f"/nodes/{node}")["certificate"]
    daemon.accept(f"/nodes/{node}/reclaim", {})
    where = f"kind=host and state=released and tenant={tenant}"

    def read() -> Any:
        return [h["id"] for h in list_hosts(daemon, where) if h["certificate"] != before]

    again = wait_for(read, 2 * ORDER_S, "the node is installed anew and serves")
    return str(again[0])


def reinstall_instance(daemon: Daemon, node: str, _rack: str) -> dict[str, Any]:
    """Have the node erased and installed, and wait until it serves again."""
    before = daemon.get(f"/nodes/{node}")["certificate"]
    boot = read_boot(daemon, node) if node == NODE else ""
    again = reinstall_node(daemon, node, TENANT)
    now = read_boot(daemon, again, boot) if again == NODE else ""
    return {**describe_node(daemon, again), "certificate_before": before, "boot_id": now}


def give_back(daemon: Daemon, tenant: str) -> None:
    """Take all nodes of a tenant back, and delete it once they have left."""
    daemon.change("POST", f"/tenants/{tenant}/shrink", {"to": 0})

    def delete() -> bool:
        if daemon.find(f"/tenants/{tenant}") is None:
            return True
        try:
            daemon.change("DELETE", f"/tenants/{tenant}")
        except RefusedError as error:
            if error.status != 409:
                raise
        return False

    wait_for(delete, ORDER_S, f"the tenant {tenant} is deleted")


def teardown(daemon: Daemon, _node: str, _rack: str) -> dict[str, Any]:
    """Take the nodes of the tenant back and delete it."""
    give_back(daemon, TENANT)
    return {"resources_deleted": [TENANT], "message": "the tenant's nodes are back"}


def verify_teardown(daemon: Daemon, _node: str, _rack: str) -> dict[str, Any]:
    """Return whether the tenant and its nodes are gone."""
    left = list_hosts(daemon, f"kind=host and tenant={TENANT}")
    tenant = daemon.find(f"/tenants/{TENANT}")
    return {"success": not left and tenant is None, "left": [h["id"] for h in left]}


STEPS = {
    "launch_instance": launch_instance,
    "launch_with_key": launch_with_key,
    "describe_instance": describe_instance,
    "list_instances": list_instances,
    "verify_tags": verify_tags,
    "topology_placement": topology_placement,
    "verify_image": verify_image,
    "reinstall_instance": reinstall_instance,
    "teardown": teardown,
    "verify_teardown": verify_teardown,
}

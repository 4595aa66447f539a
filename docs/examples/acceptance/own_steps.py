"""Steps of checks of our own, for ids of the suite's plan that have no check in it.

`own.yaml` has the checks, of the suite's own building blocks, and its runner judges them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from datetime import datetime, timedelta
from ipaddress import ip_interface
from typing import Any

from control_steps import create_key, open_as, revoke_key, verify_key_rejected
from daemon_client import Daemon, RefusedError, list_hosts, mark, pick_host, wait_for
from fleet_steps import verify_ingestion
from node_steps import give_back, order_node

LIFE = "acc-life"
ORDER_S = 240.0
NODE_TAG = "stage:burn-in"
FIRMWARE = ("bluefield.", "supernic.", "hgx.", "nic.", "host.bmc", "host.bios")
DRIVERS = ("host.doca", "host.spcx_cc")
VERSIONS = ("system", "firmware", "driver", "bios", "settings")
# its set of settings has Secure Boot
OF_BIOS = {"host.bios": "bios", "host.bios_settings": "settings"}
Answer = dict[str, Any]


def query_api(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the API's document, read an object, change one, and read the change's operation."""
    paths = daemon.get("/openapi.json")["paths"]
    listed = daemon.list_all("/nodes")
    node = pick_host(daemon)["id"]
    path = f"/nodes/{node}/tags"
    changed = daemon.change("PATCH", path, {"tags": {NODE_TAG: True}})
    tagged = NODE_TAG in daemon.get(path)["tags"]
    daemon.change("PATCH", path, {"tags": {NODE_TAG: None}})
    operation = daemon.get(f"/operations/{changed['id']}")
    return {
        "paths": len(paths),
        **mark(
            document="/v1/nodes/{node}/tags" in paths,
            read=bool(listed),
            change=tagged and NODE_TAG not in daemon.get(path)["tags"],
            follow=operation["state"] == "done",
        ),
    }


def _defer(daemon: Daemon, node: str) -> tuple[bool, bool]:
    """Have the tenant put planned work off by 13 days, and by 15; the second is refused."""
    key = create_key(daemon, "acceptance-owner", "tenant", LIFE)["access_key_id"]
    owner = open_as(key, "node_lifecycle")
    now = datetime.fromisoformat(daemon.get("/me")["now"])
    begins = {"begins_at": (now + timedelta(days=2)).isoformat(), "maintenance": True}
    daemon.accept(f"/nodes/{node}/cases", {"reason": "acceptance: a fan gets louder", **begins})
    case = next(c for c in daemon.list_all("/cases", node=node) if c["closed_at"] is None)
    path = f"/cases/{case['id']}"
    owner.change("POST", f"{path}/defer", {"until": (now + timedelta(days=13)).isoformat()})
    later = [e for e in daemon.list_all("/events", node=node) if e["kind"] == "case_deferred"]
    longer = {"until": (now + timedelta(days=15)).isoformat()}
    refused = False
    try:
        owner.change("POST", f"{path}/defer", longer)
    except RefusedError as error:
        refused = error.status == 409
    serves = daemon.get(f"/nodes/{node}")["state"] == "released"
    daemon.change("POST", f"{path}/close", {"ending": "no_fault", "why": "acceptance: over"})
    revoke_key(daemon, key)
    return bool(later) and serves, refused


def node_lifecycle(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Order a node, read it, tag it, have its tenant defer work on it, and give it back."""
    ordered = order_node(daemon, LIFE)
    node = ordered["id"]
    row = daemon.get(f"/nodes/{node}")
    daemon.change("PATCH", f"/nodes/{node}/tags", {"tags": {NODE_TAG: True}})
    tagged = NODE_TAG in daemon.get(f"/nodes/{node}/tags")["tags"]
    daemon.change("PATCH", f"/nodes/{node}/tags", {"tags": {NODE_TAG: None}})
    deferred, refused = _defer(daemon, node)
    give_back(daemon, LIFE)

    def read() -> bool:
        return bool(daemon.get(f"/nodes/{node}")["state"] == "certified")

    # it is free again only after its erasure and another certificate
    freed = wait_for(read, ORDER_S, "the node is certified again")
    after = daemon.get(f"/nodes/{node}")
    return {
        "instance_id": node,
        **mark(
            create=row["state"] == "released" and row["placement"] == "customer",
            read=row["tenant"] == LIFE and row["vrf"] == "ACC-LIFE",
            update=tagged,
            delete=freed and not after["tenant"] and after["certificate"] != row["certificate"],
            defer=deferred,
            refuse_longer=refused,
        ),
    }


def add_tenant_user(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Let a person of one tenant in, who sees the tenant's nodes and those of no other."""
    hosts = [h for h in list_hosts(daemon, "kind=host and state=released") if h["tenant"]]
    if not hosts:
        raise RefusedError(404, "the caller sees no host of a tenant")
    tenant = hosts[0]["tenant"]
    others = [h["id"] for h in hosts if h["tenant"] != tenant]
    role = os.environ.get("ACCEPTANCE_ROLE", "tenant")  # another one is for the counter-proof
    key = create_key(daemon, "acceptance-member", role, tenant if role == "tenant" else "")
    member = open_as(key["access_key_id"], "add_tenant_user")
    me = member.get("/me")
    visible = {h["id"] for h in list_hosts(member)}
    hidden = all(member.find(f"/nodes/{other}") is None for other in others)
    revoke_key(daemon, key["access_key_id"])
    rejected = verify_key_rejected(daemon, key["access_key_id"], "")["rejected"]
    return {
        "tenant_name": tenant,
        "username": me["subject"],
        **mark(
            add=me["tenant"] == tenant,
            sees_own={h["id"] for h in hosts if h["tenant"] == tenant} <= visible,
            hides_others=bool(others) and hidden and not visible & set(others),
            remove=rejected,
        ),
    }


def query_resources(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Account for each host of the list by serial, and for each port's leaf by name."""
    ingestion = verify_ingestion(daemon, "", "")
    switches = {s["id"] for s in daemon.list_all("/switches")}
    hosts = list_hosts(daemon)
    leaves = {p["switch"] for h in hosts for p in h["ports"]}
    return {
        "hosts": len(hosts),
        "switches": len(switches),
        **mark(
            hosts=bool(hosts) and not ingestion["missing"] and not ingestion["extra"],
            ports=bool(leaves) and leaves <= switches,
            parts=all(m["gpu_count"] for m in ingestion["machines"]),
        ),
    }


def query_switches(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Have every leaf read and compared with its record, and list the state of each switch."""
    switches = daemon.list_all("/switches")
    audit = daemon.get("/fabric/audit")
    return {
        "switches": len(switches),
        "differences": len(audit["steps"]),
        "silent": [b["detail"] for b in audit["blockers"]],
        **mark(
            reachable=bool(switches) and not audit["blockers"],
            healthy=all(s["state"] == "released" and not s["blockers"] for s in switches),
            as_recorded=not audit["steps"],
        ),
    }


def query_versions(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Compare each running part of each host with the version that its release pins."""
    judged: dict[str, list[bool]] = defaultdict(list)
    for host in list_hosts(daemon, "kind=host and state=released"):
        for part in daemon.get(f"/nodes/{host['id']}/parts")["components"]:
            if part["met"] is None:
                continue  # its release pins no version of it
            kind = "firmware" if part["kind"].startswith(FIRMWARE) else ""
            kind = "system" if part["kind"] == "host.os" else kind
            kind = "driver" if part["kind"] in DRIVERS else kind
            kind = OF_BIOS.get(part["kind"], kind)
            judged[kind or "other"].append(part["met"])
    return {
        "compared": {kind: len(rows) for kind, rows in judged.items()},
        **mark(**{k: bool(judged[k]) and all(judged[k]) for k in VERSIONS}),
    }


def query_control_log(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Make a change, look for it in the journal, and verify the journal's chain of digests."""
    node = pick_host(daemon)["id"]
    before = daemon.get("/audit", limit=1)["items"][0]["seq"]
    made = daemon.change("PATCH", f"/nodes/{node}/tags", {"tags": {NODE_TAG: True}})
    daemon.change("PATCH", f"/nodes/{node}/tags", {"tags": {NODE_TAG: None}})
    rows = [r for r in daemon.get("/audit", limit=50)["items"] if r["seq"] > before]
    me = daemon.get("/me")["subject"]
    own = [r for r in rows if r["detail"].get("asked_by") == me]
    verified = daemon.get("/audit/verification")
    return {
        "rows": verified["rows"],
        "operation": made["id"],
        **mark(logged=bool(own), subject=bool(own), intact=verified["intact"]),
    }


def tenant_subnets(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Compare the networks of all ports that are in the VRF of each tenant."""
    nets = defaultdict(set)
    vrfs = defaultdict(set)
    for host in list_hosts(daemon, "kind=host and state=released"):
        if host["tenant"]:
            vrfs[host["tenant"]].add(host["vrf"])
            nets[host["tenant"]] |= {
                ip_interface(p["address"]).network for p in host["ports"] if p["address"]
            }
    rows = list(nets.items())
    pairs = [(a, b) for n, (_, a) in enumerate(rows) for _, b in rows[n + 1 :]]
    apart = all(not x.overlaps(y) for a, b in pairs for x in a for y in b)
    names = [vrf for own in vrfs.values() for vrf in own]
    return {
        "subnets": {tenant: len(own) for tenant, own in nets.items()},
        **mark(
            own_subnets=len(rows) > 1 and all(nets.values()) and apart,
            own_vrf=len(rows) > 1 and len(names) == len(set(names)) == len(rows),
        ),
    }


STEPS = {
    "query_api": query_api,
    "node_lifecycle": node_lifecycle,
    "add_tenant_user": add_tenant_user,
    "query_resources": query_resources,
    "query_switches": query_switches,
    "query_versions": query_versions,
    "query_control_log": query_control_log,
    "tenant_subnets": tenant_subnets,
}

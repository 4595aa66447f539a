"""Steps about security groups: filters of leaf ports, read back from the leaves in force.

A tenant of its own gets two nodes. Each step gives it other groups, reads the filters of its ports,
and judges packets by their rules in order, as a leaf does.
"""

from __future__ import annotations

import time
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from daemon_client import Daemon, RefusedError, list_hosts, wait_for
from node_steps import give_back

TENANT = "acc-groups"
VRF = "ACC-GROUPS"
NODES = 2
ORDER_S = 400.0
BOUND_S = 10.0
PORT = 8443
ANYWHERE = "0.0.0.0/0"
STRANGER = "198.51.100.7"  # of a network for documents (RFC 5737)
CLOSED = {"name": "closed"}  # it has no rule, so that its ports are closed but for what others open
Answer = dict[str, Any]


def _put(daemon: Daemon, groups: list[Answer]) -> Answer:
    """Give the tenant these groups, and its nodes if it has none yet; return the operation."""
    hosts = list_hosts(daemon, f"kind=host and tenant={TENANT}")
    free = list_hosts(daemon, "kind=host and state=certified")
    names = [h["id"] for h in hosts] + [h["id"] for h in free if not h["tenant"]]
    body = {"nodes": NODES, "vrf": VRF, "picked": sorted(names[:NODES]), "security_groups": groups}
    return daemon.change("PUT", f"/tenants/{TENANT}", body)


def _ready(daemon: Daemon) -> list[Answer]:
    """Return the tenant's nodes once all of them serve it."""
    where = f"kind=host and state=released and tenant={TENANT}"

    def read() -> list[Answer]:
        served = list_hosts(daemon, where)
        return served if len(served) == NODES else []

    return list(wait_for(read, ORDER_S, "the nodes serve the tenant"))


def _pick(daemon: Daemon) -> list[Answer]:
    """Return two nodes that serve the tenant, closed by a group from their first moment on."""
    if not list_hosts(daemon, f"kind=host and state=released and tenant={TENANT}"):
        _put(daemon, [CLOSED])
    return _ready(daemon)


def _read_ports(daemon: Daemon) -> list[Answer]:
    read = daemon.get(f"/tenants/{TENANT}/filters")
    if read["blockers"]:
        raise RefusedError(409, read["blockers"][0]["detail"])
    return list(read["ports"])


def _passes(port: Answer, source: str, target: str, number: int, protocol: str = "tcp") -> bool:
    """Return whether a packet of a new connection comes out of a port, by its rules in force."""
    for rule in port["rules"]:
        if rule["protocol"] not in ("", protocol) or rule["established"]:
            continue
        ends = ((rule["source"], source), (rule["target"], target))
        if not all(ip_address(end) in ip_network(net or ANYWHERE) for net, end in ends):
            continue
        if rule["port"] in (0, number):
            return bool(rule["action"] == "permit")
    return not port["filters"]


def _address(node: Answer, rail: int) -> str:
    """Return the address of the host's end of a link: the other one of its two."""
    port = next(p for p in node["ports"] if p["rail"] == rail)
    leaf = ip_interface(port["address"])
    return next(str(ip) for ip in leaf.network if ip != leaf.ip)


def _judge(daemon: Daemon, names: tuple[str, str, str], groups: list[Answer], **facts: Any) -> Any:
    """Set groups, read the ports, take the groups off again, and return the tests' results.

    `facts`: `allows` and `blocks`, each of which judges all ports; `names`: of the three tests.
    """
    made = _put(daemon, [CLOSED, *groups])
    ports = _read_ports(daemon)
    as_recorded = bool(ports) and all(p["as_recorded"] for p in ports)
    results = [as_recorded, facts["allows"](ports), facts["blocks"](ports)]
    _put(daemon, [])
    after = _read_ports(daemon)
    clean = bool(after) and not any(p["filters"] for p in after)
    return {
        "group": groups[0]["name"],
        "ports": len(ports),
        "tests": {
            "create_sg": {"passed": made["state"] == "done"},
            **{name: {"passed": bool(r)} for name, r in zip(names, results, strict=True)},
            "cleanup": {"passed": clean},
        },
    }


def _of(ports: list[Answer], node: Answer) -> list[Answer]:
    return [p for p in ports if p["node"] == node["id"]]


def _all_pass(ports: list[Answer], source: str, number: int = PORT) -> bool:
    return bool(ports) and all(_passes(p, source, STRANGER, number) for p in ports)


def _none_passes(ports: list[Answer], source: str, number: int = PORT) -> bool:
    return bool(ports) and not any(_passes(p, source, STRANGER, number) for p in ports)


def sg_node_scoping(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Open a port of TCP at one node; the other one stays closed."""
    one, other = _pick(daemon)
    rule = {"protocol": "tcp", "ports": [PORT], "source": ANYWHERE}
    group = {"name": "node", "nodes": [one["id"]], "rules": [rule]}
    names = ("apply_node_rule", "target_node_allowed", "other_node_blocked")
    return {"scope": "node"} | _judge(
        daemon,
        names,
        [group],
        allows=lambda ports: _all_pass(_of(ports, one), STRANGER),
        blocks=lambda ports: _none_passes(_of(ports, other), STRANGER),
    )


def sg_workload_scoping(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Open a job's port between all nodes of the job; a port of another job stays closed."""
    nodes = _pick(daemon)
    inside = [f"{_address(n, p['rail'])}/32" for n in nodes for p in n["ports"]]
    rules = [{"protocol": "tcp", "ports": [29500], "source": source} for source in inside]
    group = {"name": "job", "nodes": [n["id"] for n in nodes], "rules": rules}
    peers = [source.partition("/")[0] for source in inside]
    names = ("apply_workload_rule", "workload_allowed", "other_workload_blocked")
    return {"scope": "workload"} | _judge(
        daemon,
        names,
        [group],
        allows=lambda ports: all(_all_pass(ports, peer, 29500) for peer in peers),
        blocks=lambda ports: (
            _none_passes(ports, STRANGER, 29500) and _none_passes(ports, peers[0], 29501)
        ),
    )


def sg_subnet_scoping(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Let everything in from the network of one link; the network of another tenant is not."""
    nodes = _pick(daemon)
    others = [
        h for h in list_hosts(daemon, "kind=host and state=released") if h["tenant"] != TENANT
    ]
    own = str(ip_interface(nodes[0]["ports"][0]["address"]).network)
    inside = _address(nodes[0], nodes[0]["ports"][0]["rail"])
    outside = _address(others[0], others[0]["ports"][0]["rail"])
    group = {"name": "subnet", "rules": [{"protocol": "tcp", "source": own}]}
    names = ("apply_subnet_rule", "subnet_allowed", "other_subnet_blocked")
    return {"scope": "subnet", "subnet": own} | _judge(
        daemon,
        names,
        [group],
        allows=lambda ports: _all_pass(ports, inside),
        blocks=lambda ports: _none_passes(ports, outside),
    )


def sg_service_scoping(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Open one service, an address and a port; other addresses and ports stay closed."""
    one, other = _pick(daemon)
    service = _address(one, 0)
    elsewhere = _address(other, 0)
    rule = {"protocol": "tcp", "ports": [6443], "source": ANYWHERE, "target": f"{service}/32"}
    names = ("apply_service_rule", "service_endpoint_allowed", "other_endpoint_blocked")
    return {"scope": "service", "endpoint": f"{service}:6443"} | _judge(
        daemon,
        names,
        [{"name": "service", "rules": [rule]}],
        allows=lambda ports: (
            bool(ports) and all(_passes(p, STRANGER, service, 6443) for p in ports)
        ),
        blocks=lambda ports: (
            not any(
                _passes(p, STRANGER, target, number)
                for p in ports
                for target, number in ((elsewhere, 6443), (service, 6444))
            )
        ),
    )


def sg_port_security_policy(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Open a port of TCP at one interface of one node: the interface is its port of a leaf."""
    one = _pick(daemon)[0]
    rail = one["ports"][0]["rail"]
    rule = {"protocol": "tcp", "ports": [PORT], "source": ANYWHERE}
    group = {"name": "policy", "nodes": [one["id"]], "rails": [rail], "rules": [rule]}

    def choose(ports: list[Answer], *, chosen: bool) -> list[Answer]:
        return [p for p in ports if (p["node"] == one["id"] and p["rail"] == rail) is chosen]

    before = choose(_read_ports(daemon), chosen=True)
    names = ("apply_port_policy", "allowed_port_permitted", "unlisted_port_blocked")
    unaffected = []

    def blocks(ports: list[Answer]) -> bool:
        others = choose(ports, chosen=False)
        unaffected.append(_none_passes(others, STRANGER))
        return _none_passes(choose(ports, chosen=True), STRANGER, PORT + 1)

    answer = _judge(
        daemon,
        names,
        [group],
        allows=lambda ports: _all_pass(choose(ports, chosen=True), STRANGER),
        blocks=blocks,
    )
    answer["tests"] |= {
        "create_virtual_interface": {"passed": len(before) == 1},
        "other_interface_unaffected": {"passed": unaffected == [True]},
    }
    return {"interface": f"{before[0]['switch']}/{before[0]['interface']}", **answer}


def _open(number: int) -> list[Answer]:
    rule = {"protocol": "tcp", "ports": [number], "source": ANYWHERE}
    return [{"name": "web", "rules": [rule]}]


def sg_crud(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Make, read, change and delete a group of the tenant, and read the leaves after each."""
    _pick(daemon)

    def holds(opened: tuple[int, ...], shut: tuple[int, ...]) -> Answer:
        ports = _read_ports(daemon)
        recorded = bool(ports) and all(p["as_recorded"] for p in ports)
        right = all(_all_pass(ports, STRANGER, n) for n in opened)
        right = right and all(_none_passes(ports, STRANGER, n) for n in shut)
        return {"passed": recorded and right}

    tenant = daemon.get(f"/tenants/{TENANT}")["tenant"]
    tests = {"create_vpc": {"passed": tenant["phase"] == "ready" and tenant["vrf"] == VRF}}
    _put(daemon, _open(80))
    tests["create_sg"] = holds((80,), (443, 22))
    groups = daemon.get(f"/tenants/{TENANT}")["tenant"]["security_groups"]
    tests["read_sg"] = {"passed": [g["name"] for g in groups] == ["web"]}
    added = [*_open(80)[0]["rules"], *_open(443)[0]["rules"]]
    _put(daemon, [{"name": "web", "rules": added}])
    tests["update_sg_add_rule"] = holds((80, 443), (22,))
    _put(daemon, [{"name": "web", "rules": [added[0], *_open(8443)[0]["rules"]]}])
    tests["update_sg_modify_rule"] = holds((80, 8443), (443, 22))
    _put(daemon, _open(80))
    tests["update_sg_remove_rule"] = holds((80,), (443, 8443))
    _put(daemon, [])
    after = _read_ports(daemon)
    tests["delete_sg"] = {"passed": bool(after) and not any(p["filters"] for p in after)}
    groups = daemon.get(f"/tenants/{TENANT}")["tenant"]["security_groups"]
    audit = daemon.get("/fabric/audit")
    tests["verify_deleted"] = {
        "passed": groups == [] and not audit["steps"] and not audit["blockers"]
    }
    return {"tests": tests}


def _time_until(daemon: Daemon, number: int, began: float, *, passes: bool) -> float:
    def read() -> bool:
        ports = _read_ports(daemon)
        return bool(ports) and all(_passes(p, STRANGER, STRANGER, number) is passes for p in ports)

    wait_for(read, ORDER_S, "every leaf has the change in force")
    return round(time.monotonic() - began, 2)


def sg_policy_propagation(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Measure the time from a change of rules until every leaf shows it in force."""
    _pick(daemon)
    _put(daemon, [CLOSED])
    path = f"/tenants/{TENANT}"
    began = time.monotonic()
    daemon.change("PATCH", path, {"security_groups": [CLOSED, *_open(PORT)]})
    added_s = _time_until(daemon, PORT, began, passes=True)
    began = time.monotonic()
    daemon.change("PATCH", path, {"security_groups": [CLOSED]})
    removed_s = _time_until(daemon, PORT, began, passes=False)
    _put(daemon, [])
    clean = not any(p["filters"] for p in _read_ports(daemon))
    done = {"passed": True}  # each was waited for: without it there is an error in place of this
    names = ("create_probe_rule", "rule_observed", "revoke_probe_rule", "removal_observed")
    return {
        "target_rule_id": f"{TENANT}/web",
        "add_observed_seconds": added_s,
        "remove_observed_seconds": removed_s,
        "max_propagation_seconds": BOUND_S,
        "tests": {**dict.fromkeys(names, done), "cleanup": {"passed": clean}},
    }


def sdn_filter_audit_trail(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Make, change and delete a rule, and look for each in the journal, with its author."""
    _pick(daemon)
    _put(daemon, [])
    before = daemon.get("/audit", limit=1)["items"][0]["seq"]
    for groups in (_open(80), _open(443), []):
        _put(daemon, groups)
    me = daemon.get("/me")["subject"]
    rows = [r for r in daemon.get("/audit", limit=100)["items"] if r["seq"] > before]
    changed = [r for r in rows if r["kind"] == "tenant" and r["detail"]["request"] == "change"]
    changed = sorted((r for r in changed if r["detail"]["by"] == me), key=lambda r: r["seq"])
    logged = [_list_open(r["detail"]["tenant"]) for r in changed]
    asked = [r for r in rows if r["kind"] == "asked" and r["detail"]["asked_by"] == me]
    complete = len(asked) >= len(logged) and all(
        r["at"] and r["detail"].get("source") and r["detail"].get("agent") for r in asked
    )
    clean = not any(p["filters"] for p in _read_ports(daemon))
    passed = {
        "audit_endpoint_reachable": daemon.get("/audit/verification")["intact"],
        "create_rule_logged": logged[:1] == [[80]],
        "modify_rule_logged": logged[1:2] == [[443]],
        "delete_rule_logged": logged[2:] == [[]],
        "audit_event_has_required_fields": bool(asked) and complete,
        "cleanup": clean,
    }
    return {
        "trail_id": "/v1/audit",
        "actor_field": "by",
        "target_rule_id": f"{TENANT}/web",
        "tests": {name: {"passed": bool(held)} for name, held in passed.items()},
    }


def _list_open(tenant: Answer) -> list[int]:
    rules = [rule for group in tenant["security_groups"] for rule in group["rules"]]
    return [number for rule in rules for number in rule["ports"]]


def teardown_groups(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Give the nodes back, and wait until other tenants may have them."""
    names = [h["id"] for h in list_hosts(daemon, f"kind=host and tenant={TENANT}")]
    give_back(daemon, TENANT)

    def read() -> bool:
        return all(daemon.get(f"/nodes/{name}")["state"] == "certified" for name in names)

    wait_for(read, ORDER_S, "the nodes are certified again")
    return {"resources_deleted": names, "message": "the nodes are given back"}


STEPS = {
    "sg_crud": sg_crud,
    "sg_workload_scoping": sg_workload_scoping,
    "sg_node_scoping": sg_node_scoping,
    "sg_subnet_scoping": sg_subnet_scoping,
    "sg_service_scoping": sg_service_scoping,
    "sg_port_security_policy": sg_port_security_policy,
    "sg_policy_propagation": sg_policy_propagation,
    "sdn_filter_audit_trail": sdn_filter_audit_trail,
    "teardown_groups": teardown_groups,
}

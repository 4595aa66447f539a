"""The filter of each port of a tenant's nodes, from its security groups. Pure.

A port has one filter at a time: the union of the rules of all groups that name it. The filters of a
tenant depend on its groups alone, so that a leaf's configuration stays when nodes come and go; only
what is bound to a port depends on the node behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provisioner.model.node import Node
from provisioner.model.tenant import Tenant
from provisioner.model.tenant_network import MARK, FilterMatch, GroupRule, PortFilter, Protocol

_ALWAYS = (
    FilterMatch("permit", protocol="icmp"),
    FilterMatch("permit", protocol="tcp", established=True),
)
_ELSE = (FilterMatch("deny"),)


def mark_filters(vrf: str) -> str:
    """Return the beginning of the names of a tenant's filters; no VRF's name has a "_"."""
    return f"{MARK}{vrf}_"


def plan_port_filter(tenant: Tenant, node: str, rail: int) -> tuple[str, PortFilter]:
    """Return name and rules of the filter of a node's port in this tenant; "" if it has none."""
    groups = [
        g
        for g in tenant.security_groups
        if (not g.nodes or node in g.nodes) and (not g.rails or rail in g.rails)
    ]
    if not groups:
        return "", ()
    groups.sort(key=lambda group: group.name)
    name = mark_filters(tenant.vrf) + "_".join(group.name for group in groups)
    permits = dict.fromkeys(match for g in groups for r in g.rules for match in _list_matches(r))
    return name, (*_ALWAYS, *permits, *_ELSE)


def list_filters(tenant: Tenant) -> dict[str, PortFilter]:
    """Return every filter that a port in this tenant may have, by name."""
    groups = tenant.security_groups
    # one node and one rail of those that are in the same groups
    nodes = {
        frozenset(g.name for g in groups if not g.nodes or node in g.nodes): node
        for node in ("", *(name for g in groups for name in g.nodes))
    }
    rails = {
        frozenset(g.name for g in groups if not g.rails or rail in g.rails): rail
        for rail in (-1, *(number for g in groups for number in g.rails))
    }
    filters = (
        plan_port_filter(tenant, node, rail) for node in nodes.values() for rail in rails.values()
    )
    return {name: rules for name, rules in filters if name}


def plan_guards(tenant: Tenant, nodes: Iterable[Node], switch: str) -> dict[str, str]:
    """Return the filter of each port of the tenant's nodes on one leaf; "" where it has none."""
    return {
        port.interface: plan_port_filter(tenant, node.id, port.rail)[0]
        for node in nodes
        if node.tenant == tenant.name
        for port in node.ports
        if port.switch == switch and not port.guid
    }


def _list_matches(rule: GroupRule) -> Iterator[FilterMatch]:
    source = "" if rule.source == "0.0.0.0/0" else rule.source
    for port in rule.ports or (0,):
        yield FilterMatch("permit", Protocol(rule.protocol).value, source, rule.target, port)

"""Security groups as a person asks for them: checked against what a leaf's port can hold. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Tenant
from provisioner.model.tenant_network import (
    PORT_MAX,
    GroupRule,
    SecurityGroup,
)
from provisioner.planning.places.port_filters import list_filters, mark_filters

GROUPS_MAX = 16  # of one tenant
GROUPS_OF_PORT_MAX = 4  # their names are in the filter's name
RULES_MAX = 256  # of one filter: a leaf's tables hold some thousands for all of its ports
_NAME = re.compile(r"[a-z][a-z0-9-]{0,14}")


def find_group_problems(tenant: Tenant, nodes: Sequence[Node], *, on_leaves: bool) -> list[Blocker]:
    """Return why a tenant cannot have these groups. `on_leaves`: its ports are of leaves."""
    groups = tenant.security_groups
    if not groups:
        return []
    if not on_leaves:
        detail = "InfiniBand partitions filter no connections, and the site has no leaf"
        return [_no(Reason.NOT_OFFERED, tenant.name, detail, "Leave security_groups out.")]
    counts = Counter(group.name for group in groups)
    hosts = {n.id for n in nodes if n.kind is NodeKind.HOST}
    blockers = [
        _no(Reason.REFUSED, f"{tenant.name}/{group.name}"[:120], problem, "Write it again.")
        for group in groups
        for problem in (*_list_faults(group, hosts), *_list_repeated(group, counts))
    ]
    if len(groups) > GROUPS_MAX:
        detail = f"{len(groups)} groups are more than {GROUPS_MAX}"
        blockers.append(_no(Reason.QUOTA, tenant.name, detail, "Put some together."))
    return blockers or _find_large_filters(tenant)


def _find_large_filters(tenant: Tenant) -> list[Blocker]:
    blockers = []
    for name, rules in sorted(list_filters(tenant).items()):
        count = len(name.removeprefix(mark_filters(tenant.vrf)).split("_"))
        detail = ""
        if count > GROUPS_OF_PORT_MAX:
            detail = f"a port would have {count} groups, more than {GROUPS_OF_PORT_MAX}"
        elif len(rules) > RULES_MAX:
            detail = f"a port would have {len(rules)} rules, more than {RULES_MAX}"
        if detail:
            blockers.append(_no(Reason.QUOTA, tenant.name, detail, "Put some together."))
    return blockers


def _list_repeated(group: SecurityGroup, counts: Mapping[str, int]) -> Iterator[str]:
    if counts[group.name] > 1:
        yield "two groups have this name"


def _list_faults(group: SecurityGroup, hosts: set[str]) -> Iterator[str]:
    if not _NAME.fullmatch(group.name):
        yield f"{group.name!r:.40} is no name of a group: a-z, 0-9 and -, 15 at most"
    for name in group.nodes:
        if name not in hosts:
            yield f"there is no host {name[:63]}"
    if any(rail < 0 for rail in group.rails):
        yield "a rail is a number from 0 on"
    for rule in group.rules:
        yield from _list_rule_faults(rule)


def _list_rule_faults(rule: GroupRule) -> Iterator[str]:
    for port in rule.ports:
        if not 0 < port <= PORT_MAX:
            yield f"{port} is no port"
    if not _is_network(rule.source):
        yield f"{rule.source[:40]!r} is no IPv4 network"
    if rule.target and not (_is_network(rule.target) and rule.target.endswith("/32")):
        yield f"{rule.target[:40]!r} is no IPv4 address with /32"


def _is_network(text: str) -> bool:
    try:
        return str(ipaddress.IPv4Network(text)) == text
    except ValueError:
        return False


def _no(reason: Reason, subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)

"""Requests of people about tenants: create, change, shrink, delete. Pure.

Each request is decided from the whole set of tenants and nodes at present, and the new record is
written in one transaction with the rows that it was decided on. A repeated request for a state that
is already reached changes nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from provisioner.model.base import Record
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.storage import FileStorage
from provisioner.model.tenant import PKEYS, Outside, Phase, Quota, Tenant
from provisioner.model.tenant_network import PORT_MAX, VRF_NAME_MAX, GroupRule, SecurityGroup
from provisioner.planning.lifecycle.operator_requests import reclaim_node
from provisioner.planning.places.place_ports import list_filters, mark_filters
from provisioner.planning.tenancy.allocation import (
    choose_departures,
    count_usage,
    find_exceeded_quotas,
    is_being_released,
    sort_by_place,
)
from provisioner.planning.tenancy.vrf_plan import RESERVED, FabricPlan, find_name_problem

# ------------------------------------------------------------------------------
# Security groups as a person asks for them: checked against what a leaf's port can hold. Pure.


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


# The partition of tenant 0; the site's choice, as no document gives one. Below are 255 keys for the
# site's own partitions, among them that of the maintenance tenant.
PKEY_FIRST = 0x100

PREFIXES_MAX = 256  # of one session and direction: a summary is better than a list
SESSIONS_MAX = 64
_ASKED = ("vrf", "nodes_wanted", "picked", "spread", "quota")  # kept in the record only
_OF_NETWORK = (
    "units",
    "outside",
    "storage",
    "security_groups",
    "file_storage",
)  # written to devices
_TENANTS_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

Refused = tuple[Blocker, ...]


class Request(Record):
    """The desired fields of a tenant; None: unchanged, or the default of a new one."""

    name: str
    vrf: str | None = None
    nodes: int | None = None
    units: tuple[tuple[int, int], ...] | None = None
    picked: tuple[str, ...] | None = None
    spread: bool | None = None
    outside: tuple[Outside, ...] | None = None
    storage: tuple[str, ...] | None = None
    file_storage: FileStorage | None = None  # an empty one: none any more
    security_groups: tuple[SecurityGroup, ...] | None = None
    quota: Quota | None = None


def create(
    asked: Request, tenants: Sequence[Tenant], nodes: Sequence[Node], fabric: FabricPlan
) -> Tenant | Refused:
    """A tenant with the lowest free number, or the existing one if it has the same fields."""
    existing = next((t for t in tenants if t.name == asked.name), None)
    made = Tenant(
        name=asked.name,
        vrf=asked.vrf or asked.name.upper(),
        nodes_wanted=asked.nodes or 0,
        units=tuple(sorted(set(asked.units or ()))),
        picked=tuple(sorted(set(asked.picked or ()))),
        spread=bool(asked.spread),
        outside=asked.outside or (),
        storage=tuple(sorted(set(asked.storage or ()))),
        file_storage=_or_none(asked.file_storage),
        security_groups=asked.security_groups or (),
        quota=asked.quota or Quota(),
        phase=Phase.MAKING,
    )
    if existing is not None:
        if (
            all(getattr(existing, f) == getattr(made, f) for f in (*_ASKED, *_OF_NETWORK))
            and existing.number is not None
        ):
            return existing
        return (_no(Reason.DUPLICATE, asked.name, "there is a tenant of this name", "Change it."),)
    number = _free_number(tenants, fabric)
    if number is None:
        detail = f"all {fabric.plan.tenants} numbers of the address plan are taken"
        return (_no(Reason.QUOTA, asked.name, detail, "Delete a tenant, or widen the plan."),)
    made = made.model_copy(
        update={
            "number": number,
            "l3vni": fabric.plan.vni_first + number,
            "pkey": PKEY_FIRST + number if PKEY_FIRST + number in PKEYS else 0,
        }
    )
    problems = [*_misnamed(made, tenants, fabric), *_unsound(made, tenants, fabric)]
    problems += _find_bad_picks(made, tenants, nodes)
    problems += find_group_problems(made, nodes, on_leaves=bool(fabric.leaves))
    return tuple(problems) or _within_quota(made, nodes)


def change_tenant(
    asked: Request, tenants: Sequence[Tenant], nodes: Sequence[Node], fabric: FabricPlan
) -> Tenant | Refused:
    """Return the tenant with more nodes, or other units, sessions, storage or quota; `shrink`
    has fewer nodes.
    """
    existing = _managed(asked.name, tenants)
    if not isinstance(existing, Tenant):
        return existing
    if asked.vrf is not None and asked.vrf != existing.vrf:
        detail = f"its VRF is {existing.vrf}, and stays so"
        return (
            _no(Reason.REFUSED, existing.name, detail, "Create another tenant, move the nodes."),
        )
    wished = existing.nodes_wanted if asked.nodes is None else asked.nodes
    if wished < existing.nodes_wanted:
        detail = f"{wished} nodes are fewer than its {existing.nodes_wanted}"
        return (_no(Reason.REFUSED, existing.name, detail, "Use shrink, which names the nodes."),)
    fields = {
        "nodes_wanted": wished,
        "units": existing.units if asked.units is None else tuple(sorted(set(asked.units))),
        "picked": existing.picked if asked.picked is None else tuple(sorted(set(asked.picked))),
        "spread": existing.spread if asked.spread is None else asked.spread,
        "outside": existing.outside if asked.outside is None else asked.outside,
        "storage": existing.storage if asked.storage is None else tuple(sorted(set(asked.storage))),
        "file_storage": existing.file_storage
        if asked.file_storage is None
        else _or_none(asked.file_storage),
        "security_groups": existing.security_groups
        if asked.security_groups is None
        else asked.security_groups,
        "quota": existing.quota if asked.quota is None else asked.quota,
    }
    changed = existing.model_copy(update=fields)
    if changed == existing:
        return existing
    if any(getattr(changed, f) != getattr(existing, f) for f in _OF_NETWORK):
        changed = changed.model_copy(update={"phase": Phase.MAKING})
    others = [t for t in tenants if t.name != existing.name]
    problems = _unsound(changed, others, fabric)
    if asked.picked is not None:
        problems += _find_bad_picks(changed, others, nodes)
    if asked.security_groups is not None:
        problems += find_group_problems(changed, nodes, on_leaves=bool(fabric.leaves))
    stranded = sorted(
        n.id
        for n in nodes
        if n.tenant == existing.name
        and not changed.may_have(n.location.pod, n.location.scalable_unit)
    )
    if stranded:
        detail = f"{', '.join(stranded[:4])} would stand outside of its units"
        problems.append(_no(Reason.ISOLATION, existing.name, detail, "Shrink it by them first."))
    return tuple(problems) or _within_quota(changed, nodes)


def _or_none(asked: FileStorage | None) -> FileStorage | None:
    return None if asked == FileStorage() else asked


class Shrunk(Record):
    """A tenant with fewer nodes, and the nodes that leave it: reclaimed, or not yet released."""

    tenant: Tenant
    nodes: tuple[Node, ...] = ()


def shrink_tenant(
    name: str,
    to: int,
    leaving: Sequence[str],
    tenants: Sequence[Tenant],
    nodes: Sequence[Node],
    now: float,
) -> Shrunk | Refused:
    """Return the tenant with `to` nodes.

    `leaving`: the nodes that leave; without it, first nodes that it has not been given yet, then
    those of the units and racks in which it has the fewest (`allocation.py`). A released node is
    drained, fenced and erased like every reclaimed one.
    """
    existing = _managed(name, tenants)
    if not isinstance(existing, Tenant):
        return existing
    if to < 0 or to > existing.nodes_wanted:
        detail = f"it waits for or has {existing.nodes_wanted}, which cannot shrink to {to}"
        return (_no(Reason.REFUSED, name, detail, "Ask for fewer, and not below 0."),)
    held = sorted((n for n in nodes if n.tenant == name), key=sort_by_place)
    chosen = {n.id: n for n in held if n.id in leaving}
    strangers = sorted(set(leaving) - set(chosen))
    if strangers:
        detail = f"{', '.join(strangers[:4])} are not its nodes"
        return (_no(Reason.NOT_EXPECTED, name, detail, "See `provisioner tenant show`."),)
    surplus = max(0, len(held) - len(chosen) - to)
    staying = [n for n in held if n.id not in chosen]
    chosen |= {n.id: n for n in choose_departures(staying, surplus, is_spread=existing.spread)}
    if len(held) - len(chosen) > to or (leaving and len(held) - len(chosen) < min(to, len(held))):
        detail = f"without {len(chosen)} of {len(held)} nodes it does not have {to}"
        return (_no(Reason.REFUSED, name, detail, "Name as many as leave, or a smaller number."),)
    moved = []
    problems = []
    for node in chosen.values():
        reclaimed = _left(node, now)
        if isinstance(reclaimed, Node):
            moved.append(reclaimed)
        else:
            problems.append(
                _no(Reason.PRECONDITION, node.id, reclaimed, "Wait, or choose another.")
            )
    if problems:
        return tuple(problems)
    staying_picks = tuple(name for name in existing.picked if name not in chosen)
    smaller = existing.model_copy(update={"nodes_wanted": to, "picked": staying_picks})
    return Shrunk(tenant=smaller, nodes=tuple(moved))


def delete(name: str, tenants: Sequence[Tenant], nodes: Sequence[Node]) -> Tenant | Refused | None:
    """The tenant in phase LEAVING; None if none has this name. Refused while it has nodes."""
    named = next((t for t in tenants if t.name == name), None)
    if named is None or named.phase is Phase.LEAVING:
        return named
    existing = _managed(name, tenants)
    if not isinstance(existing, Tenant):
        return existing
    inside = sorted(n.id for n in nodes if n.tenant == name or (n.vrf == existing.vrf != ""))
    if inside:
        listed = ", ".join(inside[:4]) + (" ..." if len(inside) > 4 else "")
        detail = f"{len(inside)} nodes are its: {listed}"
        return (_no(Reason.ISOLATION, name, detail, "Shrink it to 0 and wait until they left."),)
    return existing.model_copy(update={"phase": Phase.LEAVING, "nodes_wanted": 0})


# --- requirements of a tenant


def find_damaged(tenants: Sequence[Tenant]) -> tuple[Blocker, ...]:
    """Return blockers against changes of any network while a tenant's row is damaged.

    Networks are written from all tenants together, and would lose the damaged row's part.
    """
    unblock = "Repair its row, or restore a backup: `provisioner doctor` names it."
    return tuple(
        _no(Reason.DAMAGED_ROW, t.name, "the tenant's row is damaged", unblock)
        for t in tenants
        if t.is_damaged
    )


def _left(node: Node, now: float) -> Node | str:
    if node.origin is Origin.DETACHED:
        return "it is detached: another system takes it out of the tenant's network"
    if node.state is State.RELEASED:
        return reclaim_node(node, now)
    if is_being_released(node):  # without its tenant its ports would be an isolation violation
        return "its release is under way"
    if node.state is State.CERTIFIED:
        return node.model_copy(update={"tenant": "", "note": "no longer allocated"})
    return f"it is {node.state}, and is not reclaimed in this state"


def _managed(name: str, tenants: Sequence[Tenant]) -> Tenant | Refused:
    existing = next((t for t in tenants if t.name == name), None)
    if existing is None:
        return (_no(Reason.NOT_EXPECTED, name, "there is no such tenant", "Create it."),)
    if existing.number is None:
        detail = "it stands on the expected-hardware list, and its VRF is the site's own"
        return (_no(Reason.REFUSED, name, detail, "Change it on the list."),)
    if existing.phase is Phase.LEAVING:
        return (_no(Reason.BUSY, name, "it is being deleted", "Wait until it is gone."),)
    return existing


def _free_number(tenants: Sequence[Tenant], fabric: FabricPlan) -> int | None:
    """Return the lowest number whose VNI and P_Key are free, also of tenants on the list."""
    taken = {t.number for t in tenants}
    taken |= {t.l3vni - fabric.plan.vni_first for t in tenants}
    taken |= {t.pkey - PKEY_FIRST for t in tenants}
    return next((n for n in range(fabric.plan.tenants) if n not in taken), None)


def _misnamed(made: Tenant, tenants: Sequence[Tenant], fabric: FabricPlan) -> list[Blocker]:
    blockers = []
    if not _TENANTS_NAME.fullmatch(made.name):
        detail = f"{made.name!r:.40} is no name of a tenant"
        blockers.append(_no(Reason.REFUSED, made.name[:63], detail, "Use a-z, 0-9 and -."))
    limits = [leaf.limits.vrf_name_max for leaf in fabric.select_leaves(made)]
    problem = find_name_problem(made.vrf, min(limits, default=VRF_NAME_MAX))
    if problem is not None:
        blockers.append(_no(Reason.REFUSED, made.name, problem, "Name another VRF."))
    if any(t.vrf.lower() == made.vrf.lower() for t in tenants):
        detail = f"VRF {made.vrf} is another tenant's"
        blockers.append(_no(Reason.DUPLICATE, made.name, detail, "Name another VRF."))
    return blockers


def _find_bad_picks(
    tenant: Tenant, others: Sequence[Tenant], nodes: Sequence[Node]
) -> list[Blocker]:
    """Return why the tenant cannot get the nodes that a person picked for it."""
    by_name = {n.id: n for n in nodes if n.kind is NodeKind.HOST and n.state is not State.RETIRED}
    elsewhere = {name: t.name for t in others for name in t.picked}
    blockers = []
    for name in tenant.picked:
        node = by_name.get(name)
        if node is None:
            problem = "there is no such host"
        elif node.tenant not in ("", tenant.name):
            problem = f"tenant {node.tenant} has it"
        elif name in elsewhere:
            problem = f"it is picked for tenant {elsewhere[name]}"
        elif not tenant.may_have(node.location.pod, node.location.scalable_unit):
            problem = "it stands outside of the tenant's units"
        else:
            continue
        blockers.append(_no(Reason.PRECONDITION, name[:120], problem, "Pick another node."))
    if len(tenant.picked) > tenant.nodes_wanted:
        detail = f"{len(tenant.picked)} picked nodes are more than {tenant.nodes_wanted}"
        blockers.append(_no(Reason.QUOTA, tenant.name, detail, "Ask for as many, or pick fewer."))
    return blockers


def _unsound(tenant: Tenant, others: Sequence[Tenant], fabric: FabricPlan) -> list[Blocker]:
    blockers = []
    leaves = {leaf.switch for leaf in fabric.leaves}
    units = {(leaf.pod, leaf.unit) for leaf in fabric.leaves}
    for pod, unit in tenant.units:
        if (pod, unit) not in units:
            detail = f"no leaf of pod {pod}, scalable unit {unit} is known"
            blockers.append(_no(Reason.NOT_EXPECTED, tenant.name, detail, "Take its leaves in."))
    if not fabric.select_leaves(tenant) and not (fabric.partitions and not fabric.leaves):
        blockers.append(_no(Reason.NOT_EXPECTED, tenant.name, "no leaf is known", "Take them in."))
    taken = {t.vrf for t in others} | {tenant.vrf}
    for vrf in tenant.storage:
        misnamed = find_name_problem(vrf, VRF_NAME_MAX) is not None
        if misnamed or vrf in taken or vrf.lower() in RESERVED:
            detail = f"{vrf[:40]} is no VRF that a tenant may import from"
            blockers.append(_no(Reason.ISOLATION, tenant.name, detail, "Name a storage VRF."))
    if len(tenant.outside) > SESSIONS_MAX:
        detail = f"{len(tenant.outside)} sessions are more than {SESSIONS_MAX}"
        blockers.append(_no(Reason.QUOTA, tenant.name, detail, "Use fewer."))
    ends = [(o.switch, o.peer) for o in tenant.outside]
    for session in tenant.outside:
        subject = f"{tenant.name}/{session.switch}/{session.peer}"[:120]
        if session.switch not in leaves:
            detail = f"no leaf {session.switch[:63]} is known"
            blockers.append(
                _no(Reason.NOT_EXPECTED, subject, detail, "Take it in, or name another.")
            )
        if ends.count((session.switch, session.peer)) > 1:
            blockers.append(_no(Reason.DUPLICATE, subject, "it is listed twice", "Leave one."))
        problems = _bad(session, fabric.prefixes_max)
        blockers += [_no(Reason.REFUSED, subject, p, "Write it again.") for p in problems]
        if ":" in session.peer and tenant.security_groups:
            detail = "it brings IPv6, which the tenant's security groups do not filter"
            remedy = "Remove the security groups, or this session."
            blockers.append(_no(Reason.ISOLATION, subject, detail, remedy))
    return blockers


def _bad(session: Outside, site_max: int) -> list[str]:
    """Return the errors in a session's addresses, communities and limit."""
    errors = []
    family = 6 if ":" in session.peer else 4
    try:
        peer = ipaddress.ip_address(session.peer)
        if str(peer) != session.peer or peer.is_multicast or peer.is_unspecified:
            raise ValueError(session.peer)
        if peer.version == 6 and peer.is_link_local:
            raise ValueError(session.peer)  # it would need an interface beside it
    except ValueError:
        errors.append(f"{session.peer[:40]!r} is no IPv{family} address of a router")
    for prefixes in (session.accepts, session.sends):
        if len(prefixes) > PREFIXES_MAX:
            errors.append(f"{len(prefixes)} prefixes are more than {PREFIXES_MAX}")
        for prefix in prefixes[:PREFIXES_MAX]:
            try:
                network = ipaddress.ip_network(prefix)
                ok = str(network) == prefix and network.version == family
            except ValueError:
                ok = False
            if not ok:
                errors.append(f"{prefix[:40]!r} is no IPv{family} network")
    errors += [
        f"{community[:40]!r} is no community of the site's own"
        for community in session.communities
        if not _is_community(community)
    ]
    if session.accepts_parts and not (session.prefixes_max or site_max):
        errors.append("parts of prefixes may come in, and nothing limits how many: prefixes_max")
    return errors


def _is_community(text: str) -> bool:
    """Return whether it is one of RFC 1997 or 8092 as routers print it, and not a reserved one."""
    parts = text.split(":")
    if not all(p.isascii() and p.isdigit() and len(p) <= 10 and str(int(p)) == p for p in parts):
        return False
    numbers = [int(p) for p in parts]
    if len(parts) == 3:
        return max(numbers) < 2**32
    # 65535 is for well-known ones, graceful shutdown among them, and 0 is reserved (RFC 1997)
    return len(parts) == 2 and 0 < numbers[0] < 0xFFFF and numbers[1] < 2**16


def _within_quota(tenant: Tenant, nodes: Sequence[Node]) -> Tenant | Refused:
    hosts = [n for n in nodes if n.kind is NodeKind.HOST]
    return find_exceeded_quotas(tenant, count_usage(tenant, hosts)) or tenant

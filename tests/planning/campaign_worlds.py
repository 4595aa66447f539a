"""Small fleets for tests of campaigns, and limits counted anew, by other means than the code's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignState,
    Canary,
    Domain,
    LeafHosts,
    Limit,
    NodeProgress,
    Policy,
    Progress,
    TenantTerms,
    Wave,
)
from provisioner.model.node import NodeKind

OPEN = Policy(
    canary=Canary(size=0),
    waves=(Wave(),),
    limits={},
    switch_limits={},
    tenants=TenantTerms(notice_s=0),
    failure_budget=Limit(percent=100),
)


def policy(**changes: object) -> Policy:
    """No canaries, one wave, no limits, no notice; and what is given. Checked as a file's is."""
    return Policy.model_validate(OPEN.model_dump() | changes)


def campaign(rules: Policy = OPEN, **changes: object) -> Campaign:
    """A started one."""
    given = Campaign(
        id="c1", release="new", select="all", policy=rules, state=CampaignState.STARTED
    )
    return given.model_copy(update=changes)


def host(number: int, **changes: object) -> CampaignNode:
    """Host `number` of a site with 4 hosts a rack, 8 a unit, and 2 rails."""
    unit = number // 8
    return CampaignNode(
        name=f"h{number:03d}",
        rack=f"r{number // 4}",
        unit=f"su{unit}",
        leaves=(f"leaf-{unit}-0", f"leaf-{unit}-1"),
        profile="hgx",
        gpus=8,
        minutes=60,
        steps=3,
        resets=1,
    ).model_copy(update=changes)


def leaf(unit: int, rail: int, **changes: object) -> CampaignNode:
    """A leaf of that site."""
    return CampaignNode(
        name=f"leaf-{unit}-{rail}",
        kind=NodeKind.SWITCH,
        rack=f"r{unit * 2}",
        unit=f"su{unit}",
        rails=(rail,),
        profile="sn5600",
        minutes=20,
        steps=1,
        resets=1,
    ).model_copy(update=changes)


def rows(nodes: Iterable[CampaignNode], **states: Progress) -> dict[str, NodeProgress]:
    """All in one wave behind no canaries; those named in the states given."""
    return {
        n.name: NodeProgress(
            node=n.name,
            wave=1,
            state=states.get(n.name, Progress.PENDING),
            told=(n.tenant,) if n.tenant else (),
            notified_at=1.0,
        )
        for n in nodes
        if n.selected
    }


def most_of(limit: Limit | None, members: int) -> int:
    """The documented rounding, in exact arithmetic."""
    if limit is None:
        return members
    if limit.count is not None:
        return limit.count
    assert limit.percent is not None
    share = Fraction(str(limit.percent)) * members / 100
    return max(1, int(share)) if limit.percent else 0


def out_of(
    facts: Sequence[CampaignNode], progress: Mapping[str, NodeProgress], rules: Policy
) -> tuple[set[str], set[str]]:
    """Who is out of service: by itself or under way; and hosts of tenants below such a leaf."""
    under = {p.node for p in progress.values() if p.state is Progress.ADMITTED}
    out = {n.name for n in facts if not n.in_service or n.name in under}
    drained = {
        n.name
        for n in facts
        if rules.leaf_hosts is LeafHosts.DRAIN and n.tenant and under & set(n.leaves)
    }
    return out, out | drained


def counts(
    facts: Sequence[CampaignNode], progress: Mapping[str, NodeProgress], rules: Policy
) -> dict[tuple[str, object], tuple[int, int]]:
    """(domain, key) -> (how many are out, how many may be)."""
    out, with_drained = out_of(facts, progress, rules)
    have: Counter[tuple[str, object]] = Counter()
    gone: Counter[tuple[str, object]] = Counter()
    for node in facts:
        for key in keys(node):
            have[key] += 1
            wide = key[0] in ("host.tenant", "host.total")
            gone[key] += node.name in (with_drained if wide else out)
    found = {}
    for key, members in have.items():
        kind, _, domain = key[0].partition(".")
        limits = rules.limits if kind == "host" else rules.switch_limits
        if domain == "idle":
            may = members - _ceiling(rules.free_kept, members)
        elif domain in ("rail", "plane"):
            may = min(1, most_of(limits.get(Domain(domain), Limit(count=1)), members))
        elif domain == "group":
            may = max(1, members - 1)
        else:
            may = most_of(limits.get(Domain(domain)), members)
        found[key] = gone[key], max(0, may)
    return found


def keys(node: CampaignNode) -> list[tuple[str, object]]:
    """Every domain that a node is in."""
    kind = str(node.kind)
    found: list[tuple[str, object]] = [(f"{kind}.total", "")]
    if node.rack:
        found.append((f"{kind}.rack", node.rack))
    if node.unit:
        found.append((f"{kind}.scalable_unit", node.unit))
    if node.kind is NodeKind.HOST:
        found += [("host.leaf", name) for name in node.leaves]
        found.append(("host.tenant", node.tenant) if node.tenant else ("host.idle", node.profile))
    found += [("switch.rail", r) for r in node.rails]
    found += [("switch.plane", p) for p in node.planes]
    found += [("switch.group", g) for g in node.groups]
    return found


def _ceiling(limit: Limit, members: int) -> int:
    if limit.count is not None:
        return limit.count
    assert limit.percent is not None
    return -int(-(Fraction(str(limit.percent)) * members / 100) // 1)

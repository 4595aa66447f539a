"""Decide whether one node may begin now, apart from limits: rules, windows, tenants, neighbours.

Pure.

The result is a `Standing`: the hold, and whether the campaign continues without the node. A
deferral sets a node aside for a time, and a blocker until an operator acts. For notices and windows
the campaign waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from provisioner.model.campaign import (
    SETTLED,
    AtDeadline,
    Campaign,
    CampaignNode,
    CampaignNotice,
    Hold,
    NodeProgress,
    Progress,
)
from provisioner.model.node import NodeKind
from provisioner.planning.campaigns.campaign_policy_text import (
    NEVER,
    compute_deferral_end,
    find_begin,
)
from provisioner.planning.campaigns.limits import GroupedNodes


class Aside(IntEnum):
    """Whether later waves and the end of the campaign wait for a held node."""

    NO = 0  # later waves wait for the node
    FOR_A_TIME = 1  # later waves continue; the campaign stays open
    UNTIL_CHANGED = 2  # neither later waves nor the campaign wait for it


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a node may begin. Without a `hold` only the limits decide."""

    hold: Hold | None = None
    aside: Aside = Aside.NO
    skip: str = ""  # reason why the node is not upgraded
    retire: bool = False


READY = Standing()


@dataclass(slots=True)
class Situation:
    """One campaign at one moment, with cached lookups."""

    campaign: Campaign
    facts: Sequence[CampaignNode]  # by name
    progress: Mapping[str, NodeProgress]
    now: float
    by_name: dict[str, CampaignNode] = field(init=False)
    below: dict[str, list[CampaignNode]] = field(init=False)  # hosts by leaf
    under_way: frozenset[str] = field(init=False)
    outside: Mapping[str, Standing] = field(default_factory=dict)  # see `outside_holds.py`
    groups: dict[NodeKind, GroupedNodes] = field(default_factory=dict)  # see `rollout_room.py`
    _begins: dict[tuple[tuple[str, ...], int], float] = field(default_factory=dict)
    _standings: dict[str, Standing] = field(default_factory=dict)
    _untold: dict[str, Standing] = field(default_factory=dict)  # by tenant

    def __post_init__(self) -> None:
        self.by_name = {n.name: n for n in self.facts}
        self.under_way = frozenset(
            p.node for p in self.progress.values() if p.state is Progress.ADMITTED
        )
        self.below = {}
        if self.under_way <= self.by_name.keys() and all(
            n.kind is NodeKind.HOST for n in self.facts
        ):
            return  # without switches the hosts below a leaf are not needed
        for node in self.facts:
            for leaf in node.leaves:
                self.below.setdefault(leaf, []).append(node)

    def find_tenants(self, node: CampaignNode) -> tuple[str, ...]:
        """Return the tenants that need a notice: a host's own, or those below a leaf."""
        if node.kind is NodeKind.HOST:
            return (node.tenant,) if node.tenant else ()
        return tuple(sorted({h.tenant for h in self.below.get(node.name, ()) if h.tenant}))

    def judge_node(self, name: str) -> Standing:
        """Return the standing of a node.

        The result is cached for nodes whose standing depends on others, since these are asked
        often.
        """
        node = self.by_name[name]
        if node.kind is NodeKind.HOST and not node.after:
            return self._stands(node, self.progress[name])
        if name not in self._standings:
            # ends the recursion if nodes wait for one another in a cycle
            self._standings[name] = _CIRCLE
            self._standings[name] = self._stands(node, self.progress[name])
        return self._standings[name]

    def _stands(self, node: CampaignNode, progress: NodeProgress) -> Standing:
        return (
            self._refused(node)
            or self._waits_for(node)
            or self._terms(node, progress)
            or self._neighbours(node)
            or self.outside.get(node.name)
            or READY
        )

    def _refused(self, node: CampaignNode) -> Standing | None:
        if node.blockers:
            first = node.blockers[0]
            return _aside(str(first), first.unblock)
        if node.returning:
            hold = Hold(why="it is on its way into service", unblock="It follows by itself.")
            return Standing(hold, Aside.FOR_A_TIME)
        if not node.in_service and not node.recalled:
            return _aside("it is out of service", "Repair it; it is taken in again when it serves.")
        if node.one_way and (
            unsaid := sorted(set(node.one_way) - set(self.campaign.one_way_confirmed))
        ):
            return _aside(f"{unsaid[0]} cannot be undone", f"Confirm the one-way step {unsaid[0]}.")
        if node.irreversible and not self.campaign.policy.allow_irreversible:
            why = f"there is no way back: {node.irreversible[0]}"
            return _aside(why, f"{node.irreversible[0].unblock} Or set allow_irreversible.")
        return None

    def _waits_for(self, node: CampaignNode) -> Standing | None:
        for name in node.after:
            earlier = self.progress.get(name)
            if earlier is None:
                return _aside(f"{name} must be upgraded first", f"Select {name} too.")
            if earlier.state is Progress.DONE:
                continue
            ended = earlier.state in SETTLED
            aside = Aside.UNTIL_CHANGED if ended else self._aside_of(name)
            why = f"{name} must be upgraded first, and is {earlier.state}"
            unblock = f"Bring {name} to the release." if ended else "It follows by itself."
            return Standing(Hold(why=why, unblock=unblock), aside)
        return None

    def _aside_of(self, name: str) -> Aside:
        if self.progress[name].state in (Progress.ADMITTED, Progress.SOAKING):
            return Aside.NO
        return self.judge_node(name).aside

    def _terms(self, node: CampaignNode, progress: NodeProgress) -> Standing | None:
        terms = self.campaign.policy.tenants
        now = self.now
        if progress.state is Progress.DEFERRED and progress.deferred_until > now:
            hold = Hold(
                why="its tenant has put it off",
                unblock="It follows when that time is over, or when the tenant agrees earlier.",
                until=progress.deferred_until,
            )
            return Standing(hold, Aside.FOR_A_TIME)
        used_up = progress.deferred_until > 0 and progress.deferred_until >= compute_deferral_end(
            progress, terms
        )
        if used_up and terms.at_deadline is AtDeadline.SKIP:
            return Standing(skip="its tenant put it off for as long as it may")
        tenants = self.find_tenants(node)
        for tenant in tenants:
            if tenant not in progress.told:
                if tenant not in self._untold:
                    hold = Hold(why=f"tenant {tenant} must be notified first", unblock=_BY_ITSELF)
                    self._untold[tenant] = Standing(hold)
                return self._untold[tenant]
        if tenants and progress.earliest_at > now:
            why = f"the notice to {', '.join(tenants)} is not over"
            return Standing(Hold(why=why, unblock=_BY_ITSELF, until=progress.earliest_at))
        at = self.find_begin(tenants, node.minutes)
        if at == NEVER:
            why = f"it takes {node.minutes} minutes, and no window is so long"
            return _aside(why, "Make a longer window, in the policy or for the tenant.")
        if at > now:
            return Standing(Hold(why="no window is open", unblock=_BY_ITSELF, until=at))
        if used_up and terms.at_deadline is AtDeadline.RETIRE:
            return Standing(retire=True)
        return None

    def find_begin(self, tenants: tuple[str, ...], minutes: int) -> float:
        """Return the earliest time at which windows permit work of so many minutes."""
        key = tenants, minutes
        if key not in self._begins:
            policy = self.campaign.policy
            calendars = [policy.windows, *(policy.tenants.windows.get(t, ()) for t in tenants)]
            self._begins[key] = find_begin(calendars, policy.freezes, minutes, self.now)
        return self._begins[key]

    def _neighbours(self, node: CampaignNode) -> Standing | None:
        """Hold a host while its leaf is being upgraded, and a leaf while a host below it is."""
        busy = [leaf for leaf in node.leaves if leaf in self.under_way]
        if busy:
            return Standing(Hold(why=f"its leaf {busy[0]} is being upgraded", unblock=_BY_ITSELF))
        hosts = [h.name for h in self.below.get(node.name, ()) if h.name in self.under_way]
        if hosts:
            why = f"{hosts[0]} and {len(hosts) - 1} more below it are being upgraded"
            return Standing(Hold(why=why, unblock=_BY_ITSELF))
        return None

    def build_notices(self, node: CampaignNode, progress: NodeProgress) -> list[CampaignNotice]:
        """Return the notices that tenants must get before a node begins, and have not got."""
        notice_s = self.campaign.policy.tenants.notice_s
        earliest = self.now + notice_s
        description = "host" if node.kind is NodeKind.HOST else "leaf of your hosts"
        return [
            CampaignNotice(
                node=node.name,
                tenant=tenant,
                earliest_at=earliest,
                text=f"{node.name} ({description}) is brought to {self.campaign.target}; "
                f"it is out of service for about {node.minutes} minutes.",
            )
            for tenant in self.find_tenants(node)
            if tenant not in progress.told
        ]


_BY_ITSELF = "It follows by itself."


def _aside(why: str, unblock: str) -> Standing:
    return Standing(Hold(why=why, unblock=unblock), Aside.UNTIL_CHANGED)


_CIRCLE = _aside("it waits for itself", "Look at its rules between versions.")

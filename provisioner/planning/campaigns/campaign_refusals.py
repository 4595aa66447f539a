"""Why a campaign cannot be made, started or changed: refusals with what would help. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.campaign import Campaign
from provisioner.model.campaign_policy import LeafHosts, Policy
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason


def unfit(nodes: Sequence[Node], release: str, policy: Policy) -> tuple[Blocker, ...]:
    """Why no campaign can be made of these nodes; () if one can."""

    def no(detail: str, unblock: str) -> Blocker:
        return Blocker(
            reason=Reason.PRECONDITION, subject="--select", detail=detail, unblock=unblock
        )

    if not nodes:
        return (no("it picks no node", "See `provisioner node list`."),)
    sources = sorted({n.release for n in nodes if n.release != release})
    if len(sources) > 1:
        detail = f"these nodes come from several releases: {', '.join(sources)}"
        return (no(detail, f"Make one campaign of each: ... and release={sources[0]}."),)
    leaves = [n for n in nodes if n.kind is NodeKind.SWITCH]
    if leaves and policy.leaf_hosts is LeafHosts.KEEP:
        detail = f"{leaves[0].id} goes down only while no host on it is in use (leaf_hosts: keep)"
        return (no(detail, "Set leaf_hosts: drain, or select kind=host."),)
    return ()


def unconfirmed(
    campaign: Campaign, rows: Sequence[CampaignRow], confirmed: Sequence[str]
) -> list[Blocker]:
    """Steps that nothing undoes, and that nobody has confirmed by name."""
    steps = sorted({s for r in rows for s in r.facts.one_way} - set(confirmed))
    return [
        refusal(campaign, f"{step} cannot be undone", f'Confirm it: --confirm "{step}".')
        for step in steps
    ]


def not_now(campaign: Campaign, word: str) -> Blocker:
    """A request that the campaign's state does not allow."""
    detail = f"it is {campaign.state}" + (" and goes back" if campaign.going_back else "")
    return refusal(campaign, f"{detail}: {word} is not possible", "See docs/campaigns.md.")


def refusal(campaign: Campaign, detail: str, unblock: str) -> Blocker:
    """A refusal that is about the campaign as a whole."""
    return Blocker(reason=Reason.REFUSED, subject=campaign.id, detail=detail, unblock=unblock)

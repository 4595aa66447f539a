"""Refusals to create, start or change a campaign, each with its remedy. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from provisioner.model.campaign import Campaign
from provisioner.model.campaign_policy import LeafHosts, Policy
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.campaign_preview import Preview


def refuse_selection(nodes: Sequence[Node], release: str, policy: Policy) -> tuple[Blocker, ...]:
    """Return why no campaign can be made of these nodes; () if one can."""

    def refuse_select(detail: str, unblock: str) -> Blocker:
        return Blocker(
            reason=Reason.PRECONDITION, subject="--select", detail=detail, unblock=unblock
        )

    if not nodes:
        return (refuse_select("it picks no node", "See `provisioner node list`."),)
    sources = sorted({n.release for n in nodes if n.release != release})
    if len(sources) > 1:
        detail = f"these nodes come from several releases: {', '.join(sources)}"
        return (refuse_select(detail, f"Make one campaign of each: ... and release={sources[0]}."),)
    leaves = [n for n in nodes if n.kind is NodeKind.SWITCH]
    if leaves and policy.leaf_hosts is LeafHosts.KEEP:
        detail = f"{leaves[0].id} goes down only while no host on it is in use (leaf_hosts: keep)"
        return (refuse_select(detail, "Set leaf_hosts: drain, or select kind=host."),)
    return ()


def find_unconfirmed_steps(
    campaign: Campaign, rows: Sequence[CampaignRow], confirmed: Sequence[str]
) -> list[Blocker]:
    """Return a refusal for each irreversible step that is not confirmed by name."""
    steps = sorted({s for r in rows for s in r.facts.one_way} - set(confirmed))
    return [
        refuse_campaign(campaign, f"{step} cannot be undone", f'Confirm it: --confirm "{step}".')
        for step in steps
    ]


def find_standstill(campaign: Campaign, preview: Preview) -> list[Blocker]:
    """Return why a campaign would stop, or move no node, by its own preview; [] if it would not."""
    if preview.stopped:
        return list(preview.stopped)
    if any(wave.begins_s is not None for wave in preview.waves):
        return []
    reasons = Counter((b.detail, b.unblock) for b in preview.refused.values())
    if not reasons:
        return []
    (why, unblock), count = reasons.most_common(1)[0]
    detail = f"no node would begin ({count} of {len(preview.refused)}: {why})"
    return [refuse_campaign(campaign, detail, unblock)]


def refuse_in_state(campaign: Campaign, word: str) -> Blocker:
    """Return the refusal of a request that the campaign's state does not allow."""
    detail = f"it is {campaign.state}" + (" and goes back" if campaign.going_back else "")
    return refuse_campaign(campaign, f"{detail}: {word} is not possible", "See docs/campaigns.md.")


def refuse_campaign(campaign: Campaign, detail: str, unblock: str) -> Blocker:
    """Return a refusal that concerns the campaign as a whole."""
    return Blocker(reason=Reason.REFUSED, subject=campaign.id, detail=detail, unblock=unblock)

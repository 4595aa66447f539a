"""One word of each node that its own record does not have: for the colours of the fleet's map.

The database reads single values of the stored records, and no record is built.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Double, Integer, cast, func, select

from provisioner.model.campaign import CampaignState
from provisioner.store.rows.json_text import json_text
from provisioner.store.schema.campaign_schema import campaign_nodes, campaigns
from provisioner.store.schema.schema import alerts, certificates, nodes

UNDER_WAY = tuple(
    state.value
    for state in CampaignState
    if state not in (CampaignState.DRAFT, CampaignState.DONE, CampaignState.ABORTED)
)
DAY_S = 86_400.0
# (seconds that are left at most, word), the shortest first
LEFT = (
    (0.0, "expired"),
    (DAY_S, "within a day"),
    (7 * DAY_S, "within a week"),
    (30 * DAY_S, "within 30 days"),
)
LATER = "later"

Marks = Sequence[tuple[str, str]]  # (node, word), by node


def read_certificate_marks(connection: Connection, now: float) -> Marks:
    """Return the span within which the certificate of a node ends; revoked ones are none."""
    ends_at = cast(json_text(certificates.c.body, "expires_at"), Double)
    held = json_text(nodes.c.body, "certificate")
    query = (
        select(nodes.c.id, ends_at)
        .select_from(nodes.join(certificates, certificates.c.id == held))
        .where(certificates.c.revoked_at.is_(None), ends_at.is_not(None))
    )
    rows = connection.execute(query.order_by(nodes.c.id))
    return [(row[0], name_time_left(float(row[1]) - now)) for row in rows]


def name_time_left(left_s: float) -> str:
    """Return the word for the seconds that a certificate is still valid."""
    return next((word for most_s, word in LEFT if left_s <= most_s), LATER)


def read_alert_marks(connection: Connection, _now: float) -> Marks:
    """Return the active alert of a node: the first by name, where it has several."""
    query = select(alerts.c.node, func.min(alerts.c.id)).where(alerts.c.active == 1)
    rows = connection.execute(query.group_by(alerts.c.node).order_by(alerts.c.node))
    return [(row[0], row[1]) for row in rows]


def read_wave_marks(connection: Connection, _now: float) -> Marks:
    """Return the wave of a node in the campaign under way, the newest one of several."""
    wave = cast(func.coalesce(json_text(campaign_nodes.c.body, "progress.wave"), "0"), Integer)
    canaries = cast(json_text(campaigns.c.body, "policy.canary.size"), Integer)
    query = (
        select(campaign_nodes.c.node, campaigns.c.id, wave, canaries)
        .select_from(campaign_nodes.join(campaigns, campaigns.c.id == campaign_nodes.c.campaign))
        .where(campaigns.c.state.in_(UNDER_WAY))
        .order_by(campaigns.c.created_at, campaigns.c.id)
    )
    words = {
        node: f"{campaign} {_name_wave(number, has_canaries=size != 0)}"
        for node, campaign, number, size in connection.execute(query)
    }
    return sorted(words.items())


def _name_wave(number: int, *, has_canaries: bool) -> str:
    """Return the name of a wave, as the page of its campaign has it."""
    if has_canaries and number == 0:
        return "canaries"
    return f"wave {number + (0 if has_canaries else 1)}"

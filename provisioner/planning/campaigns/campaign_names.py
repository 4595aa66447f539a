"""Names of campaigns that clients choose, beside the numbers that the daemon gives. Pure.

A client that names its campaign may repeat a request whose answer was lost: the name is taken once,
and a repeated request with the same fields gets the same campaign.
"""

from __future__ import annotations

import re

from provisioner.model.campaign import Campaign
from provisioner.model.campaign_policy import Policy
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason

NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
NUMBER = re.compile(r"c[0-9]+|draft")  # the daemon's own, and a draft that is not written


def check_campaign_name(name: str) -> None:
    """Raise InputError for a name that no client may choose; "" is none."""
    if not name:
        return
    if not NAME.fullmatch(name):
        remedy = "Write small letters, digits and hyphens, a letter first, at most 63."
        raise InputError("--name", name[:80], "not a name of a campaign", remedy)
    if NUMBER.fullmatch(name):
        remedy = "Choose another; names like c0001 are numbers that the daemon gives."
        raise InputError("--name", name, "reserved", remedy)


def refuse_other_draft(
    standing: Campaign, release: str, select: str, policy: Policy | None
) -> tuple[Blocker, ...]:
    """Return the blocker of a name that stands for another campaign; () for the same fields."""
    if (standing.release, standing.select, standing.policy) == (
        release,
        select,
        policy or Policy(),
    ):
        return ()
    detail = f"there is a campaign of this name: {standing.release}, {standing.select}"
    unblock = "Choose another name; a campaign's release, selection and policy never change."
    return (
        Blocker(reason=Reason.DUPLICATE, subject=standing.id, detail=detail[:300], unblock=unblock),
    )

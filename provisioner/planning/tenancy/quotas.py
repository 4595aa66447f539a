"""Quotas of tenants compared with their use. Pure.

A quota is compared with the requested numbers, not with those reached so far, so that a request
that can never be fulfilled is refused at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.model.base import Record
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Tenant

GPUS_PER_NODE = 8  # HGX, eight rails: one GPU each


class Usage(Record):
    """The resources that a tenant has at present, and those it waits for."""

    nodes: int  # allocated to it
    wanted: int
    gpus: int  # of the wanted nodes
    prefixes: int  # that it exchanges with the outside, each counted once


def count_usage(tenant: Tenant, nodes: Iterable[Node], gpus_per_node: int = GPUS_PER_NODE) -> Usage:
    """Return the tenant's share of the site."""
    held = sum(n.tenant == tenant.name for n in nodes)
    return Usage(
        nodes=held,
        wanted=tenant.nodes_wanted,
        gpus=max(held, tenant.nodes_wanted) * gpus_per_node,
        prefixes=len({p for o in tenant.outside for p in (*o.accepts, *o.sends)}),
    )


def find_exceeded_quotas(tenant: Tenant, used: Usage) -> tuple[Blocker, ...]:
    """Return a blocker for every quota that the tenant's request exceeds."""
    quota = tenant.quota
    return tuple(
        Blocker(
            reason=Reason.QUOTA,
            subject=tenant.name,
            detail=f"{number} {unit} are wanted, and it may have {limit}",
            unblock="Ask for less, or raise its quota.",
        )
        for unit, number, limit in (
            ("nodes", max(used.nodes, used.wanted), quota.nodes),
            ("GPUs", used.gpus, quota.gpus),
            ("outside prefixes", used.prefixes, quota.prefixes),
        )
        if limit is not None and number > limit
    )

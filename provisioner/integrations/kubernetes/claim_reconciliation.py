"""A claim of nodes: the sum of a tenant's claims is its number of nodes at the daemon.

A claim counts only if the tenant's resource names its namespace. Where that resource has `nodes`
itself, claims change nothing and share the tenant's nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from provisioner.integrations.kubernetes.api_client import ApiClient, Change
from provisioner.integrations.kubernetes.claim_sharing import Claim, find_demand, share_nodes
from provisioner.integrations.kubernetes.conditions import (
    READY,
    Condition,
    Outcome,
    Refusal,
    accept,
    refuse,
    wait,
)
from provisioner.integrations.kubernetes.specs import TenantSpec
from provisioner.integrations.kubernetes.tenant_reconciliation import follow_operation, report_open

SERVING = "released"  # the state of a node in its tenant's network


async def reconcile_claim(
    api: ApiClient,
    claim: Claim,
    others: Sequence[Claim],
    tenant: TenantSpec | None,
    standing: Mapping[str, Any],
) -> Outcome:
    """Bring a tenant's nodes closer to its claims, and report this one's share. Raises NoAnswer.

    `others`: the tenant's other claims whose namespaces it names; `tenant`: its resource;
    `standing`: the status of this claim.
    """
    refusal = check_claim(claim, tenant)
    if refusal is not None:
        return refuse(refusal)
    assert tenant is not None
    waiting = await follow_operation(api, standing)
    if waiting is not None:
        return waiting
    answer = await api.read(f"/tenants/{claim.tenant}")
    if answer is None:
        return wait("TenantMissing", "The daemon has no record of the tenant yet.")
    nodes = await api.list_nodes(claim.tenant)
    present = answer.document["tenant"]["nodes_wanted"]
    if tenant.nodes is None:
        made = await ask_for_nodes(api, claim, others, present, nodes, answer.etag)
        if made.refusal is not None:
            return refuse(made.refusal, {"operation": None})
        if made.operation:
            return report_open(made)
        nodes = await api.list_nodes(claim.tenant)
        return report_share(_take(claim), others, nodes)
    return report_share(_take(claim), [_take(c) for c in others], nodes)


def check_claim(claim: Claim, tenant: TenantSpec | None) -> Refusal | None:
    """Return why a claim does not count at all."""
    if tenant is None:
        detail = f"There is no Tenant {claim.tenant} in this cluster."
        return Refusal("tenant_missing", detail, "create it, or name another in spec.tenant.")
    if claim.namespace not in tenant.namespaces:
        detail = f"The Tenant {claim.tenant} does not name the namespace {claim.namespace}."
        return Refusal("namespace_not_named", detail, "add it to spec.namespaces of the Tenant.")
    return None


async def ask_for_nodes(
    api: ApiClient,
    claim: Claim,
    others: Sequence[Claim],
    present: int,
    nodes: Sequence[Mapping[str, Any]],
    etag: str,
) -> Change:
    """Change the tenant's number of nodes if the claim asks for another. Raises NoAnswer."""
    held = [str(n["id"]) for n in nodes]
    demand = find_demand(claim, others, present, held, _find_ready(nodes))
    if isinstance(demand, Refusal):
        return Change(refusal=demand)
    if demand is None:
        return Change()
    path = f"/tenants/{claim.tenant}"
    if demand.to > present:
        return await api.change("PATCH", path, {"nodes": demand.to}, etag)
    body = {"to": demand.to, "nodes": list(demand.leaving)}
    return await api.change("POST", f"{path}/shrink", body, etag)


def report_share(
    claim: Claim, others: Sequence[Claim], nodes: Sequence[Mapping[str, Any]]
) -> Outcome:
    """Return conditions and nodes of one claim."""
    states = {str(n["id"]): str(n["state"]) for n in nodes}
    share = share_nodes((claim, *others), states, _find_ready(nodes))[claim.uid]
    serving = sum(states[n] == SERVING for n in share)
    fields = {
        "claimed": claim.count,
        "ready": serving,
        "nodes": [{"name": n, "state": states[n]} for n in share],
        "operation": None,
    }
    if serving < claim.count:
        text = (
            f"{len(share)} of {claim.count} nodes are allocated, {serving} serve. "
            "Unblock: certified nodes follow by themselves; the home page lists what blocks others."
        )
        return wait("ShortOfNodes", text, fields)
    return accept(Condition(READY, "True", "Ready"), fields)


async def release_claim(
    api: ApiClient,
    claim: Claim,
    others: Sequence[Claim],
    tenant: TenantSpec | None,
    standing: Mapping[str, Any],
) -> Outcome:
    """Give a claim's nodes back; `gone` once the daemon took that. Raises NoAnswer.

    The nodes are drained, fenced and erased afterwards, as after every shrink.
    """
    if check_claim(claim, tenant) is not None or tenant is None or tenant.nodes is not None:
        return Outcome((), gone=True)
    waiting = await follow_operation(api, standing)
    if waiting is not None:
        return waiting
    answer = await api.read(f"/tenants/{claim.tenant}")
    if answer is None or not claim.claimed:
        return Outcome((), gone=True)
    present = answer.document["tenant"]["nodes_wanted"]
    nodes = await api.list_nodes(claim.tenant)
    made = await ask_for_nodes(api, claim, others, present, nodes, answer.etag)
    if made.refusal is not None:
        return refuse(made.refusal, {"operation": None})
    return report_open(made) if made.operation else Outcome((), gone=True)


def _take(claim: Claim) -> Claim:
    return replace(claim, claimed=claim.count)


def _find_ready(nodes: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(str(n["id"]) for n in nodes if n["state"] == SERVING)

"""A tenant's custom resource: created, changed and deleted at the daemon until they agree.

Nothing is sent while the daemon's record is as the resource says. Fewer nodes are a shrink; which
nodes leave is the daemon's choice here, and the claims' own where claims give nodes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.integrations.kubernetes.api_client import Answer, ApiClient, Change
from provisioner.integrations.kubernetes.conditions import (
    READY,
    Condition,
    Outcome,
    accept,
    refuse,
    wait,
)
from provisioner.integrations.kubernetes.specs import DeletionPolicy, TenantSpec


async def reconcile_tenant(
    api: ApiClient, name: str, spec: TenantSpec, standing: Mapping[str, Any]
) -> Outcome:
    """Bring one tenant closer to its resource; `standing`: its status. Raises NoAnswer."""
    waiting = await follow_operation(api, standing)
    if waiting is not None:
        return waiting
    answer = await api.read(f"/tenants/{name}")
    for verb, path, body in list_changes(name, spec, answer):
        made = await api.change(verb, path, body, answer.etag if answer else "")
        if made.refusal is not None:
            return refuse(made.refusal, {"operation": None})
        if made.operation:
            return report_open(made)
        answer = await api.read(f"/tenants/{name}")
    if answer is None:
        return wait("Making", "The daemon has no record of it yet.", {"operation": None})
    return report_tenant(answer.document)


def list_changes(
    name: str, spec: TenantSpec, answer: Answer | None
) -> tuple[tuple[str, str, Mapping[str, Any]], ...]:
    """Return the requests that lead from the daemon's record to the resource."""
    desired = dict(spec.build_body())
    if answer is None:
        return (("PUT", f"/tenants/{name}", {**desired, "nodes": spec.nodes or 0}),)
    tenant = answer.document["tenant"]
    number = tenant["nodes_wanted"]
    changes: list[tuple[str, str, Mapping[str, Any]]] = []
    if spec.nodes is not None and spec.nodes < number:
        changes.append(("POST", f"/tenants/{name}/shrink", {"to": spec.nodes, "nodes": []}))
    elif spec.nodes is not None:
        desired["nodes"] = spec.nodes
    present = {**tenant, "nodes": number}
    differing = {k: v for k, v in desired.items() if present.get(k) != v}
    if differing:
        changes.append(("PATCH", f"/tenants/{name}", differing))
    return tuple(changes)


def report_tenant(document: Mapping[str, Any]) -> Outcome:
    """Return conditions and figures of the daemon's record."""
    tenant = document["tenant"]
    nodes = document["usage"]["nodes"]
    number = tenant["nodes_wanted"]
    fields = {
        "phase": tenant["phase"],
        "l3vni": tenant["l3vni"],
        "nodes": nodes,
        "nodesWanted": number,
        "operation": None,
    }
    if tenant["phase"] != "ready":
        text = "Its network is not proved on every device yet; the daemon continues by itself."
        return wait("Making", text, fields)
    if nodes < number:
        text = f"It has {nodes} of {number} nodes. Unblock: certified nodes follow by themselves."
        return wait("ShortOfNodes", text, fields)
    return accept(Condition(READY, "True", "Ready"), fields)


async def remove_tenant(
    api: ApiClient, name: str, policy: DeletionPolicy, standing: Mapping[str, Any]
) -> Outcome:
    """Delete the tenant at the daemon; `gone` once it has no record of it. Raises NoAnswer."""
    if policy is DeletionPolicy.RETAIN or await api.read(f"/tenants/{name}") is None:
        return Outcome((), gone=True)
    waiting = await follow_operation(api, standing)
    if waiting is not None:
        return waiting
    made = await api.change("DELETE", f"/tenants/{name}")
    if made.refusal is not None:
        return refuse(made.refusal, {"operation": None})
    if made.operation:
        return report_open(made)
    if await api.read(f"/tenants/{name}") is None:
        return Outcome((), gone=True)
    text = "Its network is being removed from every device."
    return wait("Deleting", text, {"operation": None})


async def follow_operation(api: ApiClient, standing: Mapping[str, Any]) -> Outcome | None:
    """Return the outcome of the request that the status names; None: there is nothing to await."""
    operation = str(standing.get("operation") or "")
    if not operation:
        return None
    made = await api.follow(operation)
    if made.refusal is not None:
        return refuse(made.refusal, {"operation": None})
    return report_open(made) if made.operation else None


def report_open(made: Change) -> Outcome:
    """Return the outcome of a request that is under way, or waits for another person."""
    text = f"Operation {made.operation} is under way. {made.note}".strip()
    return wait("OperationOpen", text, {"operation": made.operation})

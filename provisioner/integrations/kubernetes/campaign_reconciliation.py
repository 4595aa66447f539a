"""A campaign's custom resource: drafted once under its name, then started, paused or aborted.

The operator resumes only a campaign that it paused itself. One that stopped itself, or that a
person paused, stays so until a person resumes it: the resource says why it is not running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from provisioner.integrations.kubernetes.api_client import ApiClient
from provisioner.integrations.kubernetes.conditions import (
    READY,
    Condition,
    Outcome,
    Refusal,
    accept,
    refuse,
    wait,
)
from provisioner.integrations.kubernetes.specs import CampaignRun, CampaignSpec, DeletionPolicy
from provisioner.integrations.kubernetes.tenant_reconciliation import follow_operation, report_open

PAUSED_HERE = "spec.run of its Kubernetes resource"  # the reason of our pauses
OVER = frozenset({"done", "aborted"})
R = CampaignRun


async def reconcile_campaign(
    api: ApiClient, name: str, spec: CampaignSpec, standing: Mapping[str, Any], generation: int
) -> Outcome:
    """Bring one campaign closer to its resource; `standing`: its status. Raises NoAnswer."""
    waiting = await follow_operation(api, standing)
    if waiting is not None:
        return waiting
    answer = await api.read(f"/campaigns/{name}")
    if answer is None or standing.get("draftedGeneration") != generation:
        # the daemon compares: the same draft again is the same campaign, another one is refused
        draft: dict[str, Any] = {"name": name, "release": spec.release, "select": spec.select}
        if spec.policy is not None:
            draft["policy"] = spec.policy
        made = await api.change("POST", "/campaigns", draft)
        if made.refusal is not None:
            return refuse(made.refusal, {"operation": None})
        if made.operation:
            return report_open(made)
        answer = await api.read(f"/campaigns/{name}")
    if answer is None:
        return wait("Drafting", "The daemon has no record of it yet.", {"operation": None})
    move = choose_move(answer.document["campaign"], spec)
    if isinstance(move, Refusal):
        text = move.format_message()
        fields = {**count_progress(answer.document), "draftedGeneration": generation}
        return wait(move.reason, text, fields)
    if move is not None:
        made = await api.change("POST", f"/campaigns/{name}/{move[0]}", move[1])
        if made.refusal is not None:
            return refuse(made.refusal, {"operation": None, "draftedGeneration": generation})
        if made.operation:
            return report_open(made)
        answer = await api.read(f"/campaigns/{name}") or answer
    return report_campaign(answer.document, generation)


def choose_move(
    campaign: Mapping[str, Any], spec: CampaignSpec
) -> tuple[str, Mapping[str, Any] | None] | Refusal | None:
    """Return the request that the resource asks for, why there is none, or None: nothing to do."""
    state = campaign["state"]
    if state in OVER or campaign["going_back"]:
        return None  # a person who rolls it back decides from then on
    if spec.run is R.ABORTED:
        return "abort", {"reason": PAUSED_HERE}
    if spec.run is R.RUNNING:
        if state == "draft":
            return "start", {"confirm": list(spec.confirm)}
        if state == "paused" and campaign["reason"] == PAUSED_HERE:
            return "resume", None
        if state in ("paused", "stopped"):
            detail = f"It is {state}: {campaign['reason']}."
            unblock = "resume, abort or roll it back in the console or by `provisioner campaign`."
            return Refusal("Paused" if state == "paused" else "Stopped", detail, unblock)
    if spec.run in (R.PAUSED, R.DRAFT) and state == "started":
        return "pause", {"reason": PAUSED_HERE}
    return None


def report_campaign(document: Mapping[str, Any], generation: int) -> Outcome:
    """Return conditions and figures of the daemon's record."""
    campaign = document["campaign"]
    fields = {**count_progress(document), "draftedGeneration": generation}
    state = campaign["state"]
    if state == "done":
        return accept(Condition(READY, "True", "Done"), fields)
    text = f"{fields['done']} of {fields['total']} nodes are done."
    if campaign["reason"]:
        text = f"{campaign['reason']}. {text}"
    if state == "draft":
        text = "No node is changed before spec.run is Running."
    return wait(state.title().replace("_", ""), text, fields)


def count_progress(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the figures of a campaign's status."""
    states = Counter(str(row["state"]) for row in document["nodes"])
    return {
        "state": document["campaign"]["state"],
        "done": states["done"],
        "failed": states["failed"],
        "total": states.total(),
        "operation": None,
    }


async def remove_campaign(
    api: ApiClient, name: str, policy: DeletionPolicy, standing: Mapping[str, Any]
) -> Outcome:
    """Abort a campaign that is not over; its record and report stay. Raises NoAnswer."""
    answer = await api.read(f"/campaigns/{name}")
    if policy is DeletionPolicy.RETAIN or answer is None or not standing.get("draftedGeneration"):
        return Outcome((), gone=True)
    if answer.document["campaign"]["state"] in {*OVER, "draft"}:
        return Outcome((), gone=True)
    waiting = await follow_operation(api, standing)
    if waiting is not None:
        return waiting
    reason = {"reason": "its Kubernetes resource was deleted"}
    made = await api.change("POST", f"/campaigns/{name}/abort", reason)
    if made.refusal is not None:
        return refuse(made.refusal, {"operation": None})
    return report_open(made) if made.operation else Outcome((), gone=True)

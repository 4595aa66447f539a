"""Routes that report on nodes: explanation, inventory, erasure, release proof, rejudgement.

A rejudgement judges stored evidence again by today's rules, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from provisioner import checks
from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import ANYBODY, VIEWERS, Effect, Route
from provisioner.checks.context import build_context
from provisioner.checks.threshold_data import Limits
from provisioner.control.node.explaining import read_situation
from provisioner.execution.validate.validator import judging_context
from provisioner.model.base import Record
from provisioner.model.cohort import CheckResult, Evidence, Finding
from provisioner.model.erasure import ErasureReport
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.tenant import LibraryMinimum, ReleaseProof
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.certification.attested_state import (
    ProvedRoot,
    ShownBoot,
    find_rule,
    list_differences,
    list_results,
    parse_evidence,
    summarise_boot,
    summarise_devices,
    summarise_roots,
)
from provisioner.planning.certification.regression import Rejudgement, rejudge_report
from provisioner.planning.erasure.erasure import PAYLOAD_TYPE, certificate_text, render_certificate
from provisioner.planning.lifecycle.explain import Explanation, explain
from provisioner.planning.matrix import thresholds_text
from provisioner.planning.matrix.standing import list_library_minimums
from provisioner.planning.release.release_probes import list_proof_objections

TAG = "nodes"
THRESHOLDS_MAX = 200_000  # characters; a site's own thresholds are some hundred lines


class NodeExplanation(Explanation):
    """A node in plain sentences: its state, the cause, the next step, the remedy for a blocker."""


class ErasureView(Record):
    """The last erasure of a node: as text, and as a signed DSSE envelope."""

    text: str
    envelope: dict[str, Any]


class ProofView(Record):
    """The proof of a node's last release, and the objections to it."""

    proof: ReleaseProof
    valid: bool
    objections: tuple[str, ...]


class NodeLibraries(Record):
    """The oldest versions of NCCL, DOCA and CUDA that software on a node needs."""

    node: str
    release: str
    profile: str = Field(description="Profile of the release; empty: not identified yet.")
    libraries: tuple[LibraryMinimum, ...]


class EvidenceQuery(Record):
    """Whether the stored evidence itself is shown."""

    evidence: bool = Field(
        default=False, description="Show the stored evidence too, as `attest admit` reads it."
    )


class NodeAttestation(Record):
    """Signed evidence of a node's last validation, compared with the golden values of today."""

    node: str
    proved_at: InstantOrNone
    policy: str = Field(description="Of the roots of trust; empty: the profile does not decide.")
    secure_boot_policy: str = Field(
        description="Policy of Secure Boot; empty: the profile does not decide."
    )
    gpu_reports_policy: str = Field(
        description="Policy of the GPUs' reports; empty: the profile does not decide."
    )
    nvswitch_reports_policy: str = Field(
        description="Policy of the NVSwitches' reports; empty: the profile does not decide."
    )
    roots: tuple[ProvedRoot, ...] = Field(
        description="Roots of trust that gave a signed answer, compared with today's golden values."
    )
    devices: tuple[ProvedRoot, ...] = Field(
        description="GPUs and NVSwitches that gave a report, compared with today's golden values."
    )
    systems: tuple[ShownBoot, ...] = Field(description="Secure Boot, system by system.")
    differences: tuple[Finding, ...] = Field(
        description="Findings of the validation, with golden and found values."
    )
    evidence: dict[str, Evidence] = Field(
        description="Stored outputs by command; empty unless they are asked for."
    )


class RejudgeQuestion(Record):
    """The body of a judgement: the node, and the thresholds."""

    node: str = Field("", max_length=128, description="Select this node; empty: every node.")
    thresholds: str | None = Field(
        None,
        max_length=THRESHOLDS_MAX,
        description="Thresholds to judge by, YAML (docs/thresholds.md); else the daemon's own.",
    )


class RejudgedResult(Record):
    """One result, as it was and as it would be now."""

    check: str
    was: str
    now: CheckResult


class RejudgedNode(Record):
    """The results of one node's last validation, judged again."""

    node: str
    reported_at: Instant
    judged: int
    changed: int
    worse: int
    results: tuple[RejudgedResult, ...]


class RejudgementReport(Record):
    """Every result that was judged again. Nothing was changed by it."""

    changed: int
    worse: int = Field(description="Results that passed and would fail now.")
    nodes: tuple[RejudgedNode, ...]


async def show_explanation(ask: Ask) -> Reply:
    node = await ask.read_node()
    seen = await read_situation(ask.parts.store, node, ask.parts.plans, ask.now)
    explanation = explain(seen, ask.parts.settings.repair_confidence_min)
    return Reply(NodeExplanation(**dict(explanation)))


async def show_inventory(ask: Ask) -> Reply:
    node = await ask.read_node()
    inventory = await ask.parts.store.evidence.get_inventory(node.id)
    if inventory is None:
        raise refuse_missing("inventory of this node yet")
    return Reply(inventory)


async def show_erasure(ask: Ask) -> Reply:
    """Return the node's last erasure report, signed."""
    node = await ask.read_node()
    signer = ask.parts.signer
    text = await ask.parts.store.evidence.get_output(node.erasure) if node.erasure else None
    if text is None or signer is None:
        raise refuse_missing("erasure report of this node")
    report = ErasureReport.model_validate_json(text)
    sealed = signer.seal(PAYLOAD_TYPE, render_certificate(report).encode())
    return Reply(ErasureView(text=certificate_text(report).rstrip(), envelope=json.loads(sealed)))


async def show_proof(ask: Ask) -> Reply:
    """Return the proof of the node's last release."""
    node = await ask.read_node()
    proof = await ask.parts.store.evidence.get_proof(node.id)
    if proof is None:
        raise refuse_missing("release of this node")
    against = list_proof_objections(
        proof, await ask.parts.store.evidence.get_certificate(proof.certificate)
    )
    return Reply(ProofView(proof=proof, valid=not against, objections=against))


async def show_libraries(ask: Ask) -> Reply:
    """Return the oldest versions that a tenant's libraries need on the node, by the matrix."""
    node = await ask.read_node()
    minimums = list_library_minimums(ask.parts.matrix, node.release, node.profile)
    return Reply(
        NodeLibraries(node=node.id, release=node.release, profile=node.profile, libraries=minimums)
    )


async def show_attestation(ask: Ask) -> Reply:
    """Return what the node's last validation proved of its firmware and of Secure Boot."""
    node = await ask.read_node()
    book = ask.parts.store.evidence
    report = await book.get_report(node.id)
    results = list_results(report) if report is not None else ()
    if report is None or not results:
        raise refuse_missing("signed evidence of this node: its profile asked for none")
    rule = find_rule(node, ask.parts.matrix)
    outputs: dict[str, Evidence] = {}
    for result in results:
        outputs |= parse_evidence(await book.get_output(result.evidence))
    view = NodeAttestation(
        node=node.id,
        proved_at=report.ended_at,
        policy=rule.policy,
        secure_boot_policy=rule.secure_boot.policy,
        gpu_reports_policy=rule.gpu_reports.policy,
        nvswitch_reports_policy=rule.nvswitch_reports.policy,
        roots=summarise_roots(outputs, rule),
        devices=await _summarise_devices(ask, node, outputs),
        systems=summarise_boot(outputs, rule),
        differences=list_differences(report),
        evidence=outputs if ask.query.evidence else {},
    )
    return Reply(view)


async def _summarise_devices(
    ask: Ask, node: Node, outputs: Mapping[str, Evidence]
) -> tuple[ProvedRoot, ...]:
    inventory = await ask.parts.store.evidence.get_inventory(node.id)
    if inventory is None:
        return ()
    return summarise_devices(outputs, build_context(node, inventory, ask.parts.matrix))


async def show_rejudgement(ask: Ask) -> Reply:
    """Return the verdicts on stored evidence by today's judges and thresholds."""
    thresholds = ask.parts.thresholds
    if ask.body.thresholds is not None:
        try:
            thresholds = thresholds_text.parse("thresholds", ask.body.thresholds)
        except InputError as error:
            raise build_refusal(
                400, "thresholds", error.problem, error.remedy, error.where
            ) from None
    one = [await ask.read_node(ask.body.node)] if ask.body.node else None
    nodes = []
    for node in one or await ask.parts.store.nodes.list():
        judged = await _judge_again(ask, node, thresholds)
        if judged is not None:
            nodes.append(judged)
    if one and not nodes:
        raise refuse_missing("report of this node yet")
    changed = sum(n.changed for n in nodes)
    worse = sum(n.worse for n in nodes)
    return Reply(RejudgementReport(changed=changed, worse=worse, nodes=tuple(nodes)))


async def _judge_again(
    ask: Ask, node: Node, thresholds: Mapping[str, Limits]
) -> RejudgedNode | None:
    parts = ask.parts
    report = await parts.store.evidence.get_report(node.id)
    inventory = await parts.store.evidence.get_inventory(node.id)
    if report is None or inventory is None:
        return None
    context = await judging_context(
        parts.store, parts.matrix, parts.settings, thresholds, node, inventory
    )
    digests = {r.evidence for r in report.results if r.evidence}
    raw = {digest: await parts.store.evidence.get_output(digest) or "" for digest in digests}
    results = list(rejudge_report(report, raw, checks.ALL, context))
    return RejudgedNode(
        node=node.id,
        reported_at=report.ended_at,
        judged=len(results),
        changed=sum(r.changed for r in results),
        worse=sum(r.worse for r in results),
        results=tuple(_result(r) for r in results if r.changed),
    )


def _result(one: Rejudgement) -> RejudgedResult:
    return RejudgedResult(check=one.check, was=one.was.value, now=one.now)


ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/explanation",
        "explain_node",
        TAG,
        "Explain a node: its state, the cause, the next step, and the remedy for a blocker.",
        VIEWERS,
        show_explanation,
        {200: NodeExplanation},
        heavy=True,
    ),
    Route(
        "GET",
        "/nodes/{node}/inventory",
        "show_inventory",
        TAG,
        "Show the last inventory of a node.",
        VIEWERS,
        show_inventory,
        {200: Inventory},
    ),
    Route(
        "GET",
        "/nodes/{node}/erasure",
        "show_erasure",
        TAG,
        "Show the signed report of a node's last erasure, device by device.",
        VIEWERS,
        show_erasure,
        {200: ErasureView},
    ),
    Route(
        "GET",
        "/nodes/{node}/proof",
        "show_proof",
        TAG,
        "Show the proof of a node's last release to a tenant, and whether it is valid.",
        VIEWERS,
        show_proof,
        {200: ProofView},
    ),
    Route(
        "GET",
        "/nodes/{node}/libraries",
        "show_libraries",
        TAG,
        "Show the oldest NCCL, DOCA and CUDA that a tenant's software needs on a node.",
        ANYBODY,
        show_libraries,
        {200: NodeLibraries},
    ),
    Route(
        "GET",
        "/nodes/{node}/attestation",
        "show_node_attestation",
        TAG,
        "Show the signed evidence of its last validation: golden and found values, Secure Boot.",
        VIEWERS,
        show_attestation,
        {200: NodeAttestation},
        query=EvidenceQuery,
    ),
    Route(
        "POST",
        "/rejudgement",
        "rejudge_nodes",
        TAG,
        "Judge the stored evidence of one node, or of all nodes, again. It changes nothing.",
        VIEWERS,
        show_rejudgement,
        {200: RejudgementReport},
        effect=Effect.READS,
        body=RejudgeQuestion,
        example={"node": "su0-n01"},
        heavy=True,
        refusals={404: "There is no such node, or no report of it."},
    ),
)

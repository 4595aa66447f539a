"""GPUs and NVSwitches of hosts that wait for a tenant are asked again, inside the host.

A host that serves is its tenant's: nothing is asked of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from provisioner.checks import collected_reports
from provisioner.checks.check import Check, CheckContext
from provisioner.checks.collected_reports import ReportKind
from provisioner.checks.context import build_context
from provisioner.control.context import Context
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.device_questions import ask_host
from provisioner.model.certificate import Certificate
from provisioner.model.health import Evidence
from provisioner.model.matrix import AttestationRule, Matrix
from provisioner.model.node import Boots, Node, Placement, State
from provisioner.model.outcome import Blocker
from provisioner.planning.certification import attested_state
from provisioner.planning.watch import attestation_rules as rules
from provisioner.planning.watch.attestation_rules import Renewal
from provisioner.ports import Store

_LOG = logging.getLogger(__name__)
REPORT_BEFORE_S = 48 * 3600.0  # a certificate's report began no earlier than this before it
_CHECKS: Sequence[tuple[ReportKind, Check]] = (
    (collected_reports.GPUS, collected_reports.CHECK_GPUS),
    (collected_reports.NVSWITCHES, collected_reports.CHECK_NVSWITCHES),
)
Question = tuple[bool, Callable[[], Awaitable[Renewal]]]  # whether it is required, and how to ask


def may_ask(node: Node) -> bool:
    """Return whether a host runs a system of ours and no tenant has it, or will have it soon."""
    return (
        node.state is State.CERTIFIED
        and not node.tenant
        and node.placement is Placement.MAINTENANCE
        and node.boots is Boots.SYSTEM
    )


def asks_hosts(rule: AttestationRule) -> bool:
    """Return whether a profile asks for reports that are collected inside the host."""
    return rule.gpu_reports.is_asked or rule.nvswitch_reports.is_asked


async def read_certified(
    store: Store, certificate: Certificate, check: str
) -> Mapping[str, Evidence] | None:
    """Return the outputs of one check that a certificate rests on; None if it had none."""
    since = certificate.issued_at - REPORT_BEFORE_S
    reports = await store.evidence.list_reports(certificate.node, since)
    for report in reports:
        if report.digest() != certificate.report_digest:
            continue
        for result in report.results:
            if result.check == check:
                text = await store.evidence.get_output(result.evidence)
                return attested_state.parse_evidence(text)
    return None


class ReportQuestions:
    """The questions to the devices of one host at a time."""

    def __init__(self, context: Context, site: Site, matrix: Matrix) -> None:
        self._store = context.store
        self._site = site
        self._matrix = matrix

    async def list_questions(self, node: Node, certificate: Certificate) -> list[Question]:
        """Return a question for each kind of device that the profile asks of a waiting host."""
        inventory = await self._store.evidence.get_inventory(node.id)
        if inventory is None or not may_ask(node):
            return []
        certified = node.model_copy(update={"release": certificate.release})
        context = build_context(certified, inventory, self._matrix)
        questions: list[Question] = []
        for kind, check in _CHECKS:
            rule = kind.find_rule(context)
            if rule.is_asked:
                ask = partial(self._ask, kind, check, node, certificate, context)
                questions.append((rule.policy == "require", ask))
        return questions

    async def _ask(
        self,
        kind: ReportKind,
        check: Check,
        node: Node,
        certificate: Certificate,
        context: CheckContext,
    ) -> Renewal:
        """Ask once; evidence that proves nothing is stored for auditors."""
        outputs = await ask_host(self._site, node, check.commands_of(context), context)
        if isinstance(outputs, Blocker):
            message = f"the host gave no answer: {outputs.detail}"[:300]
            return Renewal(unproved=((kind.name, message),))
        judged = check.judge(outputs, context)
        findings = [
            f.model_copy(update={"part": kind.name}) if f.part == "host" else f
            for f in judged.findings
        ]
        before = await read_certified(self._store, certificate, check.name)
        then = attested_state.read_devices(kind, before, context) if before else None
        now = attested_state.read_devices(kind, outputs, context)
        changes = attested_state.compare_roots(then, now) if then and now else ()
        result = rules.judge_renewal(findings, changes)
        if not result.proved:
            raw = {name: output.model_dump(mode="json") for name, output in outputs.items()}
            digest = await self._store.evidence.put_output(json.dumps(raw, sort_keys=True))
            _LOG.warning(
                "%s: %s did not prove the certified firmware; evidence %s",
                *(node.id, kind.name, digest),
            )
        return result

"""Prove one node: run the checks that its changes demand, compare it with its fleet, sign.

The node's measurements are stored for its cohort, and teach floors where none is published.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from provisioner import checks
from provisioner.control.context import Context
from provisioner.control.node.observer import Observer
from provisioner.execution.actions.hold import Hold
from provisioner.execution.validate.validator import Validator
from provisioner.model.cohort import CheckResult, HealthReport
from provisioner.model.events.node_events import FabricProved, NodeCertified, NodeValidated
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.planning.certification import certification, cohort, escalation
from provisioner.planning.certification.attested_state import describe_attestation, list_results
from provisioner.planning.lifecycle.decide import View
from provisioner.planning.lifecycle.journey import enter_state
from provisioner.store.signing import Signer


class Certifier:
    """Validates and certifies; the performer calls it for one node at a time."""

    def __init__(
        self, context: Context, *, observer: Observer, validator: Validator, signer: Signer
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._observer = observer
        self._validator = validator
        self._signer = signer

    async def validate(self, hold: Hold, node: Node, view: View) -> Sequence[Blocker]:
        """Run the checks and record their results; a Blocker if the node could not be asked."""
        assert view.inventory is not None
        chosen = view.selection
        why = ", ".join(chosen.causes) if chosen is not None else node.kind.value
        note = f"health checks are running ({why})"
        await hold.record(node=node.model_copy(update={"note": note}))
        report = await self._validator.validate(
            node, view.inventory, selected=None if chosen is None else chosen.checks
        )
        if isinstance(report, Blocker):
            return (report,)
        if chosen is not None:
            causes = {"causes": chosen.causes, "fabric": chosen.fabric}
            report = report.model_copy(update=causes)
        if node.kind is NodeKind.HOST:
            report = await self._with_history(node, view.inventory, report)
        sample = cohort.sample_of(report, view.inventory, node.profile, node.location.rack)
        outliers = await self._observer.cohorts.held_against(sample)
        report = cohort.add_outliers(report, outliers)
        verdicts = {r.check: r.verdict.value for r in report.results}
        event = NodeValidated(causes=report.causes, results=verdicts)
        await hold.record(inventory=view.inventory, report=report, events=[event])
        if node.kind is NodeKind.HOST:
            sample = sample.model_copy(update={"sound": sample.sound and not outliers})
            await self._observer.cohorts.keep(sample)
        return ()

    async def prove(self, hold: Hold, node: Node, view: View) -> Sequence[Blocker]:
        """Add gate C's results to the report, and run the error checks again after its load."""
        assert view.inventory is not None
        assert view.report is not None
        assert view.fabric is not None
        results: Sequence[CheckResult] = view.fabric.results
        if view.fabric.passed:
            looked = await self._validator.after_fabric(
                node, view.inventory, view.report, results[-1]
            )
            if isinstance(looked, Blocker):
                return (looked,)
            results = looked
        selected = (*view.report.selected, *(r.check for r in view.fabric.results))
        report = view.report.model_copy(
            update={
                "results": (*view.report.results, *results),
                "selected": selected,
                "ended_at": self._clock.now(),
            }
        )
        event = FabricProved(
            session=view.fabric.session,
            partners=tuple(view.fabric.partners),
            results={r.check: r.verdict.value for r in results},
        )
        await hold.record(inventory=view.inventory, report=report, events=[event])
        if view.fabric.passed:  # figures of tests among nodes teach their floors too
            sample = cohort.sample_of(report, view.inventory, node.profile, node.location.rack)
            await self._observer.cohorts.keep(sample)
        return ()

    async def certify(self, hold: Hold, node: Node, view: View) -> Sequence[Blocker]:
        """Issue the certificate and enter `certified`."""
        assert view.inventory is not None
        assert view.report is not None
        now = self._clock.now()
        certificate_id = uuid.uuid4().hex
        proved = certification.list_proofs(
            certificate_id,
            view.report,
            node.kind,
            catalogue=checks.ALL,
            last=await self._store.evidence.get_certificate(node.certificate)
            if node.certificate
            else None,
            keeps=view.selection.keeps if view.selection is not None else (),
            now=now,
        )
        results = list_results(view.report)
        texts = {r.evidence: await self._store.evidence.get_output(r.evidence) for r in results}
        context = self._validator.context_of(node, view.inventory)
        certificate = self._signer.sign(
            certification.issue_certificate(
                certificate_id=certificate_id,
                node=node,
                inventory=view.inventory,
                report=view.report,
                matrix_digest=self._observer.matrix_digest,
                now=now,
                valid_s=self._settings.certificate_days * 86400,
                gates=proved,
                attestation=describe_attestation(results, texts, context),
            )
        )
        proof = {"certificate": certificate.id, "blockers": (), "attempts": 0}
        changed = enter_state(node, State.CERTIFIED, "certified", now, proof)
        await hold.record(
            node=changed,
            inventory=view.inventory,  # the parts that drift is measured from
            certificate=certificate,
            events=[NodeCertified(certificate=certificate.id, gates=certificate.proved)],
        )
        return ()

    async def _with_history(
        self, node: Node, inventory: Inventory, report: HealthReport
    ) -> HealthReport:
        """Return the report with the checks that errors of earlier boots demand."""
        now = self._clock.now()
        earlier = await self._store.evidence.list_reports(node.id, now - escalation.WINDOW_S)
        reports = escalation.select_since_parts_changed([report, *earlier])
        digests = escalation.evidence_of(reports)
        texts = [await self._store.evidence.get_output(digest) or "" for digest in digests]
        past = escalation.read_history(texts, self._validator.slots(node, inventory))
        return escalation.judge_history(report, past, escalation.list_restarts(reports), now)

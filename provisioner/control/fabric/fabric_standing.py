"""Where a node stands with tests among nodes: what its driver sees of sessions and outcomes."""

from __future__ import annotations

from provisioner.control.context import Context
from provisioner.control.fabric.fabric import policy_of
from provisioner.model.certificate import Certificate
from provisioner.model.fabric_session import FabricOutcome
from provisioner.model.health import HealthReport
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.planning.fault_location import fabric_session as rules
from provisioner.planning.lifecycle.decide import View


class FabricStanding:
    """Reads rows only."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._clock = context.clock
        self._policy = policy_of(context.settings)

    async def find_waiting(self, node: Node, report: HealthReport | None) -> View | None:
        """Return the view of a node that waits for its outcome; None: it does not wait.

        Nothing else is asked of it meanwhile: it may be under test, and is looked at afterwards.
        """
        if not rules.needs_session(node, report, await self._store.fabric.get_outcome(node.id)):
            return None
        assert report is not None
        if (reason := await self._session(node)) is not None:
            return View(fabric_wait=reason, in_session=True)
        partners = rules.count_partners(node, await self._store.nodes.list())
        late = rules.find_overdue_wait(node, report, partners, self._policy, self._clock.now())
        reason = rules.describe_wait(partners, self._policy.partners_min)
        return View(fabric_wait=reason, fabric_late=() if late is None else (late,))

    async def in_session(self, node: Node) -> bool:
        """Return whether it is a member of a session that is under way."""
        return await self._session(node) is not None

    async def find_outcome(self, node: Node, report: HealthReport | None) -> FabricOutcome | None:
        """Return the outcome for this report."""
        if report is None:
            return None
        outcome = await self._store.fabric.get_outcome(node.id)
        return outcome if rules.is_current_outcome(outcome, report) else None

    async def find_accusations(
        self, node: Node, certificate: Certificate | None
    ) -> tuple[Blocker, ...]:
        """Return the faults proved after its certificate, as a partner or as a leaf."""
        outcome = await self._store.fabric.get_outcome(node.id)
        if outcome is None or certificate is None or outcome.ended_at < certificate.issued_at:
            return ()
        return outcome.blockers

    async def _session(self, node: Node) -> str | None:
        for session in await self._store.fabric.list_sessions():
            if any(m.node == node.id for m in session.present):
                rounds = len({r.round_number for r in session.runs})
                count = len(session.present)
                return f"gate C is tested: round {rounds + 1} with {count} nodes"
        return None

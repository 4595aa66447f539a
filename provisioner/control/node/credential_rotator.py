"""Drives the change of a node's logins: an operation, so that nothing else writes to its BMCs.

The BMCs of a node are independent of one another: all their changes go at once, and one that fails
keeps none of the others. A failure does not park the operation; its row has the time of the next
attempt, and `CredentialKeeper` opens an operation then.
"""

from __future__ import annotations

import asyncio

from provisioner.control.context import Context
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.login_change import change_login
from provisioner.model.credential import RotationCause
from provisioner.model.node import BmcRef
from provisioner.model.operation import OperationStatus
from provisioner.planning.lifecycle.credential_rotation import (
    compute_age_limit,
    is_due,
    list_logins,
)


class CredentialRotator:
    """Carries rotations out; one instance serves all nodes of a daemon."""

    def __init__(self, context: Context, site: Site) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._site = site

    async def drive(self, hold: Hold) -> None:
        """Change the logins of the node that are due, and end its operation."""
        standings = self._store.credential_standings
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        now = self._clock.now()
        limit = compute_age_limit(now, self._settings.credential_days)
        rows = {s.name: s for s in await standings.list_node(node.id) if is_due(s, now, limit)}
        due: list[tuple[BmcRef, RotationCause]] = []
        for bmc in list_logins(node, switches=self._settings.credential_switches):
            row = rows.get(f"{node.id}/{bmc.name}")
            if row is not None:
                due.append((bmc, row.cause or RotationCause.SCHEDULE))
        await hold.enter_phase(f"{len(due)} passwords are changed")
        outcomes = await asyncio.gather(
            *(change_login(self._site, standings, node, bmc, cause) for bmc, cause in due)
        )
        problems = [problem for problem in outcomes if problem is not None]
        note = f"{len(due) - len(problems)} of {len(due)} passwords were changed"
        if problems:
            note += f"; {problems[0]}"
        await self._store.operations.end(hold.operation, OperationStatus.DONE, note)

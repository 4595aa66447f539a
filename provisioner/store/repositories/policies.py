"""Rows of the policies that people keep under names."""

from __future__ import annotations

from provisioner.model.campaign_policy import NamedPolicy
from provisioner.model.events.fleet_events import PolicyChanged
from provisioner.store.database.transactions import Transactions
from provisioner.store.repositories.named_records import NamedRecords
from provisioner.store.schema.campaign_schema import campaign_policies


class SqlPolicyRepository(NamedRecords[NamedPolicy]):
    """Named policies on the daemon's own database. A damaged row raises DamagedRow."""

    def __init__(self, transactions: Transactions) -> None:
        super().__init__(transactions, campaign_policies, NamedPolicy, "policy")

    async def put(self, policy: NamedPolicy, now: float) -> NamedPolicy:
        """Store a policy, new or instead of the generation before its own, with its event.

        Raises StaleWrite if it was changed meanwhile.
        """
        await self.replace(policy, PolicyChanged(policy=policy, by=policy.by), now)
        return policy

    async def drop(self, policy: NamedPolicy, by: str, now: float) -> None:
        """Remove a policy with its event. Raises StaleWrite if it was changed meanwhile."""
        await self.remove(policy, PolicyChanged(dropped=policy, by=by), now)

"""Measurements of the fleet, and the baselines learned from them."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.cohort import Baseline, Sample
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import (
    cohort_rows,
)


class SqlCohortRepository:
    """`ports.CohortRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def put_sample(self, sample: Sample) -> None:
        await self._transactions.write(lambda c: cohort_rows.put_sample(c, sample))

    async def list_samples(
        self, profile: str, versions: str | None, limit: int
    ) -> Sequence[Sample]:
        return await self._transactions.read(
            lambda c: cohort_rows.read_samples(c, profile, versions, limit)
        )

    async def get_samples_mark(self, profile: str, versions: str) -> tuple[int, float]:
        return await self._transactions.read(lambda c: cohort_rows.read_mark(c, profile, versions))

    async def put_baseline(self, baseline: Baseline) -> None:
        await self._transactions.write(lambda c: cohort_rows.put_baseline(c, baseline))

    async def list_baselines(self, profile: str) -> Sequence[Baseline]:
        return await self._transactions.read(lambda c: cohort_rows.read_baselines(c, profile))

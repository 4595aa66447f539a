"""Answers that are kept under idempotency keys."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.kept_answer import KeptAnswer
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import answer_rows


class SqlAnswerRepository:
    """Kept answers by caller and key."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def begin(
        self, caller: str, key: str, fingerprint: str, now: float, keep_s: float, keys_max: int
    ) -> KeptAnswer | None:
        """Take a new key and return None, or return the answer that is kept under it.

        Raises `TooManyKeys` for a new key of a caller that has `keys_max` of them.
        """
        return await self._transactions.write(
            lambda c: answer_rows.begin(c, caller, key, fingerprint, now, keep_s, keys_max)
        )

    async def finish(
        self, caller: str, key: str, status: int, headers: Mapping[str, str], body: str
    ) -> None:
        """Keep the answer: the same request gets it again."""
        await self._transactions.write(
            lambda c: answer_rows.finish(c, caller, key, status, headers, body)
        )

    async def release(self, caller: str, key: str) -> None:
        """Free the key of a request that began nothing."""
        await self._transactions.write(lambda c: answer_rows.release(c, caller, key))

"""Answers that are kept under idempotency keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from provisioner.model.access import ChangeRequest, RequestState
from provisioner.model.operation import KeptAnswer
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import agent_rows as answer_rows
from provisioner.store.rows import request_rows

# ------------------------------------------------------------------------------
# Requests: the changes that people asked for through the API.


class SqlRequestRepository:
    """Changes that people asked for; each write has its row of the journal."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def add(self, asked: ChangeRequest) -> ChangeRequest:
        """Store a request under the next number; return it with the number."""
        return await self._transactions.write(lambda c: request_rows.add_request(c, asked))

    async def save(self, asked: ChangeRequest, by: str, now: float) -> ChangeRequest:
        """Store the progress of a request; raise `StaleWrite` if it has changed since."""
        return await self._transactions.write(
            lambda c: request_rows.save_request(c, asked, by, now)
        )

    async def get(self, number: int) -> ChangeRequest | None:
        return await self._transactions.read(lambda c: request_rows.read_request(c, number))

    async def list_page(
        self,
        *,
        before: int = 0,
        limit: int = 100,
        states: Collection[RequestState] = (),
        tenant: str | None = None,
    ) -> tuple[ChangeRequest, ...]:
        """Return requests, the newest first, before a number."""
        return await self._transactions.read(
            lambda c: request_rows.read_requests(
                c, before=before, limit=limit, states=states, tenant=tenant
            )
        )

    async def count_waiting(self, asked_by: str, asked_after: float) -> int:
        """Return how many requests of a person wait for an approval."""
        return await self._transactions.read(
            lambda c: request_rows.count_waiting(c, asked_by, asked_after)
        )

    async def give_up(
        self, now: float, asked_before: float = float("inf")
    ) -> tuple[ChangeRequest, ...]:
        """Mark the requests that an earlier process was carrying out as lost; return them."""
        return await self._transactions.write(
            lambda c: request_rows.give_up(c, now, asked_before=asked_before)
        )


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

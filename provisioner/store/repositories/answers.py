"""Answers that are kept under idempotency keys."""

from __future__ import annotations

from collections.abc import Collection

from provisioner.model.access import ChangeRequest, RequestState
from provisioner.store.database.transactions import Transactions, reads, writes
from provisioner.store.rows import agent_rows, request_rows


class SqlRequestRepository:
    """Changes that people asked for; each write has its row of the journal."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    # Store a request under the next number; return it with the number.
    add = writes(request_rows.add_request)
    # Store the progress of a request; raise `StaleWrite` if it has changed since.
    save = writes(request_rows.save_request)
    get = reads(request_rows.read_request)

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

    # Return how many requests of a person wait for an approval.
    count_waiting = reads(request_rows.count_waiting)

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

    # Take a new key and return None, or return the answer that is kept under it.
    # Raises `TooManyKeys` for a new key of a caller that has `keys_max` of them.
    begin = writes(agent_rows.begin)
    # Keep the answer: the same request gets it again.
    finish = writes(agent_rows.finish)
    # Free the key of a request that began nothing.
    release = writes(agent_rows.release)

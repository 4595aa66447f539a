"""Tokens of the API's callers."""

from __future__ import annotations

from provisioner.model.access import Token
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import token_rows


class SqlTokenRepository:
    """Tokens by their digest; each write has its row of the journal."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def find(self, digest: str) -> Token | None:
        """Return the token with this SHA-256, also one that is over."""
        return await self._transactions.read(lambda c: token_rows.find_token(c, digest))

    async def list(self) -> tuple[Token, ...]:
        return await self._transactions.read(token_rows.read_tokens)

    async def add(self, token: Token, now: float) -> None:
        await self._transactions.write(lambda c: token_rows.add_token(c, token, now))

    async def revoke(self, token_id: str, now: float) -> Token | None:
        """Revoke a token and return it; None if there is none with this id."""
        return await self._transactions.write(lambda c: token_rows.revoke_token(c, token_id, now))

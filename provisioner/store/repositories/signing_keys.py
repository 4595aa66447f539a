"""The public keys that sign or signed certificates here."""

from __future__ import annotations

from provisioner.model.certificate import SigningKey
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import signing_key_rows


class SqlSigningKeyRepository:
    """Public keys only; `signing_rows` opens the private one."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list(self) -> tuple[SigningKey, ...]:
        """Return every key that ever signed here, the newest first."""
        return await self._transactions.read(signing_key_rows.read_keys)

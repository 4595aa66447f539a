"""The durable state: rows behind `Store`, secrets behind `Credentials`, and the signing key.

Nothing here decides anything. Row functions (`*_rows.py`, `journal.py`) are synchronous, take a
connection inside a transaction, and may be run twice; `SqlStore` is the only way to them.
"""

from provisioner.store.database.data_directory import DataLock, lock_data_directory, lock_database
from provisioner.store.repositories.key_exchange import prepare_key, rekey
from provisioner.store.repositories.signing_keys import (
    MasterKey,
    exchange_signing_key,
    open_signer,
    public_keys,
)
from provisioner.store.repositories.vault import Vault, open_vault
from provisioner.store.rows.journal import ChainCheck
from provisioner.store.schema import schema  # noqa: F401 (its tables belong to the metadata)
from provisioner.store.signing import Signer, verify
from provisioner.store.sql_store import SqlStore, open_store

__all__ = [
    "ChainCheck",
    "DataLock",
    "MasterKey",
    "Signer",
    "SqlStore",
    "Vault",
    "exchange_signing_key",
    "lock_data_directory",
    "lock_database",
    "open_signer",
    "open_store",
    "open_vault",
    "prepare_key",
    "public_keys",
    "rekey",
    "verify",
]

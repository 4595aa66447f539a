"""The agents' authority in a test's folder, sealed under a master key of that folder's own."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from provisioner.adapters.agent.tls import Authority, open_authority
from provisioner.store.database.data_directory import SealedFile
from provisioner.store.repositories.signing_keys import MasterKey


@cache
def _key_of(_folder: Path) -> MasterKey:
    return MasterKey.generate()


def open_own_authority(folder: Path, key: MasterKey | None = None) -> Authority:
    """Open the authority of `folder`, under `key`, or else under a key of the folder's own."""
    return open_authority(folder, SealedFile(folder, key or _key_of(folder.resolve())))

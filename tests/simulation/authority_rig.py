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


def open_own_authority(folder: Path) -> Authority:
    """Open the authority of `folder`; the same folder has the same key in one process."""
    return open_authority(folder, SealedFile(folder, _key_of(folder.resolve())))

"""The master keys of a data directory: one, or two while the old one is exchanged for a new one.

Which key is in force is said by files alone: `master.key.next` exists while the exchange is under
way, and from the moment that it does everything is sealed with it. So a daemon needs no message
and no restart: it looks at the files before each seal, and before it gives up on a secret. A key
that was in force stays in memory, since secrets that were read before open with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from provisioner.model.input_error import InputError
from provisioner.ports.errors import StoreFailed
from provisioner.store.repositories.master_key import (
    KEY_FILE,
    NEXT_FILE,
    MasterKey,
    read_key_file,
)

LOOKS_MAX = 4  # at files that change meanwhile
Stamp = tuple[int, int, int]


class KeyRing:
    """Seals with the newest key, and opens with any of them; it has what `MasterKey` has."""

    def __init__(self, keys: Sequence[MasterKey], directory: Path | None = None) -> None:
        """`keys`: the newest first. `directory`: where its files are; None: keys never change."""
        assert keys
        self._keys = list(keys)
        self._directory = directory
        self._stamps: tuple[Stamp | None, ...] = ()

    @property
    def id(self) -> str:
        """Return the name of the key that seals now."""
        return self.newest().id

    def newest(self) -> MasterKey:
        """Return the key that seals now; its files are looked at."""
        self._refresh()
        return self._keys[0]

    def list_ids(self) -> tuple[str, ...]:
        """Return the names of the keys that open secrets now."""
        self._refresh()
        return tuple(key.id for key in self._keys)

    def seal(self, plain: bytes, name: str) -> bytes:
        """Encrypt a text, bound to `name`, with the newest key."""
        return self.newest().seal(plain, name)

    def open(self, sealed: bytes, name: str) -> bytes:
        """Return the inverse; `StoreFailed` if no key of the ring fits."""
        for _ in range(2):
            for key in self._keys:
                try:
                    return key.open(sealed, name)
                except StoreFailed:
                    continue
            self._refresh()  # another process may have begun an exchange since
        return self._keys[0].open(sealed, name)

    def _refresh(self) -> None:
        """Read the files again if one of them is another than it was."""
        if self._directory is None:
            return
        files = [self._directory / name for name in (NEXT_FILE, KEY_FILE)]
        for _ in range(LOOKS_MAX):
            stamps = tuple(_stamp(file) for file in files)
            if stamps == self._stamps:
                return
            try:
                there = zip(files, stamps, strict=True)
                read = [read_key_file(file) for file, stamp in there if stamp is not None]
            except InputError:
                continue  # it was put into force between the two looks, or is being written
            if stamps == tuple(_stamp(file) for file in files):
                break
        else:
            return
        self._stamps = stamps
        ids = {key.id for key in read}
        self._keys = [*read, *(key for key in self._keys if key.id not in ids)]

    def __repr__(self) -> str:
        return f"KeyRing(ids={tuple(key.id for key in self._keys)!r})"


def _stamp(file: Path) -> Stamp | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size

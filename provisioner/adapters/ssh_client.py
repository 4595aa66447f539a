"""The part of our SSH clients that asyncssh calls: who decides on a host's key."""

from __future__ import annotations

from collections.abc import Callable

import asyncssh


class KeyDecider(asyncssh.SSHClient):
    """A client that asks `accepts` about a host key which is in no file of known hosts."""

    def __init__(self, accepts: Callable[[asyncssh.SSHKey], bool]) -> None:
        self._accepts = accepts
        self.accepted: asyncssh.SSHKey | None = None

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        accepts = self._accepts(key)
        if accepts:
            self.accepted = key
        return accepts

"""What a BMC shows of a UEFI set-up password: a digest that proves which one is in force."""

from __future__ import annotations

import hashlib

from provisioner.model.base import Record


class SetupPasswordState(Record):
    """The digest in force, with where a change is asked for. It has no password."""

    target: str  # of the action that changes it
    settings: str  # object of the values that wait: what a job carries out
    sha256: str = ""  # lowercase hex, of the password and the salt; "": none is set
    salt: str = ""  # hex

    @property
    def is_set(self) -> bool:
        """Return whether a set-up password is in force."""
        return bool(self.sha256)

    def proves(self, password: str) -> bool:
        """Return whether this password is the one in force; "" is in force where none is set."""
        if not self.is_set or not password:
            return not self.is_set and not password
        salted = password.encode() + bytes.fromhex(self.salt)
        return hashlib.sha256(salted).hexdigest() == self.sha256

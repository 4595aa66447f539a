"""The BIOS settings of a simulated host: what runs, what waits, and what a boot makes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

Value = str | int | bool


@dataclass
class SetupPassword:
    """The password of a BIOS's set-up: the one in force, and a change that waits for the boot."""

    password: str = ""
    salt: bytes = b""
    waiting: tuple[str, str] | None = None  # the old one, as the request gave it, and the new one
    dropped: bool = False  # the BIOS takes no change at the boot, whatever the BMC accepted
    changes: int = 0

    def set(self, password: str) -> None:
        """Have a password in force, with a salt of its own."""
        self.password = password
        self.changes += 1
        self.salt = hashlib.sha256(f"salt {self.changes}".encode()).digest()[:16]

    def show(self) -> dict[str, Value]:
        """Return the attributes that a PowerEdge shows of it, both empty where none is set."""
        if not self.password:
            return {"SHA256SetupPassword": "", "SHA256SetupPasswordSalt": ""}
        digest = hashlib.sha256(self.password.encode() + self.salt).hexdigest()
        return {
            "SHA256SetupPassword": digest.upper(),
            "SHA256SetupPasswordSalt": self.salt.hex().upper(),
        }

    def take_change(self) -> bool:
        """Carry the waiting change out; return whether the BIOS did."""
        waiting = self.waiting
        self.waiting = None
        if waiting is None:
            return True
        if self.dropped or waiting[0] != self.password:
            return False
        self.set(waiting[1])
        return True


@dataclass
class Bios:
    """`pending` runs after the next start of the host, as far as the BIOS accepts it."""

    running: dict[str, Value] = field(default_factory=dict)
    pending: dict[str, Value] = field(default_factory=dict)
    needs_job: bool = False  # Dell: without a job nothing carries the pending values out
    job: bool = False  # one is committed, until the boot has carried it out
    # attribute -> whether the BIOS accepts it beside these running values; it drops the others
    accepts: Callable[[str, dict[str, Value]], bool] = lambda _name, _running: True
    # (attribute, value) -> the attributes that this choice writes itself
    writes: dict[tuple[str, Value], dict[str, Value]] = field(default_factory=dict)
    defaults: dict[str, Value] = field(default_factory=dict)
    shows_waiting: bool = False  # as running, before the boot
    reset_due: bool = False  # the next start begins with the defaults
    reset_forgets_boot: bool = False  # that start forgets the override for its boot, too
    reset_dropped: bool = False  # asked for, accepted, and lost at the boot
    dropped: set[str] = field(default_factory=set)  # accepted, shown, and lost at the boot
    secure_boot: bool = False  # from the next start
    secure_boot_running: bool = False
    # database -> its entries: PEM of a certificate, or a SHA-256 in hex; None: those of the maker
    boot_keys: dict[str, tuple[str, ...]] | None = None
    keys_reset_due: bool = False  # the next start begins with the maker's keys
    keys_reset_dropped: bool = False  # asked for, accepted, and lost at the boot
    starts: int = 0
    setup: SetupPassword = field(default_factory=SetupPassword)
    # each hears once how the committed job ended: a state of a task
    job_watchers: list[Callable[[str], None]] = field(default_factory=list)

    def turn_on_secure_boot(self) -> None:
        """Run with Secure Boot, in this boot and in later ones."""
        self.secure_boot = True
        self.secure_boot_running = True

    def take_pending(self) -> None:
        """Start once: the pending values run, and so do those that they write."""
        self.starts += 1
        self.secure_boot_running = self.secure_boot
        if self.keys_reset_due:
            self.keys_reset_due = False
            if not self.keys_reset_dropped:
                self.boot_keys = None
        if self.reset_due:
            self.reset_due = False
            if not self.reset_dropped:
                self.running.update(self.defaults)
                self.pending.clear()
                self.job = False
        if self.needs_job and not self.job:
            return
        self.job = False
        self._end_job("Completed" if self.setup.take_change() else "Exception")
        before = dict(self.running)
        for name, value in self.pending.items():
            if name in self.dropped or not self.accepts(name, before):
                continue
            self.running[name] = value
            if before.get(name) != value:
                self.running.update(self.writes.get((name, value), {}))
        self.pending.clear()

    def _end_job(self, state: str) -> None:
        watchers = self.job_watchers
        self.job_watchers = []
        for watch in watchers:
            watch(state)

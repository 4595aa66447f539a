"""Holds logins back so that no account is ever locked and no session table filled.

Lockout thresholds in the field are 3, 4, 5 and 10 failures within 30 to 3600 s
(docs/sources/bmc-faults.md#s9); two failures in half an hour stay below each of them. The device's
own count cannot be read: a login that may have failed is counted as a failure.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from provisioner.ports import AccountLocked, Secret

LOG = logging.getLogger(__name__)

FAILURES_MAX = 2  # one below the lowest lockout threshold seen
WINDOW_S = 1800.0
BACKOFF_S = (
    60.0  # before the same credential is tried again: a BMC that starts may refuse good ones
)
HOLD_MAX_S = 3600.0  # longest that a device may make us wait by its own word

Credential = tuple[str, Secret]


@dataclass
class _Account:
    """What happened at one BMC. Times are the clock's."""

    failures: list[tuple[float, str]] = field(default_factory=list)  # (when, username)
    refused: Credential | None = None  # the last one that was not accepted
    accepted: Credential | None = None  # the last one that was, unless it was refused since
    held_until: float = 0.0


class LoginGovernor:
    """Counts failed logins per BMC. With `memory`, a restart does not forget them.

    `clock` gives seconds since the epoch. `memory` is a file of JSON lines (time, URL, username),
    without secrets; only lines within the window are kept when it is read.
    """

    def __init__(
        self,
        failures_max: int = FAILURES_MAX,
        window_s: float = WINDOW_S,
        backoff_s: float = BACKOFF_S,
        clock: Callable[[], float] = time.time,
        memory: Path | None = None,
    ) -> None:
        self._failures_max = failures_max
        self._window_s = window_s
        self._backoff_s = backoff_s
        self._clock = clock
        self._memory = memory
        self._accounts: dict[str, _Account] = {}
        if memory is not None:
            self._recall(memory)

    def admit(self, url: str, credential: Credential) -> None:
        """Pass if a login may be tried now. Raises AccountLocked, with the wait, otherwise.

        A credential that was accepted last is admitted whatever others did: it cannot fail unless
        it was changed on the device, and then this is its first failure since the success.
        """
        account = self._accounts.get(url)
        if account is None:
            return
        now = self._clock()
        if now < account.held_until:
            raise AccountLocked(f"{url}: it asked to wait", account.held_until - now)
        if account.accepted == credential:
            return
        recent = [when for when, _ in account.failures if now - self._window_s < when <= now]
        if len(recent) >= self._failures_max:
            wait_s = recent[-self._failures_max] + self._window_s - now
            raise AccountLocked(
                f"{url}: {len(recent)} failed logins in {self._window_s:.0f} s", wait_s
            )
        if recent and account.refused == credential:
            wait_s = recent[-1] + self._backoff_s * 2 ** (len(recent) - 1) - now
            if wait_s > 0:
                raise AccountLocked(f"{url}: this credential was refused a moment ago", wait_s)

    def is_accepted(self, url: str, credential: Credential) -> bool:
        """Return whether this credential was the last that a login accepted, and no wait stands."""
        account = self._accounts.get(url)
        if account is None or account.accepted != credential:
            return False
        return self._clock() >= account.held_until

    def note_doubt(self, url: str, credential: Credential) -> None:
        """Basic was refused to a credential that logins accept: it was changed, or Basic is off.

        The device may have counted it, so it counts here; the next login is still admitted, and
        decides between the two.
        """
        account = self._accounts.setdefault(url, _Account())
        self._count(account, url, credential)

    def note_success(self, url: str, credential: Credential) -> None:
        """The account's own failures are over: a success ends the device's count too."""
        account = self._accounts.setdefault(url, _Account())
        account.accepted = credential
        account.refused = None
        account.failures = [f for f in account.failures if f[1] != credential[0]]

    def note_failure(self, url: str, credential: Credential) -> None:
        """The credential was refused, or may have been."""
        account = self._accounts.setdefault(url, _Account())
        account.refused = credential
        if account.accepted == credential:
            account.accepted = None
        self._count(account, url, credential)

    def _count(self, account: _Account, url: str, credential: Credential) -> None:
        now = self._clock()
        account.failures = [f for f in account.failures if f[0] > now - self._window_s]
        account.failures.append((now, credential[0]))
        self._remember(now, url, credential[0])

    def note_silence(self, url: str, credential: Credential) -> None:
        """Nothing was heard: a failure, unless the credential was good a moment ago."""
        account = self._accounts.get(url)
        if account is None or account.accepted != credential:
            self.note_failure(url, credential)

    def hold(self, url: str, wait_s: float) -> None:
        """The device itself asked for a pause (lockout, session table full)."""
        account = self._accounts.setdefault(url, _Account())
        account.held_until = self._clock() + min(max(wait_s, 1.0), HOLD_MAX_S)

    def _remember(self, when: float, url: str, username: str) -> None:
        if self._memory is None:
            return
        try:
            self._memory.touch(mode=0o600)  # it names the accounts whose logins fail
            with self._memory.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps([when, url, username]) + "\n")
        except OSError as error:
            LOG.warning("failed logins cannot be kept in %s: %s", self._memory, error)

    def _recall(self, memory: Path) -> None:
        """Read the recorded failures; an unreadable line or file is skipped."""
        try:
            lines = memory.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError):
            return
        now = self._clock()
        recent_lines = []
        for line in lines:
            try:
                when, url, username = json.loads(line)
                recent = now - self._window_s < float(when) <= now
            except (ValueError, TypeError):
                continue
            if recent and isinstance(url, str) and isinstance(username, str):
                self._accounts.setdefault(url, _Account()).failures.append((float(when), username))
                recent_lines.append(line)
        if len(recent_lines) == len(lines):
            return
        try:
            memory.write_text("".join(f"{line}\n" for line in recent_lines), encoding="utf-8")
        except OSError as error:
            LOG.warning("failed logins cannot be kept in %s: %s", memory, error)

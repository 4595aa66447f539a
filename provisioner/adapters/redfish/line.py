"""The transport's state for each BMC: its locks, its login, and its observed peculiarities."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from provisioner.adapters.redfish.exchange import READS_MAX
from provisioner.adapters.redfish.session import JUST_READ_S, ROOT, Login
from provisioner.ports import BmcAddress, Call, Reply

ROOTS = frozenset({ROOT, ROOT.rstrip("/")})  # both spellings; asked of each request, so quickly
ROOT_MAX_BYTES = 16 * 1024  # kept; real ones have two or three KiB
ORPHANS_MAX = 4
ORPHAN_S = 300.0  # sessions live 30 s or more (facts S12); later the path may be another client's


@dataclass
class Line:
    """The state kept per BMC. The locks outlive a logout, so that there never are two writers."""

    reads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_MAX))
    write: asyncio.Lock = field(default_factory=asyncio.Lock)
    basic: asyncio.Lock = field(default_factory=asyncio.Lock)
    login: Login | None = None
    login_address: BmcAddress | None = None
    used_s: float = 0.0  # when the login last worked, on the event loop's clock
    kept_s: float = 0.0  # when a connection that stays open last brought an answer
    opening: asyncio.Task[Login] | None = None
    opening_for: BmcAddress | None = None
    without_basic: BmcAddress | None = None  # with this login it answers no single read
    coding: str = "identity"
    told: bool = False  # a warning about missing security was logged
    resets_kept: bool = False  # it broke a connection that was used again (HPE, facts T2)
    _orphans: list[tuple[float, Login]] = field(default_factory=list)
    _root: tuple[tuple[str, bool], float, Reply] | None = None  # trusted how, when, what

    def leave_session(self, login: Login, now: float) -> None:
        """Note a session that may still be open at the BMC, to be closed by the next login."""
        if login.path:
            self._orphans = [*self._orphans[1 - ORPHANS_MAX :], (now, login)]

    def take_orphans(self, now: float) -> list[Login]:
        """Return the sessions that were left a short time ago, each once."""
        orphans = [login for at, login in self._orphans if now - at <= ORPHAN_S]
        self._orphans = []
        return orphans

    def is_open(self, now: float) -> bool:
        """Return whether a connection was used a moment ago, and none ever broke when it was."""
        return not self.resets_kept and now - self.kept_s <= JUST_READ_S

    def find_root(self, bmc: BmcAddress, call: Call, now: float) -> Reply | None:
        """A request's service root, if one `known_s` old will do and it was trusted in this way.

        Who reads a BMC begins with it, each time: a third of all requests of an intake.
        """
        if self._root is None or call.known_s <= 0 or call.path not in ROOTS:
            return None
        trust, at, reply = self._root
        return reply if trust == _trust(bmc) and now - at <= call.known_s else None

    def learn(self, bmc: BmcAddress, call: Call, reply: Reply, now: float) -> None:
        """Keep the root that was just read."""
        if call.method == "GET" and reply.status == 200 and len(reply.body) <= ROOT_MAX_BYTES:
            self._root = (_trust(bmc), now, reply)

    def doubt(self) -> None:
        """Discard the cached root: after silence, a reset or an update the BMC may be another."""
        self._root = None


def _trust(bmc: BmcAddress) -> tuple[str, bool]:
    return bmc.pin, bmc.insecure

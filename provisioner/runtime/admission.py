"""Who gets one of a listener's places: shares by standing, and fair by network within each.

A connection is of this machine, of a known caller (an address that proved an identity within a day)
or of a stranger. Each standing has a share that the others cannot take, and may use what is free
beyond. Where there is no place, the connection that has not sent a request yet, of the network and
address that hold most, ends for a newcomer of one that holds less: a flood from a few networks
shuts out nobody else, and one from everywhere no known caller. A whole request, which anybody can
send and then neither finish its body nor read the answer, keeps a place but against networks that
hold fewer by two.

The rule that a reader would otherwise break: a connection that proved an identity is never ended
for another one.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache

GRACE_S = 1.0  # in which a connection does not end for another one of its own network
KNOWN_S = 86400.0
KNOWN_MAX = 4096  # addresses; 100 bytes each
LOOPBACK = ("127.0.0.1", "::1")


class Standing(StrEnum):
    """What is known of a connection's other end."""

    LOCAL = "this machine"
    KNOWN = "known"
    STRANGER = "stranger"


SHARES = {Standing.LOCAL: 1 / 16, Standing.KNOWN: 1 / 4, Standing.STRANGER: 1 / 4}


class Place:
    """The place of one connection. `end` ends it: to be set by who serves it."""

    __slots__ = ("at", "end", "heard", "network", "peer", "proved", "standing")

    def __init__(self, peer: str, standing: Standing, at: float) -> None:
        self.peer = peer
        self.network = name_network(peer)
        self.standing = standing
        self.at = at
        self.heard = False  # it sent a whole request
        self.proved = False  # it was good
        self.end: Callable[[], None] = lambda: None


class Admission:
    """The places of one listener. `shared`: among standings; else first come, first served."""

    def __init__(
        self, most: int, per_peer: int, now: Callable[[], float], *, shared: bool = True
    ) -> None:
        self._most = most
        self._per_peer = per_peer
        self._now = now
        self._shared = shared
        self._places: dict[Place, None] = {}  # the oldest first
        self._peers: Counter[str] = Counter()
        self._standings: Counter[Standing] = Counter()
        self._known: OrderedDict[str, float] = OrderedDict()  # peer -> until
        self._owed = {s: max(1, int(most * share)) if shared else 0 for s, share in SHARES.items()}

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, peer: str, *, local: bool) -> Place | None:
        """Return a place, perhaps another one's; None: there is none for this peer."""
        standing = Standing.STRANGER
        if local or self._known.get(peer, 0.0) > self._now():
            standing = Standing.LOCAL if local else Standing.KNOWN
        place = Place(peer, standing, self._now())
        if self._peers[peer] >= self._per_peer:
            gone = self._find_own(p for p in self._places if p.peer == peer)
        elif self._has_room(standing):
            return self._take(place)
        else:
            gone = self._find_heaviest(place)
        if gone is None or not self._shared:
            return None
        self.leave(gone)
        gone.end()
        return self._take(place)

    def hear(self, place: Place) -> None:
        """Note that a connection sent a whole request."""
        place.heard = True

    def prove(self, place: Place) -> None:
        """Note that a connection proved an identity: its address is known for a day."""
        place.heard = place.proved = True
        if place not in self._places or place.standing is Standing.LOCAL:
            return
        self._known.pop(place.peer, None)
        self._known[place.peer] = self._now() + KNOWN_S
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        self._standings[place.standing] -= 1
        place.standing = Standing.KNOWN
        self._standings[place.standing] += 1

    def leave(self, place: Place) -> None:
        """Give a place back; a second time does nothing."""
        if self._places.pop(place, self) is self:
            return
        self._standings[place.standing] -= 1
        self._peers[place.peer] -= 1
        if not self._peers[place.peer]:
            del self._peers[place.peer]

    @property
    def is_crowded(self) -> bool:
        """Return whether more than half of all places are taken."""
        return self._shared and 2 * len(self._places) > self._most

    def _take(self, place: Place) -> Place:
        self._places[place] = None
        self._peers[place.peer] += 1
        self._standings[place.standing] += 1
        return place

    def _has_room(self, standing: Standing) -> bool:
        """Return whether a place is free beyond what the other standings have not used yet."""
        unused = (max(0, self._owed[s] - self._standings[s]) for s in SHARES if s is not standing)
        return self._most - len(self._places) > sum(unused)

    def _find_heaviest(self, new: Place) -> Place | None:
        silent = [p for p in self._places if not p.heard]
        for other in (Standing.STRANGER, Standing.KNOWN, Standing.LOCAL):
            over = self._standings[other] > self._owed[other]
            under = self._standings[new.standing] < self._owed[new.standing]
            if other is not new.standing and over and (under or other is Standing.STRANGER):
                found = _oldest_of_most(p for p in silent if p.standing is other)
                if found is not None:
                    return found
        mine = [p for p in silent if p.standing is new.standing]
        found = _oldest_of_most(mine)
        held = Counter(p.network for p in mine)
        if found is not None and held[found.network] > held[new.network]:
            return found
        own = self._find_own(p for p in mine if p.network == new.network)
        return own or self._find_unproved(new)

    def _find_unproved(self, new: Place) -> Place | None:
        """Return a place with a request that proved nothing, of a network that holds far more."""
        over = self._standings[Standing.STRANGER] > self._owed[Standing.STRANGER]
        ends = {new.standing, Standing.STRANGER} if over else {new.standing}
        found = _oldest_of_most(p for p in self._places if not p.proved and p.standing in ends)
        held = Counter(p.network for p in self._places)
        fewer = found is not None and held[new.network] + 1 < held[found.network]
        return found if fewer else None

    def _find_own(self, places: Iterable[Place]) -> Place | None:
        """Return the one of a peer's or network's own places that another one of it may have."""
        until = self._now() - GRACE_S
        return _oldest_of_most(p for p in places if not p.heard and p.at <= until)


def _oldest_of_most(places: Iterable[Place]) -> Place | None:
    """Return the oldest place of the address that holds most, in the network that holds most."""
    kept = list(places)
    if not kept:
        return None
    network = Counter(p.network for p in kept).most_common(1)[0][0]
    inside = [p for p in kept if p.network == network]
    peer = Counter(p.peer for p in inside).most_common(1)[0][0]
    return next(p for p in inside if p.peer == peer)


def name_address(address: str) -> str:
    """Return an address in its usual form, without a scope; one mapped from IPv4 as that."""
    if ":" not in address and "%" not in address:
        return address  # IPv4 has one form; to parse it costs as much as to accept a connection
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def name_peer(address: str) -> str:
    """Return the name under which a peer is counted: the whole /64 for an IPv6 host."""
    named = name_address(address)
    if ":" not in named:
        return named
    try:
        return str(ipaddress.IPv6Network((int(ipaddress.IPv6Address(named)) >> 64 << 64, 64)))
    except ValueError:
        return named


@lru_cache(maxsize=4096)
def name_network(peer: str) -> str:
    """Return the network that a peer's places are counted for: the /24, or the /48 of a /64."""
    try:
        parsed = ipaddress.ip_network(peer)
    except ValueError:
        return peer
    return str(parsed.supernet(new_prefix=24 if parsed.version == 4 else 48))

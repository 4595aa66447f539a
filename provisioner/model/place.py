"""Places of a fabric: an end of a rail's cable, a switch, an uplink, a tenant. Numbers start at 0.

Named tuples, because a fabric has a million of them: a record would take ten times as long to make.
"""

from __future__ import annotations

from typing import NamedTuple

# the ends of a rail's cable
HOST = 0
LEAF = 1
TIERS = ("leaf", "spine", "superspine")


class RailEnd(NamedTuple):
    """One end of the cable between a node's SuperNIC and its leaf."""

    pod: int
    unit: int  # scalable unit, in its pod
    node: int  # in its scalable unit
    rail: int
    plane: int = 0
    link: int = 0  # number among several cables of one rail and plane
    end: int = HOST

    @property
    def other(self) -> RailEnd:
        """Return the other end of the same cable."""
        return self._replace(end=1 - self.end)


class NodePlace(NamedTuple):
    """The place of a node."""

    pod: int
    unit: int
    node: int


class SwitchPlace(NamedTuple):
    """A switch. A spine has no scalable unit, a superspine has no pod: 0."""

    tier: str  # "leaf" | "spine" | "superspine"
    pod: int
    unit: int
    number: int  # of a leaf: in its unit and plane; of a spine: in its pod and plane
    plane: int = 0


class Uplink(NamedTuple):
    """A cable from a switch to one of the tier above. The ends have no numbered addresses."""

    lower: SwitchPlace
    number: int  # 0 is the first uplink port of the lower switch


class TenantPlace(NamedTuple):
    """A tenant's number; its VNI and route target are derived from it."""

    number: int


Place = RailEnd | NodePlace | SwitchPlace | Uplink | TenantPlace

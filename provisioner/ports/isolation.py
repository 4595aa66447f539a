"""What keeps tenants apart in a fabric: VRFs on Ethernet, partitions on InfiniBand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from provisioner.model.outcome import Blocker
from provisioner.model.tenant import Tenant


@dataclass(frozen=True)
class Member:
    """One end that is in exactly one tenant's network: a leaf's port, or an InfiniBand port."""

    device: str  # node id of the leaf; "" on InfiniBand, where the subnet manager knows it
    name: str  # interface ("swp1s0"), or GUID (16 hexadecimal digits)
    address: str = ""  # of the leaf's end, with length; "" where there is none

    def __str__(self) -> str:
        return f"{self.device}/{self.name}" if self.device else self.name


@dataclass(frozen=True)
class FabricStep:
    """What would be done at one device. `lines` are for a person, `order` is the adapter's own."""

    device: str
    lines: tuple[str, ...]
    order: Any = None


@dataclass(frozen=True)
class FabricDelta:
    """What is between the fabric as it is and as it should be. With blockers, nothing is done."""

    steps: tuple[FabricStep, ...] = ()
    blockers: tuple[Blocker, ...] = ()


class Isolation(Protocol):
    """Tenants' networks in one fabric.

    Nothing is remembered: each method looks first, so that a crash or a lost answer is repaired by
    calling it again. A device that does not answer is a blocker, and raises nothing. Names are
    those of the VRFs, also where a partition stands for one; "" or "default" is no tenant's.
    """

    async def delta(self, tenants: Sequence[Tenant], only: Collection[str] = ()) -> FabricDelta:
        """What the networks of all numbered tenants ask; those that leave are to be gone.

        Changes nothing. A network with a member in it is not taken away: it is a blocker.
        `only`: names of tenants; devices that have nothing to do with them are not asked.
        """
        ...

    async def bring(self, delta: FabricDelta) -> tuple[Blocker, ...]:
        """Carry it out and prove it by reading; () if it is so. Not to be called with blockers."""
        ...

    async def where(
        self, members: Sequence[Member], tenants: Sequence[Tenant]
    ) -> Mapping[Member, frozenset[str]] | Blocker:
        """The networks that each member is in now."""
        ...

    async def place(
        self, members: Sequence[Member], vrf: str, tenants: Sequence[Tenant]
    ) -> tuple[Blocker, ...]:
        """Bring members into one network and out of every other; () if that is proved.

        Out comes first: between two networks a member is in none, never in both.
        """
        ...

    async def close(self) -> None:
        """Let go of connections; what was sent takes its course."""
        ...

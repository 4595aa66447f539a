"""Tenant isolation in a fabric: VRFs on Ethernet, partitions on InfiniBand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from provisioner.model.integrations.partition import FabricPartitions
from provisioner.model.inventory import Inventory
from provisioner.model.location import OutletState
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import GateCheck, GateRow
from provisioner.model.tenant import Tenant
from provisioner.ports.wire import Secret

# ------------------------------------------------------------------------------
# Power distribution units: outlets that are read and switched.


class Pdu(Protocol):
    """One PDU. Switching is absolute, so that a request may be repeated.

    A refusal of the PDU is a `Blocker`; raises `PortError` subclasses only.
    """

    async def read_outlet(self, outlet: str) -> OutletState | Blocker:
        """Return the state that the PDU reports now."""
        ...

    async def switch_outlet(self, outlet: str, *, on: bool) -> Blocker | None:
        """Request a state; only a later reading shows that it is reached."""
        ...


@dataclass(frozen=True)
class Member:
    """An end that is in exactly one tenant's network: a leaf's port, or an InfiniBand port."""

    device: str  # node id of the leaf; "" on InfiniBand, where the subnet manager locates it
    name: str  # interface ("swp1s0"), or GUID (16 hexadecimal digits)
    address: str = ""  # of the leaf's end, with length; "" where there is none

    def __str__(self) -> str:
        return f"{self.device}/{self.name}" if self.device else self.name


@dataclass(frozen=True)
class FabricStep:
    """The changes at one device. `lines` are for people, `order` is for the adapter only."""

    device: str
    lines: tuple[str, ...]
    order: Any = None


@dataclass(frozen=True)
class FabricDelta:
    """The changes that bring the fabric to its desired state. With blockers, none is made."""

    steps: tuple[FabricStep, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    networks: frozenset[str] = frozenset()  # names of the networks that a UFM's changes concern


class IsolationReads(Protocol):
    """The readings of tenants' networks in one fabric: no method changes a device.

    No method uses stored state: each reads the fabric first, so that calling it again repairs the
    effects of a crash or a lost answer. A device that does not answer results in a blocker, not in
    an exception. Names are those of the VRFs, also where a partition is used in place of one; ""
    and "default" are no tenant's.
    """

    async def delta(self, tenants: Sequence[Tenant], only: Collection[str] = ()) -> FabricDelta:
        """Return the changes that the networks of all numbered tenants need, including removals.

        Changes nothing. A network that still has a member is not removed, which results in a
        blocker. `only`: names of tenants; devices that do not concern them are not read.
        """
        ...

    async def where(
        self, members: Sequence[Member], tenants: Sequence[Tenant]
    ) -> Mapping[Member, frozenset[str]] | Blocker: ...

    async def close(self) -> None:
        """Close connections; changes that were sent continue."""
        ...


class Isolation(IsolationReads, Protocol):
    """Tenants' networks in one fabric, with the methods that change them."""

    async def bring(self, delta: FabricDelta) -> tuple[Blocker, ...]:
        """Make the changes and prove them by reading back; return () if all hold.

        Not to be called with a delta that has blockers.
        """
        ...

    async def place(
        self, members: Sequence[Member], vrf: str, tenants: Sequence[Tenant]
    ) -> tuple[Blocker, ...]:
        """Move members into one network and out of every other; return () if that is proved.

        Removal comes first: between two networks a member is in none, never in both.
        """
        ...


class PartitionReads(IsolationReads, Protocol):
    """The readings of one InfiniBand fabric, whose manager lists all members of its networks."""

    async def read_members(
        self, tenants: Sequence[Tenant]
    ) -> Mapping[str, frozenset[str]] | Blocker:
        """Return the networks of every member of any, by GUID, without the default partition."""
        ...

    async def list_partitions(self, tenants: Sequence[Tenant]) -> FabricPartitions:
        """Return every partition but the default one, and how the subnet manager is protected."""
        ...


@dataclass(frozen=True)
class UfmAddress:
    """UFM's address, "https://ufm.example". Without a username, `secret` is an access token."""

    url: str
    username: str = ""
    secret: Secret | None = None
    pin: str = ""


class Partitions(Isolation, PartitionReads, Protocol):
    """Networks of one InfiniBand fabric, which can be changed."""


@dataclass(frozen=True)
class Drift:
    """What is not as a node's handover proved it, and what cannot be told of it."""

    part: str  # what the system calls the node
    wrong: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    listed: int = 0  # of its ends, which the system itself showed


class Membership(Protocol):
    """What one more system has a host in for its tenant, as a partition of its GPUs' NVLink.

    A host enters after its ports are in its tenant's network, and leaves before its storage and
    its ports do. A host that the system does not concern is left alone, with (), and is asked
    about before the turn of the system is waited for. `nodes`: all rows
    of now, which say whose each other host is. `seen`: the host's last inventory, which says what
    it is also where no list names it. Nothing is remembered: each method reads the system
    first, and one that changes it proves the end by reading, so that a successor repeats what is
    missing. `admit` and `expel` have one caller at a time, and raise `PortError` only.
    """

    @property
    def name(self) -> str:
        """Of the system, as messages and its writers' turn have it."""
        ...

    @property
    def check(self) -> GateCheck:
        """Of its rows in the gate of a release."""
        ...

    async def concerns(self, node: Node, seen: Inventory | None) -> bool:
        """Return whether it has to do with a host, or that cannot be told. Raises nothing."""
        ...

    async def admit(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[Blocker, ...]:
        """Bring a host into what its tenant has there, and out of all else; () if it is so."""
        ...

    async def expel(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[Blocker, ...]:
        """Take a host that may have served out of all of it; () if it is proved to be in none."""
        ...

    async def judge(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[GateRow, ...]:
        """Return the rows of a release, read now; what is unread is unknown. Raises nothing."""
        ...

    async def find_drift(
        self, nodes: Sequence[Node], admitted: Callable[[Node], Awaitable[bool]]
    ) -> Mapping[str, Drift] | None:
        """Return by node what one look shows to be otherwise than proved, of those that serve and
        of those that serve nobody, with nothing for one that is right; one that is missing was not
        judged. None: nobody can look. `admitted`: whether the release of one that serves brought it
        in. Raises `PortError`, `InputError` and `OSError`.
        """
        ...

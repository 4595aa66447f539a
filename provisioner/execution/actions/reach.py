"""How to reach a node's BMCs and a switch's API: addresses with their credentials."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.messages import read_document
from provisioner.adapters.redfish.service import Pause
from provisioner.adapters.redfish.walk import ROOT_KNOWN_S
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.power import LeakGate
from provisioner.model.inventory import LeakDetector
from provisioner.model.node import BmcRef, Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.watch.leaks import find_refusal
from provisioner.ports import (
    AccountLocked,
    BmcAddress,
    BmcTransport,
    Call,
    Clock,
    Credentials,
    PortError,
    Switch,
    SwitchAddress,
    Switches,
    SwitchPasswords,
    SwitchRefused,
    Unreachable,
)
from provisioner.runtime import permit
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# One switch as the store has it now: its address, its credential and the adapter of its system.
#
# An address is looked up again after some seconds, and after each failure, because its credential
# may have been changed meanwhile.


ADDRESS_S = 10.0

Lookup = Callable[[], Awaitable[SwitchAddress | Blocker]]


class SwitchSource:
    """Opens one switch. `open` raises `SwitchRefused` where there is no address."""

    def __init__(
        self, name: str, lookup: Lookup, switches: Switches, clock: Clock, settings: Settings
    ) -> None:
        self.name = name
        self._lookup = lookup
        self._switches = switches
        self._clock = clock
        self._settings = settings
        self._opened: tuple[Switch, float] | None = None  # until then

    async def open(self) -> Switch:
        if self._opened is None or self._clock.now() >= self._opened[1]:
            address = await self._lookup()
            if isinstance(address, Blocker):
                raise SwitchRefused(address.reason, address.detail)
            switch = self._switches.open(self.name, address, self._clock, self._settings)
            self._opened = (switch, self._clock.now() + ADDRESS_S)
        return self._opened[0]

    def describe(self, problem: PortError) -> Blocker:
        """Return a failure as a value; the address is looked up again after it."""
        self._opened = None
        if isinstance(problem, SwitchRefused):
            return describe_refusal(self.name, problem)
        return blocked(problem, self.name)


def describe_refusal(subject: str, refused: SwitchRefused) -> Blocker:
    return Blocker(
        reason=refused.reason,
        subject=subject,
        detail=str(refused),
        unblock="Look at the switch's changes and log; it is tried again by itself.",
    )


# ------------------------------------------------------------------------------
# One writer for each switch: every write to a switch happens within that switch's turn.
#
# Each of two overlapping revisions is applied to the configuration that existed when it was
# created. The later one may then be refused, or be read as done while the earlier one still
# settles. All writers share the turns: requests of the API, moves of ports, the drain and the
# reboot of a switch, and other daemons on the same database.


class Shared(Protocol):
    """Turns among processes; a name that one process took is free again when it ends."""

    async def take(self, name: str) -> None:
        """Wait for the turn. A caller that is cancelled while it waits does not have it."""
        ...

    async def give_back(self, name: str) -> None: ...


# switches whose turns this task, or the one that created it, is inside of
_held: ContextVar[frozenset[str]] = ContextVar("turns that are held", default=frozenset())


@contextmanager
def share_turns(turns: Shared) -> Iterator[None]:
    """Take turns among all processes that share them, while inside."""
    among = permit.get_scope().turns
    among.append(turns)
    try:
        yield
    finally:
        among.remove(turns)


@asynccontextmanager
async def turn(switch: str) -> AsyncIterator[None]:
    """Hold one switch's turn, from the reading that decides to the reading that proves the result.

    It is not reentrant: code that is called inside a turn does not take the same one again.
    """
    assert switch not in _held.get(), f"the turn of {switch} is taken within itself"
    scope = permit.get_scope()
    mine = scope.locks.setdefault(asyncio.get_running_loop(), {})
    async with mine.setdefault(switch, asyncio.Lock()):
        taken: list[Shared] = []
        try:
            for turns in tuple(scope.turns):
                await turns.take(switch)
                taken.append(turns)
            inside = _held.set(_held.get() | {switch})
            try:
                yield
            finally:
                _held.reset(inside)
        finally:
            for turns in taken:
                await turns.give_back(switch)


HOST = "host"  # the BMC that the leak detectors are behind
CHANGING_S = 10.0  # a change of a password is over after about this


class Reach:
    """Builds Redfish clients and switch addresses; the vendor of a BMC is asked for once."""

    def __init__(
        self,
        transport: BmcTransport,
        switches: Switches,
        credentials: Credentials,
        passwords: SwitchPasswords | None = None,
        pause: Pause = asyncio.sleep,
        gate: LeakGate | None = None,
    ) -> None:
        self.transport = transport
        self.switches = switches
        self.credentials = credentials
        self.passwords = passwords  # None: the factory passwords of switches are not changed here
        self.pause = pause  # of the site's clock
        self.gate = gate  # None: readings alone decide whether a host is wet
        self._nodes: dict[str, Node] = {}  # as last asked for, by id
        self._quirks: dict[str, quirks.Quirk] = {}
        self._clients: dict[tuple[str, str], Redfish] = {}
        self._changing: set[str] = set()  # logins whose password is being changed

    @contextmanager
    def hold_login(self, name: str) -> Iterator[bool]:
        """Keep others from logging in to "node/bmc" meanwhile; yield whether that is granted."""
        granted = name not in self._changing
        self._changing.add(name)
        try:
            yield granted
        finally:
            if granted:
                self._changing.discard(name)

    async def address(self, node: Node, bmc: BmcRef) -> BmcAddress | Blocker:
        """Return the address and current credential of one BMC.

        Raises `AccountLocked` while its password is being changed.
        """
        if f"{node.id}/{bmc.name}" in self._changing:
            raise AccountLocked(f"{bmc.url}: its password is being changed", CHANGING_S)
        credential = await self.credentials.current(f"{node.id}/{bmc.name}")
        if credential is None:
            return _no_credential(f"{node.id}/{bmc.name}")
        username, secret = credential
        return BmcAddress(url=bmc.url, username=username, secret=secret, pin=bmc.pin)

    async def redfish(self, node: Node, name: str) -> Redfish | Blocker:
        """A client for the BMC `name` of a node. Raises `PortError` if it does not answer."""
        bmc = next((b for b in node.bmcs if b.name == name), None)
        if bmc is None:
            return Blocker(
                reason=Reason.NOT_OFFERED,
                subject=f"{node.id}/{name}",
                detail="this node has no such BMC",
                unblock="Add the card to the expected-hardware list and take the node in again.",
            )
        address = await self.address(node, bmc)
        if isinstance(address, Blocker):
            return address
        self._nodes[node.id] = node
        client = self._clients.get((node.id, name))
        if client is None or client.address != address:
            quirk = await self.quirk(address)
            admit = partial(self._admit, node.id)
            client = Redfish(self.transport, address, quirk, self.pause, admit)
            self._clients[node.id, name] = client
        await client.learn()
        return client

    async def refuse_wet(self, node: Node) -> Blocker | None:
        """Return why no act may be sent to a host, in band either; a silent BMC decides nothing.

        An act through the BMC asks again, and is not sent while the BMC does not answer.
        """
        self._nodes[node.id] = node
        try:
            return await self._admit(node.id)
        except PortError:
            return None

    async def find_recorded_leak(self, node_id: str) -> Blocker | None:
        """Return why a host whose BMC has no power gets none back, by its alerts alone."""
        return None if self.gate is None else await self.gate.find_recorded(node_id)

    async def _admit(self, node_id: str) -> Blocker | None:
        """Return why no act may be sent to a host or its cards, by the detectors of the host."""
        node = self._nodes[node_id]
        detectors: tuple[LeakDetector, ...] = ()
        if any(bmc.name == HOST for bmc in node.bmcs):
            host = await self.redfish(node, HOST)
            if isinstance(host, Blocker):
                return host
            detectors = await host.read_leak_detectors()
        if self.gate is None:
            return find_refusal(node_id, detectors, ())
        return await self.gate.admit_act(node_id, detectors)

    async def quirk(self, address: BmcAddress) -> quirks.Quirk:
        """Return the quirks of this BMC's vendor, identified from its service root."""
        if address.url not in self._quirks:
            root = await self._root(address)
            self._quirks[address.url] = quirks.identify(root)
        return self._quirks[address.url]

    async def _root(self, address: BmcAddress) -> dict[str, Any]:
        """The service root; a BMC that is starting has not said who it is, and is asked again."""
        bare = BmcAddress(url=address.url, pin=address.pin, insecure=address.insecure)
        call = Call("GET", "/redfish/v1", known_s=ROOT_KNOWN_S)
        reply = await self.transport.request(bare, call)
        # against DSP0266, but some want a login here (docs/sources/bmc-faults.md#s6)
        if reply.status in (401, 403):
            reply = await self.transport.request(address, call)
        if reply.status >= 400:
            detail = f"the service root: HTTP status {reply.status}"
            raise Unreachable(detail, maybe_executed=False)
        root = read_document(reply)
        return root if isinstance(root, dict) else {}

    async def switch(self, node: Node) -> SwitchAddress | Blocker:
        """Return the management address of a switch, with its credential if its system has one."""
        facts = self.switches.get_facts(node.os, node.address)
        if facts is not None and not facts.stored_login:
            return SwitchAddress(url=node.address, system=facts.name)
        if f"{node.id}/api" in self._changing:
            return Blocker(
                reason=Reason.ACCOUNT_LOCKED,
                subject=f"{node.id}/api",
                detail="its password is being changed",
                unblock="It is tried again by itself.",
            )
        login = await self.credentials.current(f"{node.id}/api")
        if login is None:
            return _no_credential(f"{node.id}/api")
        username, secret = login
        pin = next((b.pin for b in node.bmcs if b.name == "api"), "")
        return SwitchAddress(node.address, username, secret, pin, node.os)


def _no_credential(name: str) -> Blocker:
    return Blocker(
        reason=Reason.LOGIN_REFUSED,
        subject=name,
        detail="no credential is stored for it",
        unblock="Add it to the expected-hardware list and take the node in again.",
    )

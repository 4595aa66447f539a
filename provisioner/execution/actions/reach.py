"""How to reach a node's BMCs and a switch's API: addresses with their credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.service import Pause
from provisioner.adapters.redfish.walk import ROOT_KNOWN_S
from provisioner.execution.actions.leak_gate import LeakGate
from provisioner.model.inventory import LeakDetector
from provisioner.model.node import BmcRef, Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.watch.leaks import find_refusal
from provisioner.ports import (
    AccountLocked,
    BmcAddress,
    BmcTransport,
    Call,
    Credentials,
    PortError,
    SwitchAddress,
    Switches,
    SwitchPasswords,
    Unreachable,
)

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
        """Return a client for the BMC `name` of a node. Raises `PortError` if it does not
        answer.
        """
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
        """Return the service root; a BMC that is starting has not said who it is, and is asked
        again.
        """
        bare = BmcAddress(url=address.url, pin=address.pin, insecure=address.insecure)
        call = Call("GET", "/redfish/v1", known_s=ROOT_KNOWN_S)
        reply = await self.transport.request(bare, call)
        if reply.status in (401, 403):  # against DSP0266, but some want a login here (facts S6)
            reply = await self.transport.request(address, call)
        if reply.status >= 400:
            detail = f"the service root: HTTP status {reply.status}"
            raise Unreachable(detail, maybe_executed=False)
        root = reply.json()
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

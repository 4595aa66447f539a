"""Requests to one leaf, and the one reading that placement rests on: where ports are and will be.

Rule: the operational state alone does not say where a port stays. A revision that a crashed
daemon (or somebody else) has sent is still on its way for seconds, and what was applied but not
saved is undone by the next reboot. A port is settled only where all of these agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from provisioner.execution.actions.once import blocked
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.port_label import PortLabel, may_overwrite, read_label
from provisioner.ports import Call, Clock, PortError, SwitchAddress, SwitchTransport
from provisioner.ports.reply_words import status_words
from provisioner.switches import cumulus
from provisioner.switches.cumulus import Ask, Move

REQUEST_S = 30.0
# A switch's address is looked up again after this: its credential may have been changed.
ADDRESS_S = 10.0
ONE_BY_ONE = 2  # ports; more of them are read with the whole collection
INTERFACES_MAX = 8192  # of one leaf: ports, breakouts and what is built on them

Lookup = Callable[[], Awaitable[SwitchAddress | Blocker]]
Views = Mapping[str, frozenset[str]]  # port -> every VRF that it is or will be in


class Refused(Exception):
    """The switch answered, and not what was needed. It becomes a blocker in `LeafLine`."""

    def __init__(self, reason: Reason, detail: str) -> None:
        # printable: the words may be the switch's own
        super().__init__("".join(c if c.isprintable() else " " for c in detail))
        self.reason = reason


class LeafLine:
    """One switch's API with its address. Methods raise `PortError` and `Refused`."""

    def __init__(self, name: str, lookup: Lookup, transport: SwitchTransport, clock: Clock) -> None:
        self.name = name
        self._lookup = lookup
        self.transport = transport
        self._clock = clock
        self._address: SwitchAddress | None = None
        self._address_until = 0.0

    async def get(self, path: str) -> Any:
        """What is at this path, as JSON."""
        return await self.ask(Ask("GET", path))

    async def find(self, path: str) -> Any:
        """What is at this path, as JSON; None if there is no such thing (404)."""
        return await self.ask(Ask("GET", path), missing=True)

    async def ask(self, ask: Ask, *, missing: bool = False) -> Any:
        """Send one request; its answer as JSON. `missing`: None for a 404."""
        call = Call(ask.method, ask.path, ask.body, timeout_s=REQUEST_S)
        try:
            reply = await self.transport.request(await self._found(), call)
        except PortError:
            self._address = None
            raise
        if reply.status in (401, 403):
            # 403: the factory's password must be changed before the API does anything
            self._address = None
            raise Refused(Reason.LOGIN_REFUSED, f"{ask.path}: status {reply.status}")
        if missing and reply.status == 404:
            return None
        if reply.status >= 300:
            detail = f"{ask.method} {ask.path}: {status_words(reply)}"
            raise Refused(Reason.SWITCH_REFUSED, detail)
        return reply.json() if reply.body else {}

    async def _found(self) -> SwitchAddress:
        """Where the switch is and how to log in, as it was a moment ago."""
        if self._address is None or self._clock.now() >= self._address_until:
            address = await self._lookup()
            if isinstance(address, Blocker):
                raise Refused(address.reason, address.detail)
            self._address = address
            self._address_until = self._clock.now() + ADDRESS_S
        return self._address

    def blocker(self, problem: PortError | Refused) -> Blocker:
        """A failure as the value that it is above this floor."""
        if isinstance(problem, PortError):
            return blocked(problem, self.name)
        return Blocker(
            reason=problem.reason,
            subject=self.name,
            detail=str(problem),
            unblock="Look at the switch's revisions and log; it is tried again by itself.",
        )


class Place(NamedTuple):
    """Where one tree has a port, and whether it lets nothing through there, or to other hosts."""

    vrf: str
    denied: bool
    apart: bool


async def views(line: LeafLine, interfaces: Sequence[str], *, saved: bool = True) -> Views:
    """Every VRF that each of these ports is in, or will be in by itself.

    `saved`: by the next reboot, too.
    """
    found = await places(line, interfaces, saved=saved)
    return {interface: frozenset(p.vrf for p in seen) for interface, seen in found.items()}


async def places(
    line: LeafLine, interfaces: Sequence[str], *, saved: bool = True
) -> Mapping[str, frozenset[Place]]:
    """The same with filters. Revisions are read before the trees: one that ends in between shows
    in the tree that is read after it.
    """
    listed = cumulus.read_revisions(await line.get(cumulus.REVISIONS_PATH))
    if listed is None:
        raise Refused(Reason.MALFORMED, "no readable list of revisions")
    coming = sorted(name for name, state in listed.items() if state.sent)
    trees = [*coming, "applied", *(["startup"] if saved else []), "operational"]
    found: dict[str, set[Place]] = {interface: set() for interface in interfaces}
    for seen in await asyncio.gather(*(_places(line, interfaces, tree) for tree in trees)):
        for interface, place in seen.items():
            found[interface].add(place)
    return {interface: frozenset(seen) for interface, seen in found.items()}


class TenantPort(NamedTuple):
    """A port that stands in VRFs other than the site's, or will by itself."""

    vrfs: frozenset[str]
    addresses: tuple[str, ...]


async def read_tenant_ports(line: LeafLine, site_vrfs: Collection[str]) -> dict[str, TenantPort]:
    """Return every port of the leaf that is, or will be by itself, in a VRF not in `site_vrfs`.

    The same trees as for `places`, each read whole: whoever asks for all ports of a leaf, and not
    for those of one node, also sees the ports that nobody owns.
    """
    listed = cumulus.read_revisions(await line.get(cumulus.REVISIONS_PATH))
    if listed is None:
        raise Refused(Reason.MALFORMED, "no readable list of revisions")
    coming = sorted(name for name, state in listed.items() if state.sent)
    found: dict[str, TenantPort] = {}
    for tree in (*coming, "applied", "startup", "operational"):
        answer = await line.get(cumulus.interfaces_path(tree))
        if not isinstance(answer, dict) or len(answer) > INTERFACES_MAX:
            raise Refused(Reason.MALFORMED, f"no readable interfaces ({tree})")
        for name, entry in answer.items():
            vrf = cumulus.read_vrf(entry)
            if vrf is None:
                raise Refused(Reason.MALFORMED, f"{name[:40]}: no readable state ({tree})")
            if vrf not in site_vrfs:
                before = found.get(name, TenantPort(frozenset(), ()))
                addresses = cumulus.read_addresses(entry)
                found[name] = TenantPort(before.vrfs | {vrf}, addresses or before.addresses)
    return found


async def read_labels(line: LeafLine) -> dict[str, PortLabel]:
    """Return what the descriptions of ours say, by port, as they were applied."""
    found = await line.get(cumulus.interfaces_path("applied"))
    if not isinstance(found, dict) or len(found) > INTERFACES_MAX:
        raise Refused(Reason.MALFORMED, "no readable interfaces (applied)")
    labels = {name: read_label(cumulus.read_description(entry)) for name, entry in found.items()}
    return {name: label for name, label in labels.items() if label is not None}


async def keep_descriptions(line: LeafLine, moves: Sequence[Move]) -> list[Move]:
    """Return the moves without a description where the site wrote one of its own."""
    if not any(m.description for m in moves):
        return list(moves)
    found = await line.get(cumulus.interfaces_path("applied"))
    entries = found if isinstance(found, dict) else {}
    return [
        m
        if may_overwrite(cumulus.read_description(entries.get(m.interface)))
        else replace(m, description="")
        for m in moves
    ]


async def _places(line: LeafLine, interfaces: Sequence[str], tree: str) -> dict[str, Place]:
    if len(interfaces) <= ONE_BY_ONE:
        answers = {i: await line.get(cumulus.interface_path(i, tree)) for i in interfaces}
    else:
        found = await line.get(cumulus.interfaces_path(tree))
        answers = found if isinstance(found, dict) else {}
    seen = {}
    for interface in interfaces:
        vrf = cumulus.read_vrf(answers.get(interface))
        if vrf is None:
            raise Refused(Reason.MALFORMED, f"{interface}: no readable state ({tree})")
        denied = cumulus.read_denied(answers.get(interface))
        apart = cumulus.read_apart(answers.get(interface))
        seen[interface] = Place(vrf or cumulus.DEFAULT_VRF, denied, apart)
    return seen

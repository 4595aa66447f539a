"""Changes of one switch as NVUE revisions: opened, filled, applied, awaited, saved.

A revision whose number got lost changes nothing and is left alone. One of a writer that died is
awaited first, because a revision is made on the configuration that is about to change.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from provisioner.integrations.cumulus import nvue_calls
from provisioner.integrations.cumulus.nvue_calls import Ask, RevisionState
from provisioner.model.outcome import Reason
from provisioner.ports import Call, Clock, Malformed, Reply, SwitchAddress, SwitchTransport
from provisioner.ports.switch import SwitchRefused
from provisioner.ports.wire import status_words
from provisioner.settings import Settings

log = logging.getLogger(__name__)

# ------------------------------------------------------------------------------
# Requests to one switch's NVUE API, and their refusals.
#
# A 401 or 403 is a refused login: NVUE answers 403 to everything until the factory's password was
# changed. Any other status of 300 and more is the switch's refusal, in its own text.


DAMAGED_MAX = 64
REQUEST_S = 30.0
CONFIGURATION_S = 60.0  # the whole configuration of a full leaf is some megabytes


class NvueLine:
    """One switch's API at its address. Methods raise `PortError`, a refusal as `SwitchRefused`."""

    def __init__(self, name: str, address: SwitchAddress, transport: SwitchTransport) -> None:
        self.name = name
        self.address = address
        self._transport = transport
        self.damaged: dict[str, None] = {}  # fields that could not be read: "path: field"

    async def get(self, path: str, timeout_s: float = REQUEST_S) -> Any:
        """Return the JSON at this path."""
        return await self.ask(Ask("GET", path), timeout_s=timeout_s)

    async def find(self, path: str) -> Any:
        """Return the JSON at this path; None if there is no such thing (404)."""
        return await self.ask(Ask("GET", path), missing=True)

    async def ask(self, ask: Ask, *, missing: bool = False, timeout_s: float = REQUEST_S) -> Any:
        """Send one request and return its JSON. `missing`: None for a 404."""
        reply = await self.send(ask, timeout_s)
        if reply.status in (401, 403):
            raise SwitchRefused(Reason.LOGIN_REFUSED, f"{ask.path}: status {reply.status}")
        if missing and reply.status == 404:
            return None
        if reply.status >= 300:
            detail = f"{ask.method} {ask.path}: {status_words(reply)}"
            raise SwitchRefused(Reason.SWITCH_REFUSED, detail)
        return self.read(ask.path, reply) if reply.body else {}

    def read(self, path: str, reply: Reply) -> Any:
        """Return an answer's JSON; its damaged fields are marked, and told once."""
        answer, lost = reply.read_marked()
        for name in lost:
            where = f"{path.partition('?')[0]}: {name}"
            if where not in self.damaged and len(self.damaged) < DAMAGED_MAX:
                self.damaged[where] = None
                log.warning("%s: %s cannot be read, and counts as unknown", self.name, where)
        return answer

    async def send(
        self, ask: Ask, timeout_s: float = REQUEST_S, size_max_bytes: int | None = None
    ) -> Reply:
        """Send one request and return its answer, whatever its status."""
        call = Call(ask.method, ask.path, ask.body, timeout_s=timeout_s)
        if size_max_bytes is not None:
            call = Call(
                ask.method,
                ask.path,
                ask.body,
                timeout_s=timeout_s,
                size_max_bytes=size_max_bytes,
            )
        return await self._transport.request(self.address, call)


# ------------------------------------------------------------------------------
# The two dialects of NVUE: up to Cumulus Linux 5.14, and from 5.15 on.
#
# Bodies are written in the older dialect and spelled for the release that runs just before they are
# sent; documents are read into the older one, so that an upgrade over the border changes no digest.
# source: Cumulus Linux 5.15 user guide, "New and Changed NVUE Commands", table of changed values
# (CumulusNetworks/docs, content/cumulus-linux-515/Whats-New/New-and-Changed-NVUE-Commands.md).


FIRST_WITH_STATE = (5, 15)
DEPTH_MAX = 16  # levels of a document that are respelled; the longest row has nine
Path = tuple[str, ...]
_FAMILY = ("vrf", "*", "router", "bgp", "address-family", "*")
# switches of the older dialect; `enable` becomes `state`, other names stay
SWITCHES: tuple[Path, ...] = (
    ("router", "bgp", "enable"),
    ("router", "bgp", "graceful-shutdown"),
    ("router", "bgp", "wait-for-install"),
    ("router", "adaptive-routing", "enable"),
    ("router", "adaptive-routing", "link-utilization-threshold"),
    ("interface", "*", "router", "adaptive-routing", "enable"),
    ("qos", "roce", "enable"),
    ("evpn", "enable"),
    ("evpn", "multihoming", "enable"),
    ("interface", "*", "evpn", "multihoming", "segment", "enable"),
    ("interface", "*", "bond", "mlag", "enable"),
    ("nve", "vxlan", "mac-learning"),
    ("nve", "vxlan", "arp-nd-suppress"),
    ("vrf", "*", "router", "bgp", "enable"),
    (*_FAMILY, "enable"),
    (*_FAMILY, "redistribute", "*", "enable"),
    (*_FAMILY, "route-import", "from-vrf", "enable"),
    (*_FAMILY, "route-export", "to-evpn", "enable"),
    ("vrf", "*", "evpn", "prefix-routes-only"),
)
_NEWER = {"on": "enabled", "off": "disabled"}
_OLDER = {new: old for old, new in _NEWER.items()}


def encode_body(body: Mapping[str, Any], release: tuple[int, ...]) -> dict[str, Any]:
    """Return a body of the older dialect as the release takes it."""
    if release[:2] < FIRST_WITH_STATE:
        return dict(body)
    return _spell(body, (), _encode_switch)


def encode_switch(leaf: Mapping[str, str], release: tuple[int, ...]) -> dict[str, str]:
    """Return the leaf of one switch of the older dialect as the release takes it."""
    if release[:2] < FIRST_WITH_STATE:
        return dict(leaf)
    return {"state" if k == "enable" else k: _NEWER[v] for k, v in leaf.items()}


def read_release(version: str) -> tuple[int, ...]:
    """Return (5, 15) of "5.15.0.0020"; () of a version that is none: the older dialect."""
    numbers = re.match(r"(\d{1,3})\.(\d{1,3})", version)
    return () if numbers is None else (int(numbers[1]), int(numbers[2]))


def decode_document(document: Any, path: Path) -> Any:
    """Return what a switch answered at `path` in the older dialect, whichever it speaks."""
    return _spell(document, path, _decode_switch) if isinstance(document, Mapping) else document


def _encode_switch(path: Path, value: Any) -> tuple[str, Any]:
    name = "state" if path[-1] == "enable" else path[-1]
    known = isinstance(value, str) and _is_switch(path)
    return (name, _NEWER.get(value, value)) if known else (path[-1], value)


def _decode_switch(path: Path, value: Any) -> tuple[str, Any]:
    older = (*path[:-1], "enable") if path[-1] == "state" else path
    known = isinstance(value, str) and _is_switch(older)
    return (older[-1], _OLDER.get(value, value)) if known else (path[-1], value)


def _is_switch(path: Path) -> bool:
    return any(
        len(row) == len(path) and all(r in ("*", p) for r, p in zip(row, path, strict=True))
        for row in SWITCHES
    )


def _spell(
    tree: Mapping[str, Any], path: Path, change: Callable[[Path, Any], tuple[str, Any]]
) -> dict[str, Any]:
    if len(path) >= DEPTH_MAX:
        return dict(tree)
    spelled: dict[str, Any] = {}
    for key, value in tree.items():
        below = (*path, key)
        if isinstance(value, Mapping):
            spelled[key] = _spell(value, below, change)
        else:
            name, new = change(below, value)
            spelled[name] = new
    return spelled


# A look comes late by at most this part of the time waited, so that polling costs a tenth of the
# switch's own time and some thirty requests until the longest pause is reached.
LATE = 0.1
# The look at which a revision that is still pending is compared with what is applied; most have
# begun by then, and the whole tree is not read for them.
EQUAL_LOOK = 3


class Revisions:
    """The revisions of one switch. Methods raise `PortError`."""

    def __init__(self, line: NvueLine, clock: Clock, limits: Settings) -> None:
        self._line = line
        self._clock = clock
        self._limits = limits

    async def send(self, fill: Callable[[str], Iterable[Ask]]) -> str:
        """Open a revision, fill it, and begin to apply it; return its name."""
        await self._await_others()
        revision = nvue_calls.read_revision_id(await self._line.ask(nvue_calls.new_revision()))
        if revision is None:
            raise Malformed("a new revision without a name")
        for ask in fill(revision):
            await self._line.ask(ask)
        await self._line.ask(nvue_calls.apply(revision))
        return revision

    async def apply(self, fill: Callable[[str], Iterable[Ask]]) -> str:
        """Send a revision and await its end; return its name when the switch has applied it."""
        revision = await self.send(fill)
        states: list[RevisionState] = []
        looks = 0

        async def has_ended() -> bool:
            nonlocal looks
            looks += 1
            path = nvue_calls.revision_path(revision)
            state = nvue_calls.read_revision(await self._line.get(path))
            states[:] = [state] if state is not None else []
            has_not_begun = state is not None and state.state == "pending"
            if has_not_begun and looks == EQUAL_LOOK and await self._equals_applied(revision):
                states[:] = [RevisionState("applied", "")]
                return True
            return state is not None and not state.under_way

        if not await self._poll(has_ended):
            raise SwitchRefused(Reason.SWITCH_REFUSED, f"revision {revision} does not end")
        if not states[0].applied:
            detail = f"revision {revision} is {states[0].state}"
            detail += f": {states[0].issue or 'no reason given'}"
            raise SwitchRefused(Reason.SWITCH_REFUSED, detail)
        return revision

    async def _equals_applied(self, revision: str) -> bool:
        """Return whether a revision would change nothing: some releases leave it pending then."""
        one, other = await asyncio.gather(
            *(self._line.get(nvue_calls.tree_path(tree)) for tree in (revision, "applied"))
        )
        return isinstance(one, dict) and bool(one) and one == other

    async def is_saved(self) -> bool:
        """Return whether the switch would start with the applied configuration."""
        applied, startup = await asyncio.gather(
            *(self._line.get(nvue_calls.tree_path(tree)) for tree in ("applied", "startup"))
        )
        return bool(applied == startup)

    async def save(self) -> None:
        """Make the applied configuration that of the next start."""
        await self._line.ask(nvue_calls.save())

    async def _await_others(self) -> None:
        """Wait for a revision of a writer that died, at most for `switch_apply_limit_s`.

        A switch that is stuck gets the change all the same.
        """
        until = self._clock.now() + self._limits.switch_apply_limit_s
        while nvue_calls.read_sent(await self._line.get(nvue_calls.REVISIONS_PATH)):
            if self._clock.now() >= until:
                return
            await self._clock.sleep(self._limits.switch_poll_s / 5)

    async def _poll(self, holds: Callable[[], Awaitable[bool]]) -> bool:
        """Poll until it holds, at most `switch_apply_limit_s`; pauses grow with the time waited."""
        began = self._clock.now()
        longest = self._limits.switch_poll_s
        while not await holds():
            waited = self._clock.now() - began
            if waited >= self._limits.switch_apply_limit_s:
                return False
            await self._clock.sleep(min(longest, max(longest / 5, waited * LATE)))
        return True

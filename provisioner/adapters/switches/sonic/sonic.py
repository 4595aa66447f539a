"""SONiC behind `SwitchTransport`: NVUE's requests that leaves and spines get, as commands over SSH.

A switch's changes are written once, in NVUE's words; here they become a checked patch of CONFIG_DB,
or the switch's own command. Revisions live in memory only: one that is lost changed nothing. What
is not translated is answered with 404, so that the floor above refuses it in its own words.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from provisioner.adapters.switches.sonic.sonic_reading import SonicReading
from provisioner.ports import (
    Call,
    HostShell,
    Malformed,
    Reply,
    ShellCommand,
    ShellOutput,
    SwitchAddress,
)
from provisioner.runtime import permit
from provisioner.switches import sonic, sonic_state

WRITE_S = 300.0  # a patch is checked against the models first
REVISIONS_MAX = 100  # kept for each switch, in memory
PREFIX = "/nvue_v1"
SCHEME = "ssh"  # of a switch's address, by which it is told from one that speaks NVUE


@dataclass
class _Switch:
    revisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    changes: dict[str, list[Any]] = field(default_factory=dict)
    made: int = 0
    write: asyncio.Lock = field(default_factory=asyncio.Lock)


class SonicTransport:
    """`SwitchTransport` for SONiC; `url` is "ssh://ADDRESS", logged in to by `shell`."""

    def __init__(self, shell: HostShell) -> None:
        self._shell = shell
        self._switches: dict[str, _Switch] = {}

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        """One request of NVUE's form. Raises PortError only."""
        state = self._switches.setdefault(switch.url, _Switch())
        parts = urlsplit(call.path)
        path = tuple(unquote(p) for p in parts.path.removeprefix(PREFIX).split("/") if p)
        query = dict(parse_qsl(parts.query))
        revision = query.get("rev", "applied")
        if call.method == "GET":
            if path[:1] == ("revision",):
                known = state.revisions
                return _reply(known if len(path) == 1 else known.get(path[1]))
            reading = SonicReading(self._shell, switch.url)
            with permit.allow_reads():
                return _reply(await reading.get(path, revision, query.get("view", "")))
        async with state.write:
            if call.method == "POST" and path == ("revision",):
                return _reply(_opened(state))
            if call.method == "POST":
                return _reply(await self._act(switch, path, call.body))
            if call.method == "PATCH" and path == () and revision in state.changes:
                state.changes[revision].append(call.body)
                return _reply({})
            if call.method == "PATCH" and path == ("revision", "applied"):
                return _reply(await self._save(switch))
            if call.method == "PATCH" and path[:1] == ("revision",) and path[1:]:
                return _reply(await self._apply(switch, state, path[1]))
        return _reply(None)

    async def close(self) -> None:
        """The connections are the shell's."""

    async def _apply(self, switch: SwitchAddress, state: _Switch, revision: str) -> Any:
        if revision not in state.changes:
            return None
        for change in state.changes.pop(revision):
            words = await self._changed(switch, change)
            if words:
                state.revisions[revision] = _state("invalid", words)
                return state.revisions[revision]
        state.revisions[revision] = _state("applied")
        return state.revisions[revision]

    async def _changed(self, switch: SwitchAddress, change: Any) -> str:
        """Carry one change out; "" or why it was not."""
        if (drain := sonic.drain_of(change)) is not None:
            return await self._failure(switch, sonic_state.isolate(on=drain))
        config = await SonicReading(self._shell, switch.url).json(sonic.CONFIGURATION)
        if sonic.read_tree(config) is None:
            raise Malformed(f"{switch.url}: CONFIG_DB: not readable")
        steps = sonic.patch(config, change)
        if isinstance(steps, str):
            return steps
        return await self._failure(switch, sonic.apply_patch(steps)) if steps else ""

    async def _act(self, switch: SwitchAddress, path: tuple[str, ...], body: Any) -> Any:
        """Boot the image that was installed, which is the other one; reboot. None: no such act."""
        action = next(iter(body), "") if isinstance(body, dict) else ""
        if (path, action) == (("system",), "@reboot"):
            line = sonic_state.REBOOT
        elif (path, action) == (("system", "image"), "@boot-next"):
            reading = SonicReading(self._shell, switch.url)
            found = sonic.read_images(await reading.text(sonic.IMAGES))
            other = (found or {}).get("partition2", {}).get("build-id", "")
            if not other:
                return None
            line = sonic_state.set_default(other)
        else:
            return None
        words = await self._failure(switch, line)
        if words:
            raise Malformed(f"{switch.url}: {line}: {words}")
        return 1  # of the one job that there is: it is done when it answers

    async def _save(self, switch: SwitchAddress) -> Any:
        words = await self._failure(switch, sonic.SAVE)
        return _state("invalid", words) if words else _state("applied_and_saved")

    async def _failure(self, switch: SwitchAddress, line: str) -> str:
        """Run what changes something; "" or its words."""
        output = await self._one(switch, line)
        if output.exit_code == 0:
            return ""
        return (output.stderr.strip() or output.stdout.strip() or "no message")[-300:]

    async def _one(self, switch: SwitchAddress, line: str) -> ShellOutput:
        address = urlsplit(switch.url).hostname or ""
        command = ShellCommand(name=line.split()[0], line=line, timeout_s=WRITE_S)
        (output,) = await self._shell.run(address, address, [command])
        return output


def _opened(state: _Switch) -> Mapping[str, Any]:
    state.made += 1
    name = str(state.made)
    state.revisions[name], state.changes[name] = _state("pending"), []
    while len(state.revisions) > REVISIONS_MAX:
        oldest = next(iter(state.revisions))
        del state.revisions[oldest]
        state.changes.pop(oldest, None)
    return {name: state.revisions[name]}


def _state(state: str, words: str = "") -> dict[str, Any]:
    issue = {"0": {"message": words}} if words else {}
    return {"state": state, "transition": {"issue": issue, "progress": ""}}


def _reply(document: Any) -> Reply:
    if document is None:
        return Reply(404, {}, b'{"title": "Not Found"}')
    return Reply(200, {"content-type": "application/json"}, json.dumps(document).encode())

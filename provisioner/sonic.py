"""SONiC behind `SwitchTransport`: the few requests that moves of ports need, as commands over SSH.

A leaf's moves are written once, in NVUE's words; here they become a checked patch of CONFIG_DB.
Revisions live in memory only: one that is lost changed nothing. What is not translated is answered
with 404, so that the floor above refuses it in its own words.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from provisioner.ports import (
    Call,
    HostShell,
    Malformed,
    Reply,
    ShellCommand,
    ShellOutput,
    SwitchAddress,
)
from provisioner.switches import sonic

READ_S, WRITE_S = 30.0, 300.0  # a patch is checked against the models first
REVISIONS_MAX = 100  # kept for each switch, in memory
PREFIX = "/nvue_v1"


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
        revision = dict(parse_qsl(parts.query)).get("rev", "applied")
        if call.method == "GET":
            return _reply(await self._get(switch, state, path, revision))
        async with state.write:
            if call.method == "POST" and path == ("revision",):
                return _reply(_opened(state))
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

    async def _get(
        self, switch: SwitchAddress, state: _Switch, path: tuple[str, ...], revision: str
    ) -> Any:
        if path[:1] == ("revision",):
            return state.revisions if path == ("revision",) else state.revisions.get(path[1])
        if path == ("system", "image"):
            return sonic.read_images(await self._run(switch, sonic.IMAGES))
        match path:
            case ("vrf", vrf, "router", "rib", "ipv4", "route"):
                return sonic.read_routes(await self._json(switch, sonic.routes(vrf)))
        tree = await self._tree(switch, revision)
        for step in path:
            tree = tree.get(step) if isinstance(tree, dict) else None
        return tree

    async def _tree(self, switch: SwitchAddress, revision: str) -> Any:
        command = sonic.STARTUP if revision == "startup" else sonic.CONFIGURATION
        tree = sonic.read_tree(await self._json(switch, command))
        if tree is not None and revision == "operational":
            tree = sonic.read_operational(await self._json(switch, sonic.LINKS), tree)
        if tree is None:
            raise Malformed(f"{switch.url}: {command}: not readable")
        return tree

    async def _apply(self, switch: SwitchAddress, state: _Switch, revision: str) -> Any:
        if revision not in state.changes:
            return None
        for change in state.changes.pop(revision):
            config = await self._json(switch, sonic.CONFIGURATION)
            if sonic.read_tree(config) is None:
                raise Malformed(f"{switch.url}: CONFIG_DB: not readable")
            steps = sonic.patch(config, change)
            if isinstance(steps, str):
                words = steps
            else:
                words = await self._failure(switch, sonic.apply_patch(steps)) if steps else ""
            if words:
                state.revisions[revision] = _state("invalid", words)
                return state.revisions[revision]
        state.revisions[revision] = _state("applied")
        return state.revisions[revision]

    async def _save(self, switch: SwitchAddress) -> Any:
        words = await self._failure(switch, sonic.SAVE)
        return _state("invalid", words) if words else _state("applied_and_saved")

    async def _failure(self, switch: SwitchAddress, line: str) -> str:
        """Run what changes something; "" or its words."""
        output = await self._one(switch, line, WRITE_S)
        if output.exit_code == 0:
            return ""
        return (output.stderr.strip() or output.stdout.strip() or "no message")[-300:]

    async def _json(self, switch: SwitchAddress, line: str) -> Any:
        text = await self._run(switch, line)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise Malformed(f"{switch.url}: {line}: not JSON") from None

    async def _run(self, switch: SwitchAddress, line: str) -> str:
        output = await self._one(switch, line, READ_S)
        if output.exit_code != 0 or output.truncated:
            raise Malformed(f"{switch.url}: {line}: ended with {output.exit_code}")
        return output.stdout

    async def _one(self, switch: SwitchAddress, line: str, limit_s: float) -> ShellOutput:
        address = urlsplit(switch.url).hostname or ""
        command = ShellCommand(name=line.split()[0], line=line, timeout_s=limit_s)
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

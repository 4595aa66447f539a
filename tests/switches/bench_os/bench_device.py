"""A simulated switch that runs the operating system for tests. It shares no code with its adapter.

It keeps three documents: the configuration, the one of the next start, and the state in force.
Commands print JSON; `change` merges a document into the configuration, null removes a key.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from provisioner.ports import ShellCommand, ShellOutput

Tree = dict[str, Any]


class BenchDevice:
    """`HostShell` with one switch behind it. `faults`: refuses, lags, garbled."""

    def __init__(self, ports: Sequence[tuple[str, str]]) -> None:
        entries = {n: {"vrf": "default", "address": a, "filters": []} for n, a in ports}
        self.config: Tree = {"ports": entries, "vrfs": ["MAINT", "RED"], "rules": {}}
        self.startup = copy.deepcopy(self.config)
        self.state = copy.deepcopy(self.config)
        self.images = {"running": "1.0", "next": "1.0", "installed": ["1.0"]}
        self.drained = False
        self.boots = 0
        self.faults: set[str] = set()
        self.written: list[str] = []

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        return [self.answer(command.line) for command in commands]

    async def forget(self, host: str, known: str = "") -> None:
        pass

    async def close(self) -> None:
        pass

    def answer(self, line: str) -> ShellOutput:
        verb, _, rest = line.partition(" ")
        if verb == "show":
            if "garbled" in self.faults:
                return ShellOutput(0, '{"ports": 7}', "")
            return ShellOutput(0, json.dumps(self._show(rest)), "")
        self.written.append(line)
        if "refuses" in self.faults:
            return ShellOutput(1, "", "not permitted")
        problem = self._write(verb, rest)
        return ShellOutput(1 if problem else 0, "", problem)

    def _show(self, what: str) -> Any:
        documents = {
            "config": self.config,
            "startup": self.startup,
            "state": self.state,
            "images": self.images,
            "platform": {"model": "bench-64", "serial": "B0001"},
            "drain": self.drained,
            "health": [],
            "peers": {"default": {"spine-0": "established"}},
            "lldp": {},
            "macs": {},
        }
        if what in documents:
            return documents[what]
        if what.startswith("counters "):
            return {"bytes": 0 if self.drained else 1000, "errors": 0, "carrier": 1}
        if what == "routes":
            routes: dict[str, list[str]] = {v: [] for v in ("default", *self.state["vrfs"])}
            for entry in self.state["ports"].values():
                routes[entry["vrf"]].append(entry["address"])
            return routes
        return None

    def _write(self, verb: str, rest: str) -> str:
        if verb == "change":
            _merge(self.config, json.loads(rest))
            if "lags" not in self.faults:
                self.state = copy.deepcopy(self.config)
        elif verb == "save":
            self.startup = copy.deepcopy(self.config)
        elif verb == "drain":
            self.drained = rest == "on"
        elif verb == "choose":
            self.images["next"] = rest
        elif verb == "reboot":
            self.boots += 1
            self.images["running"] = self.images["next"]
            self.config = copy.deepcopy(self.startup)
            self.state = copy.deepcopy(self.startup)
        else:
            return f"{verb}: no such command"
        return ""


def _merge(held: Tree, more: Tree) -> None:
    for key, value in more.items():
        if value is None:
            held.pop(key, None)
        elif isinstance(value, dict) and isinstance(held.get(key), dict):
            _merge(held[key], value)
        else:
            held[key] = value

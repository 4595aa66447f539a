"""Control of a simulated site over a unix-domain socket: plays, truth, and faults on and off.

Every process that can open the socket may do everything; only its owner can (mode 0600). Bad input
is answered with 400 and the wrong field.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from provisioner.sim.faults.faults import BadRule, read_rules
from provisioner.sim.hardware.curable_faults import exchange_part
from provisioner.sim.outputs.host import describe_guest
from provisioner.sim.outputs.outputs_system import list_host_lines, list_switch_lines
from provisioner.sim.site.fault_presets import ALL, inject_fault
from provisioner.sim.site.site import Site
from provisioner.sim.site.truth import collect_truth, find_uncertified

BODY_MAX = 16 * 1024 * 1024  # bytes; certificates of a thousand nodes are below 4 MB


class Control:
    """The endpoint of one site. `start` listens, `stop` removes the socket."""

    def __init__(self, site: Site, path: Path) -> None:
        self.site = site
        self.path = path
        self._runner: web.AppRunner | None = None

    def build_app(self) -> web.Application:
        """The routes; each answers JSON."""
        app = web.Application(client_max_size=BODY_MAX)
        for route, read in {
            "/truth": lambda: collect_truth(self.site),
            "/expected": self.site.build_expected,
            "/site": self.site.describe,
            "/endpoints": self.site.list_endpoints,
            "/clock": self._clock,
            "/requests": self._requests,
            "/faults": self._faults,
            "/guests": lambda: list_guests(self.site),
            "/logs": lambda: list_logs(self.site),
        }.items():
            app.router.add_get(route, _answering(read))
        app.router.add_post("/inband", _taking(self._inband))
        app.router.add_post("/agents/calls", _taking(self._agent_calls))
        app.router.add_post("/agents/request", _taking(self._agent_request))
        app.router.add_post("/guests", _taking(self._add_guest))
        app.router.add_post("/faults", _taking(self._change_faults))
        app.router.add_post("/parts", _taking(self._exchange))
        app.router.add_post("/uncertified", _taking(self._uncertified))
        return app

    async def start(self) -> None:
        """Listen. A socket left by an ended process is replaced.

        Raises `OSError` if the path cannot be used.
        """
        self.path.unlink(missing_ok=True)
        self._runner = web.AppRunner(self.build_app(), access_log=None)
        await self._runner.setup()
        old = os.umask(0o177)  # the socket is never open to others, not even briefly
        try:
            await web.UnixSite(self._runner, str(self.path)).start()
        finally:
            os.umask(old)

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await asyncio.to_thread(self.path.unlink, missing_ok=True)

    # --- answers

    def _clock(self) -> dict[str, float]:
        """`epoch`: now == epoch + (real time - epoch) * speed, so that others can follow this."""
        now = self.site.advance()
        real = time.time()
        speed = float(getattr(self.site.clock, "speed", 1.0))
        epoch = real if speed == 1.0 else (speed * real - now) / (speed - 1.0)
        return {"now": now, "speed": speed, "epoch": epoch}

    def _requests(self) -> dict[str, Any]:
        by_bmc: dict[str, int] = {}  # host, NIC, DPU: all of a kind together
        for name, service in self.site.redfish.items():
            kind = name.partition("/")[2].rstrip("_0123456789")
            by_bmc[kind] = by_bmc.get(kind, 0) + service.requests
        return {
            "redfish": sum(by_bmc.values()),
            "redfish_by_bmc": by_bmc,
            "nvue": sum(s.requests for s in self.site.nvue.values()),
            "inband": self.site.inband.calls,
            "agents": self.site.agents.calls_made,
        }

    def _faults(self) -> dict[str, Any]:
        presets = {
            p.name: {"catalogue": p.catalogue, "meaning": p.meaning, "target": p.target}
            for p in ALL.values()
        }
        rules = [
            {"name": r.name, "endpoint": r.endpoint, "path": r.path, "action": r.action}
            | {"seen": r.seen, "done": r.done}
            for r in self.site.faults.rules
        ]
        return {"presets": presets, "rules": rules, "injected": self.site.injected}

    async def _inband(self, params: dict[str, Any]) -> Any:
        variables = params.get("variables", {})
        if not isinstance(variables, dict):
            raise BadRule("variables: must be an object")
        play = params.get("play")
        host = params.get("host")
        if not isinstance(play, str) or not isinstance(host, str):
            raise BadRule("play, host: both are needed")
        try:
            return await self.site.inband.run(play, host, variables)
        except (KeyError, TypeError, AttributeError) as problem:
            raise BadRule(f"variables: {problem!r:.100}") from None

    async def _agent_calls(self, params: dict[str, Any]) -> Any:
        now = self.site.advance()
        agents = self.site.agents
        try:
            for answer in params["answers"]:
                agents.accept_answer(answer["call"], int(answer["status"]), answer["body"], now)
        except (KeyError, TypeError, ValueError) as problem:
            raise BadRule(f"answers: {problem!r:.100}") from None
        return {"calls": agents.list_calls(now)}

    async def _agent_request(self, params: dict[str, Any]) -> Any:
        now = self.site.advance()
        try:
            return {"answer": self.site.agents.send_request(**params, now=now)}
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise BadRule(f"request: {problem!r:.100}") from None

    async def _change_faults(self, params: dict[str, Any]) -> Any:
        """{"preset", "node", "part"}, {"rules": [...]} or {"remove": name}."""
        if "preset" in params:
            preset = inject_fault(
                self.site,
                str(params["preset"]),
                str(params.get("node", "")),
                str(params.get("part", "")),
            )
            return {"injected": preset.name, "meaning": preset.meaning}
        if "remove" in params:
            return {"removed": self.site.faults.remove(str(params["remove"]))}
        listed = params.get("rules")
        if not isinstance(listed, list) or not all(isinstance(r, dict) for r in listed):
            raise BadRule("preset, rules, remove: one of them is needed")
        rules = read_rules(listed)
        for rule in rules:
            self.site.faults.add(rule)
        return {"added": len(rules)}

    async def _add_guest(self, params: dict[str, Any]) -> Any:
        """{"node", "program": [...]}: a real system is behind this host from now on."""
        program = params.get("program")
        if params.get("node") not in self.site.machines or not isinstance(program, list):
            raise BadRule("node, program: a node of the site, and words of a program")
        self.site.inband.guests[str(params["node"])] = tuple(map(str, program))
        return list_guests(self.site)

    async def _exchange(self, params: dict[str, Any]) -> Any:
        """{"node", "part", "serial"}: install a sound part in the slot."""
        machine = self.site.machines.get(str(params.get("node", "")))
        slot = str(params.get("part", ""))
        if machine is None or slot not in machine.devices:
            raise BadRule("node, part: no such node, or no such part in it")
        was = machine.devices[slot].serial
        serial = str(params.get("serial") or "") or f"{was}-new"
        exchange_part(machine, slot, serial)
        return {"was": was, "serial": serial}

    async def _uncertified(self, params: dict[str, Any]) -> Any:
        listed = params.get("certificates")
        if not isinstance(listed, list):
            raise BadRule("certificates: a list is needed")
        try:
            return {"nodes": find_uncertified(collect_truth(self.site), listed)}
        except (KeyError, TypeError, ValueError) as problem:
            raise BadRule(f"certificates: {problem!r:.100}") from None


def list_guests(site: Site) -> dict[str, Any]:
    """Return the state of each host with a guest, by which the guest is started and ended."""
    site.advance()
    return {name: describe_guest(site.machines[name]) for name in site.inband.guests}


def list_logs(site: Site) -> dict[str, list[str]]:
    """Return the lines that each host and switch has logged, for a syslog of its own."""
    site.advance()
    hosts = {name: list_host_lines(machine) for name, machine in site.machines.items()}
    return hosts | {name: list_switch_lines(s, site.machines) for name, s in site.switches.items()}


def _answering(read: Callable[[], Any]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handler(_request: web.Request) -> web.Response:
        return web.json_response(read())

    return handler


def _taking(
    act: Callable[[dict[str, Any]], Awaitable[Any]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handler(request: web.Request) -> web.Response:
        try:
            params = json.loads(await request.read())
            if not isinstance(params, dict):
                raise BadRule("the body must be an object")
            return web.json_response(await act(params))
        except (BadRule, ValueError, RecursionError) as problem:
            return web.json_response({"error": str(problem)}, status=400)

    return handler

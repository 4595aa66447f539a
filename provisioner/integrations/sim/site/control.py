"""Control of a simulated site over a unix-domain socket: plays, truth, and faults on and off.

Every process that can open the socket may do everything; only its owner can (mode 0600). Bad input
is answered with 400 and the wrong field.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from provisioner.integrations.sim.agent import agent as agent_faults
from provisioner.integrations.sim.faults import faults as load_faults
from provisioner.integrations.sim.faults.faults import BadRule, read_rules
from provisioner.integrations.sim.hardware import curable_faults
from provisioner.integrations.sim.hardware.curable_faults import exchange_part
from provisioner.integrations.sim.outputs.host import describe_guest
from provisioner.integrations.sim.outputs.outputs_system import list_host_lines, list_switch_lines
from provisioner.integrations.sim.site import fault_presets_bmc
from provisioner.integrations.sim.site.connection_faults import IN_ANSWERS, ON_WIRE
from provisioner.integrations.sim.site.fault_preset import (
    IN_SWITCHES,
    Preset,
    machine_fault,
    part_fault,
)
from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.sim.site.truth import collect_truth, find_uncertified

# ------------------------------------------------------------------------------
# Named faults of parts and hosts, visible in-band (H of the catalogue).


def _swap_cables(site: Site, node: str, _part: str) -> None:
    """Swap the cables of rails 0 and 1 between their leaves."""
    view = site.hosts[node]
    first, second, *rest = view.cables
    view.cables = (
        replace(first, switch=second.switch, interface=second.interface),
        replace(second, switch=first.switch, interface=first.interface),
        *rest,
    )
    for cable in view.cables[:2]:
        old = cable.switch.neighbours[cable.interface]
        card = site.machines[node].devices[cable.nic_slot]
        cable.switch.neighbours[cable.interface] = replace(old, mac=card.mac)


def _implant_firmware(site: Site, node: str, part: str) -> None:
    """Let a GPU run firmware that is not its maker's, under the version that it shows."""
    machine = site.machines[node]
    machine.implants.add(machine.devices[part or "GPU_SXM_5"].slot)


def _silence_root(site: Site, node: str, part: str) -> None:
    """Let a BMC leave a root of trust out of those that attest."""
    roots = {name: name for bmc, name in site.machines[node].copies if bmc == "host"}
    site.machines[node].silent_roots.add(roots[part or "HGX_ERoT_FPGA_0"])


def _leak(state: str | None) -> Callable[[Site, str, str], None]:
    """Give a host the four detectors of a tray, one of which is in `state`."""

    def act(site: Site, node: str, part: str) -> None:
        machine = site.machines[node]
        machine.leak_detectors = dict.fromkeys(LEAK_DETECTORS, "OK")
        machine.leak_detectors[part or LEAK_DETECTORS[-1]] = state

    return act


# source: LambdaLabs/redfish_exporter, collector/leak_detector_test.go (a tray of a GB200)
LEAK_DETECTORS = (
    "Chassis_0_LeakDetector_0_ColdPlate",
    "Chassis_0_LeakDetector_0_Manifold",
    "Chassis_0_LeakDetector_1_ColdPlate",
    "Chassis_0_LeakDetector_1_Manifold",
)


def _stop_fan(site: Site, node: str, part: str) -> None:
    """Let the sensor of a fan read zero."""
    if part and not re.fullmatch(r"Fan_[1-8]", part):
        raise KeyError(part)
    site.machines[node].faults.add(part or FAN)


# What a host's own controllers report of a fault by themselves: the preset, its part where none is
# named, and the event. NVIDIA's baseboards forward the driver's Xids (NVIDIA/nsmd, event settings
# of GPUs); a fan's sensor falls below its limit (DMTF's SensorEvent registry). A remapping that
# failed is Xid 64, and one that waits is Xid 63 (NVIDIA's catalogue of Xids).
FAN = "Fan_1"
_XID = "ResourceEvent.1.0.ResourceErrorsDetected"
_LOW = "SensorEvent.1.0.ReadingBelowLowerCriticalThreshold"
TOLD: dict[str, tuple[str, str, str]] = {
    "xid_79": ("GPU_SXM_1", _XID, "XID 79 pid=1, GPU has fallen off the bus."),
    "gpu_fell_off": ("GPU_SXM_1", _XID, "XID 79 pid=1, GPU has fallen off the bus."),
    "xid_48": ("GPU_SXM_2", _XID, "XID 48 pid=1, An uncorrectable double bit error (DBE)"),
    "remap_failure": ("GPU_SXM_6", _XID, "XID 64 pid=1, Row Remapper: failed"),
    "remap_pending": ("GPU_SXM_6", _XID, "XID 63 pid=1, Row Remapper: a row is to be remapped"),
    "nvlink_down": ("GPU_SXM_8", _XID, "XID 74 pid=1, NVLink: fatal error detected"),
    "fan_failed": (FAN, _LOW, "0"),
}


def report_fault(site: Site, name: str, node: str, part: str) -> None:
    """Let the BMC of a host send the event of a fault that it notices by itself."""
    if name not in TOLD or node not in site.machines:
        return
    slot, key, text = TOLD[name]
    events = site.redfish[f"{node}/host"].events
    if events is None or site.machines[node].host.power != "On":
        return
    now = site.advance()
    slot = part or slot
    args = [f"{slot} Driver Event Message", f"[{now:.0f}][1][1] {text}"]
    if key == _LOW:
        args = [slot, text, "5", "%"]
    events.emit(key, " ".join(args), args, now, severity="Critical")


IN_PARTS = (
    part_fault("dead_gpu", "H1", "a GPU is not there: seven of eight", "GPU_SXM_5", present=False),
    part_fault("pcie_gen4", "H2", "a GPU's link trained down to Gen4", "GPU_SXM_3", link_gen=4),
    part_fault(
        "pcie_narrow", "H3", "a GPU's link has eight lanes of sixteen", "GPU_SXM_7", link_width=8
    ),
    machine_fault("gpu_fell_off", "H4", "a GPU has fallen off the bus"),
    part_fault("xid_79", "H4", "the log has Xid 79", "GPU_SXM_1", xids="79"),
    part_fault(
        "xid_48", "H5", "a double-bit error: Xid 48", "GPU_SXM_2", xids="48", ecc_uncorrected=1
    ),
    part_fault(
        "remap_failure",
        "H6",
        "row remapping failed: return the part",
        "GPU_SXM_6",
        remap_failure=1,
        remap_uncorrectable=8,
    ),
    part_fault(
        "remap_pending",
        "H7",
        "a row waits for a GPU reset to be remapped",
        "GPU_SXM_6",
        remap_pending=1,
    ),
    part_fault("ecc_off", "H8", "ECC is disabled", "GPU_SXM_4", ecc_mode="Disabled"),
    part_fault(
        "nvlink_down", "H9", "two NVLinks of a GPU are inactive", "GPU_SXM_8", nvlinks_down=2
    ),
    part_fault("sxid_fatal", "H10", "an NVSwitch reports a fatal SXid", "NVSwitch_1", sxid="20034"),
    part_fault(
        "slow_host_link",
        "H11",
        "a GPU copies at half the bandwidth",
        "GPU_SXM_2",
        host_gpu_gb_s=27.0,
    ),
    Preset("fan_failed", "H41", "a fan of the chassis stands still", "node", act=_stop_fan),
    machine_fault("fabric_manager_down", "H12", "Fabric Manager does not run"),
    machine_fault("persistence_off", "H13", "persistence mode is off: DCGM fails every GPU"),
    machine_fault("dcgm_skips_memory", "H14", "DCGM skips a plugin, which is no pass"),
    machine_fault("nccl_slow", "H15", "the all-reduce is below its floor"),
    machine_fault("nccl_corrupts", "H16", "the all-reduce gives wrong values"),
    part_fault("rail_down", "H17", "a rail has no carrier", "NIC_3", link_down=1),
    part_fault("rail_slow", "H18", "a rail runs at 200 Gb/s", "NIC_4", rate="200 Gb/sec (2X NDR)"),
    Preset(
        "cables_swapped",
        "H19",
        "two rails are plugged into each other's leaf",
        "node",
        act=_swap_cables,
    ),
    part_fault("nic_gen4", "H20", "a SuperNIC's link is limited to Gen4", "NIC_6", link_gen=4),
    part_fault("dpu_locked", "H21", "a DPU does not open for the host", "DPU_1", locked=1),
    machine_fault("package_install_fails", "H22", "dpkg ends with an error"),
    machine_fault("nic_burn_fails", "H23", "a card rejects the image"),
    machine_fault("tools_hang", "H24", "long commands never end"),
    machine_fault("inband_unreachable", "H25", "the host does not answer SSH"),
    machine_fault("nvml_mismatch", "H26", "nvidia-smi fails between driver and reboot"),
    Preset("coolant_leak", "H34", "a leak detector is wet", "node", act=_leak("LeakDetected")),
    Preset(
        "leak_detector_silent", "H35", "a leak detector reports no state", "node", act=_leak(None)
    ),
    Preset("coolant_dry", "H36", "all leak detectors are dry", "node", act=_leak("OK")),
    Preset(
        "firmware_implanted",
        "H39",
        "a GPU runs firmware that is not its maker's, under the same version",
        "node",
        act=_implant_firmware,
    ),
    Preset(
        "root_silent",
        "H40",
        "a root of trust is left out of those that attest",
        "node",
        act=_silence_root,
    ),
    machine_fault("runtime_is_forgotten", "H27", "run-time settings of the NICs do not stay"),
    machine_fault("tenant_login_fails", "H38", "the tenant's account opens with other keys"),
    machine_fault("login_stays", "H38", "a key of the daemon stays in the host at the handover"),
    machine_fault("minimums_cut_off", "H38", "the answer about its metadata does not come"),
    machine_fault("old_driver_starts", "H37", "each boot loads the driver of before an update"),
)


# ------------------------------------------------------------------------------
# Named faults, each with its number in the fault catalogue and one line of meaning.
#
# S: sessions, T: transport, E: HTTP semantics, U: updates and tasks, V: values, P: power and media
# (docs/sources/bmc-faults.md). H: faults of parts, seen in-band; M: maintenance agents; W:
# switches.


def _curable(row: tuple[str, str, str, str, tuple[str, ...], dict[str, Any]]) -> Preset:
    """A part's fault that one of the named events cures."""
    name, number, meaning, slot, cured_by, changes = row

    def act(site: Site, node: str, part: str) -> None:
        curable_faults.break_part(site.machines[node], part or slot, cured_by, changes)

    return Preset(name, number, meaning, "node", act=act)


_ROWS = (*agent_faults.ALL, *load_faults.ALL)
IN_AGENTS = (*(machine_fault(*row) for row in _ROWS), *map(_curable, curable_faults.ALL))
PRESETS = (*ON_WIRE, *IN_ANSWERS, *fault_presets_bmc.ALL, *IN_PARTS, *IN_AGENTS, *IN_SWITCHES)
ALL: dict[str, Preset] = {p.name: p for p in PRESETS}


def inject_fault(site: Site, name: str, subject: str, part: str = "") -> Preset:
    """Put a named fault on a node or switch, or on one of its BMCs or parts.

    Raises `BadRule` if there is no such fault, node, switch or part.
    """
    preset = ALL.get(name)
    if preset is None:
        raise BadRule(f"preset: there is no {name!r:.40}")
    subjects = site.switches if preset.target == "switch" else site.machines
    if subject not in subjects:
        raise BadRule(f"node: {subject!r:.60} is no {preset.target} of this site")
    for rule in preset.rules:
        site.faults.add(replace(rule, endpoint=f"{subject}/{part or 'host'}", seen=0, done=0))
    if preset.act is not None:
        try:
            preset.act(site, subject, part)
        except KeyError:
            raise BadRule(f"part: {subject} has no {part!r:.40}") from None
    site.injected.append((f"{subject}/{part}" if part else subject, name))
    return preset


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
        app.router.add_post("/readable", _taking(self._readable))
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
            report_fault(
                self.site, preset.name, *map(str, (params.get("node"), params.get("part", "")))
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
        """{"node", "part", "serial"}: put a sound part, fan or cable of a leaf's port in place."""
        machine = self.site.machines.get(str(params.get("node", "")))
        slot = str(params.get("part", ""))
        leaf = self.site.switches.get(str(params.get("node", "")))
        if leaf is not None and "down" in leaf.planted.links.get(slot, {}):
            leaf.planted.links.pop(slot)  # another cable
            return {"was": slot, "serial": ""}
        if machine is not None and slot.startswith("Fan_") and slot in machine.faults:
            machine.faults.discard(slot)
            return {"was": slot, "serial": ""}
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

    async def _readable(self, params: dict[str, Any]) -> Any:
        """Return (tenant, path) of what each of these addresses may mount of the storage."""
        listed = params.get("addresses")
        vms = self.site.vms
        if vms is None or not isinstance(listed, list):
            raise BadRule("addresses: a list is needed, and a site with --storage")
        try:
            return {address: sorted(vms.list_readable(address)) for address in listed}
        except ValueError as problem:
            raise BadRule(f"addresses: {problem!r:.100}") from None


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

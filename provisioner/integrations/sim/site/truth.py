"""Ground truth of a simulated site: the true state, and the violations that must never happen.

Written independently of the simulator's own rules and of the code under test: it reads only the
logs and the state of machines and switches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.site.site import MAINTENANCE_VRF, Site

NOBODYS = frozenset({"", "default", "mgmt", MAINTENANCE_VRF})  # every other VRF is a customer's
RESETS = frozenset({"bmc_reset", "nic_reset"})
POWER_ACTS = frozenset({"ForceOff", "GracefulShutdown", "PowerCycle", "Restart"})
WRITES = frozenset({"push", "write_start", "nv_config"})


class Violation(NamedTuple):
    """An event that must never happen, at a simulated time (seconds since the epoch)."""

    time: float
    node: str
    kind: str
    detail: str


def collect_truth(site: Site) -> dict[str, Any]:
    """The true state now, as plain data."""
    now = site.advance()
    nodes = {name: _node(site, name) for name in site.machines}
    return {
        "time": now,
        "nodes": nodes,
        "in_customer_vrf": [name for name, node in nodes.items() if node["customer_ports"]],
        "switches": {name: _switch(site, name, now) for name in site.switches},
        "injected": [list(entry) for entry in site.injected],
        "violations": [v._asdict() for v in find_violations(site)],
        "switch_outages": [v._asdict() for v in find_switch_outages(site)],
    }


def _node(site: Site, name: str) -> dict[str, Any]:
    machine = site.machines[name]
    ports = list_placements(site, name)
    kinds = [_act(e.kind, e.detail) for e in machine.log]
    return {
        "ports": ports,
        "customer_ports": sorted(p for p, vrf in ports.items() if vrf not in NOBODYS),
        "running": list_running(machine),
        "gpu_serials": sorted(
            d.serial for d in machine.devices.values() if d.kind == "gpu" and d.present
        ),
        "boot_id": machine.host.boot_id,
        "booted": machine.host.os if machine.host.boot_id else "",
        "disks": {slot: disk.holds for slot, disk in machine.disks.items()},
        "power": machine.host.power,
        "faults": sorted(preset for subject, preset in site.injected if _of(subject) == name),
        "pushes": kinds.count("push"),
        "resets": kinds.count("reset"),
        "power_acts": kinds.count("power") + kinds.count("ac"),
        "boots": kinds.count("boot"),
    }


def _of(subject: str) -> str:
    return subject.partition("/")[0]


def _act(kind: str, detail: str) -> str:
    """One word for a log line's effect on the node; "" if it had none."""
    if kind in RESETS:
        return "reset"
    if kind == "power":
        return "power" if detail in POWER_ACTS else ""
    return kind if kind in ("push", "ac", "boot") else ""


def _switch(site: Site, name: str, now: float) -> dict[str, Any]:
    switch = site.switches[name]
    return {
        "running": switch.version,
        "up": switch.is_up(now),
        "saved": switch.startup == switch.applied,
        "reboots": sum(e.kind == "reset" for e in switch.log),
        "moves": sum(e.kind == "vrf" for e in switch.log),
        "faults": sorted(switch.faults),
    }


def list_placements(site: Site, node: str) -> dict[str, str]:
    """ "leaf/interface" -> its true VRF, for the ports planned for a node."""
    return {
        f"{cable.leaf}/{cable.interface}": site.switches[cable.leaf].get_vrf(cable.interface)
        for cable in site.plan.hosts[node].cables
    }


def list_running(machine: Machine) -> dict[str, str]:
    """ "bmc/item" or package -> the version in effect now."""
    versions = {
        f"{item.bmc}/{item.id}": item.running
        for bmc in machine.bmcs
        for item in machine.list_items(bmc)
    }
    host = machine.host
    for name, version in host.packages.items():
        # only kernel modules take effect later than their installation
        versions[name] = host.loaded.get(name, "") if name == "host.driver" else version
    return versions


# --- violations


def find_violations(site: Site) -> list[Violation]:
    """All violations so far, in order of node and time."""
    all_found: list[Violation] = []
    for name, machine in site.machines.items():
        all_found += _in_customer_vrf(site, name, machine)
        all_found += _while_writing(name, machine)
    for name, switch in site.switches.items():  # rebooted before its traffic was redirected
        all_found += [
            Violation(e.time, name, e.kind, e.detail)
            for e in switch.log
            if e.kind == "traffic_lost"
        ]
    return all_found


def _customer_spells(site: Site, node: str) -> list[tuple[float, float]]:
    """When any port of a node was in a customer's VRF: (from, to), seconds since the epoch."""
    ports = set(list_placements(site, node))
    moves = sorted(
        (e.time, e.subject, e.detail.rpartition(" -> ")[2])
        for leaf in {p.partition("/")[0] for p in ports}
        for e in site.switches[leaf].log
        if e.kind == "vrf" and e.subject in ports
    )
    spells = []
    inside = set[str]()
    since = 0.0
    for time, port, vrf in moves:
        if vrf not in NOBODYS:
            since = since if inside else time
            inside.add(port)
        elif port in inside:
            inside.discard(port)
            if not inside:
                spells.append((since, time))
    if inside:
        spells.append((since, float("inf")))
    return spells


def _in_customer_vrf(site: Site, name: str, machine: Machine) -> Iterator[Violation]:
    spells = _customer_spells(site, name)
    if not spells:
        return
    for event in machine.log:
        touches = event.kind in WRITES or _act(event.kind, event.detail) in ("reset", "power", "ac")
        if touches and any(start <= event.time < end for start, end in spells):
            description = f"{event.kind} {event.subject} {event.detail}".strip()
            yield Violation(event.time, name, "in_customer_vrf", description)


def _while_writing(name: str, machine: Machine) -> Iterator[Violation]:
    """Overlapping writes, and resets and power acts during a write or a copy."""
    writing: set[str] = set()
    copying: set[str] = set()
    for event in machine.log:
        part = _component(event.subject)
        if event.kind == "write_start":
            if part in writing:
                yield Violation(event.time, name, "overlapping_writes", event.subject)
            writing.add(part)
        elif event.kind == "write_end":
            writing.discard(part)
        elif event.kind in ("copy_start", "copy_end"):
            (copying.add if event.kind == "copy_start" else copying.discard)(event.subject)
        act = _act(event.kind, event.detail)
        if act in ("power", "ac"):
            for during, parts in (("write", writing), ("copy", copying)):
                if parts:
                    description = f"{event.kind} {event.detail} during {min(parts)}"
                    yield Violation(event.time, name, f"power_during_{during}", description)
        elif act == "reset":
            # a BMC's restart disturbs only the devices behind that BMC
            for during, parts in (("write", writing), ("copy", copying)):
                behind = [p for p in sorted(parts) if _of(p) == event.subject]
                if behind:
                    description = f"{event.kind} of {event.subject} during {behind[0]}"
                    yield Violation(event.time, name, f"reset_during_{during}", description)


def _component(subject: str) -> str:
    """A BFB also burns the card's NIC firmware: both are writes to one component."""
    return subject.replace("/DPU_NIC", "/DPU_OS")


def find_switch_outages(site: Site) -> list[Violation]:
    """Leaves that rebooted while they carried a customer's traffic."""
    outages = []
    spells = {node: _customer_spells(site, node) for node in site.plan.hosts}
    for name, switch in site.switches.items():
        for event in switch.log:
            if event.kind != "reset":
                continue
            hit = [
                node
                for node, times in spells.items()
                if any(a <= event.time < b for a, b in times)
                and name in {port.partition("/")[0] for port in list_placements(site, node)}
            ]
            if hit:
                outages.append(Violation(event.time, name, "switch_reset", " ".join(hit)))
    return outages


def find_uncertified(
    site_truth: Mapping[str, Any], certificates: Iterable[Mapping[str, Any]]
) -> list[dict[str, str]]:
    """Nodes with a port in a customer VRF and no certificate valid for their current state.

    `certificates`: those in force, as plain data: node, serials, versions ((kind/slot, version)
    pairs), expires_at. A list of {node, why}.
    """
    held = {str(c["node"]): c for c in certificates}
    uncertified = []
    for name, node in site_truth["nodes"].items():
        if not node["customer_ports"]:
            continue
        certificate = held.get(name)
        why = "no certificate" if certificate is None else ""
        if certificate is not None:
            why = _invalid(certificate, node, float(site_truth["time"]))
        if why:
            uncertified.append({"node": name, "why": why})
    return uncertified


def _invalid(certificate: Mapping[str, Any], node: Mapping[str, Any], now: float) -> str:
    if float(certificate["expires_at"]) <= now:
        return "the certificate has expired"
    serials = {str(s).rpartition("=")[2] for s in certificate.get("serials", ())}  # "gpu/X=serial"
    if strangers := [s for s in node["gpu_serials"] if serials and s not in serials]:
        return f"GPU {strangers[0]} is not the one that was certified"
    versions = {str(k): str(v) for k, v in certificate.get("versions", ())}
    for key, version in versions.items():
        runs = node["running"].get(_truth_key(key))
        if runs is not None and runs != version:
            return f"{key} runs {runs}, certified was {version}"
    return ""


def _truth_key(key: str) -> str:
    """The truth's key for the version "kind/slot" of a certificate; "" if it is derived."""
    kind, _, slot = key.partition("/")
    if kind in ("supernic.nic", "bluefield.nic"):
        return f"{slot}/DPU_NIC"
    if kind in ("hgx.gpu", "hgx.nvswitch"):
        return f"host/HGX_FW_{slot}"
    if kind == "bluefield.bundle":
        return f"{slot}/DPU_OS"
    return kind if kind in ("host.driver", "host.fabric_manager", "host.doca") else ""

"""The definition of a named fault, and its kinds: rules for requests, a change of a part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from provisioner.integrations.sim.faults.faults import Rule
from provisioner.integrations.sim.site.site import Site


@dataclass(frozen=True)
class Preset:
    """A fault by name. `target` is its kind of subject: a BMC endpoint, a node or a switch."""

    name: str
    catalogue: str
    meaning: str
    target: str  # "bmc" | "node" | "switch"
    rules: tuple[Rule, ...] = ()
    act: Callable[[Site, str, str], None] | None = None  # site, node or switch, BMC or part


def error_body(message_id: str, text: str, **more: Any) -> dict[str, Any]:
    info = {"MessageId": message_id, "Message": text, "MessageArgs": [], **more}
    return {"error": {"code": message_id, "message": text, "@Message.ExtendedInfo": [info]}}


def wire_fault(
    name: str, catalogue: str, meaning: str, action: str, value: Any = None, **more: Any
) -> Preset:
    return Preset(name, catalogue, meaning, "bmc", (Rule(name, action, value=value, **more),))


def answer_fault(
    name: str, catalogue: str, meaning: str, status: int, body: Any, **more: Any
) -> Preset:
    headers = more.pop("headers", {})
    kind = {"type": "text/html"} if isinstance(body, str) else {}
    value = {"status": status, "body": body, "headers": headers, **kind}
    return wire_fault(name, catalogue, meaning, "replace", value, **more)


def trouble_fault(name: str, catalogue: str, meaning: str, trouble: str) -> Preset:
    def act(site: Site, node: str, part: str) -> None:
        site.machines[node].bmcs[part or "host"].troubles.add(trouble)

    return Preset(name, catalogue, meaning, "bmc", act=act)


def machine_fault(name: str, catalogue: str, meaning: str, flag: str = "") -> Preset:
    def act(site: Site, node: str, _part: str) -> None:
        site.machines[node].faults.add(flag or name)

    return Preset(name, catalogue, meaning, "node", act=act)


def part_fault(name: str, catalogue: str, meaning: str, slot: str, **changes: Any) -> Preset:
    """Change a part: fields of the device, or else its traits."""

    def act(site: Site, node: str, part: str) -> None:
        device = site.machines[node].devices[part or slot]
        for key, value in changes.items():
            if hasattr(device, key):
                setattr(device, key, value)
            else:
                device.traits[key] = value

    return Preset(name, catalogue, meaning, "node", act=act)


def switch_fault(name: str, catalogue: str, meaning: str) -> Preset:
    def act(site: Site, switch: str, _part: str) -> None:
        site.switches[switch].faults.add(name)

    return Preset(name, catalogue, meaning, "switch", act=act)


# ------------------------------------------------------------------------------
# Named faults of switches (W of the catalogue).


def _leak(site: Site, switch: str, part: str) -> None:
    """Leak routes of the first port into the maintenance VRF."""
    leaf = site.switches[switch]
    for name, entry in leaf.applied["interface"].items():
        for address in entry.get("ip", {}).get("address", {}):
            if not part or name == part:
                network, _, length = address.partition("/")
                head, _, last = network.rpartition(".")
                leaf.leaks[f"{head}.{int(last) & ~1}/{length}"] = "MAINT"


def _cut_port(site: Site, switch: str, part: str) -> None:
    """Take the carrier of a port away; without a name, of the first that has a cable."""
    leaf = site.switches[switch]
    port = part or min(leaf.neighbours)
    if port not in leaf.neighbours:
        raise KeyError(port)
    leaf.planted.links[port] = {**leaf.planted.links.get(port, {}), "down": True}


IN_SWITCHES = (
    switch_fault("apply_fails", "W1", "a revision ends as invalid, with an issue"),
    switch_fault("apply_hangs", "W2", "a revision never ends"),
    switch_fault("moves_ignored", "W3", "applied, but the ports stay where they are"),
    switch_fault("save_lost", "W4", "a saved configuration is not there after a reboot"),
    Preset("route_leak", "W5", "node prefixes show up in a second VRF", "switch", act=_leak),
    switch_fault("image_fetch_fails", "W6", "the image cannot be fetched"),
    switch_fault("image_install_fails", "W7", "the other partition is full"),
    switch_fault("boot_falls_back", "W8", "the old image boots again"),
    switch_fault("psu_failed", "W9", "a power supply has failed"),
    Preset("port_down", "W12", "a port of a leaf has no carrier", "switch", act=_cut_port),
    switch_fault("fan_missing", "W10", "a fan is missing"),
    switch_fault("leaf_drops", "W11", "a leaf drops packets: its rail is slow for all its nodes"),
)

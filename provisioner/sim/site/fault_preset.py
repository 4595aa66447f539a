"""The definition of a named fault, and its kinds: rules for requests, a change of a part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from provisioner.sim.faults.faults import Rule
from provisioner.sim.site.site import Site


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

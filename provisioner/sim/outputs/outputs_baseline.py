"""A simulated host's baseline and check tools: the two plays that set them, and the look at them.

All of them outlast a boot; kernel arguments are in effect after one. What was never set has the
values of a fresh system.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provisioner.sim.outputs.host import HostView, Output
from provisioner.sim.outputs.outputs_nic import interface_name

RAIL_MTU = 9216
_PACKAGES = re.compile(r"\\n' ([a-z0-9.+ -]+);")
_SERVICES = re.compile(r"echo service:(\S+) \$")
_RAILS = re.compile(r"ip -o address show to (\S+) \|")


def apply_baseline(view: HostView, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Set a baseline; return the facts of the play `host_baseline`."""
    requested = {str(k): str(v) for k, v in dict(variables.get("settings") or {}).items()}
    view.machine.host.settings.update(requested)
    return {"settings": requested, "reboot_required": "kernel_arguments" in requested}


def apply_tools(view: HostView, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Install packages and start services; return the facts of the play `check_tools`."""
    packages = {str(k): str(v) for k, v in dict(variables.get("packages") or {}).items()}
    services = [str(s) for s in variables.get("services") or ()]
    view.machine.host.settings.update({f"package:{k}": v for k, v in packages.items()})
    view.machine.host.settings.update({f"service:{s}": "on" for s in services})
    return {"installed": packages}


def print_host_settings(view: HostView, command: str) -> Output:
    """The look at a host's sets, with all that its command line asks for."""
    own = view.machine.host.settings
    lines = []
    for card in view.cards:
        priorities = own.get("roce_ecn", "")
        ecn = " ".join(str(int(str(p) in priorities)) for p in range(8))
        relaxed = own.get("relaxed_ordering", "on") == "on"
        lines += [
            f"card {card.pci}",
            f"roce_cma_tos {own.get('roce_cma_tos', '0')}",
            f"devctl {'2936' if relaxed else '2926'}",
            "DCBX mode: OS controlled",
            f"Priority trust state: {own.get('roce_trust', 'pcp')}",
            f"\tenabled     {'   '.join(own.get('roce_pfc', '00000000'))}",
            f"ecn_np {ecn}",
            f"ecn_rp {ecn}",
        ]
    lines += [
        "card none",
        f"kernel_arguments BOOT_IMAGE=/vmlinuz ro {own.get('kernel_arguments', '')}",
        f"hugepages_2m {own.get('hugepages_2m', '0')}",
        "fabric Completed",
        "fabric_manager active",
        f"acs 0000:00:01.0 {'0000' if own.get('acs') == 'off' else '001d'}",
    ]
    for name in _SERVICES.findall(command):
        state = "active" if own.get(f"service:{name}") == "on" else "inactive"
        lines.append(f"service:{name} {state}")
    for names in _PACKAGES.findall(command):
        for name in names.split():
            if version := own.get(f"package:{name}"):
                lines.append(f"package:{name} {version} ii ")
    lines += [_rail(view, address) for address in _RAILS.findall(command)]
    return Output(0, "".join(f"{line}\n" for line in lines))


def _rail(view: HostView, address: str) -> str:
    host, rail = view.peers.get(address, (None, -1))
    cable = next((c for c in view.cables if c.rail == rail), None)
    if host is not view or cable is None:
        return f"rail {address} own - route - mtu "
    card = view.machine.devices[cable.nic_slot]
    name = interface_name(card)
    route = name if view.machine.host.settings.get("rails") == "on" else "eno1"
    return f"rail {address} own {name} route {route} mtu {card.traits.get('mtu', RAIL_MTU)}"

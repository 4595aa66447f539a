"""Run-time settings of a simulated host's SuperNICs: the play that sets them, and their readers.

They are in the card's volatile memory: `Machine` clears them at every boot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.sim.hardware.parts import Bluefield, Device
from provisioner.sim.outputs.host import HostView, Output
from provisioner.sim.outputs.outputs_nic import interface_name

_FIELDS = {
    "roce_adp_retrans_en": "adaptive-retransmission",
    "roce_tx_window_en": "tx-window",
    "roce_slow_restart_en": "slow-restart",
    "roce_slow_restart_idle_en": "slow-restart-idle",
    "adaptive_routing_forced_en": "adaptive-routing-force",
}


def apply_settings(
    view: HostView, variables: Mapping[str, Any], cards: Mapping[str, str]
) -> dict[str, Any]:
    """Set the play's variables on the cards (PCI address to slot); return its facts."""
    listed = [*variables.get("routing", ()), *variables.get("congestion", ())]
    interfaces = {}
    for pci, slot in cards.items():
        card = view.machine.bluefields[slot]
        if "runtime_is_forgotten" not in view.machine.faults:
            card.runtime.update({str(s["path"]): str(s["value"]) for s in listed})
            card.algorithm = True
        device = next(c for c in view.cards if c.pci == pci.lower())
        interfaces[interface_name(device)] = dict(card.runtime)
    return {"interfaces": interfaces, "algorithm": sorted(interfaces)}


def print_roce_runtime(view: HostView, _command: str) -> Output:
    """For every card: the state of its algorithm, mlxreg's register, mlnx_qos of its port."""
    parts = [_card(card, view.machine.bluefields[card.slot]) for card in view.cards]
    return Output(0, "".join(parts))


def _card(device: Device, card: Bluefield) -> str:
    short = {path.rpartition("/")[2]: value for path, value in card.runtime.items()}
    on = {field: int(short.get(word) == "true") for field, word in _FIELDS.items()}
    register = "".join(f"{field:<46} | 0x{value:08x}\n" for field, value in on.items())
    pfc = "   ".join(short.get("pfc", "00000000"))
    return (
        f"device {device.pci}\n{'active' if card.algorithm else 'inactive'}\n"
        "Sending access register...\n\nField Name                                     | Data\n"
        f"{'=' * 60}\n{register}{'=' * 60}\n"
        "DCBX mode: OS controlled\n"
        f"Priority trust state: {short.get('trust-mode', 'pcp')}\n"
        "PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n"
        f"\tenabled     {pfc}   \n"
    )

"""The node that every entry of the corpus is about: an HGX H100 whose outputs are all good.

Its outputs are the good ones of `tests/golden/checks`, with the PCI addresses of one machine. An
entry of the corpus changes some of them, and all checks that read a changed output judge it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from provisioner import checks
from provisioner.checks import gpu_inventory, rdma_links
from provisioner.checks.check import Check, CheckContext
from provisioner.checks.xid.xid_events import index_slots
from provisioner.model.cohort import Evidence, Gate
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind

GOLDEN = Path(__file__).parents[1] / "golden" / "checks"
# bus numbers of the GPUs in the golden tables, and those in the golden list of GPUs
_BUSES = ("18", "29", "3A", "4B", "5C", "6D", "7E", "8F")
GPU_BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")
_TABLES_OF_GPUS = ("pcie", "smi_query")
_SWITCH_BUSES = ("05", "06", "07", "08")
_CARDS = (("NIC_0", "0000:18:00.0"), ("NIC_1", "0000:40:00.0"))

NODE = Node(
    id="n",
    kind=NodeKind.HOST,
    ports=tuple(
        Port(switch=f"leaf-su0-r{rail}", interface="swp1s0", rail=rail, nic_slot=slot)
        for rail, (slot, _) in enumerate(_CARDS)
    ),
)
INVENTORY = Inventory(
    node="n",
    vendor="generic",
    devices=(
        *(
            Device(
                kind=DeviceKind.GPU,
                slot=f"GPU_SXM_{number + 1}",
                serial=f"165232300120{number}",
                pci=f"0000:{bus.lower()}:00.0",
            )
            for number, bus in enumerate(GPU_BUSES)
        ),
        *(
            Device(kind=DeviceKind.NVSWITCH, slot=f"NVSwitch_{n}", pci=f"0000:{bus}:00.0")
            for n, bus in enumerate(_SWITCH_BUSES)
        ),
        *(Device(kind=DeviceKind.NIC, slot=slot, pci=pci) for slot, pci in _CARDS),
        Device(kind=DeviceKind.DPU, slot="DPU_1", pci="0000:aa:00.0"),
    ),
)
CONTEXT = CheckContext.model_validate_json((GOLDEN / "context.json").read_text()).model_copy(
    update={
        "slot_of_pci": index_slots(
            (d.pci, d.slot)
            for d in INVENTORY.devices
            if d.kind in (DeviceKind.GPU, DeviceKind.NVSWITCH)
        )
    }
)
# fabric tests are judged by their session; these checks need a device of another kind
CHECKS: tuple[Check, ...] = tuple(
    c for c in checks.ALL if c.kind is NodeKind.HOST and c.gate is not Gate.C
)


@cache
def read_good_outputs(check: Check) -> Mapping[str, Evidence]:
    """Return the healthy node's outputs of one check's commands."""
    folder = GOLDEN / check.name / "good"
    return {
        command.name: Evidence(
            source=command.line,
            exit_code=0,
            text=_of_this_node(command.name, (folder / f"{command.name}.txt").read_text()),
        )
        for command in check.commands
    }


def _of_this_node(command: str, text: str) -> str:
    if command not in _TABLES_OF_GPUS:
        return text
    # two steps, since an address of one list may be another's in the other list
    for number, bus in enumerate(_BUSES):
        text = text.replace(f"00000000:{bus}:00.0", f"<{number}>")
    for number, bus in enumerate(GPU_BUSES):
        text = text.replace(f"<{number}>", f"00000000:{bus}:00.0")
    return text


@cache
def write_tables() -> str:
    """Return the stored outputs by which the names that tools give parts become slots."""
    outputs = {**read_good_outputs(gpu_inventory.CHECK), **read_good_outputs(rdma_links.CHECK)}
    return json.dumps({name: output.model_dump() for name, output in outputs.items()})

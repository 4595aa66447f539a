#!/usr/bin/python
"""Ansible module: mlxfwreset of these network cards, where something waits for it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_reset
short_description: Resets network cards on which firmware or configuration waits for a reset
version_added: "0.1.0"
description:
  - Runs mlxfwreset on the cards whose flash holds other firmware than runs, or whose NV-config at
    the next boot differs from the current one; the others are left alone.
  - Whether a reset is enough is not decided here. A card that still waits afterwards is told.
options:
  devices:
    description: PCI addresses of the cards.
    type: list
    elements: str
    required: true
  level:
    description: Level of the reset; 3 restarts the driver and resets PCIe.
    type: int
    choices: [0, 3, 4]
    default: 3
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Let burned firmware run
  provisioner.fleet.nic_reset:
    devices: ["0000:1a:00.0"]
"""

RETURN = r"""
reset:
  description: Cards that were reset, or would be.
  returned: always
  type: list
  elements: str
waiting:
  description: Cards on which something waits for a stronger reset.
  returned: always
  type: list
  elements: str
running:
  description: PCI address to the firmware that runs now.
  returned: always
  type: dict
burned:
  description: PCI address to the firmware in flash.
  returned: always
  type: dict
"""

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, flint, nvconfig, tools


def waits(device):
    """(firmware of a card, whether anything waits for a reset)."""
    firmware = flint.parse(tools.read(["flint", "-d", device, "q"]), device)
    line = ["mlxconfig", "-d", device, "-e", "-j", "/dev/stdout", "q"]
    table = nvconfig.parse(tools.read(line), device)["table"]
    differs = any(entry["current"] != entry["next"] for entry in table.values())
    return firmware, firmware["burned"] != firmware["running"] or differs


def apply(module):
    """Reset the cards that wait; what is to be told."""
    params = module.params
    with tools.one_at_a_time() as lock:
        before = {device: waits(device) for device in params["devices"]}
        due = sorted(device for device, (_, waiting) in before.items() if waiting)
        after = dict(before)
        for device in () if module.check_mode else due:
            line = ["mlxfwreset", "-d", device, "--level", str(params["level"]), "-y", "reset"]
            tools.write(line, lock)
            after[device] = waits(device)
    return {
        "changed": bool(due),
        "reset": due,
        "waiting": sorted(device for device, (_, waiting) in after.items() if waiting),
        "running": {device: firmware["running"] for device, (firmware, _) in after.items()},
        "burned": {device: firmware["burned"] for device, (firmware, _) in after.items()},
    }


def main():
    """Ansible's entry point."""
    entry.run(
        {
            "devices": {"type": "list", "elements": "str", "required": True},
            "level": {"type": "int", "choices": [0, 3, 4], "default": 3},
        },
        apply,
    )


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""Ansible module: resets network cards on which a change waits for mlxfwreset."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_reset
short_description: Resets network cards on which firmware or configuration waits for a reset
version_added: "0.1.0"
description:
  - Runs mlxfwreset on the cards whose flash holds other firmware than runs, or whose NV-config at
    the next boot differs from the current one; other cards are left alone.
  - The module does not decide whether a reset is sufficient. It returns cards that still wait.
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
  description: Cards on which a change waits for a stronger reset.
  returned: always
  type: list
  elements: str
running:
  description: PCI address to the running firmware.
  returned: always
  type: dict
burned:
  description: PCI address to the firmware in flash.
  returned: always
  type: dict
"""

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, flint, nvconfig, tools


def read_card(device):
    """Return (firmware of a card, whether a change waits for a reset)."""
    firmware = flint.parse_firmware(tools.read(["flint", "-d", device, "q"]), device)
    line = ["mlxconfig", "-d", device, "-e", "-j", "/dev/stdout", "q"]
    table = nvconfig.parse_config(tools.read(line), device)["table"]
    differs = any(entry["current"] != entry["next"] for entry in table.values())
    return firmware, firmware["burned"] != firmware["running"] or differs


def apply(module):
    """Reset the cards on which a change waits; return the module's result."""
    params = module.params
    with tools.hold_lock() as lock:
        before = {device: read_card(device) for device in params["devices"]}
        due = sorted(device for device, (_, waiting) in before.items() if waiting)
        after = dict(before)
        for device in () if module.check_mode else due:
            line = ["mlxfwreset", "-d", device, "--level", str(params["level"]), "-y", "reset"]
            tools.write(line, lock)
            after[device] = read_card(device)
    return {
        "changed": bool(due),
        "reset": due,
        "waiting": sorted(device for device, (_, waiting) in after.items() if waiting),
        "running": {device: firmware["running"] for device, (firmware, _) in after.items()},
        "burned": {device: firmware["burned"] for device, (firmware, _) in after.items()},
    }


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            "devices": {"type": "list", "elements": "str", "required": True},
            "level": {"type": "int", "choices": [0, 3, 4], "default": 3},
        },
        apply,
    )


if __name__ == "__main__":
    main()

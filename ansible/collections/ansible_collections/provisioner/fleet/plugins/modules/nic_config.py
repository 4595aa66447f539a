#!/usr/bin/python
"""Ansible module: sets NV-config parameters of network cards for their next boot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_config
short_description: Writes NV-config parameters to network cards; current after a reset
version_added: "0.1.0"
description:
  - Writes the parameters that differ at the next boot. This module does not reset the card.
  - A card of another type, and a parameter that a card does not have, is refused before anything
    is written to any card.
options:
  devices:
    description: PCI addresses of the cards.
    type: list
    elements: str
    required: true
  parameters:
    description: Parameter to value, in mlxconfig's form; without any the module only reads.
    type: dict
    default: {}
  device_type:
    description: Type that every card must have, as mlxconfig names it; "" for any.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Switch a BlueField-3 to NIC mode
  provisioner.fleet.nic_config:
    devices: ["0000:1a:00.0"]
    parameters: {INTERNAL_CPU_OFFLOAD_ENGINE: "1"}
    device_type: BlueField3
"""

RETURN = r"""
current:
  description: PCI address to parameter to value in force.
  returned: always
  type: dict
next_boot:
  description: PCI address to parameter to value after the next reset.
  returned: always
  type: dict
written:
  description: PCI address to the parameters that were written, or would be.
  returned: always
  type: dict
"""

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, nvconfig, tools


def read_card(device):
    """Return the configuration of one card."""
    line = ["mlxconfig", "-d", device, "-e", "-j", "/dev/stdout", "q"]
    return nvconfig.parse_config(tools.read(line), device)


def apply(module):
    """Write the parameters that differ; return the module's result."""
    params = module.params
    parameters = {str(k): str(v) for k, v in params["parameters"].items()}
    nvconfig.require_parameters(parameters)
    with tools.hold_lock() as lock:
        cards = {device: read_card(device) for device in params["devices"]}
        for device, card in cards.items():
            if params["device_type"] and card["type"] != params["device_type"]:
                text = "{} is a {}, not a {}"
                raise tools.Refused(text.format(device, card["type"], params["device_type"]))
        written = {
            d: nvconfig.find_differences(c["table"], parameters, d) for d, c in cards.items()
        }
        for device, values in written.items():
            if values and not module.check_mode:
                line = ["mlxconfig", "-d", device, "-y", "set"]
                tools.write([*line, *(f"{k}={v}" for k, v in values.items())], lock)
                cards[device] = read_card(device)
    tables = {device: card["table"] for device, card in cards.items()}
    return {
        "changed": any(written.values()),
        "current": {d: {k: t[k]["current"] for k in parameters} for d, t in tables.items()},
        "next_boot": {d: {k: t[k]["next"] for k in parameters} for d, t in tables.items()},
        "written": {d: values for d, values in written.items() if values},
    }


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            "devices": {"type": "list", "elements": "str", "required": True},
            "parameters": {"type": "dict", "default": {}},
            "device_type": {"type": "str", "default": ""},
        },
        apply,
    )


if __name__ == "__main__":
    main()

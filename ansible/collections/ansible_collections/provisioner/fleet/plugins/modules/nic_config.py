#!/usr/bin/python
"""Ansible module: these NV-config parameters on these network cards at their next boot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_config
short_description: Writes NV-config parameters to network cards; current after a reset
version_added: "0.1.0"
description:
  - Writes the parameters that differ at the next boot. The reset is not done here.
  - A card of another type, and a parameter that a card does not have, is refused before anything
    is written to any card.
options:
  devices:
    description: PCI addresses of the cards.
    type: list
    elements: str
    required: true
  parameters:
    description: Parameter to value, as mlxconfig takes them; none only reads.
    type: dict
    default: {}
  device_type:
    description: Type that every card must be of, as mlxconfig names it; "" for any.
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
  description: PCI address to what was written, or would be.
  returned: always
  type: dict
"""

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, nvconfig, tools


def query(device):
    """Configuration of one card."""
    line = ["mlxconfig", "-d", device, "-e", "-j", "/dev/stdout", "q"]
    return nvconfig.parse(tools.read(line), device)


def apply(module):
    """Write what differs; what is to be told."""
    params = module.params
    wanted = {str(k): str(v) for k, v in params["parameters"].items()}
    nvconfig.check(wanted)
    with tools.one_at_a_time() as lock:
        cards = {device: query(device) for device in params["devices"]}
        for device, card in cards.items():
            if params["device_type"] and card["type"] != params["device_type"]:
                text = "{} is a {}, not a {}"
                raise tools.Refused(text.format(device, card["type"], params["device_type"]))
        written = {d: nvconfig.differing(c["table"], wanted, d) for d, c in cards.items()}
        for device, values in written.items():
            if values and not module.check_mode:
                line = ["mlxconfig", "-d", device, "-y", "set"]
                tools.write([*line, *(f"{k}={v}" for k, v in values.items())], lock)
                cards[device] = query(device)
    tables = {device: card["table"] for device, card in cards.items()}
    return {
        "changed": any(written.values()),
        "current": {d: {k: t[k]["current"] for k in wanted} for d, t in tables.items()},
        "next_boot": {d: {k: t[k]["next"] for k in wanted} for d, t in tables.items()},
        "written": {d: values for d, values in written.items() if values},
    }


def main():
    """Ansible's entry point."""
    entry.run(
        {
            "devices": {"type": "list", "elements": "str", "required": True},
            "parameters": {"type": "dict", "default": {}},
            "device_type": {"type": "str", "default": ""},
        },
        apply,
    )


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""Ansible module: sets the run-time settings of RoCE, adaptive routing and congestion control."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_runtime
short_description: Applies the settings that a NIC loses at every boot, and reads them back
version_added: "0.1.0"
description:
  - Sets the values that differ, in the listed order, through DOCA's management service (dmsd,
    dmsc), which runs only for that time, and reads everything back.
options:
  devices:
    description: PCI addresses of the cards; their interfaces are found in /sys.
    type: list
    elements: str
    required: true
  settings:
    description: Settings of every interface of the cards, in this order.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Path as in the profiles of NVIDIA's nic-configuration-operator.
        type: str
        required: true
      value:
        description: The value, as text.
        type: str
        required: true
      type:
        description: Its type.
        type: str
        choices: [string, bool, int]
        default: string
      also:
        description: Another value that the service prints for the same setting.
        type: str
        default: ""
      restart_interface:
        description: Whether it takes effect only after the interface went down and up.
        type: bool
        default: false
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Let the card trust DSCP
  provisioner.fleet.roce_runtime:
    devices: ["0000:1a:00.0"]
    settings:
      - {path: /interfaces/interface/nvidia/qos/config/trust-mode, value: dscp}
"""

RETURN = r"""
interfaces:
  description: Interface to path to value, read back.
  returned: always
  type: dict
rdma:
  description: RDMA devices of the cards.
  returned: always
  type: list
  elements: str
set:
  description: Interface to paths that were set, or would be.
  returned: always
  type: dict
"""

import os

from ansible_collections.provisioner.fleet.plugins.module_utils import dms, entry, tools

_ENABLED = "/interfaces/interface/config/enabled"
PCI = "/sys/bus/pci/devices"


def list_names(device, kind):
    """List a card's entries under "net" or "infiniband" in /sys; refuse a card without any."""
    try:
        entries = sorted(os.listdir(os.path.join(PCI, os.path.basename(device), kind)))
    except OSError:
        entries = []
    if not entries:
        raise tools.Refused(f"{device} has nothing under {kind}")
    return entries


def restart_interface(service, device, interface, lock):
    """Set an interface down and up, which some settings need (the operator does the same)."""
    (path,) = dms.expand_paths(_ENABLED, interface)
    for value in ("false", "true"):
        service.set(device, [(path, "bool", value)], lock)


def set_interface(module, service, device, interface, lock):
    """Set the differing values of one interface; return (paths set, all values read back)."""
    settings = module.params["settings"]
    values = service.get(device, interface, settings)
    wrong = [(s, path) for s, path, value in values if not dms.is_same_value(s, value)]
    if wrong and not module.check_mode:
        service.set(device, [(path, s["type"], s["value"]) for s, path in wrong], lock)
        if any(s["restart_interface"] for s, _ in wrong):
            restart_interface(service, device, interface, lock)
        values = service.get(device, interface, settings)
        remaining = [(path, value) for s, path, value in values if not dms.is_same_value(s, value)]
        if remaining:
            raise tools.Refused("{}: {} is still {}".format(interface, *remaining[0])[:300])
    return [path for _, path in wrong], {path: value for _, path, value in values}


def apply(module):
    """Set every interface of every card; return the module's result."""
    params = module.params
    dms.require_settings(params["settings"])
    places = [(device, name) for device in params["devices"] for name in list_names(device, "net")]
    rdma = [name for device in params["devices"] for name in list_names(device, "infiniband")]
    paths_set, values = {}, {}
    with tools.hold_lock() as lock, dms.Service(params["devices"]) as service:
        for device, name in places:
            paths_set[name], values[name] = set_interface(module, service, device, name, lock)
    changed = {name: paths for name, paths in paths_set.items() if paths}
    return {"changed": bool(changed), "interfaces": values, "rdma": rdma, "set": changed}


def main():
    """Run the module for Ansible."""
    setting = {
        "path": {"type": "str", "required": True},
        "value": {"type": "str", "required": True},
        "type": {"type": "str", "choices": list(dms.TYPES), "default": "string"},
        "also": {"type": "str", "default": ""},
        "restart_interface": {"type": "bool", "default": False},
    }
    entry.run_module(
        {
            "devices": {"type": "list", "elements": "str", "required": True},
            "settings": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": setting,
            },
        },
        apply,
    )


if __name__ == "__main__":
    main()

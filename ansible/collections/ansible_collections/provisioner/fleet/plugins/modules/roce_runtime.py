#!/usr/bin/python
"""Ansible module: the run-time settings of RoCE, adaptive routing and congestion control."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_runtime
short_description: Applies the settings of a NIC that are lost at every boot, and reads them back
version_added: "0.1.0"
description:
  - Sets what differs, in the order given, through DOCA's management service (dmsd, dmsc), which
    runs only meanwhile, and reads everything back.
options:
  devices:
    description: PCI addresses of the cards; their interfaces are found in /sys.
    type: list
    elements: str
    required: true
  settings:
    description: What must hold on every interface of the cards, in this order.
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
        description: Another word that the service uses for the same value.
        type: str
        default: ""
      restart_interface:
        description: Whether it counts only after the interface was down and up again.
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


def names(device, what):
    """Names under a card's "net" or "infiniband" in /sys, in order; refuses a card without one."""
    try:
        found = sorted(os.listdir(os.path.join(PCI, os.path.basename(device), what)))
    except OSError:
        found = []
    if not found:
        raise tools.Refused(f"{device} has nothing under {what}")
    return found


def restart(service, device, interface, lock):
    """Down and up: some settings count only then (the operator does the same)."""
    (path,) = dms.addressed(_ENABLED, interface)
    for value in ("false", "true"):
        service.set(device, [(path, "bool", value)], lock)


def settle(module, service, device, interface, lock):
    """Set what differs on one interface; (paths that were set, all values read back)."""
    settings = module.params["settings"]
    found = service.get(device, interface, settings)
    wrong = [(s, path) for s, path, value in found if not dms.same(s, value)]
    if wrong and not module.check_mode:
        service.set(device, [(path, s["type"], s["value"]) for s, path in wrong], lock)
        if any(s["restart_interface"] for s, _ in wrong):
            restart(service, device, interface, lock)
        found = service.get(device, interface, settings)
        left = [(path, value) for s, path, value in found if not dms.same(s, value)]
        if left:
            raise tools.Refused("{}: {} is still {}".format(interface, *left[0])[:300])
    return [path for _, path in wrong], {path: value for _, path, value in found}


def apply(module):
    """Settle every interface of every card; what is to be told."""
    params = module.params
    dms.check(params["settings"])
    places = [(device, name) for device in params["devices"] for name in names(device, "net")]
    rdma = [name for device in params["devices"] for name in names(device, "infiniband")]
    done, values = {}, {}
    with tools.one_at_a_time() as lock, dms.Service(params["devices"]) as service:
        for device, name in places:
            done[name], values[name] = settle(module, service, device, name, lock)
    changed = {name: paths for name, paths in done.items() if paths}
    return {"changed": bool(changed), "interfaces": values, "rdma": rdma, "set": changed}


def main():
    """Ansible's entry point."""
    setting = {
        "path": {"type": "str", "required": True},
        "value": {"type": "str", "required": True},
        "type": {"type": "str", "choices": list(dms.TYPES), "default": "string"},
        "also": {"type": "str", "default": ""},
        "restart_interface": {"type": "bool", "default": False},
    }
    entry.run(
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

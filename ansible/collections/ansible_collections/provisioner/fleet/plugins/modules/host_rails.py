#!/usr/bin/python
"""Ansible module: gives the rails of a host their addresses, frames, routes and source rules."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_rails
short_description: Brings the rails of a host about, now and for its next boots
version_added: "0.1.0"
description:
  - Sets what differs in the kernel through C(ip -batch), and writes the same as a file of netplan,
    which it lets netplan check. C(netplan apply) is not run, so that management stays up.
  - A host without netplan is refused, because its rails would be lost at its next boot.
options:
  rails:
    description: The rails, each with the address of its card.
    type: list
    elements: dict
    required: true
    suboptions:
      rail: {description: Number of the rail., type: int, required: true}
      mac: {description: MAC address of its card., type: str, required: true}
      address: {description: Its address with prefix length., type: str, required: true}
      gateway: {description: Address of its leaf., type: str, required: true}
      mtu: {description: Bytes of a frame., type: int, required: true}
      table: {description: Number of its routing table., type: int, required: true}
      priority: {description: Priority of its source rule., type: int, required: true}
      networks: {description: Networks of all rails., type: list, elements: str, required: true}
      own_networks: {description: Networks of this rail., type: list, elements: str, default: []}
  netplan:
    description: The same rails as C(ethernets) of netplan.
    type: dict
    required: true
  file:
    description: The file of netplan that is ours.
    type: str
    default: /etc/netplan/70-provisioner-rails.yaml
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Give rail 0 its address, routes and rule
  provisioner.fleet.host_rails:
    rails:
      - {rail: 0, mac: "02:00:00:00:00:01", address: 172.0.0.0/31, gateway: 172.0.0.1, mtu: 9216,
         table: 100, priority: 3000, networks: [172.0.0.0/8]}
    netplan: {rail0: {match: {macaddress: "02:00:00:00:00:01"}, addresses: [172.0.0.0/31]}}
"""

RETURN = r"""
missing:
  description: Lines of C(ip -batch) that were run, or would be.
  returned: always
  type: list
  elements: str
interfaces:
  description: Interface of each rail.
  returned: always
  type: dict
file_differs:
  description: Whether the file of netplan was written, or would be.
  returned: always
  type: bool
"""

import json
import os

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, rails, tools

_HEAD = "# written by the provisioner: the rails of this host\n"


def read_file(path):
    """Read a file; "" where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def write_file(path, text, lock):
    """Write netplan's file and let netplan check it; a file that it refuses is taken back.

    It is checked in each run: a run that was killed before its check left it unchecked.
    """
    before = read_file(path)
    if before != text:
        _replace(path, text)
    try:
        tools.write(["netplan", "generate"], lock)
    except tools.Refused:
        if before and before != text:
            _replace(path, before)
        else:
            os.unlink(path)
        raise


def _replace(path, text):
    partial = f"{path}.partial"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(partial, path)


def list_missing(params):
    """Return (rail's number -> interface, lines of `ip -batch` that are missing)."""
    by_mac = rails.read_interfaces()
    names, missing = {}, []
    for rail in params["rails"]:
        interface = rails.find_interface(rail, by_mac)
        names[str(rail["rail"])] = interface["ifname"]
        missing += rails.find_missing(rail, interface)
    return names, missing


def run_batch(lines, lock):
    """Run lines of `ip`, one process each, so that a refused line is named."""
    for line in lines:
        tools.write(["ip", *(["-6"] if ":" in line else []), *line.split()], lock)


def apply(module):
    """Set the rails and keep them for the next boot; return the module's result."""
    params = module.params
    if not os.path.isdir(os.path.dirname(params["file"])):
        raise tools.Refused(f"no netplan here: {os.path.dirname(params['file'])} is missing")
    document = {"network": {"version": 2, "ethernets": params["netplan"]}}
    text = _HEAD + json.dumps(document, indent=1, sort_keys=True) + "\n"
    with tools.hold_lock() as lock:
        names, missing = list_missing(params)
        file_differs = read_file(params["file"]) != text
        if not module.check_mode:
            write_file(params["file"], text, lock)
            run_batch(missing, lock)
            remaining = list_missing(params)[1]
            if remaining:
                raise tools.Refused(f"the kernel still lacks: {remaining[0]}")
    changed = bool(missing) or file_differs
    return {
        "changed": changed,
        "missing": missing,
        "interfaces": names,
        "file_differs": file_differs,
    }


def main():
    """Run the module for Ansible."""
    rail = {
        "rail": {"type": "int", "required": True},
        "mac": {"type": "str", "required": True},
        "address": {"type": "str", "required": True},
        "gateway": {"type": "str", "required": True},
        "mtu": {"type": "int", "required": True},
        "table": {"type": "int", "required": True},
        "priority": {"type": "int", "required": True},
        "networks": {"type": "list", "elements": "str", "required": True},
        "own_networks": {"type": "list", "elements": "str", "default": []},
    }
    entry.run_module(
        {
            "rails": {"type": "list", "elements": "dict", "required": True, "options": rail},
            "netplan": {"type": "dict", "required": True},
            "file": {"type": "str", "default": "/etc/netplan/70-provisioner-rails.yaml"},
        },
        apply,
    )


if __name__ == "__main__":
    main()

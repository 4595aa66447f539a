#!/usr/bin/python
"""Ansible module: installs one software bundle (BFB) on a BlueField over its rshim device."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bluefield_bfb
short_description: Pushes a BFB to a BlueField over rshim
version_added: "0.1.0"
description:
  - Pushes the bundle if the card does not hold it. Its NIC firmware runs after a power cycle of
    the host, which this module does not do.
  - The module reads from the card whether it holds the bundle. The NIC firmware in flash must be
    that of the bundle; in DPU mode its own system, where it answers, must name the bundle.
options:
  device:
    description: PCI address of the card.
    type: str
    required: true
  image:
    description: Path of the BFB on the host; needed only if it is pushed.
    type: path
    required: true
  bundle:
    description: Version in the bundle's name, such as 2.10.0-147_25.01.
    type: str
    required: true
  nic_version:
    description: NIC firmware that the bundle contains.
    type: str
    required: true
  config:
    description: Path of a bf.cfg on the host; "" for none.
    type: str
    default: ""
  release_command:
    description:
      - Command, as a list, that prints the bundle's name from the card's own system, such as ssh
        over tmfifo_net0 and /etc/mlnx-release. Empty in NIC mode, where no system runs.
    type: list
    elements: str
    default: []
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Push the bundle
  provisioner.fleet.bluefield_bfb:
    device: "0000:9d:00.0"
    image: /var/cache/provisioner/bf-bundle-2.10.0-147_25.01_ubuntu-22.04_prod.bfb
    bundle: 2.10.0-147_25.01
    nic_version: 32.44.1036
"""

RETURN = r"""
nic:
  description: NIC firmware in flash (burned) and the running one.
  returned: always
  type: dict
release:
  description: Name of the bundle as the card's own system reports it; "" without a query.
  returned: always
  type: str
log:
  description: Last messages of the card's boot, by bfb-install and by the card's log.
  returned: always
  type: list
  elements: str
"""

import os
import re

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, flint, rshim, tools

LOG_LINES = 10
_BUNDLE = re.compile(r"^[A-Za-z0-9._-]{3,80}$")


def read_state(params):
    """Return the card's NIC firmware and the name of its bundle."""
    device = params["device"]
    nic = flint.parse_firmware(tools.read(["flint", "-d", device, "q"]), device)
    release = ""
    if params["release_command"]:
        text = tools.read(params["release_command"], limit_s=60.0)
        release = tools.replace_control_characters(text.strip())[:120]
    return nic, release


def holds_bundle(params, nic, release):
    """Return whether these facts match the bundle."""
    name = r"^bf-(fw)?bundle-{}(_|$)".format(re.escape(params["bundle"]))
    named = not params["release_command"] or re.match(name, release) is not None
    return named and nic["burned"] == params["nic_version"]


def push_bundle(params, device, lock):
    """Push the bundle, and verify by the tool's output that the card installed it without an error.

    bfb-install of rshim 2.0.34 and later empties the card's log while it reads it (CLEAR_ON_READ),
    and its exit code is 0 however the installation ended.
    """
    if not os.path.isfile(params["image"]):
        raise tools.Refused("there is no {}".format(params["image"]))
    line = ["bfb-install", "--rshim", device, "--bfb", params["image"]]
    if params["config"]:
        line += ["--config", params["config"]]
    output = tools.write(line, lock)
    kept = rshim.read_misc(device)
    errors = list(dict.fromkeys(rshim.list_errors(output) + rshim.list_errors(kept)))
    if errors:
        raise tools.Refused("the card reports: {}".format("; ".join(errors[:3])))
    if not rshim.has_ended(output):
        last = tools.replace_control_characters(" ".join(output.split())[-200:]) or "no output"
        raise tools.Refused(f"no message of the card ends its installation; bfb-install: {last}")
    return [text for _, text in rshim.parse_log(output)]


def apply(module):
    """Push the bundle if the card holds another one; return the module's result."""
    params = module.params
    if not _BUNDLE.match(params["bundle"]):
        raise tools.Refused("{!r} is not a bundle".format(params["bundle"])[:100])
    with tools.hold_lock() as lock:
        device = rshim.find_device(params["device"])
        nic, release = read_state(params)
        log = []
        changed = not holds_bundle(params, nic, release)
        if changed and not module.check_mode:
            log = push_bundle(params, device, lock)
            nic, release = read_state(params)
            if not holds_bundle(params, nic, release):
                text = "the bundle was pushed, but the card holds {} {}"
                raise tools.Refused(text.format(nic["burned"], release).rstrip())
        log += [text for _, text in rshim.parse_log(rshim.read_misc(device)) if text not in log]
    return {"changed": changed, "nic": nic, "release": release, "log": log[-LOG_LINES:]}


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            "device": {"type": "str", "required": True},
            "image": {"type": "path", "required": True},
            "bundle": {"type": "str", "required": True},
            "nic_version": {"type": "str", "required": True},
            "config": {"type": "str", "default": ""},
            "release_command": {"type": "list", "elements": "str", "default": []},
        },
        apply,
    )


if __name__ == "__main__":
    main()

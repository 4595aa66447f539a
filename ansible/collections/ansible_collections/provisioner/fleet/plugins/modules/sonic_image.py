#!/usr/bin/python
"""Ansible module: this SONiC image installed and booted next."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sonic_image
short_description: Installs a SONiC image beside the running one, by sonic-installer
version_added: "0.1.0"
description:
  - An image that is installed already is not installed again. The reboot is not done here.
options:
  version:
    description: Image as the switch lists it; empty only reads.
    type: str
    default: ""
  source:
    description: File or address that sonic-installer takes.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Stage an image
  provisioner.fleet.sonic_image:
    version: SONiC-OS-202311.2
    source: http://10.0.0.1/artifacts/sonic-mellanox.bin
"""

RETURN = r"""
running:
  description: Image that runs.
  returned: always
  type: str
next:
  description: Image that boots next.
  returned: always
  type: str
held:
  description: Images that are installed.
  returned: always
  type: list
  elements: str
waiting:
  description: Whether the image waits for a reboot.
  returned: always
  type: bool
"""

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, sonic, tools


def look():
    """What is installed."""
    return sonic.images(tools.read(["sonic-installer", "list"]))


def apply(module):
    """Install and choose what is not there; what is to be told."""
    wanted, source = module.params["version"], module.params["source"]
    with tools.one_at_a_time() as lock:
        seen = look()
        absent = bool(wanted) and wanted not in seen["held"]
        other = bool(wanted) and seen["next"] != wanted
        if absent and not source:
            raise tools.Refused(f"{wanted} is not installed, and no source is given")
        if not module.check_mode and absent:
            tools.write(["sonic-installer", "install", "-y", source], lock)
            seen = look()
            if wanted not in seen["held"]:
                raise tools.Refused(f"installed, but {', '.join(seen['held'])} are held")
        if not module.check_mode and seen["next"] != wanted and wanted:
            tools.write(["sonic-installer", "set-default", wanted], lock)
            seen = look()
            if seen["next"] != wanted:
                raise tools.Refused(f"{seen['next']} boots next, not {wanted}")
    waiting = bool(wanted) and seen["running"] != wanted
    return {"changed": absent or other, "waiting": waiting, **seen}


def main():
    """Ansible's entry point."""
    entry.run(
        {
            "version": {"type": "str", "default": ""},
            "source": {"type": "str", "default": ""},
        },
        apply,
    )


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""Ansible module: installs a SONiC image and selects it for the next boot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sonic_image
short_description: Installs a SONiC image beside the running one, by sonic-installer
version_added: "0.1.0"
description:
  - An image that is already installed is not installed again. This module does not reboot.
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
  description: The running image.
  returned: always
  type: str
next:
  description: Image that boots next.
  returned: always
  type: str
held:
  description: The installed images.
  returned: always
  type: list
  elements: str
waiting:
  description: Whether the image waits for a reboot.
  returned: always
  type: bool
"""

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, sonic, tools


def read_images():
    """Return the switch's installed images."""
    return sonic.parse_images(tools.read(["sonic-installer", "list"]))


def apply(module):
    """Install and select the image where necessary; return the module's result."""
    version, source = module.params["version"], module.params["source"]
    with tools.hold_lock() as lock:
        images = read_images()
        absent = bool(version) and version not in images["held"]
        selects_other = bool(version) and images["next"] != version
        if absent and not source:
            raise tools.Refused(f"{version} is not installed, and no source is given")
        if not module.check_mode and absent:
            tools.write(["sonic-installer", "install", "-y", source], lock)
            images = read_images()
            if version not in images["held"]:
                raise tools.Refused(f"installed, but {', '.join(images['held'])} are held")
        if not module.check_mode and images["next"] != version and version:
            tools.write(["sonic-installer", "set-default", version], lock)
            images = read_images()
            if images["next"] != version:
                raise tools.Refused(f"{images['next']} boots next, not {version}")
    waiting = bool(version) and images["running"] != version
    return {"changed": absent or selects_other, "waiting": waiting, **images}


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            "version": {"type": "str", "default": ""},
            "source": {"type": "str", "default": ""},
        },
        apply,
    )


if __name__ == "__main__":
    main()

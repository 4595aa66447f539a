#!/usr/bin/python
"""Ansible module: installs a Cumulus image in the other partition, to be booted next."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvue_image
short_description: Fetches and installs a switch image beside the running one
version_added: "0.1.0"
description:
  - Uses the optimized way, which keeps the configuration. This module does not reboot the switch.
  - An image that is already installed is not fetched again; without O(source) nothing is fetched.
options:
  url:
    description: Base of the API; only a loopback address may be plain http.
    type: str
    default: https://127.0.0.1:8765
  username:
    description: User of the API.
    type: str
    required: true
  password:
    description: Its password.
    type: str
    required: true
  ca_path:
    description: Certificates to trust instead of the system's.
    type: path
  limit_s:
    description: Seconds that fetching or installing may take.
    type: int
    default: 600
  version:
    description: Version as the switch prints it (its build id); empty only reads.
    type: str
    default: ""
  source:
    description: Where the switch fetches the image.
    type: str
    default: ""
  boot_next:
    description: Whether the image is to boot next.
    type: bool
    default: true
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Stage an image
  provisioner.fleet.nvue_image:
    username: cumulus
    password: "{{ secret }}"
    version: 5.12.1.100
    source: http://10.0.0.1/artifacts/cumulus-linux-5.12.1-mlx-amd64.bin
"""

RETURN = r"""
running:
  description: The running version.
  returned: always
  type: str
next:
  description: Version that boots next.
  returned: always
  type: str
held:
  description: Versions of both partitions.
  returned: always
  type: list
  elements: str
waiting:
  description: Whether the image waits for a reboot.
  returned: always
  type: bool
"""

from urllib.parse import quote, urlsplit

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, nvue, tools


def install_image(switch, source):
    """Fetch the file and install it in the other partition."""
    name = urlsplit(source).path.rsplit("/", 1)[-1]
    if not name:
        raise tools.Refused(f"{source} contains no file name")
    switch.run_action("/system/image", "@fetch", {"remote-url": source})
    switch.run_action(f"/system/image/files/{quote(name, safe='')}", "@install", {})


def apply(module):
    """Install and select the image where necessary; return the module's result."""
    params = module.params
    switch = nvue.Switch(params)

    def read_images():
        return nvue.parse_images(switch.read_tree("/system/image", "operational"))

    images = read_images()
    version = params["version"]
    absent = bool(version) and version not in images["held"]
    selects_other = bool(version) and params["boot_next"] and images["next"] != version
    if absent and not params["source"]:
        raise tools.Refused(f"{version} is not installed, and no source is given")
    if not module.check_mode and absent:
        install_image(switch, params["source"])
        images = read_images()
        if version not in images["held"]:
            held = " and ".join(images["held"])
            raise tools.Refused(f"installed, but the partitions hold {held}, not {version}")
    if not module.check_mode and selects_other and read_images()["next"] != version:
        if images["running"] == version:
            raise tools.Refused(
                f"{version} runs, but another image boots next: correct that manually"
            )
        switch.run_action("/system/image", "@boot-next", {"partition": "other"})
        images = read_images()
        if images["next"] != version:
            raise tools.Refused(f"{images['next']} boots next, not {version}")
    waiting = bool(version) and images["running"] != version
    return {"changed": absent or selects_other, "waiting": waiting, **images}


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            **nvue.ARGUMENTS,
            "version": {"type": "str", "default": ""},
            "source": {"type": "str", "default": ""},
            "boot_next": {"type": "bool", "default": True},
        },
        apply,
    )


if __name__ == "__main__":
    main()

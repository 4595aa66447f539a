#!/usr/bin/python
"""Ansible module: this Cumulus image in the partition that does not run, to be booted next."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvue_image
short_description: Fetches and installs a switch image beside the running one
version_added: "0.1.0"
description:
  - The optimized way, which keeps the configuration. The reboot is not done here.
  - An image that is installed already is not fetched again; without O(source) nothing is fetched.
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
    description: Whether it is to be booted next.
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
  description: Version that runs.
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


def install(switch, source):
    """Fetch the file and install it into the other partition."""
    name = urlsplit(source).path.rsplit("/", 1)[-1]
    if not name:
        raise tools.Refused(f"{source} names no file")
    switch.act("/system/image", "@fetch", {"remote-url": source})
    switch.act(f"/system/image/files/{quote(name, safe='')}", "@install", {})


def apply(module):
    """Install and choose what is not there; what is to be told."""
    params = module.params
    switch = nvue.Switch(params)

    def look():
        return nvue.images(switch.tree("/system/image", "operational"))

    seen = look()
    wanted = params["version"]
    absent = bool(wanted) and wanted not in seen["held"]
    other = bool(wanted) and params["boot_next"] and seen["next"] != wanted
    if absent and not params["source"]:
        raise tools.Refused(f"{wanted} is not installed, and no source is given")
    if not module.check_mode and absent:
        install(switch, params["source"])
        seen = look()
        if wanted not in seen["held"]:
            held = " and ".join(seen["held"])
            raise tools.Refused(f"installed, but the partitions hold {held}, not {wanted}")
    if not module.check_mode and other and look()["next"] != wanted:
        if seen["running"] == wanted:
            raise tools.Refused(f"{wanted} runs, but another image boots next: undo that by hand")
        switch.act("/system/image", "@boot-next", {"partition": "other"})
        seen = look()
        if seen["next"] != wanted:
            raise tools.Refused(f"{seen['next']} boots next, not {wanted}")
    waiting = bool(wanted) and seen["running"] != wanted
    return {"changed": absent or other, "waiting": waiting, **seen}


def main():
    """Ansible's entry point."""
    entry.run(
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

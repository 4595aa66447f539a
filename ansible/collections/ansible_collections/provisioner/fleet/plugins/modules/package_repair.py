#!/usr/bin/python
"""Ansible module: configures packages that an interrupted run of dpkg left."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_repair
short_description: Configures packages that an interrupted run of dpkg left
version_added: "0.1.0"
description:
  - Runs "dpkg --configure -a" where packages are unpacked, half-configured or wait for triggers.
  - A package whose scripts fail again is named as the cause, with the log of its kernel module.
options: {}
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Configure the packages that an interrupted run of dpkg left
  provisioner.fleet.package_repair:
"""

RETURN = r"""
configured:
  description: Packages that were configured, or would be.
  returned: always
  type: list
  elements: str
"""

import os

from ansible_collections.provisioner.fleet.plugins.module_utils import debian, entry, tools

UPDATES = "/var/lib/dpkg/updates"


def read_states():
    """Return dpkg's own list of packages, versions and states."""
    line = ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n"]
    return tools.read(line)


def is_interrupted(folder=UPDATES):
    """Return whether dpkg was ended before it wrote its list of packages."""
    try:
        return any(name.isdigit() for name in os.listdir(folder))
    except OSError:
        return False


def apply(module):
    """Configure the unfinished packages; return the module's result."""
    unfinished = debian.parse_unfinished(read_states())
    due = bool(unfinished) or is_interrupted()
    if due and not module.check_mode:
        with tools.hold_lock() as lock:
            try:
                line = ["dpkg", "--configure", "-a", "--force-confold"]
                tools.write(line, lock, {"DEBIAN_FRONTEND": "noninteractive"})
            except tools.Refused as refused:
                raise tools.Refused(debian.parse_failure(refused.output) or str(refused)) from None
        left = debian.parse_unfinished(read_states())
        if left:
            listing = ", ".join(f"{name} is {state}" for name, state in sorted(left.items())[:5])
            raise tools.Refused(f"{listing}, also after dpkg --configure -a")
    return {"changed": due, "configured": sorted(unfinished)}


def main():
    """Run the module for Ansible."""
    entry.run_module({}, apply)


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""Ansible module: names the packages of a GPU driver in the packaging of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_packages
short_description: Names the packages of a GPU driver, open or proprietary, in one packaging
version_added: "0.1.0"
description:
  - Reads the packaging of the installed driver, whose packages they are and whether its modules are
    open, and names the packages of a version in it. Nothing is changed.
  - A change of packaging and of version at once is refused, because each is a step of its own.
options:
  packaging:
    description: The packaging, such as ubuntu-server-open; "" keeps the installed one.
    type: str
    default: ""
  version:
    description: The driver's version; "" keeps the installed one.
    type: str
    default: ""
  fabric_manager:
    description: The version of Fabric Manager to name the package of; "" names none.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Name the packages of a driver with open modules
  provisioner.fleet.driver_packages:
    packaging: ubuntu-server-open
    version: 550.163.01
"""

RETURN = r"""
installed:
  description: The packaging of the installed driver; "" without one.
  returned: always
  type: str
packages:
  description: Package to version, of the driver that was named; empty if nothing was named.
  returned: always
  type: dict
others:
  description: Installed packages of another branch or packaging.
  returned: always
  type: list
  elements: str
same_version:
  description: Globs of driver packages that must all have one version.
  returned: always
  type: list
  elements: str
fabric_manager:
  description: Package to version, of the Fabric Manager that was named.
  returned: always
  type: dict
fabric_managers:
  description: Globs of all packages of Fabric Manager, of any branch and provider.
  returned: always
  type: list
  elements: str
"""

from ansible_collections.provisioner.fleet.plugins.module_utils import (
    debian,
    driver_scheme,
    entry,
    tools,
)


def apply(module):
    """Return the packages of the driver that the parameters name."""
    line = ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n"]
    installed = debian.parse_installed(tools.read(line))
    params = module.params
    packages = {}
    others = []
    if params["packaging"] or params["version"]:
        scheme, version = driver_scheme.choose(params["packaging"], params["version"], installed)
        packages = dict.fromkeys(driver_scheme.list_names(scheme, version), version)
        others = driver_scheme.list_others(installed, packages)
    present = driver_scheme.find_installed(installed)[0]
    manager = params["fabric_manager"]
    scheme = params["packaging"] or present
    name = driver_scheme.name_fabric_manager(scheme, manager) if manager else ""
    return {
        "changed": False,
        "installed": present,
        "packages": packages,
        "others": others,
        "same_version": list(driver_scheme.SAME_VERSION),
        "fabric_manager": {name: manager} if manager else {},
        "fabric_managers": list(driver_scheme.FABRIC_MANAGERS),
    }


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            "packaging": {"type": "str", "default": ""},
            "version": {"type": "str", "default": ""},
            "fabric_manager": {"type": "str", "default": ""},
        },
        apply,
    )


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""Ansible module: has GRUB start one kernel, and holds every package that would bring another."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_pin
short_description: Pins the kernel that a host starts
version_added: "0.1.0"
description:
  - Builds the modules of DKMS for an installed kernel, has GRUB start that kernel by name, and puts
    its packages on hold, with those that an upgrade would bring the next kernel by.
  - A second run changes nothing.
options:
  release:
    description: The kernel, as uname -r names it.
    type: str
    required: true
  verify:
    description: Only read, and fail with what differs.
    type: bool
    default: false
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Start this kernel and no other
  provisioner.fleet.kernel_pin:
    release: 6.8.0-57-generic
"""

RETURN = r"""
entry:
  description: GRUB's entry that boots the kernel; "" in check mode if it is not installed yet.
  returned: always
  type: str
held:
  description: Packages that are on hold for it.
  returned: always
  type: list
  elements: str
"""

import os

from ansible_collections.provisioner.fleet.plugins.module_utils import (
    entry,
    kernel,
    kernel_choice,
    tools,
)


def read_packages(release):
    """Return the packages to hold, and those on hold."""
    line = ["dpkg-query", "-W", "-f", "${Package}\t${db:Status-Abbrev}\t${Depends}\n", "linux-*"]
    names = kernel_choice.list_packages(tools.read(line, exits=(0, 1)), release)
    return names, tools.read(["apt-mark", "showhold"]).split()


def read_file(path):
    """Return a file's text; "" if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def read_menu():
    """Return GRUB's menu. Raises `Refused` on a host with another boot loader."""
    text = read_file(kernel_choice.MENU)
    if not text:
        raise tools.Refused(f"there is no {kernel_choice.MENU}: the kernel is pinned by GRUB only")
    return text


def find_differences(release):
    """Return what lets the host start another kernel: sentences."""
    menu = read_menu()
    chosen = kernel_choice.find_entry(menu, release)
    if not chosen:
        return [f"GRUB has no entry for kernel {release}"]
    differing = []
    if kernel_choice.read_default(menu) != chosen:
        differing.append(f"GRUB starts {kernel_choice.read_default(menu)!r}, not {chosen!r}")
    names, held = read_packages(release)
    differing += [f"{name} is not on hold" for name in names if name not in held]
    return differing


def build_modules(release, lock):
    """Have DKMS build what it has not built for the kernel; return whether it did."""
    try:
        rows = kernel.parse_status(tools.read(["dkms", "status"]))
    except tools.Missing:
        return False
    if not kernel.find_unbuilt(rows, release):
        return False
    tools.write(["dkms", "autoinstall", "-k", release], lock)
    return True


def pin(release, lock):
    """Choose the kernel in GRUB and hold the packages. Raises `Refused` if it is not installed."""
    if not kernel_choice.find_entry(read_menu(), release):
        tools.write(["update-grub"], lock)  # GRUB's own hook did not run
    chosen = kernel_choice.find_entry(read_menu(), release)
    if not chosen:
        raise tools.Refused(f"GRUB has no entry for kernel {release}")
    setting = kernel_choice.write_setting(chosen)
    if read_file(kernel_choice.SETTING) != setting:
        os.makedirs(os.path.dirname(kernel_choice.SETTING), exist_ok=True)
        with open(kernel_choice.SETTING, "w", encoding="utf-8") as file:
            file.write(setting)
    if kernel_choice.read_default(read_menu()) != chosen:
        tools.write(["update-grub"], lock)
    names, held = read_packages(release)
    missing = [name for name in names if name not in held]
    if missing:
        tools.write(["apt-mark", "hold", *missing], lock)


def apply(module):
    """Pin the kernel; return the module's result."""
    release = module.params["release"]
    differing = find_differences(release)
    if module.params["verify"] and differing:
        raise tools.Refused("; ".join(differing[:10]))
    changed = bool(differing)
    if not module.params["verify"] and not module.check_mode:
        with tools.hold_lock() as lock:
            changed = build_modules(release, lock) or changed
            if differing:
                pin(release, lock)
        if remaining := find_differences(release):
            raise tools.Refused("; ".join(remaining[:10]))
    names, held = read_packages(release)
    return {
        "changed": changed,
        "entry": kernel_choice.find_entry(read_menu(), release),
        "held": [name for name in names if name in held],
    }


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            "release": {"type": "str", "required": True},
            "verify": {"type": "bool", "default": False},
        },
        apply,
    )


if __name__ == "__main__":
    main()

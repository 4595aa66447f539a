#!/usr/bin/python
"""Ansible module: brings a host's baseline about: RoCE, PCIe, memory, boot arguments, services."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_baseline
short_description: Sets a host's baseline now and at every boot, and reads it back
version_added: "0.1.0"
description:
  - Writes one script and one unit of systemd that set at each boot what a boot loses, runs the
    script, and reads every value back. Boot arguments are for the next boot, by GRUB.
  - C(nvidia-fabricmanager) runs where the GPUs are on NVSwitches, and nowhere else.
options:
  settings:
    description: Setting to value, as C(host_settings) of the matrix lists them.
    type: dict
    required: true
  devices:
    description: PCI addresses of the cards that carry the rails.
    type: list
    elements: str
    default: []
  root:
    description: Folder that the script, the unit and GRUB's file are below.
    type: path
    default: /
  sysfs:
    description: Where sysfs is mounted.
    type: path
    default: /sys
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Let the cards trust DSCP, and keep priority 3 lossless
  provisioner.fleet.host_baseline:
    devices: ["0000:1a:00.0"]
    settings: {roce_trust: dscp, roce_pfc: "00010000", "service:nvidia-dcgm": "on"}
"""

RETURN = r"""
settings:
  description: Setting to value as read back; boot arguments as they are for the next boot.
  returned: always
  type: dict
different:
  description: Settings that differed before this run, and their values then.
  returned: always
  type: dict
reboot_required:
  description: Whether the running kernel lacks a boot argument.
  returned: always
  type: bool
"""

import os

from ansible_collections.provisioner.fleet.plugins.module_utils import baseline, entry, tools

SCRIPT = "usr/local/sbin/provisioner-baseline"
UNIT = "provisioner-baseline.service"
_GRUB = "etc/default/grub.d/70-provisioner.cfg"
_MENU = "boot/grub/grub.cfg"
_UNIT_TEXT = """\
[Unit]
Description=Settings of this host that every boot loses
After=network.target openibd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/provisioner-baseline
[Install]
WantedBy=multi-user.target
"""


def write_files(files, check_mode):
    """Write the files that differ; return their paths."""
    differing = [path for path, (text, _) in files.items() if _read_whole(path) != text]
    for path in () if check_mode else differing:
        text, mode = files[path]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.partial"
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
            file.write(text)
        os.chmod(partial, mode)
        os.replace(partial, path)
    return differing


def _read_whole(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


def list_files(params, cards, bridges):
    """Return path -> (text, mode) of the script, the unit, and GRUB's file."""
    settings, root = params["settings"], params["root"]
    lines = baseline.write_script(settings, cards, bridges)
    script = ["#!/bin/sh", "# written by the provisioner", "f=0"]
    script += [f"{{ {line}; }} || f=1" for line in lines]
    files = {
        os.path.join(root, SCRIPT): ("\n".join([*script, "exit $f"]) + "\n", 0o755),
        os.path.join(root, "etc/systemd/system", UNIT): (_UNIT_TEXT, 0o644),
    }
    if baseline.BOOT_ARGUMENTS in settings:
        words = settings[baseline.BOOT_ARGUMENTS]
        text = f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {words}"\n'
        files[os.path.join(root, _GRUB)] = (text, 0o644)
    return files


def read_all(params, cards):
    """Read every setting; boot arguments as GRUB's menu starts every kernel with them."""
    settings = params["settings"]
    values = baseline.read_settings(settings, cards)
    if baseline.BOOT_ARGUMENTS in settings:
        text = _read_whole(os.path.join(params["root"], _GRUB)) or ""
        words = text.rpartition("$GRUB_CMDLINE_LINUX ")[2].strip().rstrip('"').split()
        menu = _read_whole(os.path.join(params["root"], _MENU)) or ""
        started = baseline.read_boot_arguments(menu)
        values[baseline.BOOT_ARGUMENTS] = " ".join(w for w in words if w in started)
    return values


def run_changes(params, files, different, lock):
    """Run what the written files and the differing services need."""
    root = params["root"]
    if os.path.join(root, _GRUB) in files or baseline.BOOT_ARGUMENTS in different:
        tools.write(["update-grub"], lock)
    tools.write(["systemctl", "daemon-reload"], lock)
    tools.write(["systemctl", "enable", UNIT], lock)
    if not baseline.is_enabled(UNIT):
        raise tools.Refused(f"systemd does not start {UNIT} at the next boot, though it took it")
    tools.write(["sh", os.path.join(root, SCRIPT)], lock)
    for name in different:
        if name.startswith(baseline.SERVICE):
            unit = name[len(baseline.SERVICE) :]
            tools.write(["systemctl", "enable", "--now", unit], lock)
        elif name == "fabric_manager":
            verb = "enable" if baseline.has_nvswitches() else "disable"
            tools.write(["systemctl", verb, "--now", "nvidia-fabricmanager"], lock)


def find_differences(settings, values):
    """Return setting -> value read, of those that this module reads and that differ."""
    return {name: value for name, value in values.items() if value != settings[name]}


def apply(module):
    """Bring the baseline about; return the module's result."""
    params = module.params
    settings = params["settings"] = {str(k): str(v) for k, v in params["settings"].items()}
    baseline.require_names(settings)
    with tools.hold_lock() as lock:
        cards = [baseline.Card(address, params["sysfs"]) for address in params["devices"]]
        bridges = baseline.list_bridges() if "acs" in settings else {}
        values = read_all(params, cards)
        different = find_differences(settings, values)
        files = write_files(list_files(params, cards, bridges), module.check_mode)
        if (files or different) and not module.check_mode:
            run_changes(params, files, different, lock)
            values = read_all(params, cards)
            if remaining := find_differences(settings, values):
                name, value = min(remaining.items())
                raise tools.Refused(f"{name} is {value or 'not read'}, not {settings[name]}")
    arguments = set(settings.get(baseline.BOOT_ARGUMENTS, "").split())
    running = set(baseline.read_file("/proc/cmdline").split())
    return {
        "changed": bool(files or different),
        "settings": values,
        "different": different,
        "reboot_required": not arguments <= running,
    }


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            "settings": {"type": "dict", "required": True},
            "devices": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "path", "default": "/"},
            "sysfs": {"type": "path", "default": "/sys"},
        },
        apply,
    )


if __name__ == "__main__":
    main()

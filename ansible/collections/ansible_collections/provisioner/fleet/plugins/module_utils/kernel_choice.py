"""The kernel that a host is pinned to: its packages, and GRUB's entry that starts it.

Formats: deb-control(5) as dpkg-query prints it; grub.cfg as GRUB 2.06's 00_header and 10_linux
write it (util/grub.d), with GRUB_DEFAULT by identifiers of entries (GRUB manual, 6.1).
"""

from __future__ import annotations

import re

from ansible_collections.provisioner.fleet.plugins.module_utils import tools

SETTING = "/etc/default/grub.d/90-provisioner-kernel.cfg"
MENU = "/boot/grub/grub.cfg"
_ENTRY = re.compile(r"(?P<kind>submenu|menuentry) .*\$menuentry_id_option '(?P<id>[^']+)'")
_DEFAULT = re.compile(r'\s*set default="(?P<id>[^"$]*)"')
_RELEASE = re.compile(r"-\d+\.\d+\.\d+-")  # of packages of one kernel, such as -6.8.0-57-generic
_OF_KERNEL = re.compile(r"linux-(?:image|headers|modules)[a-z-]*-")


def list_packages(text, release):
    """Return the installed packages that decide on a host's kernel, sorted.

    They are the packages of this kernel, and those without a kernel's name that depend on some
    kernel: they bring the next one with an upgrade.
    """
    names = []
    for line in text.splitlines():
        name, state, depends = (*line.split("\t"), "", "")[:3]
        if state[1:2] != "i" or not name.startswith("linux-"):
            continue
        brings = not _RELEASE.search(name) and _OF_KERNEL.search(depends)
        if name.endswith("-" + release) or brings:
            names.append(name.partition(":")[0])
    return sorted(set(names))


def find_entry(text, release):
    """Return the entry of grub.cfg that boots a kernel, as GRUB_DEFAULT names it; "" for none."""
    submenu = ""
    for line in text.splitlines():
        match = _ENTRY.match(line.strip())
        if line.startswith("}"):
            submenu = ""
        elif match and match["kind"] == "submenu":
            submenu = match["id"] + ">"
        elif match and match["id"].startswith(f"gnulinux-{release}-advanced-"):
            return submenu + match["id"]
    return ""


def read_default(text):
    """Return the entry that grub.cfg boots by itself. Raises `Unreadable` where it sets none."""
    matches = [m for m in map(_DEFAULT.match, text.splitlines()) if m]
    if not matches:
        raise tools.Unreadable(f"{MENU} sets no default entry")
    return matches[-1]["id"]


def write_setting(entry):
    """Return the file of GRUB's settings that chooses an entry."""
    return f'# The kernel that this host is pinned to.\nGRUB_DEFAULT="{entry}"\n'

#!/usr/bin/python
"""Ansible module: verifies kernel modules for the kernel of the next boot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_modules
short_description: Verifies that kernel modules are there for the kernel of the next boot
version_added: "0.1.0"
description:
  - Finds the kernel that the next boot starts, and fails with the module that DKMS has not built
    for it, that is not there, that is built for another kernel, that is of another version, or that
    Secure Boot would refuse.
  - Modules of DKMS that depend on others can be built again first.
options:
  modules:
    description: Modules that must be there, as modinfo names them.
    type: list
    elements: str
    required: true
  outside_tree:
    description: Whether they must not be the kernel's own.
    type: bool
    default: false
  versions:
    description: Module to the version that it must have, as modinfo prints it.
    type: dict
    default: {}
  built_by:
    description:
      - Module to the module of DKMS that builds it. What the next boot loads must be that build, of
        the newest version that DKMS has; where DKMS does not build it, nothing is compared.
    type: dict
    default: {}
  as_now:
    description: Whether every module that DKMS has installed for the running kernel must be there.
    type: bool
    default: false
  rebuild:
    description: Globs of modules of DKMS that are built again first.
    type: list
    elements: str
    default: []
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Verify the driver's modules before the reboot
  provisioner.fleet.kernel_modules:
    modules: [nvidia, nvidia-peermem]
"""

RETURN = r"""
kernel:
  description: The kernel of the next boot.
  returned: always
  type: str
files:
  description: Module to its file.
  returned: always
  type: dict
rebuilt:
  description: Modules of DKMS that were built again, or would be.
  returned: always
  type: list
  elements: str
"""

import fnmatch
import glob
import os

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, kernel, tools


def read_rows():
    """Return the rows of `dkms status`; a host without DKMS has none."""
    try:
        return kernel.parse_status(tools.read(["dkms", "status"]))
    except tools.Missing:
        return []


def rebuild(module, rows, release, lock):
    """Build modules again for a kernel and return their names."""
    due = []
    for name, version, built_for, state in rows:
        globs = module.params["rebuild"]
        if built_for != release or state not in ("installed", kernel.DIFFERS, "incomplete"):
            continue
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in globs):
            due.append(name)
            options = ["-m", name, "-v", version, "-k", release, "--force"]
            if not module.check_mode:
                tools.write(["dkms", "build", *options], lock)
                tools.write(["dkms", "install", *options], lock)
    return sorted(set(due))


def read_field(name, release, field):
    """Return a field of a module for a kernel. Raises `Refused` if there is no such module."""
    try:
        return tools.read(["modinfo", "-k", release, "-F", field, name]).strip()
    except tools.Missing:
        raise
    except tools.Refused:
        raise tools.Refused(f"there is no module {name} for {release}, the next kernel") from None


def list_kept(builder, version, release, root):
    """Return module to the files that DKMS keeps of what it built of a version for a kernel.

    dkms(8): DIRECTORY/NAME/VERSION/KERNEL/ARCHITECTURE/module.
    """
    kept = {}
    for path in glob.glob(os.path.join(root, builder, version, release, "*", "module", "*.ko*")):
        stem = os.path.basename(path).partition(".ko")[0].replace("-", "_")
        kept.setdefault(stem, []).append(path)
    return kept


def verify_build(name, release, rows, builder, root="/var/lib/dkms"):
    """Verify that a module is the one that DKMS built of its newest version. Raises `Refused`.

    modinfo's srcversion is a digest of the sources, the same for a compressed or stripped copy.
    """
    version = kernel.find_newest(rows).get(builder)
    if version is None:
        return
    kept = list_kept(builder, version, release, root).get(name.replace("-", "_"), [])
    again = f"build it again (dkms install -m {builder} -v {version} -k {release} --force)"
    if not kept:
        text = f"DKMS has no {name} of {builder} {version} for {release}, the next kernel: {again}"
        raise tools.Refused(text)
    found = read_field(name, release, "srcversion")
    built = {tools.read(["modinfo", "-F", "srcversion", path]).strip() for path in kept}
    if not found or built != {found}:
        text = (
            f"{name} for {release}, the next kernel, is not the one of {builder} {version}: {again}"
        )
        raise tools.Refused(text)


def verify_differing(release, rows, root="/var/lib/dkms"):
    """Verify what DKMS calls installed and different from what it built. Raises `Refused`."""
    newest = kernel.find_newest(rows)
    for builder, version, built_for, state in rows:
        if (built_for, state) != (release, kernel.DIFFERS) or newest[builder] != version:
            continue
        kept = list_kept(builder, version, release, root)
        if not kept:
            raise tools.Refused(f"DKMS keeps no module of {builder} {version} for {release}")
        for name in sorted(kept):
            verify_build(name, release, rows, builder, root)


def verify(name, release, params, keys):
    """Return a module's file. Raises `Refused` with the reason for which it would not load."""
    file = read_field(name, release, "filename")
    built_for = read_field(name, release, "vermagic").partition(" ")[0]
    if built_for != release:
        raise tools.Refused(f"{name} is built for {built_for}, the next kernel is {release}")
    if params["outside_tree"] and f"/{release}/kernel/" in file:
        raise tools.Refused(f"{name} would be the kernel's own, {file}: the stack's is not built")
    pinned = params["versions"].get(name)
    if pinned:
        version = read_field(name, release, "version")
        if version != pinned:
            found = tools.replace_control_characters(version)[:80] or "without a version"
            text = (
                "{} for {}, the next kernel, is {}, not {}: build it again (dkms autoinstall -k {})"
            )
            raise tools.Refused(text.format(name, release, found, pinned, release))
    if keys is not None:
        signer = read_field(name, release, "signer")
        serial = read_field(name, release, "sig_key")
        why = kernel.find_signature_fault(signer, serial, keys, kernel.read_certificates())
        if why:
            text = "Secure Boot would refuse {}: {}; enrol its key (mokutil --import) and try again"
            raise tools.Refused(text.format(name, why))
    return file


def list_built(release, root="/lib/modules"):
    """Return the modules that DKMS has installed for a kernel, sorted."""
    names = set()
    for path in glob.glob(os.path.join(root, release, "updates", "dkms", "*.ko*")):
        names.add(os.path.basename(path).partition(".ko")[0])
    return sorted(names)


def apply(module):
    """Verify the modules; return the module's result."""
    params = module.params
    release = kernel.read_next_kernel()
    rebuilt = []
    if params["rebuild"]:
        with tools.hold_lock() as lock:
            rebuilt = rebuild(module, read_rows(), release, lock)
    rows = read_rows()
    unbuilt = kernel.find_unbuilt(rows, release)
    if unbuilt:
        listing = ", ".join(unbuilt[:5])
        raise tools.Refused(f"DKMS has not built {listing} for {release}, the next kernel")
    verify_differing(release, rows)
    keys = None
    if kernel.is_secure_boot_on():
        with open("/proc/keys", encoding="utf-8", errors="replace") as file:
            keys = kernel.parse_keys(file.read())
    names = {*params["modules"], *(list_built(os.uname().release) if params["as_now"] else ())}
    files = {name: verify(name, release, params, keys) for name in sorted(names)}
    for name, builder in sorted(params["built_by"].items()):
        verify_build(name, release, rows, builder)
    return {"changed": bool(rebuilt), "kernel": release, "files": files, "rebuilt": rebuilt}


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            "modules": {"type": "list", "elements": "str", "required": True},
            "outside_tree": {"type": "bool", "default": False},
            "versions": {"type": "dict", "default": {}},
            "built_by": {"type": "dict", "default": {}},
            "as_now": {"type": "bool", "default": False},
            "rebuild": {"type": "list", "elements": "str", "default": []},
        },
        apply,
    )


if __name__ == "__main__":
    main()

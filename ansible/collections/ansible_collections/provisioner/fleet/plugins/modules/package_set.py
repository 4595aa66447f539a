#!/usr/bin/python
"""Ansible module: exactly these Debian packages in exactly these versions."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_set
short_description: Installs exact versions of Debian packages, and nothing that was not asked for
version_added: "0.1.0"
description:
  - Installs and removes a set of packages in one transaction of apt.
  - A pin stands for the package's upstream version; a pin that could stand for two packages is
    refused, and so is a transaction that would remove anything that was not named.
  - A second run changes nothing; in check mode apt only simulates.
options:
  packages:
    description: Package to pinned version. "*" means whatever the repositories offer.
    type: dict
    required: true
  replaces:
    description: Globs of packages to remove if they are installed and not in I(packages).
    type: list
    elements: str
    default: []
  allow_removal:
    description: Globs of packages that apt may remove beyond that.
    type: list
    elements: str
    default: []
  same_version:
    description:
      - Globs of packages that must all have one upstream version afterwards, whether they are in
        I(packages) or are installed already. Otherwise nothing is done.
    type: list
    elements: str
    default: []
  allow_downgrade:
    description: Whether an installed package may be replaced by an older one.
    type: bool
    default: false
  update_cache:
    description: Whether to fetch the repositories' lists before; in check mode to another folder.
    type: bool
    default: true
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Install driver and Fabric Manager of one version
  provisioner.fleet.package_set:
    packages: {nvidia-driver-550-server: 550.90.07, nvidia-fabricmanager-550: 550.90.07}
    replaces: ["nvidia-driver-*-server", "nvidia-fabricmanager-*"]
    same_version: ["nvidia-driver-*-server", "nvidia-fabricmanager-*"]
"""

RETURN = r"""
installed:
  description: Package to version, read back after the transaction; "" is not installed.
  returned: always
  type: dict
removed:
  description: Packages that were removed, or would be.
  returned: always
  type: list
  elements: str
"""

import contextlib
import fnmatch
import tempfile

from ansible_collections.provisioner.fleet.plugins.module_utils import debian, entry, tools

_APT = ["apt-get", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=60",
        "-o", "Dpkg::Options::=--force-confold"]  # fmt: skip
_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}


def query():
    """Package to version of everything that is installed."""
    line = ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n"]
    return debian.installed(tools.read(line, any_exit=True))


def any_of(name, globs):
    """Whether a name fits one of the globs."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


@contextlib.contextmanager
def lists(module, lock):
    """Options under which apt knows what the repositories offer now."""
    update = ["apt-get", "-qq", "update"]
    if not module.params["update_cache"]:
        yield []
    elif not module.check_mode:
        tools.write(update, lock, _QUIET)
        yield []
    else:
        with tempfile.TemporaryDirectory() as folder:
            own = ["-o", "Dir::State::lists=" + folder, "-o", "Dir::Cache::pkgcache="]
            own += ["-o", "Dir::Cache::srcpkgcache="]
            tools.write([*update, *own], lock, _QUIET)
            yield own


def wanted_versions(pins, before, options):
    """Package to the one version that its pin means; what is installed and fits, stays."""
    for name, pin in pins.items():
        if not debian.NAME.match(name) or (pin != "*" and not debian.VERSION.match(pin)):
            raise tools.Refused(f"{name}={pin} is no package"[:200])
    wanted = {}
    for name, pin in pins.items():
        if pin != "*" and name in before and debian.satisfies(before[name], pin):
            wanted[name] = before[name]
        else:
            offered = debian.available(tools.read(["apt-cache", *options, "madison", name]), name)
            wanted[name] = debian.chosen(name, pin, offered)
    return wanted


def plan(params, before, options):
    """(changes for apt's command line, names to remove)."""
    wanted = wanted_versions({k: str(v) for k, v in params["packages"].items()}, before, options)
    install = [f"{n}={v}" for n, v in wanted.items() if before.get(n) != v]
    remove = [n for n in sorted(before) if n not in wanted and any_of(n, params["replaces"])]
    refuse_mixture(
        params["same_version"], {n: v for n, v in before.items() if n not in remove}, wanted
    )
    return install, remove


def refuse_mixture(globs, kept, wanted):
    """Packages that work only together must have one version when all is done."""
    after = {n: v for n, v in dict(kept, **wanted).items() if any_of(n, globs)}
    if len({debian.upstream(version) for version in after.values()}) > 1:
        words = ", ".join(f"{n} {v}" for n, v in sorted(after.items()))
        raise tools.Refused(f"these must have one version: {words}")


def refuse_surprises(line, params, before, remove):
    """Look at what apt would do before it does it."""
    new, gone = debian.simulated(tools.read(["apt-get", "--simulate", *line[1:]]))
    surprise = [n for n in gone if n not in remove and not any_of(n, params["allow_removal"])]
    if surprise:
        raise tools.Refused("apt would remove {}".format(", ".join(sorted(surprise)[:10])))
    for name, version in new.items():
        older = ["dpkg", "--compare-versions", version, "lt", before.get(name, "")]
        if name in before and not params["allow_downgrade"] and succeeds(older):
            text = "{} would go back from {} to {}"
            raise tools.Refused(text.format(name, before[name], version))
    return gone


def succeeds(argv):
    """Whether a query ends with 0."""
    try:
        tools.read(argv)
    except tools.Missing:
        raise
    except tools.Refused:
        return False
    return True


def apply(module):
    """Bring the packages to their pins; what is to be told."""
    params = module.params
    before = query()
    with tools.one_at_a_time() as lock, lists(module, lock) as options:
        install, remove = plan(params, before, options)
        removed = list(remove)
        if install or remove:
            line = [*_APT, *options, "install", *install, *(name + "-" for name in remove)]
            if params["allow_downgrade"]:
                line.insert(1, "--allow-downgrades")
            removed = sorted(refuse_surprises(line, params, before, remove))
            if not module.check_mode:
                tools.write(line, lock, _QUIET)
    after = query()
    return {
        "changed": bool(install or remove),
        "installed": {name: after.get(name, "") for name in params["packages"]},
        "removed": removed,
    }


def main():
    """Ansible's entry point."""
    globs = {"type": "list", "elements": "str", "default": []}
    entry.run(
        {
            "packages": {"type": "dict", "required": True},
            "replaces": dict(globs),
            "allow_removal": dict(globs),
            "same_version": dict(globs),
            "allow_downgrade": {"type": "bool", "default": False},
            "update_cache": {"type": "bool", "default": True},
        },
        apply,
    )


if __name__ == "__main__":
    main()

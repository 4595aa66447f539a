#!/usr/bin/python
"""Ansible module: installs exact versions of Debian packages."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_set
short_description: Installs exact versions of Debian packages, and nothing that is not listed
version_added: "0.1.0"
description:
  - Installs and removes a set of packages in one transaction of apt.
  - A pin stands for the package's upstream version; a pin that matches two packages is refused, and
    so is a transaction that would remove a package that is not named.
  - A second run changes nothing; in check mode apt only simulates.
options:
  packages:
    description: Package to pinned version. "*" means the version that the repositories offer.
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
  verify:
    description:
      - Only read, without apt, and fail with the difference where a package is not installed at its
        pin, a replaced package is still there, or versions are mixed.
    type: bool
    default: false
  update_cache:
    description: Whether to fetch the repositories' lists first; in check mode to another folder.
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
  description: Package to version, read back after the transaction; "" if not installed.
  returned: always
  type: dict
in_force:
  description: Package to its pin if the installed version satisfies it, else to that version.
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

_APT = [
    "apt-get",
    "-y",
    "--no-install-recommends",
    "-o",
    "DPkg::Lock::Timeout=60",
    "-o",
    "Dpkg::Options::=--force-confold",
]
_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}


def read_installed():
    """Return package -> version of all installed packages."""
    line = ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n"]
    return debian.parse_installed(tools.read(line, any_exit=True))


def matches_any(name, globs):
    """Return whether a name matches one of the globs."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


@contextlib.contextmanager
def refresh_lists(module, lock):
    """Yield options with which apt uses the repositories' current lists."""
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


def read_pins(params):
    """Return package -> pin as text. Raises `Refused` for a name or pin of another grammar."""
    pins = {name: str(pin) for name, pin in params["packages"].items()}
    for name, pin in pins.items():
        if not debian.NAME.match(name) or (pin != "*" and not debian.VERSION.match(pin)):
            raise tools.Refused(f"{name}={pin} is not a package"[:200])
    return pins


def select_versions(pins, before, options):
    """Return package -> the one version of its pin; an installed version that matches stays."""
    versions = {}
    for name, pin in pins.items():
        if pin != "*" and name in before and debian.satisfies_pin(before[name], pin):
            versions[name] = before[name]
        else:
            offered = debian.parse_available(
                tools.read(["apt-cache", *options, "madison", name]), name
            )
            versions[name] = debian.select_version(name, pin, offered)
    return versions


def plan(params, before, options):
    """Return (packages to install for apt's command line, names to remove)."""
    versions = select_versions(read_pins(params), before, options)
    install = [f"{n}={v}" for n, v in versions.items() if before.get(n) != v]
    remove = list_replaced(params, before)
    refuse_mixture(
        params["same_version"], {n: v for n, v in before.items() if n not in remove}, versions
    )
    return install, remove


def list_replaced(params, before):
    """Return the installed packages that the requested ones replace, sorted."""
    others = [n for n in sorted(before) if n not in params["packages"]]
    return [n for n in others if matches_any(n, params["replaces"])]


def verify(params, before):
    """Raise `Refused` with every difference between the installed packages and the request."""
    differing = []
    for name, pin in sorted(read_pins(params).items()):
        version = before.get(name, "")
        if not version:
            differing.append(f"{name} is not installed")
        elif pin != "*" and not debian.satisfies_pin(version, pin):
            differing.append(f"{name} is {version}, not {pin}")
    differing += [f"{name} is still installed" for name in list_replaced(params, before)]
    if differing:
        raise tools.Refused("; ".join(differing[:10]))
    refuse_mixture(params["same_version"], before, {})


def refuse_mixture(globs, staying, versions):
    """Refuse different versions of packages that work only together."""
    after = {n: v for n, v in dict(staying, **versions).items() if matches_any(n, globs)}
    if len({debian.strip_packaging(version) for version in after.values()}) > 1:
        listing = ", ".join(f"{n} {v}" for n, v in sorted(after.items()))
        raise tools.Refused(f"these must have one version: {listing}")


def refuse_surprises(line, params, before, remove):
    """Simulate apt's transaction, refuse unexpected changes, and return the removed packages."""
    new, removed = debian.parse_simulation(tools.read(["apt-get", "--simulate", *line[1:]]))
    surprise = [
        n for n in removed if n not in remove and not matches_any(n, params["allow_removal"])
    ]
    if surprise:
        raise tools.Refused("apt would remove {}".format(", ".join(sorted(surprise)[:10])))
    for name, version in new.items():
        older = ["dpkg", "--compare-versions", version, "lt", before.get(name, "")]
        if name in before and not params["allow_downgrade"] and is_successful(older):
            text = "{} would be downgraded from {} to {}"
            raise tools.Refused(text.format(name, before[name], version))
    return removed


def is_successful(argv):
    """Return whether a query ends with 0."""
    try:
        tools.read(argv)
    except tools.Missing:
        raise
    except tools.Refused:
        return False
    return True


def apply(module):
    """Bring the packages to their pins; return the module's result."""
    params = module.params
    before = read_installed()
    if params["verify"]:
        verify(params, before)
        return compose_result(params, before, changed=False, removed=[])
    with tools.hold_lock() as lock, refresh_lists(module, lock) as options:
        install, remove = plan(params, before, options)
        removed = list(remove)
        if install or remove:
            line = [*_APT, *options, "install", *install, *(name + "-" for name in remove)]
            if params["allow_downgrade"]:
                line.insert(1, "--allow-downgrades")
            removed = sorted(refuse_surprises(line, params, before, remove))
            if not module.check_mode:
                tools.write(line, lock, _QUIET)
    changed = bool(install or remove)
    return compose_result(params, read_installed(), changed=changed, removed=removed)


def compose_result(params, after, *, changed, removed):
    """Return the module's result from the packages as they were read last."""
    pins = read_pins(params)
    versions = {name: after.get(name, "") for name in pins}
    return {
        "changed": changed,
        "installed": versions,
        "in_force": {n: debian.get_pin_in_force(versions[n], pin) for n, pin in pins.items()},
        "removed": removed,
    }


def main():
    """Run the module for Ansible."""
    globs = {"type": "list", "elements": "str", "default": []}
    entry.run_module(
        {
            "packages": {"type": "dict", "required": True},
            "replaces": dict(globs),
            "allow_removal": dict(globs),
            "same_version": dict(globs),
            "allow_downgrade": {"type": "bool", "default": False},
            "verify": {"type": "bool", "default": False},
            "update_cache": {"type": "bool", "default": True},
        },
        apply,
    )


if __name__ == "__main__":
    main()

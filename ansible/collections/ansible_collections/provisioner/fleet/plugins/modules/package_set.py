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
  - A package on hold that is listed is released, changed and held again; one that is not listed
    stays as it is, and a transaction that would change it is refused.
  - Locks of apt and dpkg are waited for. Repositories that could not be read are named where a
    package is missing.
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
  keep:
    description: Globs of packages that I(replaces) never means.
    type: list
    elements: str
    default: []
  purge:
    description: Whether configuration files of removed packages are removed too.
    type: bool
    default: false
  same_version:
    description:
      - Globs of packages that must all have one upstream version afterwards, whether they are in
        I(packages) or are installed already. Otherwise nothing is done.
    type: list
    elements: str
    default: []
  allow_branch_removal:
    description: >-
      Whether apt may remove packages of the driver branch that the replaced packages have in their
      names, such as libnvidia-compute-535-server with nvidia-driver-535-server.
    type: bool
    default: false
  hold:
    description: Whether the packages are put on hold afterwards, so that nothing else changes them.
    type: bool
    default: false
  lock_wait_s:
    description: How long locks of apt and dpkg are waited for.
    type: int
    default: 600
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
    replaces: ["nvidia-driver-*-server", "nvidia-fabricmanager*"]
    same_version: ["nvidia-driver-*-server", "nvidia-fabricmanager*"]
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
held:
  description: Packages of I(packages) that are on hold.
  returned: always
  type: list
  elements: str
"""

import contextlib
import fnmatch
import os
import tempfile
import time

from ansible_collections.provisioner.fleet.plugins.module_utils import debian, entry, tools

_APT = ["apt-get", "-y", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold"]
PREFERENCES = "/etc/apt/preferences"
_LISTS_LOCKED = "Could not get lock"  # apt-get update has no lock timeout of its own
_RETRY_S = 2.0
_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}


def read_states():
    """Return dpkg's own list of packages, versions and states."""
    line = ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n"]
    return tools.read(line)


def matches_any(name, globs):
    """Return whether a name matches one of the globs."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


@contextlib.contextmanager
def refresh_lists(module, lock):
    """Yield options with which apt uses current lists, and the repositories that were not read."""
    if not module.params["update_cache"]:
        yield [], []
    elif not module.check_mode:
        yield [], update(module, lock, [])
    else:
        with tempfile.TemporaryDirectory() as folder:
            own = ["-o", "Dir::State::lists=" + folder, "-o", "Dir::Cache::pkgcache="]
            own += ["-o", "Dir::Cache::srcpkgcache="]
            yield own, update(module, lock, own)


def update(module, lock, options):
    """Fetch the lists, wait while another apt does; return the repositories that failed."""
    until = time.monotonic() + module.params["lock_wait_s"]
    while True:
        try:
            text = tools.write(["apt-get", "-qq", "update", *options], lock, _QUIET)
            return debian.parse_unread(text)
        except tools.Refused as refused:
            if _LISTS_LOCKED not in str(refused) or time.monotonic() > until:
                raise
        time.sleep(_RETRY_S)


@contextlib.contextmanager
def prefer_versions(install, allow_downgrade):
    """Yield options with which apt prefers the versions of a transaction for all its packages."""
    versions = [word.partition("=")[2] for word in install]
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".pref") as file:
        file.write(debian.write_preferences(versions, 1001 if allow_downgrade else 995) + "\n")
        with contextlib.suppress(OSError), open(PREFERENCES, encoding="utf-8") as own:
            file.write(own.read())
        file.flush()
        os.chmod(file.name, 0o644)  # apt drops its rights
        yield ["-o", "Dir::Etc::preferences=" + file.name]


def read_pins(params):
    """Return package -> pin as text. Raises `Refused` for a name or pin of another grammar."""
    pins = {name: str(pin) for name, pin in params["packages"].items()}
    for name, pin in pins.items():
        if not debian.NAME.match(name) or (pin != "*" and not debian.VERSION.match(pin)):
            raise tools.Refused(f"{name}={pin} is not a package"[:200])
    return pins


def select_versions(pins, before, options, unread):
    """Return package -> the one version of its pin; an installed version that matches stays."""
    versions = {}
    for name, pin in pins.items():
        if pin != "*" and name in before and debian.satisfies_pin(before[name], pin):
            versions[name] = before[name]
        else:
            offered = debian.parse_available(
                tools.read(["apt-cache", *options, "madison", name]), name
            )
            try:
                versions[name] = debian.select_version(name, pin, offered)
            except tools.Refused as refused:
                if unread:
                    listing = "; ".join(unread)
                    raise tools.Refused(f"{refused}; not read: {listing}") from None
                raise
    return versions


def plan(params, before, options, unread):
    """Return (packages to install for apt's command line, names to remove)."""
    versions = select_versions(read_pins(params), before, options, unread)
    install = [f"{n}={v}" for n, v in versions.items() if before.get(n) != v]
    remove = list_replaced(params, before)
    refuse_mixture(
        params["same_version"], {n: v for n, v in before.items() if n not in remove}, versions
    )
    return install, remove


def list_replaced(params, before):
    """Return the installed packages that the requested ones replace, sorted."""
    others = [n for n in sorted(before) if n not in params["packages"]]
    replaced = [n for n in others if matches_any(n, params["replaces"])]
    return [n for n in replaced if not matches_any(n, params["keep"])]


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


def refuse_surprises(line, params, before, remove, held):
    """Simulate apt's transaction, refuse unexpected changes; return (removed, held to change)."""
    simulation = ["apt-get", "--simulate", "--allow-change-held-packages", *line[1:]]
    new, removed = debian.parse_simulation(tools.read(simulation))
    named = {*params["packages"], *remove}
    surprise = [n for n in removed if n not in remove and not is_removable(n, params, remove)]
    if surprise:
        raise tools.Refused("apt would remove {}".format(", ".join(sorted(surprise)[:10])))
    changed = sorted(n for n in held if n in new or n in removed)
    foreign = [n for n in changed if n not in named and not is_removable(n, params, remove)]
    if foreign:
        raise tools.Refused("apt would change {}, on hold".format(", ".join(foreign[:10])))
    for name, version in new.items():
        older = ["dpkg", "--compare-versions", version, "lt", before.get(name, "")]
        if name in before and not params["allow_downgrade"] and is_successful(older):
            text = "{} would be downgraded from {} to {}"
            raise tools.Refused(text.format(name, before[name], version))
    staying = {n: v for n, v in before.items() if n not in removed}
    refuse_mixture(params["same_version"], staying, new)
    return sorted(removed), changed


def is_removable(name, params, remove):
    """Return whether apt may remove a package beside those that are replaced."""
    if params["allow_branch_removal"] and debian.is_of_branch(name, remove):
        return True
    return matches_any(name, params["allow_removal"])


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
    states = read_states()
    before = debian.parse_installed(states)
    if params["verify"]:
        verify(params, before)
        return compose_result(params, states, changed=False, removed=[])
    refuse_unfinished(states)
    held = debian.parse_held(states)
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(tools.hold_lock())
        options, unread = stack.enter_context(refresh_lists(module, lock))
        install, remove = plan(params, before, options, unread)
        removed = list(remove)
        changed_held = []
        if install or remove:
            wait = f"DPkg::Lock::Timeout={params['lock_wait_s']}"
            line = [*_APT, "-o", wait, *options, "install", *install, *(n + "-" for n in remove)]
            line[1:1] = stack.enter_context(prefer_versions(install, params["allow_downgrade"]))
            options_of = {"allow_downgrade": "--allow-downgrades", "purge": "--purge"}
            line[1:1] = [word for name, word in options_of.items() if params[name]]
            removed, changed_held = refuse_surprises(line, params, before, remove, held)
        follows = params["hold"] or any(name in held for name in remove)
        to_hold = {*held, *(params["packages"] if follows else ())}
        changed = bool(install or remove or to_hold.difference(held))
        if changed and not module.check_mode:
            change(line if install or remove else [], changed_held, to_hold, lock)
    return compose_result(params, read_states(), changed=changed, removed=removed)


def change(line, changed_held, to_hold, lock):
    """Release the packages on hold that change, run apt, and hold the packages again."""
    try:
        if changed_held:
            tools.write(["apt-mark", "unhold", *changed_held], lock)
        if line:
            run_apt(line, lock)
    finally:
        installed = debian.parse_installed(read_states())
        holding = sorted(name for name in to_hold if name in installed)
        if holding:
            tools.write(["apt-mark", "hold", *holding], lock)


def run_apt(line, lock):
    """Run apt. Raises `Refused` with the package whose scripts failed, and the others' state."""
    try:
        tools.write(line, lock, _QUIET)
    except tools.Refused as refused:
        sentence = debian.parse_failure(refused.output)
        if not sentence:
            raise
        installed = debian.parse_installed(read_states())
        pins = [
            w.partition("=")[::2] for w in line if "=" in w and debian.NAME.match(w.split("=")[0])
        ]
        done = [f"{name} {version}" for name, version in pins if installed.get(name) == version]
        others = "; {} is installed".format(", ".join(done)) if done else ""
        raise tools.Refused(sentence + others) from None


def refuse_unfinished(states):
    """Refuse to work beside packages that an earlier run of dpkg did not finish."""
    unfinished = debian.parse_unfinished(states)
    if unfinished:
        listing = ", ".join(f"{n} is {state}" for n, state in sorted(unfinished.items())[:5])
        raise tools.Refused(f"{listing}: an earlier run of dpkg did not finish; repair it first")


def compose_result(params, states, *, changed, removed):
    """Return the module's result from the packages as they were read last."""
    pins = read_pins(params)
    after = debian.parse_installed(states)
    versions = {name: after.get(name, "") for name in pins}
    return {
        "changed": changed,
        "installed": versions,
        "in_force": {n: debian.get_pin_in_force(versions[n], pin) for n, pin in pins.items()},
        "removed": removed,
        "held": [name for name in debian.parse_held(states) if name in pins],
    }


def main():
    """Run the module for Ansible."""
    globs = {"type": "list", "elements": "str", "default": []}
    entry.run_module(
        {
            "packages": {"type": "dict", "required": True},
            "replaces": dict(globs),
            "allow_removal": dict(globs),
            "keep": dict(globs),
            "purge": {"type": "bool", "default": False},
            "same_version": dict(globs),
            "allow_downgrade": {"type": "bool", "default": False},
            "allow_branch_removal": {"type": "bool", "default": False},
            "hold": {"type": "bool", "default": False},
            "lock_wait_s": {"type": "int", "default": 600},
            "verify": {"type": "bool", "default": False},
            "update_cache": {"type": "bool", "default": True},
        },
        apply,
    )


if __name__ == "__main__":
    main()

"""Parses the output of apt and dpkg, and selects the package that a pin means.

A pin is a version as the matrix writes it: "550.90.07" also matches "550.90.07-0ubuntu1". Where it
matches two different packages, a person must choose.
"""

from __future__ import annotations

import re

from ansible_collections.provisioner.fleet.plugins.module_utils.tools import Refused, Unreadable

NAME = re.compile(r"^[a-z0-9][a-z0-9.+-]{1,99}$")
VERSION = re.compile(r"^[A-Za-z0-9.+~:_-]{1,100}$")
# dpkg-query(1), db:Status-Abbrev, second letter
_UNFINISHED = {
    "U": "unpacked",
    "F": "half-configured",
    "H": "half-installed",
    "W": "awaiting triggers",
    "t": "with pending triggers",
}
_UNREAD = re.compile(r"^[WE]: Failed to fetch (?P<url>\S+)\s+(?P<why>.*)")
_FAILED = "Errors were encountered while processing:"
_NOT_BUILT = re.compile(r"Bad return status for module build on kernel: (?P<kernel>\S+)")
_BUILD_LOG = re.compile(r"Consult (?P<log>/var/lib/dkms/\S+) for more information")
_BRANCH = re.compile(r"(?:^|-)(\d{3})(?=-|$)")
_OF_DRIVER = re.compile(
    r"(?:lib)?nvidia-|linux-(?:modules|objects|signatures)-nvidia-|cuda-drivers"
    r"|xserver-xorg-video-nvidia-"
)
_SIMULATED = re.compile(
    r"^(?P<act>Inst|Remv|Purg) (?P<name>\S+)(?: \[(?P<old>[^\]]*)\])?(?: \((?P<new>\S+))?"
)


def satisfies_pin(version, pin):
    """Return whether a version equals a pin, up to an epoch and a revision that the pin omits."""
    bare = version.split(":", 1)[-1]
    return pin in (version, bare) or bare.startswith((pin + "-", pin + "+", pin + "~"))


def strip_packaging(version):
    """Return the version without a Debian epoch and without the packaging revision."""
    return version.split(":", 1)[-1].rpartition("-")[0] or version.split(":", 1)[-1]


def parse_installed(text):
    """Return package -> version of installed packages, from `dpkg-query -W -f FORMAT`.

    The second letter is the state: a package on hold ("hi") is installed too.
    """
    return {n: v for n, (v, abbreviation) in _parse_rows(text).items() if abbreviation[1] == "i"}


def parse_held(text):
    """Return the installed packages on hold, sorted; the first letter is the selection."""
    rows = _parse_rows(text).items()
    return sorted(name for name, (_, abbreviation) in rows if abbreviation in ("hi", "hi "))


def parse_unfinished(text):
    """Return package -> state of packages that dpkg did not finish, such as "half-configured"."""
    rows = _parse_rows(text).items()
    return {n: _UNFINISHED[a[1]] for n, (_, a) in rows if a[1] in _UNFINISHED}


def _parse_rows(text):
    """Return package -> (version, status abbreviation) of dpkg-query's rows."""
    rows = {}
    for line in text.splitlines():
        cells = line.split()
        if len(cells) == 3 and len(cells[2]) in (2, 3):
            rows[cells[0].split(":", 1)[0]] = (cells[1], cells[2])
    return rows


def get_pin_in_force(version, pin):
    """Return the pin where the version satisfies it, else the version; "" if not installed."""
    return pin if version and pin != "*" and satisfies_pin(version, pin) else version


def parse_available(text, name):
    """Return the versions that `apt-cache madison NAME` offers, newest first."""
    versions = []
    for line in text.splitlines():
        cells = [c.strip() for c in line.split("|")]
        if len(cells) == 3 and cells[0] == name and cells[1] not in versions:
            versions.append(cells[1])
    return versions


def select_version(name, pin, versions):
    """Return the one version that a pin means. Raises `Refused` for none and for several."""
    fitting = [v for v in versions if pin == "*" or satisfies_pin(v, pin)]
    exact = [v for v in fitting if v == pin]
    if pin == "*" or exact:
        fitting = (exact or fitting)[:1]
    if not fitting:
        raise Refused(f"no package {name}={pin} is available")
    if len(fitting) > 1:
        raise Refused("{}={} may be any of {}: name one".format(name, pin, ", ".join(fitting)))
    return fitting[0]


def parse_simulation(text):
    """Parse apt's simulation: ({name: new version} to install, {name: old version} to remove)."""
    install, remove = {}, {}
    for line in text.splitlines():
        match = _SIMULATED.match(line)
        if match and match["act"] == "Inst":
            if not match["new"]:
                raise Unreadable(f"apt-get --simulate: {line[:100]}")
            install[match["name"]] = match["new"]
        elif match:
            remove[match["name"]] = match["old"] or ""
    return install, remove


def parse_unread(text):
    """Return "URL: reason" of each repository file that `apt-get update` could not fetch."""
    matches = [_UNREAD.match(line) for line in text.splitlines()]
    return [f"{m['url']}: {m['why']}" for m in matches if m][:4]


def write_preferences(versions, priority):
    """Return apt_preferences(5) that make these versions candidates.

    Packages of one source depend on each other by their exact version. Without this, apt considers
    the newest version of each alone, and an older pin has "unmet dependencies".
    """
    record = "Package: /./\nPin: version {}\nPin-Priority: {}\n"
    return "\n".join(record.format(v, priority) for v in sorted(set(versions)))


def parse_failure(text):
    """Return a sentence with the packages whose scripts failed in apt's output; "" for none."""
    lines = [line.strip() for line in text.partition(_FAILED)[2].splitlines()]
    names = [line for line in lines if NAME.match(line.split(":", 1)[0])]
    if not names:
        return ""
    sentence = "{} could not be configured".format(", ".join(names[:5]))
    kernel, log = _NOT_BUILT.search(text), _BUILD_LOG.search(text)
    if kernel:
        sentence += f": its kernel module did not build for kernel {kernel['kernel']}"
    return sentence + (f", see {log['log']}" if log else "")


def is_of_branch(name, replaced):
    """Return whether a package belongs to the driver branch of one of the replaced packages."""
    branches = {branch for other in replaced for branch in _BRANCH.findall(other)}
    return bool(_OF_DRIVER.match(name) and branches.intersection(_BRANCH.findall(name)))

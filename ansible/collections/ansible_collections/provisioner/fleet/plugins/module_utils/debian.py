"""What apt and dpkg print, and which of several packages a pin means.

A pin is a version as the matrix writes it: "550.90.07" stands for "550.90.07-0ubuntu1" too. Where
it could stand for two different packages, nobody but a person can choose.
"""

from __future__ import annotations

import re

from ansible_collections.provisioner.fleet.plugins.module_utils.tools import Refused, Unreadable

NAME = re.compile(r"^[a-z0-9][a-z0-9.+-]{1,99}$")
VERSION = re.compile(r"^[A-Za-z0-9.+~:_-]{1,100}$")
_SIMULATED = re.compile(
    r"^(?P<act>Inst|Remv) (?P<name>\S+)(?: \[(?P<old>[^\]]*)\])?(?: \((?P<new>\S+))?"
)


def satisfies(version, pin):
    """Equal, up to a Debian epoch and a packaging revision that the pin does not name."""
    bare = version.split(":", 1)[-1]
    return pin in (version, bare) or bare.startswith((pin + "-", pin + "+", pin + "~"))


def upstream(version):
    """Without a Debian epoch and the packaging revision."""
    return version.split(":", 1)[-1].rpartition("-")[0] or version.split(":", 1)[-1]


def installed(text):
    """Package to version of what is fully installed, from `dpkg-query -W -f FORMAT`."""
    found = {}
    for line in text.splitlines():
        cells = line.split()
        if len(cells) == 3 and cells[2].startswith("ii"):
            found[cells[0].split(":", 1)[0]] = cells[1]
    return found


def available(text, name):
    """Versions that `apt-cache madison NAME` offers, newest first."""
    found = []
    for line in text.splitlines():
        cells = [c.strip() for c in line.split("|")]
        if len(cells) == 3 and cells[0] == name and cells[1] not in found:
            found.append(cells[1])
    return found


def chosen(name, pin, versions):
    """The one version that a pin means; `Refused` for none and for several."""
    fitting = [v for v in versions if pin == "*" or satisfies(v, pin)]
    exact = [v for v in fitting if v == pin]
    if pin == "*" or exact:
        fitting = (exact or fitting)[:1]
    if not fitting:
        raise Refused(f"no package {name}={pin} is available")
    if len(fitting) > 1:
        raise Refused("{}={} may be any of {}: name one".format(name, pin, ", ".join(fitting)))
    return fitting[0]


def simulated(text):
    """What apt would do: ({name: new version}, {name: old version}) to install and to remove."""
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

"""The packagings of a GPU driver: whose packages they are, and whether its modules are open.

A packaging is a name such as "ubuntu-server-open". Names of packages: Ubuntu's and NVIDIA's driver
branches are part of them; NVIDIA's are without from branch 590 on (NVIDIA, Driver Installation
Guide, "Ubuntu 590 and later packages"); Debian has one branch a release.

Fabric Manager has two names as well: Ubuntu's packages carry the branch (packages.ubuntu.com,
nvidia-fabricmanager-580, which depends on Ubuntu's own driver), NVIDIA's do up to 575; from 580 on
theirs is nvidia-fabricmanager, and the name with the branch is only virtual, so that apt finds no
version of it (https://github.com/NVIDIA/gpu-driver-container/pull/451).
"""

from __future__ import annotations

import re

from ansible_collections.provisioner.fleet.plugins.module_utils.tools import Refused

UNBRANCHED_FROM = 590
FABRIC_MANAGER = "nvidia-fabricmanager"
FABRIC_MANAGER_UNBRANCHED_FROM = 580  # NVIDIA's
# every name that Fabric Manager has had; only one of them may be installed
FABRIC_MANAGERS = (FABRIC_MANAGER, FABRIC_MANAGER + "-[0-9][0-9][0-9]")
# the first one whose packages are all installed is the host's
SCHEMES = {
    "nvidia-open": ("nvidia-open-{branch}",),
    "nvidia": ("cuda-drivers-{branch}",),
    "ubuntu-server-open": ("nvidia-driver-{branch}-server-open",),
    "ubuntu-server": ("nvidia-driver-{branch}-server",),
    "ubuntu-headless-server-open": (
        "nvidia-headless-{branch}-server-open",
        "nvidia-utils-{branch}-server",
    ),
    "ubuntu-headless-server": ("nvidia-headless-{branch}-server", "nvidia-utils-{branch}-server"),
    "ubuntu-open": ("nvidia-driver-{branch}-open",),
    "ubuntu": ("nvidia-driver-{branch}",),
    "debian-open": ("nvidia-driver", "nvidia-open-kernel-dkms"),
    "debian": ("nvidia-driver", "nvidia-kernel-dkms"),
}
# names under which no two versions may be installed at once
SAME_VERSION = (
    "nvidia-driver-[0-9][0-9][0-9]*",
    "nvidia-headless-[0-9][0-9][0-9]*",
    "cuda-drivers",
    "cuda-drivers-[0-9][0-9][0-9]",
    "nvidia-open",
    "nvidia-open-[0-9][0-9][0-9]",
    "nvidia-driver",
    "nvidia-kernel-dkms",
    "nvidia-open-kernel-dkms",
)


def list_names(scheme, version):
    """Return the packages of a packaging for one driver version."""
    branch = str(version).split(".", maxsplit=1)[0]
    names = SCHEMES[scheme]
    if scheme.startswith("nvidia") and branch.isdigit() and int(branch) >= UNBRANCHED_FROM:
        return [name.removesuffix("-{branch}") for name in names]
    return [name.format(branch=branch) for name in names]


def name_fabric_manager(scheme, version):
    """Return the package of Fabric Manager that works with the driver of this packaging."""
    branch = str(version).split(".", maxsplit=1)[0]
    if not branch.isdigit():
        raise Refused(f"Fabric Manager {version} has no branch in front"[:200])
    of_ubuntu = scheme.startswith("ubuntu")
    if not of_ubuntu and int(branch) >= FABRIC_MANAGER_UNBRANCHED_FROM:
        return FABRIC_MANAGER
    return f"{FABRIC_MANAGER}-{branch}"


def find_installed(installed):
    """Return (packaging, its packages with their versions) of a host; ("", {}) without a driver."""
    for scheme, templates in SCHEMES.items():
        matches = {}
        for template in templates:
            pattern = re.escape(template).replace(r"\-\{branch\}", r"(?:-\d{3})?")
            matches[template] = [n for n in sorted(installed) if re.fullmatch(pattern, n)]
        if scheme.startswith("ubuntu"):  # a package without its branch is of another packaging
            matches = {t: [n for n in ns if re.search(r"-\d{3}", n)] for t, ns in matches.items()}
        if all(matches.values()):
            names = [name for listed in matches.values() for name in listed]
            return scheme, {name: installed[name] for name in names}
    return "", {}


def choose(requested, version, installed):
    """Return (packaging, version) of a change. Raises `Refused` for one that is two changes.

    An empty packaging keeps the host's own, an empty version keeps the installed one.
    """
    present, packages = find_installed(installed)
    if requested and requested not in SCHEMES:
        raise Refused("no packaging {!r}: {}".format(requested, ", ".join(sorted(SCHEMES)))[:300])
    if not requested and not present:
        raise Refused("no GPU driver is installed: pin host.driver_packages too")
    scheme = requested or present
    versions = sorted({_strip(v) for v in packages.values()})
    if not version:
        if len(versions) != 1:
            raise Refused("no driver version is given, installed: {}".format(", ".join(versions)))
        version = versions[0]
    if present and scheme != present and _strip(version) not in versions:
        text = "from {} {} to {} {} are two changes: change the packaging at one version"
        raise Refused(text.format(present, ", ".join(versions), scheme, version))
    return scheme, version


def list_others(installed, names):
    """Return the packages of the installed packaging that are not among the names, sorted.

    Packages that they depend on are left to apt: NVIDIA's own have names that are Ubuntu's too.
    """
    return sorted(name for name in find_installed(installed)[1] if name not in names)


def _strip(version):
    """Return the driver's own version: 550.163.01 of 550.163.01-0ubuntu0.22.04.1."""
    return version.split(":", 1)[-1].split("-", maxsplit=1)[0]

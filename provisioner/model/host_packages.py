"""Mapping of Debian packages in a host to components: one table for inventory and checks.

`QUERY` is the one command that both run. Storage clients are the site's choice, so their version is
"package=version"; a site with another client adds its package here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

STORAGE_CLIENTS = ("beegfs-client", "gpfs.base", "lustre-client-utils", "vastnfs-utils")
# NVIDIA, DOCA profiles; the first one that is installed contains the others
DOCA_PROFILES = ("doca-all", "doca-networking", "doca-ofed", "doca-roce")
RUNNING_KERNEL = "running-kernel"  # in place of a package's name
QUERY = (
    "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'"
    " 'nvidia-fabricmanager*' 'doca-host*' 'doca-spcx-cc*' 'nvlsm*' 'libnccl2*'"
    " 'linux-image-[0-9]*' 'linux-image-unsigned-[0-9]*'"
    " 'nvidia-driver*' 'nvidia-headless*' 'cuda-drivers*' 'nvidia-open*' 'nvidia-kernel-dkms' "
    + " ".join(f"'{name}*'" for name in (*STORAGE_CLIENTS, *DOCA_PROFILES))
    + f"; r=$?; echo {RUNNING_KERNEL} $(uname -r) ii; ofed_info -s 2>/dev/null; (exit $r)"
)
_VERSION_MAX = 80  # characters
STORAGE_CLIENT = "host.storage_client"
DRIVER_PACKAGES = "host.driver_packages"
DOCA_OFED = "host.doca_ofed"
KERNEL = "host.kernel"
READ_TOGETHER = (DRIVER_PACKAGES, DOCA_OFED, KERNEL)  # named by several packages
MLNX_OFED = "MLNX_OFED_LINUX-"  # as `ofed_info -s` names the stack before DOCA-OFED
OFED_MIGRATION = "playbook_ofed_migration"  # method of an edge that leads away from MLNX_OFED
_NEEDED = (
    (re.compile(r"nvidia-fabricmanager(-\d+)?"), "host.fabric_manager"),
    (re.compile(r"doca-host"), "host.doca"),
    (re.compile(r"doca-spcx-cc"), "host.spcx_cc"),
)
_PER_SITE = (  # a host without them has no fault
    (re.compile(r"nvlsm"), "host.nvlsm"),
    (re.compile(r"libnccl2"), "host.nccl"),
    (re.compile("|".join(re.escape(name) for name in STORAGE_CLIENTS)), STORAGE_CLIENT),
)
NEEDED = tuple(kind for _, kind in _NEEDED)
PER_SITE = tuple(kind for _, kind in _PER_SITE)


def classify_package(package: str, version: str) -> tuple[str, str] | None:
    """Return (component kind, version) of an installed package; None if the table lacks it."""
    for pattern, kind in (*_NEEDED, *_PER_SITE):
        if pattern.fullmatch(package):
            return kind, f"{package}={version}" if kind == STORAGE_CLIENT else version
    return None


# the packagings of a GPU driver, as the collection's driver_scheme has them; the first one counts
_PACKAGINGS = (
    (re.compile(r"nvidia-open(-\d{3})?"), "nvidia-open"),
    (re.compile(r"cuda-drivers(-\d{3})?"), "nvidia"),
    (re.compile(r"nvidia-driver-\d{3}-server-open"), "ubuntu-server-open"),
    (re.compile(r"nvidia-driver-\d{3}-server"), "ubuntu-server"),
    (re.compile(r"nvidia-headless-\d{3}-server-open"), "ubuntu-headless-server-open"),
    (re.compile(r"nvidia-headless-\d{3}-server"), "ubuntu-headless-server"),
    (re.compile(r"nvidia-driver-\d{3}-open"), "ubuntu-open"),
    (re.compile(r"nvidia-driver-\d{3}"), "ubuntu"),
    (re.compile(r"nvidia-open-kernel-dkms"), "debian-open"),
    (re.compile(r"nvidia-kernel-dkms"), "debian"),
)


def name_driver_packages(names: Iterable[str]) -> str:
    """Return the packaging of the GPU driver among installed packages; "" if there is none."""
    listed = tuple(names)
    for pattern, packaging in _PACKAGINGS:
        if any(pattern.fullmatch(name) for name in listed):
            return packaging
    return ""


def is_installed(abbreviation: str) -> bool:
    """Return whether dpkg's status means installed: the second letter; the first may be a hold."""
    return abbreviation[1:2] == "i"


def read_stack(versions: Mapping[str, str], text: str) -> dict[str, str]:
    """Return component kind -> version of the kernel that runs, and of the RDMA stack: the DOCA
    profile, or MLNX_OFED.

    MLNX_OFED is `host.doca` under its own name, so that a matrix can name the move away from it.
    """
    stack: dict[str, str] = {}
    release = versions.get(RUNNING_KERNEL, "")
    images = [versions.get(f"linux-image-{flavour}{release}") for flavour in ("", "unsigned-")]
    if release:  # a kernel of no package is shown by its release alone
        stack[KERNEL] = "=".join((release, *[v for v in images if v][:1]))
    profile = next((name for name in DOCA_PROFILES if name in versions), "")
    if profile:
        stack[DOCA_OFED] = f"{profile}={versions[profile]}"
    lines = [line.strip().rstrip(":") for line in text.splitlines()]
    older = next((line for line in lines if line.startswith(MLNX_OFED)), "")
    if older and "doca-host" not in versions and len(older) < _VERSION_MAX:
        stack["host.doca"] = older
    return stack


def is_mixed_stack(versions: Mapping[str, str]) -> bool:
    """Return whether an installed DOCA profile is of another release than doca-host."""
    releases = {versions[n].split("-")[0] for n in ("doca-host", *DOCA_PROFILES) if n in versions}
    return len(releases) > 1

"""Mapping of Debian packages in a host to components: one table for inventory and checks.

`QUERY` is the one command that both run. Storage clients are the site's choice, so their version is
"package=version"; a site with another client adds its package here.
"""

from __future__ import annotations

import re

STORAGE_CLIENTS = ("beegfs-client", "gpfs.base", "lustre-client-utils", "vastnfs-utils")
QUERY = (
    "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'"
    " 'nvidia-fabricmanager*' 'doca-host*' 'doca-spcx-cc*' 'nvlsm*' 'libnccl2*' "
    + " ".join(f"'{name}*'" for name in STORAGE_CLIENTS)
)
STORAGE_CLIENT = "host.storage_client"
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
    """Return (component kind, version) of an installed package, or None if it is not in the
    table.
    """
    for pattern, kind in (*_NEEDED, *_PER_SITE):
        if pattern.fullmatch(package):
            return kind, f"{package}={version}" if kind == STORAGE_CLIENT else version
    return None

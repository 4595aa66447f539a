"""Judge at intake whether a host's operating system is one that the roles work on.

The roles install by apt and dpkg, and were tried on Debian's and Ubuntu's packages. A host whose
system will be written by the daemon is not judged by the one that it has today.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.components.host_os import HOST_OS
from provisioner.model.matrix import Pin
from provisioner.model.outcome import Blocker, Reason

# prefixes every line of os-release, and names DGX OS, which calls itself Ubuntu there
LOOK = (
    "sed 's/^/system /' /etc/os-release 2>/dev/null; test -e /etc/dgx-release && echo system DGX=1"
)
SUPPORTED = {"debian": ("12",), "ubuntu": ("22.04", "24.04")}
RED_HAT = frozenset({"rhel", "rocky", "almalinux", "centos", "ol", "fedora"})
_APT_ONLY = "its packages are RPMs, and the daemon installs by apt only"
_OWN_STACK = "its drivers belong to its own releases (nvidia-system-*), which no role changes"
_INSTALLED = ("host.",)  # kinds that plays install in a host


def refuse_system(text: str, node_id: str, pins: Mapping[str, Pin]) -> Blocker | None:
    """Return why the plays cannot work on a host's system; None if they can.

    A host without pinned software of its system, and one whose system was not read, is not refused.
    """
    if HOST_OS in pins and pins[HOST_OS].known:
        return None
    installed = sorted(k for k, pin in pins.items() if k.startswith(_INSTALLED) and pin.known)
    installed = [k for k in installed if k not in ("host.bmc", "host.bios")]
    lines = [
        line.removeprefix("system ") for line in text.splitlines()[:200] if line[:7] == "system "
    ]
    fields = {n: v.strip("\"' ") for n, _, v in (line.partition("=") for line in lines)}
    if not installed or not fields.get("ID"):
        return None
    why = _explain(fields)
    if not why:
        return None
    name = fields.get("PRETTY_NAME") or f"{fields['ID']} {fields.get('VERSION_ID', '')}".strip()
    name = f"DGX OS on {name}" if "DGX" in fields else name
    tried = ", ".join(f"{k} {v}" for k, versions in SUPPORTED.items() for v in versions)
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=f"{node_id}/{HOST_OS}",
        detail=f"{name[:80]}: {why}; pinned are {', '.join(installed)[:200]}",
        unblock=f"Pin {HOST_OS} with an image ({tried}), or take these pins out of the profile.",
    )


def _explain(fields: Mapping[str, str]) -> str:
    """Return why a system is not supported; "" if it is."""
    family = {fields["ID"].lower(), *fields.get("ID_LIKE", "").lower().split()}
    if "DGX" in fields:
        return _OWN_STACK
    if family & RED_HAT:
        return _APT_ONLY
    versions = SUPPORTED.get(fields["ID"].lower())
    if versions is None:
        return "no role was tried on it"
    version = fields.get("VERSION_ID", "")
    return "" if version in versions else f"no role was tried on version {version or 'unknown'}"

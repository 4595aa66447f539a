"""Run-time settings of SuperNICs, from the matrix's profile and the fabric's overlay.

Every boot loses them, so they are no component with a version: they are set before the checks of
every validation, and a check reads them with other tools than those that set them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from provisioner.model.base import Record

ROOT = "/interfaces/interface/"
OVERLAYS = ("pure_l3", "l3_evpn")
# the interface must go down and up before it takes effect (NVIDIA's nic-configuration-operator)
_GAP = "ethernet/nvidia/config/inter-packet-gap"
# settings that do not need the congestion-control algorithm
_BEFORE = ("nvidia/qos/", "nvidia/roce/")
# an equivalent value that the service may report
_ALSO = {"nvidia/qos/config/trust-mode": "QOS_TRUST_MODE_DSCP"}
_PATH = re.compile(r"[a-z][a-z0-9_-]*(\[id=\d{1,3}\])?(/[a-z][a-z0-9_-]*(\[id=\d{1,3}\])?){1,9}")
_VALUE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Setting(Record):
    """One value at one path of DOCA's management service."""

    path: str
    value: str
    type: str  # "string" | "bool" | "int"
    also: str = ""
    restart_interface: bool = False


class Runtime(Record):
    """Settings in the order in which they are set; the algorithm is started between the two
    groups.
    """

    routing: tuple[Setting, ...]
    congestion: tuple[Setting, ...]


def find_fault(place: str, value: str) -> str | None:
    """Return the error in one line of a profile, or None."""
    path, mark, overlay = place.partition("@")
    if mark and overlay not in OVERLAYS:
        return f"there is no overlay '{overlay}'"
    if not _PATH.fullmatch(path) or not _VALUE.fullmatch(value):
        return "no path and value of a run-time setting"
    return None


def select_settings(profile: Mapping[str, str], overlay: str) -> Runtime:
    """Return the settings of a profile for every interface of a SuperNIC in this kind of fabric."""
    mine = [
        (place.partition("@")[0], value)
        for place, value in profile.items()
        if "@" not in place or place.endswith(f"@{overlay}")
    ]
    made = [_setting(path, value) for path, value in mine]
    return Runtime(
        routing=tuple(s for s in made if s.path.startswith(tuple(ROOT + b for b in _BEFORE))),
        congestion=tuple(
            s for s in made if not s.path.startswith(tuple(ROOT + b for b in _BEFORE))
        ),
    )


def _setting(path: str, value: str) -> Setting:
    whole_number = path.endswith("/value") or path == _GAP
    return Setting(
        path=ROOT + path,
        value=value,
        type="bool" if value in ("true", "false") else "int" if whole_number else "string",
        also=_ALSO.get(path, ""),
        restart_interface=path == _GAP,
    )

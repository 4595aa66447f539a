"""Named sets of a host's settings, packages and services: the host's baseline and its check tools.

The matrix lists a set by name (`host_settings`), and a profile pins the name under `host.baseline`
or `host.check_tools`. A reading names the set whose every value is in force; "none" where none is,
so that drift is a version that differs from its pin and is planned like any other update.
Pure: the same table says what a set may hold and how a look's facts are compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from provisioner.model.matrix import Matrix

BASELINE = "host.baseline"
CHECK_TOOLS = "host.check_tools"
KINDS = (BASELINE, CHECK_TOOLS)
PACKAGE = "package:"
SERVICE = "service:"
HostSets = Mapping[str, Mapping[str, Mapping[str, str]]]  # kind -> name -> setting -> value
NO_SETS: HostSets = {}

_NAME = r"[a-z0-9][a-z0-9.+@_-]{0,62}"
_WORD = r"[A-Za-z0-9][A-Za-z0-9_.,:=@/-]{0,119}"
# setting -> its values; each is read from the running host (planning/intake/host_look.py)
_VALUES = {
    "rails": "on",  # address, MTU, routes and source rule of every planned rail
    "roce_trust": "dscp|pcp",  # mlnx_qos(8)
    "roce_pfc": "[01]{8}",  # one digit for each priority
    "roce_ecn": "[0-7]{1,8}",  # priorities with ECN at both ends of a flow
    "roce_cma_tos": r"\d{1,3}",  # of connections by rdma_cm (configfs rdma_cm, Linux ABI)
    "relaxed_ordering": "on|off",  # PCIe Device Control, bit 4, of the rails' cards
    "acs": "off",  # Access Control Services of PCIe bridges (NCCL, troubleshooting)
    "hugepages_2m": r"\d{1,7}",
    "kernel_arguments": f"{_WORD}( {_WORD}){{0,31}}",  # "iommu=pt", as /proc/cmdline has them
    "fabric_manager": "nvswitch",  # runs where the GPUs are on NVSwitches, and nowhere else
}
_PREFIXED = ((PACKAGE, _WORD.replace("=", "~+")), (SERVICE, "on"))


def find_setting_fault(name: str, value: str) -> str | None:
    """Return the error in one setting of a set, or None."""
    for prefix, values in _PREFIXED:
        if name.startswith(prefix):
            is_name = re.fullmatch(_NAME, name.removeprefix(prefix))
            good = is_name and re.fullmatch(values, value)
            return None if good else f"no name and value of a {prefix[:-1]}"
    if name not in _VALUES:
        return f"there is no setting '{name[:60]}'; there are {', '.join(_VALUES)}"
    if not re.fullmatch(_VALUES[name], value):
        return f"'{value[:60]}' is no value of {name}"
    return None


def select_sets(matrix: Matrix) -> dict[str, dict[str, dict[str, str]]]:
    """Return the sets that are pinned somewhere: kind -> name -> settings."""
    sets: dict[str, dict[str, dict[str, str]]] = {}
    for release in matrix.releases.values():
        for profile in release.profiles.values():
            for kind in KINDS:
                pin = profile.pins.get(kind)
                for name in () if pin is None else (pin.version, *pin.also):
                    if name in matrix.host_settings:
                        sets.setdefault(kind, {})[name] = matrix.host_settings[name]
    return sets


def list_packages(settings: Mapping[str, str]) -> dict[str, str]:
    """Return package -> pinned version."""
    return {n.removeprefix(PACKAGE): v for n, v in settings.items() if n.startswith(PACKAGE)}


def list_services(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the services that must run."""
    return tuple(n.removeprefix(SERVICE) for n in settings if n.startswith(SERVICE))


def find_differences(settings: Mapping[str, str], facts: Mapping[str, str]) -> dict[str, str]:
    """Return setting -> its value in the host, of those that differ; "" for one not read."""
    return {
        name: facts.get(name, "")
        for name, value in settings.items()
        if not _is_in_force(name, value, facts.get(name, ""))
    }


def _is_in_force(name: str, value: str, read: str) -> bool:
    if name == "kernel_arguments":
        return set(value.split()) <= set(read.split())
    return value == read

"""Names of the sets of settings that run on a switch. Pure.

As with BMCs, the largest set whose every value runs names the component's version. It runs only if
the switch would start with it too, and, where it has TACACS+ servers, with the site's key on them.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.inventory import Component
from provisioner.model.switch import SwitchServices
from provisioner.planning.machine_settings.pinned_sets import SWITCH
from provisioner.planning.machine_settings.running_sets import name_set

SLOT = "switch"
OFF = "off"


def build_component(
    shown: tuple[SwitchServices, SwitchServices],
    sets: Mapping[str, Mapping[str, str]],
    source: str,
    *,
    has_key: bool,
) -> Component:
    """Return the component of a switch; `shown` are its applied and its next configuration."""
    version = name_set(
        sets, lambda name, value: all(_runs(name, value, one, has_key=has_key) for one in shown)
    )
    return Component(kind=SWITCH, slot=SLOT, version=version, source=source)


def list_servers(settings: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return the names that a set lists under one setting, () for "off"; None: it leaves it."""
    value = settings.get(name)
    if value is None:
        return None
    return () if value == OFF else tuple(value.split(","))


def _runs(name: str, value: str, shown: SwitchServices, *, has_key: bool) -> bool:
    listed = () if value == OFF else tuple(value.split(","))
    if name == "ntp":
        return set(shown.ntp) == set(listed)
    if name == "syslog":
        return set(shown.syslog) == set(listed)
    if name == "tacacs":
        keyed = has_key and shown.tacacs_keyed
        return shown.tacacs == listed and (keyed or not listed)
    return shown.logins == listed

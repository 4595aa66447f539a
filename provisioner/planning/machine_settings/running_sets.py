"""Names of the sets that run on a machine, and of those that wait for its next boot. Pure.

A set runs if every value of it does. The largest such set names the component's version, "none"
where none runs: drift is then a version that differs from its pin, and is planned, explained and
counted as debt like firmware. No registry is needed: a value runs if the attribute shows any of the
spellings that the vendor's row gives for it.

The five facts of a setting: its target is the pin, staged is the ledger's, running and pending are
the component's version and staged version, and nothing is copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from provisioner.model.inventory import Activation, Component
from provisioner.model.machine.settings import (
    CARD_MODE,
    HOST_RSHIM,
    NO_SET,
    SYSLOG,
    MachineSettings,
    Value,
)
from provisioner.model.switch import SwitchServices
from provisioner.planning.machine_settings.pinned_sets import (
    BIOS,
    BMC,
    CARD,
    SWITCH,
    PinnedSets,
    find_card_kind,
)
from provisioner.planning.machine_settings.resolution import ATTRIBUTE, is_same, predict
from provisioner.quirks.meaning import VOCABULARY, Row

NONE = NO_SET
SLOT = "host"
# setting -> its name among the BMC's values; DMTF's names
BMC_VALUES = {
    "ipmi": "IPMI.ProtocolEnabled",
    "ssh": "SSH.ProtocolEnabled",
    "http": "HTTP.ProtocolEnabled",
    "snmp": "SNMP.ProtocolEnabled",
    "kvm": "KVMIP.ProtocolEnabled",
    "virtual_media": "VirtualMedia.ProtocolEnabled",
    "lockout_threshold": "AccountLockoutThreshold",
    "lockout_duration": "AccountLockoutDuration",
    "lockout_reset": "AccountLockoutCounterResetAfter",
    "password_length": "MinPasswordLength",
}
CARD_MODES = {"dpu": "DpuMode", "nic": "NicMode"}  # captured tree of a BlueField-3
POWER = {"on": "AlwaysOn", "off": "AlwaysOff", "last": "LastState"}


def build_components(
    settings: MachineSettings, sets: PinnedSets, rows: Sequence[Row], bmc: str = SLOT
) -> tuple[Component, ...]:
    """Return one component for each kind of settings that is pinned somewhere; `bmc` names the BMC.

    A machine that shows no attributes yet has no version: unknown is not drift.
    """
    components = []
    if bmc == SLOT and sets.get(BIOS) and settings.bios:
        components.append(_build_bios(settings, sets[BIOS], rows))
    if bmc != SLOT and sets.get(find_card_kind(bmc)):
        components.append(_build_card(settings, find_card_kind(bmc), sets, rows, bmc))
    kind = BMC if bmc == SLOT else CARD
    if sets.get(kind) and settings.bmcs:
        values = {name: value for one in settings.bmcs for name, value in one.values.items()}
        version = name_set(sets[kind], lambda name, value: _runs_on_bmc(name, value, values))
        own = "" if bmc == SLOT else bmc  # the BMC that a step of a card goes to
        source = settings.bmcs[0].source
        components.append(Component(kind=kind, slot=bmc, version=version, bmc=own, source=source))
    return tuple(components)


def find_differences(
    settings: Mapping[str, str], machine: MachineSettings, rows: Sequence[Row]
) -> dict[str, str]:
    """Return setting -> the value that runs, of those that differ from a BIOS set."""
    bios = machine.bios[0]
    return {
        name: _describe(name, machine, rows)
        for name, value in settings.items()
        if not _runs(name, value, bios.current or {}, machine, rows, later=False)
    }


def _build_bios(
    settings: MachineSettings, sets: Mapping[str, Mapping[str, str]], rows: Sequence[Row]
) -> Component:
    bios = settings.bios[0]
    current = bios.current
    if current is None:
        return Component(kind=BIOS, slot=SLOT, version=None, source=bios.source)
    later: dict[str, Value] = {**current, **bios.pending}
    if bios.registry is not None:
        later = predict(bios.registry, current, bios.pending)
    version = name_set(
        sets, lambda name, value: _runs(name, value, current, settings, rows, later=False)
    )
    waiting = name_set(
        sets, lambda name, value: _runs(name, value, later, settings, rows, later=True)
    )
    staged = waiting if waiting not in (NONE, version) else None
    return Component(
        kind=BIOS,
        slot=SLOT,
        version=version,
        staged=staged,
        pending=Activation.WARM_REBOOT if staged else None,
        source=bios.source,
    )


def _build_card(
    settings: MachineSettings, kind: str, sets: PinnedSets, rows: Sequence[Row], bmc: str
) -> Component:
    """Return the component of a card's settings at start; no version while one is not shown."""
    bios = settings.bios[0] if settings.bios else None
    current = (bios.current or {}) if bios is not None else {}
    now = next((one.values[CARD_MODE] for one in settings.bmcs if CARD_MODE in one.values), None)
    named = {name for values in sets[kind].values() for name in values}
    unread = ("host_privilege" in named and not current) or not (now or current)
    source = bios.source if bios is not None else settings.bmcs[0].source if settings.bmcs else ""
    if unread:
        return Component(kind=kind, slot=bmc, version=None, bmc=bmc, source=source)
    pending = dict(bios.pending) if bios is not None else {}

    def runs(name: str, value: str, values: Mapping[str, Value], mode: Value) -> bool:
        if name == "card_mode" and mode is not None:
            return is_same(mode, CARD_MODES[value])
        fitting = _find_attributes(name, values, rows)
        return bool(fitting) and all(
            any(is_same(values[attribute], one) for one in row.values.get(value, ()))
            for row, attribute in fitting
        )

    version = name_set(sets[kind], lambda name, value: runs(name, value, current, now))
    later = {**current, **pending}
    next_mode = pending.get("NicMode", now)
    waiting = name_set(sets[kind], lambda name, value: runs(name, value, later, next_mode))
    staged = waiting if waiting not in (NONE, version) else None
    return Component(
        kind=kind,
        slot=bmc,
        bmc=bmc,
        version=version,
        staged=staged,
        pending=Activation.COLD_BOOT if staged else None,
        source=source,
    )


def name_set(sets: Mapping[str, Mapping[str, str]], runs: Callable[[str, str], bool]) -> str:
    """Return the largest set whose every value runs, "none" if none does."""
    fitting = [
        name for name, settings in sets.items() if all(runs(n, v) for n, v in settings.items())
    ]
    return max(fitting, key=lambda name: (len(sets[name]), name), default=NONE)


def _runs(
    name: str,
    value: str,
    values: Mapping[str, Value],
    settings: MachineSettings,
    rows: Sequence[Row],
    *,
    later: bool,
) -> bool:
    if name == "secure_boot":
        states = settings.secure_boot[:1]
        shown = [state.enabled if later else state.running for state in states]
        return shown == [value == "on"]
    if name.startswith(ATTRIBUTE):
        attribute = name.removeprefix(ATTRIBUTE)
        return attribute in values and is_same(values[attribute], value)
    fitting = _find_attributes(name, values, rows)
    return bool(fitting) and all(
        any(is_same(values[attribute], one) for one in row.values.get(value, ()))
        for row, attribute in fitting
    )


def _find_attributes(
    name: str, values: Mapping[str, Value], rows: Sequence[Row]
) -> list[tuple[Row, str]]:
    return [
        (row, attribute)
        for row in rows
        if row.meaning == name
        for attribute in values
        if re.fullmatch(row.attribute, attribute)
    ]


def _describe(name: str, machine: MachineSettings, rows: Sequence[Row]) -> str:
    current = machine.bios[0].current or {}
    if name == "secure_boot":
        states = {True: "on", False: "off", None: "not shown"}
        return next((states[s.running] for s in machine.secure_boot), "not shown")
    if name.startswith(ATTRIBUTE):
        return str(current.get(name.removeprefix(ATTRIBUTE), "not shown"))
    fitting = _find_attributes(name, current, rows)
    return ", ".join(f"{a} = {current[a]}" for _, a in fitting[:4]) or "not shown"


def _runs_on_bmc(name: str, value: str, values: Mapping[str, Value]) -> bool:
    if name == "ntp":
        enabled = values.get("NTP.ProtocolEnabled")
        servers = values.get("NTP.NTPServers")
        return enabled is False if value == "off" else (enabled is True and servers == value)
    if name == "syslog":
        return values.get(SYSLOG) == value
    if name == "host_rshim":
        return values.get(HOST_RSHIM) == ("Enabled" if value == "on" else "Disabled")
    if name == "power_restore":
        return values.get("PowerRestorePolicy") == POWER.get(value)
    if name == "host_interface":
        states = [v for n, v in values.items() if n.endswith(".InterfaceEnabled")]
        return bool(states) and all(state is (value == "on") for state in states)
    shown = values.get(BMC_VALUES[name])
    if VOCABULARY[name].values:
        return shown is (value == "on")
    return is_same(shown, value)


# ------------------------------------------------------------------------------
# Names of the sets of settings that run on a switch. Pure.
#
# As with BMCs, the largest set whose every value runs names the component's version. It runs only
# if the switch would start with it too, and, where it has TACACS+ servers, with the site's key on
# them.


SWITCH_SETS_SLOT = "switch"
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
        sets,
        lambda name, value: all(
            _runs_switch_sets(name, value, one, has_key=has_key) for one in shown
        ),
    )
    return Component(kind=SWITCH, slot=SWITCH_SETS_SLOT, version=version, source=source)


def list_servers(settings: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return the names that a set lists under one setting, () for "off"; None: it leaves it."""
    value = settings.get(name)
    if value is None:
        return None
    return () if value == OFF else tuple(value.split(","))


def _runs_switch_sets(name: str, value: str, shown: SwitchServices, *, has_key: bool) -> bool:
    listed = () if value == OFF else tuple(value.split(","))
    if name == "ntp":
        return set(shown.ntp) == set(listed)
    if name == "syslog":
        return set(shown.syslog) == set(listed)
    if name == "tacacs":
        keyed = has_key and shown.tacacs_keyed
        return shown.tacacs == listed and (keyed or not listed)
    return shown.logins == listed

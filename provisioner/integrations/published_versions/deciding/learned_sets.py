"""A set learned from a good machine: a draft for a person to review, never a change of the matrix.

Only settings that have a meaning are learned: the pin is small, and whole sets of attributes hold
addresses, clocks, secrets, and actions dressed as attributes. A meaning whose attributes
disagree, or show a value that no row declares, is left out with the reason. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.machine.settings import Value
from provisioner.planning.machine_settings.pinned_sets import BIOS, BMC
from provisioner.planning.machine_settings.resolution import is_same
from provisioner.planning.machine_settings.running_sets import BMC_VALUES, POWER
from provisioner.quirks import ALL
from provisioner.quirks.meaning import VOCABULARY, Row

ATTRIBUTES_MAX = 8192
_REMEDY = "Make it with `provisioner inspect URL --settings --json > node.json`."


class LearnedSets(Record):
    """Kind -> setting -> value, and a line for each meaning that was left out."""

    vendor: str
    sets: dict[str, dict[str, str]]
    notes: tuple[str, ...]


def learn_sets(document: Mapping[str, Any], source: str) -> LearnedSets:
    """Return the sets that run on the inspected machine. Raises InputError for another file."""
    settings = document.get("settings")
    if not isinstance(settings, Mapping):
        raise InputError(source, "settings", "it holds no settings", _REMEDY)
    vendor = settings.get("vendor")
    if not isinstance(vendor, str) or vendor not in ALL:
        raise InputError(source, "settings.vendor", "no vendor that is declared", _REMEDY)
    notes: list[str] = []
    current = _read_attributes(settings)
    learned = _learn_bios(current, ALL[vendor].meanings, notes)
    if (secure := _read_secure_boot(settings)) is not None:
        learned["secure_boot"] = "on" if secure else "off"
    sets = {BIOS: learned, BMC: _learn_bmc(_read_bmc_values(settings))}
    return LearnedSets(vendor=vendor, sets={k: s for k, s in sets.items() if s}, notes=tuple(notes))


def _learn_bios(
    current: Mapping[str, Value], rows: Sequence[Row], notes: list[str]
) -> dict[str, str]:
    learned: dict[str, str] = {}
    for name in dict.fromkeys(row.meaning for row in rows):
        fitting = [
            (row, attribute)
            for row in rows
            if row.meaning == name
            for attribute in current
            if re.fullmatch(row.attribute, attribute)
        ]
        values = {_read_meaning(row, current[attribute]) for row, attribute in fitting}
        if len(values) == 1 and (value := values.pop()) is not None:
            learned[name] = value
        elif fitting:
            shown = ", ".join(f"{a} = {current[a]}" for _, a in fitting[:4])
            notes.append(f"{name}: no one declared value; this machine shows {shown}")
    return learned


def _read_meaning(row: Row, value: Value) -> str | None:
    matches = [
        own
        for own, spellings in row.values.items()
        if any(type(one) is type(value) and one == value for one in spellings)
    ]
    return matches[0] if matches else None


def _learn_bmc(values: Mapping[str, Value]) -> dict[str, str]:
    learned: dict[str, str] = {}
    for name, shown in BMC_VALUES.items():
        value = values.get(shown)
        if isinstance(value, bool) and VOCABULARY[name].values:
            learned[name] = "on" if value else "off"
        elif isinstance(value, int) and not isinstance(value, bool):
            learned[name] = str(value)
    servers = values.get("NTP.NTPServers")
    if values.get("NTP.ProtocolEnabled") is True and isinstance(servers, str) and servers:
        learned["ntp"] = servers
    policy = values.get("PowerRestorePolicy")
    if (own := next((o for o, name in POWER.items() if is_same(policy, name)), None)) is not None:
        learned["power_restore"] = own
    pattern = {name: VOCABULARY[name].pattern for name in learned}
    return {n: v for n, v in learned.items() if not pattern[n] or re.fullmatch(pattern[n], v)}


def _read_attributes(settings: Mapping[str, Any]) -> dict[str, Value]:
    current: dict[str, Value] = {}
    listed = settings.get("bios")
    first = listed[0] if isinstance(listed, list) and listed else {}
    rows = first.get("attributes") if isinstance(first, Mapping) else None
    for row in rows[:ATTRIBUTES_MAX] if isinstance(rows, list) else ():
        if not isinstance(row, Mapping) or row.get("shown") is not True:
            continue
        name = row.get("name")
        value = row.get("current")
        if isinstance(name, str) and isinstance(value, bool | int | float | str):
            current[name] = value
    return current


def _read_secure_boot(settings: Mapping[str, Any]) -> bool | None:
    listed = settings.get("secure_boot")
    first = listed[0] if isinstance(listed, list) and listed else {}
    running = first.get("running") if isinstance(first, Mapping) else None
    return running if isinstance(running, bool) else None


def _read_bmc_values(settings: Mapping[str, Any]) -> dict[str, Value]:
    """Return the values of all of its BMCs; the first that shows one counts: the host's own."""
    values: dict[str, Value] = {}
    listed = settings.get("bmcs")
    for one in listed[:16] if isinstance(listed, list) else ():
        shown = one.get("values") if isinstance(one, Mapping) else None
        for name, value in shown.items() if isinstance(shown, Mapping) else ():
            if isinstance(name, str) and isinstance(value, bool | int | float | str):
                values.setdefault(name, value)
    return values

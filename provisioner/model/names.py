"""The names of one thing: how each is written here, so that two of them are never compared as text.

A PCI address, a host or switch, and a port of a switch each have several published forms; whoever
compares names brings them into one form with these functions first. Packages have their own table
(`host_packages.py`, and the collection's `driver_scheme`). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator

Place = tuple[str, str]  # switch, port
PortNames = Mapping[str, Mapping[str, str]]  # switch -> what it calls a port -> the port's name

# 8 digits of domain in nvidia-smi's form, 5 behind a volume management device, none in lspci's;
# a form without a domain needs its function, so that no time and no MAC address looks like one
_PCI = re.compile(
    r"(?<![0-9A-Fa-f.])(?<![0-9A-Fa-f]:)"
    r"(?:([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?"
    r"|([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7]))(?![0-9A-Fa-f:])"
)
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:-]*")


def normalize_pci(address: str) -> str:
    """Return a PCI address in one form: "0000:1b:00.0" for "1b:00.0", "00000000:1B:00.0" and
    "pci@0000:1b:00.0".

    What is none is returned in lower case. A function that is left out stays left out.
    """
    bare = re.sub(r"^pci[@/:](?=[0-9a-f])", "", address.strip().lower())
    match = _PCI.fullmatch(bare)
    if match is None:
        return bare
    domain, bus, device, function = (
        match.group(1, 2, 3, 4) if match[1] else ("0", *match.group(5, 6, 7))
    )
    whole = f"{int(domain, 16):04x}:{bus}:{device}"
    return whole if function is None else f"{whole}.{function}"


def find_pci(text: str) -> str:
    """Return the first PCI address in a text without its function: "0000:1b:00"; "" without one."""
    match = _PCI.search(text)
    return normalize_pci(match[0]).partition(".")[0] if match else ""


PciAddress = Annotated[str, AfterValidator(normalize_pci)]


def short_name(name: str) -> str:
    """Return a system's name without its domain: LLDP sends "leaf-3" or "leaf-3.example.com"
    (lldpcli(8), "configure system hostname").
    """
    bare = name.strip().lower()
    return bare if bare.replace(".", "").isdigit() else bare.split(".")[0]  # an IP address is whole


def resolve_system(name: str, systems: Collection[str]) -> str:
    """Return which of the hosts or switches a name means; the name itself where it is none of
    them, or may be two.
    """
    if name in systems:
        return name
    whole = [other for other in systems if other.strip(" .").lower() == name.strip(" .").lower()]
    meant = whole or [other for other in systems if short_name(other) == short_name(name)]
    # two systems of two domains have one short name: only the whole name tells them apart
    return meant[0] if len(meant) == 1 and _same_domain(name, meant[0]) else name


def _same_domain(one: str, other: str) -> bool:
    domains = {d for n in (one, other) if (d := n.strip(" .").lower().partition(".")[2])}
    return len(domains) < 2


def own_port(switch: str, name: str, names: PortNames) -> str:
    """Return a port's name in its switch's configuration, of that or of what the switch calls it.

    A name that is of one port and means another one as well is kept.
    """
    called = names.get(switch, {})
    return name if name in called.values() else called.get(name, name)


def spell_port(switch: str, name: str, names: PortNames, known: Collection[Place]) -> Place:
    """Return a port as the plan has it: by its own name, or by what its switch calls it.

    What one port is called and another one's name is, means the latter.
    """
    if (switch, name) in known:
        return switch, name
    called = names.get(switch, {})
    others = [
        alias
        for alias, own in called.items()
        if own == name and alias not in called.values() and (switch, alias) in known
    ]
    return switch, others[0] if len(others) == 1 else name


def is_named(names: Iterable[str], text: str) -> bool:
    """Return whether a text has one of the names as a whole word: "leaf/swp1" is not in
    "leaf/swp10" and "leaf/swp1s0".
    """
    words = {word.rstrip(".:/-") for word in _WORD.findall(text)}
    return not words.isdisjoint(names)

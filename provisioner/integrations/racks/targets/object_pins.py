"""A firmware object as pins of the matrix, and back: trays, NVLink switches with NVOS, and shelves.

Pure. Each version with a known meaning becomes a pin with the file that brings it and its digest; a
part that stands with several versions is pinned with all of them. What a matrix has no place for
(recovery images, certificates, a package's own label, software without a kind) is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from provisioner.integrations.published_versions.deciding.statements import find_kind
from provisioner.integrations.racks.firmware_object import (
    Board,
    Component,
    Part,
    RackFile,
    RackFirmware,
)
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.targets.matrix_targets import MATCHES
from provisioner.model.matrix import Pin, Profile, Release

# names of parts in firmware objects (nv-rms, "Firmware Sources and Manifests") by machine
_NAMES: Mapping[Kind, Mapping[str, str]] = {
    Kind.NVLINK_SWITCH: {
        "NVOS": "nvswitch.os",
        "BMC": "nvswitch.bmc",
        "EROT": "nvswitch.erot",
        "FPGA": "nvswitch.fpga",
        "SBIOS": "nvswitch.bios",
        "BIOS": "nvswitch.bios",
        "CPLD": "nvswitch.cpld",
        **{f"CPLD{n}": "nvswitch.cpld" for n in range(1, 5)},
    },
    Kind.POWER_SHELF: {"PMC": "shelf.pmc", "PSU": "shelf.psu"},
    Kind.COMPUTE_TRAY: {
        "HMC": "hgx.bmc",
        "GPU": "hgx.gpu",
        "HMC EROT": "hgx.erot",
        "HMC CPLD": "hgx.cpld",
        "BMC": "host.bmc",
        "BMC EROT": "host.erot",
        "BF3_BFB": "bluefield.bundle",
        "BF3_NIC": "bluefield.nic",
        "CX7": "nic.cx7",
        "CX8": "nic.cx8",
        "DOCA_Host": "host.doca",
        "RM Driver": "host.driver",
    },
}
_TYPES = {
    Kind.COMPUTE_TRAY: "Compute Node",
    Kind.NVLINK_SWITCH: "Switch Tray",
    Kind.POWER_SHELF: "Power Shelf",
}
Pins = dict[Kind, dict[str, Pin]]


@dataclass
class Pinned:
    """Pins by machine. `left`: what has no place in them; `problems`: why there are none."""

    pins: Pins = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def pin_object(firmware: RackFirmware, evidence: str) -> Pinned:
    """Return the pins of a firmware object."""
    told = Pinned()
    for board in firmware.boards:
        for component in board.components:
            _pin_component(component, evidence, told)
    told.problems += [] if told.pins else ["nothing in it has a component kind of the matrix"]
    return told


def _pin_component(component: Component, evidence: str, told: Pinned) -> None:
    name = f"{component.kind} {component.component}"
    payloads = [one for one in component.files if one.is_payload]
    told.left += [
        f"{name}: {f.role} {f.name}" for f in component.files if f.name and f not in payloads
    ]
    stated = [(part.component, part.version) for part in component.parts if part.version]
    whole = (component.component, component.version)
    own = _find_kind(component.kind, *whole)
    if own and own in {_find_kind(component.kind, *part) for part in stated}:
        own = ""  # its part states it
    if component.version and (own or not stated):
        stated.insert(0, whole)
    elif component.version and component.version not in {version for _, version in stated}:
        told.left.append(f"{name}: the package's own version {component.version}")
    kinds: dict[str, list[str]] = {}
    for part, version in stated:
        if kind := _find_kind(component.kind, part, version):
            kinds.setdefault(kind, []).append(version)
        else:
            told.left.append(f"{name}: {part} {version} has no kind")
    if kinds and len(payloads) > 1:
        told.problems.append(f"{name}: {len(payloads)} files bring it, and a pin names one")
        return
    if payloads and not kinds:
        told.left += [f"{name}: {file.name}, of which no version is stated" for file in payloads]
    told.problems += [
        f"{name}: {f.name} has no SHA-256" for f in payloads if kinds and not f.sha256
    ]
    file = payloads[0] if payloads else RackFile()
    for kind, versions in kinds.items():
        _add(told, component, kind, tuple(dict.fromkeys(versions)), file, evidence)


def _find_kind(machine: Kind, part: str, version: str) -> str:
    own = next((k for n, k in _NAMES[machine].items() if n.lower() == part.lower()), "")
    if machine is not Kind.COMPUTE_TRAY or not own:
        return own
    return find_kind(own, version, {}) if own.startswith(("nic.", "bluefield.nic")) else own


def _add(
    told: Pinned,
    component: Component,
    kind: str,
    versions: tuple[str, ...],
    file: RackFile,
    evidence: str,
) -> None:
    """Pin a kind. One that two packages bring, as a switch's root of trust, names no file: each of
    them is named by another part.
    """
    pins = told.pins.setdefault(component.kind, {})
    pin = Pin(
        version=versions[0],
        also=versions[1:],
        artifact=file.name,
        sha256=file.sha256,
        evidence=evidence,
    )
    before = pins.setdefault(kind, pin)
    if before == pin:
        return
    if (before.version, before.also) != (pin.version, pin.also):
        sides = f"{before.version} and {pin.version}"
        told.problems.append(f"{component.kind} {component.component}: {kind} is {sides}")
        return
    pins[kind] = before.model_copy(update={"artifact": "", "sha256": ""})
    for lost in (before, pin):
        own = {one.artifact for one in pins.values()}
        if lost.artifact and lost.artifact not in own:
            told.problems.append(f"{lost.artifact}: only {kind} names it, as another file does")


def place_pins(pinned: Pins, profiles: Iterable[tuple[str, Profile]]) -> dict[str, Profile]:
    """Return the profiles with their pins, by name. Raises ValueError that says what is missing."""
    offered = list(profiles)
    placed = {}
    for kind, pins in pinned.items():
        fitting = [(n, p) for n, p in offered if p.match.kind == MATCHES[kind]]
        if len(fitting) != 1:
            names = ", ".join(name for name, _ in fitting) or "none"
            raise ValueError(f"{kind}: one profile is needed, and these are for it: {names}")
        name, profile = fitting[0]
        placed[name] = Profile(match=profile.match, pins=pins)
    return placed


def build_object(name: str, release: Release) -> RackFirmware:
    """Return the firmware object of a release's pins. Raises ValueError for one without any."""
    product, _, milestone = name.rpartition("-")
    boards = []
    for kind, board_type in _TYPES.items():
        for profile in release.profiles.values():
            if profile.match.kind != MATCHES[kind]:
                continue
            components = tuple(_list_components(kind, profile.pins))
            if components:
                boards.append(Board(board_type=board_type, components=components))
    if not boards:
        raise ValueError("it pins nothing of a rack")
    return RackFirmware(product=product or name, milestone=milestone, boards=tuple(boards))


def _list_components(kind: Kind, pins: Mapping[str, Pin]) -> Iterator[Component]:
    """Yield a component for each file, and one for each pin without a file."""
    names = {each: name for name, each in reversed(list(_NAMES[kind].items()))}
    groups: dict[tuple[str, str], list[Part]] = {}
    for each, pin in pins.items():
        if each in names and pin.known:
            file = (pin.artifact, pin.sha256) if pin.artifact else (f"{each}\n", "")
            parts = groups.setdefault(file, [])
            parts += [Part(component=names[each], version=v) for v in (pin.version, *pin.also)]
    for (name, sha256), parts in groups.items():
        listed = dict.fromkeys(part.component for part in parts)
        files = (
            () if name.endswith("\n") else (RackFile(name=name, role="Firmware", sha256=sha256),)
        )
        yield Component(
            component="+".join(listed), kind=kind, channel="Prod", files=files, parts=tuple(parts)
        )

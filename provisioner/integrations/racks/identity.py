"""What one BMC of a rack says of itself: its kind, its place, the water and the power in it.

The kind is told by content and never by one name: integrators print their own in the service root,
NVIDIA's `P3809` is a switch and an old host, and id prefixes change with releases. Two kinds with
equal evidence are no kind. Sources: docs/sources/hardware.md#racks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from provisioner.model.inventory import DeviceKind, Inventory

Json = Mapping[str, Any]
_NO_VALUE = re.compile(r"\s*(|n/?a|none|null|unknown|0+)\s*", re.IGNORECASE)
_TEXT_MAX = 128  # characters of a serial or a model
_TOLD_MAX = 1 << 16  # slots, indexes and topology ids are small numbers
EVIDENCE_MIN = 2  # one mark alone, such as "lists no system", tells no kind


class Kind(StrEnum):
    """A kind of machine with a BMC in a rack."""

    COMPUTE_TRAY = "compute-tray"
    NVLINK_SWITCH = "nvlink-switch"
    POWER_SHELF = "power-shelf"
    OTHER = "other"  # none of these: a host or a card as the rest of the program knows them


@dataclass(frozen=True)
class Marks:
    """What the kind is told by. Ids as the service lists them; "" for what it does not say."""

    vendor: str = ""
    product: str = ""
    systems: tuple[str, ...] | None = ()  # None: the service links to no systems at all
    chassis: tuple[str, ...] = ()
    chassis_models: tuple[str, ...] = ()
    chassis_makers: tuple[str, ...] = ()
    power_equipment: bool = False
    gpu_topologies: int = 0  # GPUs that state their place in an NVLink rack


@dataclass(frozen=True)
class Classified:
    """The kind of a BMC, None where two fit equally; `evidence` is a sentence for each kind."""

    kind: Kind | None
    evidence: tuple[str, ...]


_CARTRIDGE = re.compile(r"CBC_\d+")
_RACK_PRODUCT = re.compile(r"\b(GB|VR)(\d{3})?(NVL| NVL| BMC)", re.IGNORECASE)
_RACK_GPU = re.compile(r"\b(GB|VR)\d{3}", re.IGNORECASE)  # "NVIDIA GB200", as drivers print it
_SWITCH_CHIP = re.compile(r"(?:MGX_)?NVSwitch_\d+")  # HGX_NVSwitch_n is inside an 8-GPU host
_SWITCH_MODEL = re.compile(r"N5\d\d\d_LD")
_SHELF = re.compile(r"power_?shelf(_\d+)?", re.IGNORECASE)
_SHELF_MAKER = re.compile(r"lite-?on|delta\b", re.IGNORECASE)


def classify(marks: Marks) -> Classified:
    """Return the kind with the most evidence; no kind on a tie."""
    found = {
        Kind.COMPUTE_TRAY: list(_tray_marks(marks)),
        Kind.NVLINK_SWITCH: list(_switch_marks(marks)),
        Kind.POWER_SHELF: list(_shelf_marks(marks)),
    }
    evidence = tuple(f"{kind}: {', '.join(found[kind])}" for kind in found if found[kind])
    best = max(len(listed) for listed in found.values())
    if best < EVIDENCE_MIN:
        return Classified(Kind.OTHER, evidence)
    fitting = [kind for kind, listed in found.items() if len(listed) == best]
    return Classified(fitting[0] if len(fitting) == 1 else None, evidence)


def _tray_marks(marks: Marks) -> Sequence[str]:
    told = []
    if any(_CARTRIDGE.fullmatch(one) for one in marks.chassis):
        told.append("a cable cartridge")
    if marks.gpu_topologies:
        told.append(f"{marks.gpu_topologies} GPUs with a place in a rack")
    if any(one.startswith("HGX_") for one in (*(marks.systems or ()), *marks.chassis)):
        told.append("a GPU baseboard")
    if _RACK_PRODUCT.search(marks.product):
        told.append(f"the product {marks.product}")
    return told


def find_tray_model(seen: Inventory | None) -> str:
    """Return the model by which a host is a rack's tray, "" for none. A host of which nothing was
    ever read was no tenant's by us.
    """
    if seen is None:
        return ""
    gpus = (one.model or "" for one in seen.devices if one.kind is DeviceKind.GPU)
    boards = (one.model or "" for one in seen.devices if one.kind is DeviceKind.BASEBOARD)
    products = (seen.model or "", *boards)
    told = [one for one in products if _RACK_PRODUCT.search(one)]
    told += [one for one in gpus if _RACK_GPU.search(one)]
    return told[0] if told else ""


def _switch_marks(marks: Marks) -> Sequence[str]:
    told = []
    if chips := [one for one in marks.chassis if _SWITCH_CHIP.fullmatch(one)]:
        told.append(f"{len(chips)} NVLink switch chips")
    if model := next((m for m in marks.chassis_models if _SWITCH_MODEL.search(m)), ""):
        told.append(f"the model {model}")
    if "P3809" in marks.product and not any(one.startswith("HGX_") for one in marks.chassis):
        told.append("the product P3809 without a GPU baseboard")
    return told


def _shelf_marks(marks: Marks) -> Sequence[str]:
    told = []
    if any(_SHELF.fullmatch(one) for one in marks.chassis):
        told.append("a chassis called a power shelf")
    if marks.power_equipment or marks.systems is None:  # a PDU shows both, and is no shelf
        told.append("power equipment" if marks.power_equipment else "no systems")
    if any(_SHELF_MAKER.search(one) for one in (marks.vendor, *marks.chassis_makers)):
        told.append("a maker of power shelves")
    return told


@dataclass(frozen=True)
class Place:
    """Where one witness says that a tray or switch sits; None for what it does not say."""

    witness: str  # "GPU_0", "CBC_0", "chassis-location"
    chassis_serial: str | None = None
    slot: int | None = None
    tray_index: int | None = None
    topology: str | None = None  # a cartridge's TopologyId; the same in text from NVUE

    @property
    def is_bench(self) -> bool:
        """Whether it is a bench cartridge's (topology 0, slot 1, tray 0): no place in a rack."""
        return (self.topology, self.slot, self.tray_index) == ("0", 1, 0)


def read_gpu_place(processor: Json, name: str) -> Place | None:
    """Return what a GPU says of its place (NvidiaProcessor MNNVLinkTopology); None: nothing."""
    told = _dig(processor, "Oem", "Nvidia", "MNNVLinkTopology")
    if told is None:
        return None
    place = Place(
        name,
        chassis_serial=_word(told.get("ChassisSerialNumber")),
        slot=_count(told.get("TraySlotNumber")),
        tray_index=_count(told.get("TraySlotIndex")),
    )
    return place if place != Place(name) else None


def read_cartridge(chassis: Json, name: str) -> Place | None:
    """Return what a cable cartridge says (NvidiaChassis.NvidiaCBCChassis); None: no place.

    The serial is the cartridge's own: whether one of them is the rack's is published nowhere.
    A BMC leaves all of it out when it cannot read the cartridge's FRU.
    """
    told = _dig(chassis, "Oem", "Nvidia")
    if told is None:
        return None
    topology = _count(told.get("TopologyId"))
    place = Place(
        name,
        slot=_count(told.get("ChassisPhysicalSlotNumber")),
        tray_index=_count(told.get("ComputeTrayIndex")),
        topology=None if topology is None else str(topology),
    )
    return place if place != Place(name) else None


def read_switch_place(location: object) -> Place | None:
    """Return what NVUE's `platform/chassis-location` says, all in text; None: it says no place."""
    if not isinstance(location, Mapping):
        return None
    place = Place(
        "chassis-location",
        chassis_serial=_word(location.get("chassis-sn")),
        slot=_count(location.get("slot-number")),
        tray_index=_count(location.get("tray-index")),
        topology=_word(location.get("topology-id")),
    )
    if (place.topology or "").lower() == "loopback" or place.chassis_serial is None:
        return None  # a switch outside of a rack: serial N/A, slot 0
    return place


class Supply(StrEnum):
    """Whether a power supply gives power."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


_SPELLED = {"true": Supply.ON, "on": Supply.ON, "false": Supply.OFF, "off": Supply.OFF}


def read_supply(body: Json) -> Supply:
    """Return the state of a supply: LiteOn prints `PowerState` as a boolean, Delta an OEM `Power`.

    Two answers that differ are none.
    """
    said = [body.get("PowerState"), _dig(body, "Oem", "deltaenergysystems", key="Power")]
    states = {
        _SPELLED.get(str(one).strip().lower(), Supply.UNKNOWN) for one in said if one is not None
    }
    return states.pop() if len(states) == 1 else Supply.UNKNOWN


def judge_shelf(supplies: Sequence[Supply]) -> Supply:
    """Return a shelf's state: any supply off is off, and on needs all that are listed on."""
    if Supply.OFF in supplies:
        return Supply.OFF
    return Supply.ON if set(supplies) == {Supply.ON} else Supply.UNKNOWN


def find_shelves(chassis: Sequence[tuple[str, Json]]) -> tuple[tuple[tuple[str, Json], ...], ...]:
    """Return each shelf with the chassis that it is listed as.

    One maker lists its shelf as `powershelf` and as `PowerShelf_0`, of which one leads nowhere.
    """
    listed: dict[tuple[str, ...], list[tuple[str, Json]]] = {}
    for path, body in chassis:
        if not _SHELF.fullmatch(str(body.get("Id") or path.rsplit("/", 1)[-1])):
            continue
        managers = _dig(body, "Links", key="ManagedBy")
        key = tuple(
            str(body.get(name)) for name in ("Manufacturer", "Model", "PartNumber", "SerialNumber")
        )
        listed.setdefault((*key, str(managers)), []).append((path, body))
    return tuple(tuple(names) for names in listed.values())


def _dig(body: object, *keys: str, key: str = "") -> Any:
    """Return the object under `keys`, or its value `key`; None where there is none."""
    for each in keys:
        body = body.get(each) if isinstance(body, Mapping) else None
    if not isinstance(body, Mapping):
        return None
    return body.get(key) if key else body


def _word(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    word = str(value).strip() if not isinstance(value, int) or abs(value) < 10**40 else ""
    fits = 0 < len(word) <= _TEXT_MAX and word.isprintable() and word.isascii()
    return None if not fits or _NO_VALUE.fullmatch(word) else word


def _count(value: object) -> int | None:
    """Return a slot or an index, as a number or in text; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < _TOLD_MAX else None

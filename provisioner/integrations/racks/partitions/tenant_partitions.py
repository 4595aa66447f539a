"""Partitions of an NVLink domain: what its manager lists, what tenants need, and the acts between.

Pure. A partition belongs to one tenant in one domain and is called TENANT.DOMAIN; its members are
places of GPUs. A GPU is in one partition at most, so that what leaves comes first and a GPU that
changes hands is in none meanwhile; one that nobody has is in none. The factory's partition holds
every GPU, and all multicast groups, until it is emptied. What cannot be told changes nothing.

Shapes: NVIDIA's manual of NMX Manager ("Partitions Management"), that of NetQ NVLink ("Manage
Partitions"), and infra-controller's client of both (crates/libnmxm, Apache-2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.plan import RackPlan
from provisioner.model.outcome import Blocker, Reason

DEFAULT = 32766  # the factory's (NVIDIA's partition guide, DU-12143)
GPUS_MAX = 1 << 16
OPERATIONS_MAX = 1 << 16  # the manager keeps those that ended, for how long nobody publishes
ENDED = frozenset({"completed", "failed", "cancelled"})
PARTITIONS_MAX = 4096
_REMEDY = "Look at the manager's partitions; docs/racks.md#partitions."


@dataclass(frozen=True, order=True)
class Place:
    """Where a GPU is, as members of partitions are named."""

    domain: str  # UUID
    chassis: int
    slot: int
    host: int
    device: int

    def encode(self) -> dict[str, Any]:
        """Return it as the manager's requests have it."""
        return {
            "DomainUUID": self.domain,
            "ChassisID": self.chassis,
            "SlotID": self.slot,
            "HostID": self.host,
            "DeviceID": self.device,
        }


@dataclass(frozen=True)
class Gpu:
    """One GPU. `partition`: the number that the manager says it is in, None for none."""

    place: Place
    chassis_serial: str
    partition: int | None


@dataclass(frozen=True)
class Partition:
    """One partition. `members` None: they are named otherwise than by their places."""

    ident: str
    number: int
    name: str
    members: frozenset[Place] | None
    health: str = ""


class Verb(StrEnum):
    """What is sent."""

    CREATE = "create"
    SET = "set"  # all members anew
    DELETE = "delete"


@dataclass(frozen=True)
class PartitionAct:
    """One request. `ident`: of a partition that is there."""

    verb: Verb
    name: str
    members: frozenset[Place] = frozenset()
    ident: str = ""

    def __str__(self) -> str:
        gpus = "" if self.verb is Verb.DELETE else f": {len(self.members)} GPUs"
        return f"{self.verb} {self.name}{gpus}"


@dataclass(frozen=True)
class PartitionPlan:
    """The acts in their order, and what speaks against any; `wrong`: what is not as it has to be
    by the manager's own other words.
    """

    acts: tuple[PartitionAct, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    wrong: tuple[str, ...] = ()


def read_gpus(body: object) -> Sequence[Gpu]:
    """Return the listed GPUs. Raises ValueError for a list that is not whole."""
    found = []
    for one in _list(body, GPUS_MAX):
        at = one.get("LocationInfo")
        if not isinstance(at, Mapping):
            raise ValueError("a GPU has no LocationInfo")
        place = _read_place({**at, "DomainUUID": one.get("DomainUUID")}, one.get("DeviceID"))
        number = one.get("PartitionID")
        if number is not None and not _is_number(number):
            raise ValueError("a GPU's PartitionID is none")  # unread is not: in no partition
        found.append(Gpu(place, _text(at.get("ChassisSerialNumber")), number or None))
    if len({gpu.place for gpu in found}) != len(found):
        raise ValueError("two GPUs are in one place")
    return found


def read_partitions(body: object) -> Sequence[Partition]:
    """Return the listed partitions. Raises ValueError for a list that is not whole."""
    found = []
    for one in _list(body, PARTITIONS_MAX):
        ident = one.get("ID")
        number = one.get("PartitionID")
        if not isinstance(ident, str) or not isinstance(number, int) or not _is_number(number):
            raise ValueError("a partition has no ID")
        if not 0 < len(ident) <= 128:
            raise ValueError("the ID of a partition is none")
        members = one.get("Members")
        if isinstance(members, Mapping):  # {"locations": [...]}, as NetQ's manual has it
            members = members.get("locations")
        words = (_text(one.get("Name")), _read_members(members), _text(one.get("Health")))
        found.append(Partition(ident, number, *words))
    if len({one.ident for one in found}) != len(found):
        raise ValueError("two partitions have one ID")
    return found


def read_running(body: object) -> Sequence[str]:
    """Return the operations that have not ended. Raises ValueError for a list that is not whole."""
    listed = list(_list(body, OPERATIONS_MAX))
    return [_text(one.get("ID")) or "?" for one in listed if one.get("Status") not in ENDED]


@dataclass(frozen=True)
class SwitchNode:
    """A listed switch tray. `chassis_serial` "" and `slot` None: it does not say that of itself."""

    ident: str
    chassis_serial: str
    slot: int | None
    health: str


def read_switch_nodes(body: object) -> Sequence[SwitchNode]:
    """Return each listed switch tray. Raises ValueError for a list that is not whole."""
    found = []
    for one in _list(body, GPUS_MAX):
        at = one.get("LocationInfo")
        at = at if isinstance(at, Mapping) else {}
        slot = at.get("SlotID")
        where = (_text(at.get("ChassisSerialNumber")), slot if _is_number(slot) else None)
        found.append(SwitchNode(_text(one.get("ID")), *where, _text(one.get("Health"))))
    return found


def _read_members(members: object) -> frozenset[Place] | None:
    if not isinstance(members, list) or len(members) > GPUS_MAX:
        return None
    if not all(isinstance(one, Mapping) for one in members):
        return None
    return frozenset(_read_place(one, one.get("DeviceID")) for one in members)


def _read_place(at: Mapping[str, Any], device: object) -> Place:
    numbers = [at.get("ChassisID"), at.get("SlotID"), at.get("HostID"), device]
    domain = _text(at.get("DomainUUID"))
    if not domain or not all(map(_is_number, numbers)):
        raise ValueError("a GPU's place is not whole")
    return Place(domain, *numbers)  # type: ignore[arg-type]  # they were just looked at


def _list(body: object, most: int) -> Iterable[Mapping[str, Any]]:
    if not isinstance(body, list) or len(body) > most:
        raise ValueError("it is no list, or too long")
    if not all(isinstance(one, Mapping) for one in body):
        raise ValueError("an entry is no object")
    return body


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _text(value: object) -> str:
    fits = isinstance(value, str) and len(value) <= 128 and value.isprintable()
    return str(value).strip() if fits else ""


def plan_partitions(
    plan: RackPlan,
    tenants: Mapping[str, str | None],
    gpus: Sequence[Gpu],
    partitions: Sequence[Partition],
) -> PartitionPlan:
    """Return what has to be sent for all trays of the plan, "" in `tenants` being nobody's."""
    wanted: dict[str, set[Place]] = {}
    own, blockers = _find_own(plan, gpus)
    domains = {u.name: domain_of(r, u) for r in plan.racks for u in r.units}
    if not blockers:
        blockers += _judge_own(own, domains)
    for tray, places in own.items():
        tenant = tenants.get(tray)
        if tenant is None:
            blockers.append(build_blocker(tray, "nobody says whose host it is"))
        elif tenant:
            wanted.setdefault(f"{tenant}.{domains[tray]}", set()).update(places)
    ours = {place for places in own.values() for place in places}
    suffixes = tuple(f".{domain}" for domain in set(domains.values()) if domain)
    mine: list[Partition] = []
    for one in partitions:
        if one.members is None:
            blockers.append(build_blocker(one.name, "its members are not named by their places"))
        elif not one.members and one.name.count(".") > 1 and one.name not in wanted:
            continue  # of a domain x.d01, or a tenant blue.x: nobody can tell
        elif one.number == DEFAULT or one.name.endswith(suffixes):
            mine.append(one)
            if one.number != DEFAULT and one.members - ours:
                blockers.append(build_blocker(one.name, "it has GPUs of no planned tray"))
        elif taken := one.members & ours:
            blockers.append(
                build_blocker(one.name, f"it is nobody's of ours, and has {len(taken)} GPUs")
            )
    if len({one.name for one in mine}) != len(mine):
        blockers.append(build_blocker("partitions", "two of them have one name"))
    if blockers:
        return PartitionPlan(blockers=tuple(blockers))
    acts = tuple(_find_acts(mine, wanted, ours))
    return PartitionPlan(acts, wrong=() if acts else tuple(find_wrong(mine, gpus, ours)))


def _judge_own(own: Mapping[str, set[Place]], domains: Mapping[str, str]) -> Iterable[Blocker]:
    """Yield why the listed GPUs are not those of the planned domains."""
    fewest = min(own, key=lambda tray: len(own[tray]), default="")
    if len({len(places) for places in own.values()}) > 1:
        yield build_blocker(fewest, f"it shows {len(own[fewest])} GPUs, and others more")
    yield from judge_domains(own, domains)


def judge_domains(own: Mapping[str, Set[Place]], domains: Mapping[str, str]) -> Iterable[Blocker]:
    """Yield why the listed GPUs of trays are not of their planned domains, by domain."""
    told: dict[str, set[str]] = {}
    for tray, places in own.items():
        told.setdefault(domains[tray], set()).update(place.domain for place in places)
    for domain, uuids in told.items():
        if len(uuids) > 1:
            yield build_blocker(domain, f"its trays are in {len(uuids)} NVLink domains")
        if any(other != domain and uuids & each for other, each in told.items()):
            yield build_blocker(domain, "its NVLink domain is another planned one's, too")


def _find_own(plan: RackPlan, gpus: Sequence[Gpu]) -> tuple[dict[str, set[Place]], list[Blocker]]:
    """Return the GPUs of each tray, by the rack's serial and the tray's slot."""
    by_slot: dict[tuple[str, int], set[Place]] = {}
    for gpu in gpus:
        by_slot.setdefault((gpu.chassis_serial, gpu.place.slot), set()).add(gpu.place)
    own: dict[str, set[Place]] = {}
    blockers: list[Blocker] = []
    for rack in plan.racks:
        for unit in (u for u in rack.units if u.kind is Kind.COMPUTE_TRAY):
            assert unit.slot is not None
            found = by_slot.get((rack.chassis_serial, unit.slot), set())
            if not found:
                blockers.append(build_blocker(unit.name, "the manager lists no GPU in its slot"))
            own[unit.name] = found
    return own, blockers


def _find_acts(
    mine: Sequence[Partition], wanted: Mapping[str, set[Place]], ours: set[Place]
) -> Iterable[PartitionAct]:
    """Yield what leaves first, and then what enters."""
    left: dict[str, frozenset[Place]] = {}
    for one in mine:
        assert one.members is not None
        keeps = frozenset(wanted.get(one.name, ()))
        stays = one.members - ours | one.members & keeps
        if one.number != DEFAULT:
            stays = one.members & keeps
        left[one.name] = stays
        if not stays and not keeps:
            yield PartitionAct(Verb.DELETE, one.name, ident=one.ident)
        elif stays != one.members and stays:
            yield PartitionAct(Verb.SET, one.name, stays, one.ident)
        elif stays != one.members:  # nothing of it stays, and it is made anew
            yield PartitionAct(Verb.DELETE, one.name, ident=one.ident)
            del left[one.name]
    idents = {one.name: one.ident for one in mine}
    for name, places in sorted(wanted.items()):
        if name not in left:
            yield PartitionAct(Verb.CREATE, name, frozenset(places))
        elif left[name] != places:
            yield PartitionAct(Verb.SET, name, frozenset(places), idents[name])


def find_wrong(mine: Sequence[Partition], gpus: Sequence[Gpu], ours: Set[Place]) -> Iterable[str]:
    """Yield each partition that is ill, and each GPU that the manager says elsewhere to be in
    another one.
    """
    for one in mine:
        if one.number != DEFAULT and one.health != "HEALTHY":
            yield f"{one.name} says {one.health or 'nothing of its health'}"
    numbers = {place: one.number for one in mine for place in one.members or ()}
    for gpu in gpus:
        if gpu.place in ours and gpu.partition != numbers.get(gpu.place):
            where = f"slot {gpu.place.slot}, GPU {gpu.place.device}"
            told = gpu.partition or "no partition"
            yield f"{where} says {told}, and is listed in {numbers.get(gpu.place, 'none')}"


def is_so(act: PartitionAct, partitions: Sequence[Partition]) -> bool:
    """Return whether a listing shows the end of an act."""
    named = [one for one in partitions if one.name == act.name]
    if act.verb is Verb.DELETE:
        return all(one.ident != act.ident for one in named)
    return [one.members for one in named] == [act.members]


def build_blocker(subject: str, detail: str) -> Blocker:
    return Blocker(
        reason=Reason.CANNOT_TELL, subject=subject or "partition", detail=detail, unblock=_REMEDY
    )

"""Diagnosis: the suspected parts, with a confidence and a rule for each, from the evidence. Pure.

The rules are data (`diagnosis_rules.csv`), each with its source. Several findings for the same part
strengthen one another; a rule that locates the cause elsewhere weakens suspects whose findings
follow from that cause, and parts that fail together have one suspect (`diagnosis.py`). A
diagnosis condemns no part: a remedy is tried, and measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from provisioner.model.base import Record
from provisioner.model.case import Fault, PartClass, RemedyKind, Suspect
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.names import find_pci
from provisioner.model.shipped_tables import read_table
from provisioner.planning.certification.regression import Parts

# ------------------------------------------------------------------------------
# Shared causes: one suspect for parts that fail together. Pure.
#
# Three power supplies without input have one feed, eight GPUs without NVLink one Fabric Manager.
# The
# causes are data (`shared_causes.csv`), each with its source: how many parts of which classes have
# to be accused at once, and which other evidence a cause needs or excludes. The parts of a shared
# cause keep a small share of their suspicion, as those that another finding explains.


EVIDENCE_MAX = 6  # lines of one suspect


class SharedCause(Record):
    """One line of the table. Empty patterns exclude nothing."""

    name: str
    kinds: frozenset[PartClass]  # of the suspects that it may explain
    words: re.Pattern[str]  # in the evidence of each of them
    parts_min: int  # different parts that are accused at once
    kinds_min: int  # different kinds of device among them
    needs: re.Pattern[str] | None  # in some fault
    unless: re.Pattern[str] | None  # in no fault
    inventory: DeviceKind | None  # of which the BMC lists at least one
    kind: PartClass
    part: str
    confidence: float
    start: RemedyKind | None
    why: str
    citation: str

    model_config = Record.model_config | {"arbitrary_types_allowed": True}

    def select_explained(
        self, suspects: Iterable[Suspect], faults: Sequence[Fault], inventory: Inventory | None
    ) -> tuple[Suspect, ...]:
        """Return the suspects that this cause explains; () if the evidence is not that of it."""
        texts = [f"{f.id} {f.part} {f.detail}" for f in faults]
        if self.needs is not None and not any(map(self.needs.search, texts)):
            return ()
        if self.unless is not None and any(map(self.unless.search, texts)):
            return ()
        if self.inventory is not None and (
            inventory is None or not inventory.devices_of(self.inventory)
        ):
            return ()
        members = tuple(
            s for s in suspects if s.kind in self.kinds and any(map(self.words.search, s.evidence))
        )
        parts = {s.part for s in members}
        devices = {_name_kind(s) for s in members}
        is_enough = len(parts) >= self.parts_min and len(devices) >= self.kinds_min
        return members if is_enough else ()

    def accuse(self, members: Sequence[Suspect]) -> Suspect:
        lines = dict.fromkeys(s.evidence[0] for s in members if s.evidence)
        return Suspect(
            part=self.part,
            kind=self.kind,
            confidence=self.confidence,
            rule=self.name,
            why=f"{self.why} ({self.citation})",
            evidence=tuple(lines)[:EVIDENCE_MAX],
        )


@cache
def load_shared_causes() -> tuple[SharedCause, ...]:
    """Return the table, in its order: the first cause that fits is the one that counts."""
    table = read_table("provisioner.planning.repair", "shared_causes.csv")
    return tuple(_read_row(row) for row in table)


def _read_row(row: Mapping[str, str]) -> SharedCause:
    def compile_pattern(name: str) -> re.Pattern[str]:
        return re.compile(row[name], re.IGNORECASE)

    return SharedCause(
        name=row["name"],
        kinds=frozenset(PartClass(word) for word in row["kinds"].split()),
        words=compile_pattern("words"),
        parts_min=int(row["parts_min"]),
        kinds_min=int(row["kinds_min"]),
        needs=compile_pattern("needs") if row["needs"] else None,
        unless=compile_pattern("unless") if row["unless"] else None,
        inventory=DeviceKind(row["inventory"]) if row["inventory"] else None,
        kind=PartClass(row["kind"]),
        part=row["part"],
        confidence=float(row["confidence"]),
        start=RemedyKind(row["start"]) if row["start"] else None,
        why=row["why"],
        citation=row["citation"],
    )


def find_shared_cause(
    suspects: Sequence[Suspect], faults: Sequence[Fault], inventory: Inventory | None
) -> tuple[SharedCause, tuple[Suspect, ...]] | None:
    """Return the first cause of the table that the evidence shows, with what it explains."""
    for cause in load_shared_causes():
        if members := cause.select_explained(suspects, faults, inventory):
            return cause, members
    return None


_KIND = re.compile(r"[A-Za-z]+")


def _name_kind(suspect: Suspect) -> str:
    """Return the kind of device of a suspect: the letters at the beginning of its slot."""
    match = _KIND.search(suspect.part.rpartition("/")[2])
    return match[0].casefold() if match else suspect.kind.value


CLEARED = 0.3  # share that remains of a suspicion which another finding explains
SUSPECTS_MAX = 8
_NODE = frozenset({"", "host", "node", "fabric", "hgx"})
_SLOT = re.compile(
    r"\b((?:GPU_SXM|NVSwitch|DPU|NIC|PSU|FAN|DIMM|CPU)_?\d{1,3}|DIMM_?[A-Z]\d{1,2}"
    r"|GPU \d{1,3}|rail ?\d{1,2}|mlx5_\d{1,2}|nvme\d{1,3})(?=n\d|\b)",
    re.IGNORECASE,
)


class Rule(Record):
    """One line of the table. Empty patterns match everything; all patterns must match."""

    name: str
    source: re.Pattern[str]
    id: re.Pattern[str]
    part: re.Pattern[str]
    words: re.Pattern[str]
    kind: PartClass
    confidence: float
    start: RemedyKind | None  # the first useful remedy; None: the first of the escalation order
    clears: frozenset[PartClass]
    why: str
    citation: str
    otherwise: bool = False  # only for a fault that no other line fits

    model_config = Record.model_config | {"arbitrary_types_allowed": True}

    def fits_fault(self, fault: Fault) -> bool:
        return (
            self.source.fullmatch(fault.source) is not None
            and self.id.search(fault.id) is not None
            and self.part.search(fault.part) is not None
            and self.words.search(f"{fault.id} {fault.detail}") is not None
        )


class Diagnosis(Record):
    """Suspects, most likely first, and the first remedy of the best rule for the first suspect."""

    suspects: tuple[Suspect, ...]
    start: RemedyKind | None = None


@cache
def load_rules() -> tuple[Rule, ...]:
    """Return the table, in its order."""
    table = read_table("provisioner.planning.repair", "diagnosis_rules.csv")
    return tuple(_rule(row) for row in table)


def _rule(row: Mapping[str, str]) -> Rule:
    def compile_pattern(name: str) -> re.Pattern[str]:
        return re.compile(row[name], re.IGNORECASE)

    return Rule(
        name=row["name"],
        source=compile_pattern("source"),
        id=compile_pattern("id"),
        part=compile_pattern("part"),
        words=compile_pattern("words"),
        kind=PartClass(row["kind"]),
        confidence=float(row["confidence"]),
        start=RemedyKind(row["start"]) if row["start"] else None,
        clears=frozenset(PartClass(word) for word in row["clears"].split()),
        why=row["why"],
        citation=row["citation"],
        otherwise=row.get("otherwise") == "yes",
    )


def diagnose(
    faults: Iterable[Fault],
    inventory: Inventory | None,
    table: Sequence[Rule] | None = None,
    gone: Parts = (),
) -> Diagnosis:
    """Return the suspects; if no rule matches, the node itself with a low confidence.

    The order of the faults is irrelevant. `gone`: earlier parts that the inventory no longer lists;
    a suspect among them keeps its serial.
    """
    ordered = sorted(set(faults), key=lambda f: (f.key, f.detail, f.at))
    rules = load_rules() if table is None else table
    matches = [(r, f) for f in ordered for r in find_rules(f, rules)]
    cleared = {kind for rule, _ in matches for kind in rule.clears}
    groups: dict[tuple[PartClass, str], list[tuple[Rule, Fault]]] = {}
    for rule, fault in matches:
        part = part_of(fault, rule.kind)
        device = device_of(fault.part, inventory) or device_of(part, inventory)
        name = part if device is None or rule.kind is PartClass.LEAF else device.slot
        groups.setdefault((rule.kind, name), []).append((rule, fault))
    suspects = [
        _suspect(kind, part, group, cleared, inventory) for (kind, part), group in groups.items()
    ]
    suspects = [_as_it_was(suspect, gone) for suspect in suspects]
    starts = {r.name: r.start for r, _ in matches}
    if (shared := find_shared_cause(suspects, ordered, inventory)) is not None:
        cause, members = shared
        suspects = [_doubt(s) if s in members else s for s in suspects]
        suspects.append(cause.accuse(members))
        starts[cause.name] = cause.start
    if not suspects:
        suspects = [_nobody(ordered)]
    suspects.sort(key=lambda s: (-s.confidence, s.part in _NODE, s.kind, s.part))
    best = suspects[0]
    return Diagnosis(suspects=tuple(suspects[:SUSPECTS_MAX]), start=starts.get(best.rule))


def find_rules(fault: Fault, rules: Sequence[Rule]) -> Sequence[Rule]:
    """Return the lines that apply; those marked `otherwise` only where no other one does."""
    fitting = [rule for rule in rules if rule.fits_fault(fault)]
    return [rule for rule in fitting if not rule.otherwise] or fitting


def part_of(fault: Fault, kind: PartClass) -> str:
    """Return the part of a fault, in the terms of people and inventories; "host" for the node."""
    if kind is PartClass.LEAF:
        return fault.part or "leaf"
    for text in (fault.part, fault.detail):
        if match := _SLOT.search(text):
            return match[1]
    return "host" if fault.part.casefold() in _NODE else fault.part


def _suspect(
    kind: PartClass,
    part: str,
    group: Sequence[tuple[Rule, Fault]],
    cleared: set[PartClass],
    inventory: Inventory | None,
) -> Suspect:
    best = max(group, key=lambda pair: (pair[0].confidence, pair[0].name))[0]
    doubt = 1.0
    # each rule counts once for a part: ten lines of one log are one piece of evidence
    for confidence in {r.name: r.confidence for r, _ in group}.values():
        doubt *= 1.0 - confidence
    sure = 1.0 - doubt
    if kind in cleared:
        sure *= CLEARED
    device = device_of(part, inventory)
    lines = dict.fromkeys(
        f"{f.source} {f.id}{f' at {f.part}' if f.part else ''}: {f.detail}"[:300] for _, f in group
    )
    return Suspect(
        part=part if device is None else device.slot,
        kind=kind,
        confidence=round(min(sure, 0.99), 3),
        rule=best.name,
        why=f"{best.why} ({best.citation})",
        evidence=tuple(lines)[:EVIDENCE_MAX],
        serial=(device.serial or "") if device else "",
        part_number=(device.part or "") if device else "",
    )


def _doubt(suspect: Suspect) -> Suspect:
    return suspect.model_copy(update={"confidence": round(suspect.confidence * CLEARED, 3)})


def _as_it_was(suspect: Suspect, gone: Parts) -> Suspect:
    for _, slot, serial, model in gone:
        if slot == suspect.part and not suspect.serial:
            return suspect.model_copy(update={"serial": serial, "part_number": model})
    return suspect


def _nobody(seen: Sequence[Fault]) -> Suspect:
    lines = tuple(f"{f.source} {f.id}: {f.detail}"[:300] for f in seen[:EVIDENCE_MAX])
    return Suspect(
        part="host",
        kind=PartClass.HOST,
        confidence=0.1,
        rule="",
        why="no rule matches the observed faults",
        evidence=lines,
    )


def device_of(part: str, inventory: Inventory | None) -> Device | None:
    """The part's device in the inventory: by its slot, or a GPU by its number in PCI order."""
    if inventory is None or not part:
        return None
    pci = find_pci(part)
    for device in inventory.devices:
        if device.slot == part or (pci and find_pci(device.pci or "") == pci):
            return device
    if match := re.fullmatch(r"GPU (\d{1,3})", part):
        gpus = sorted(
            (d for d in inventory.devices if d.kind.value == "gpu" and d.pci),
            key=lambda d: d.pci or "",
        )
        number = int(match[1])
        return gpus[number] if number < len(gpus) else None
    return None

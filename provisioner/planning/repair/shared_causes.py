"""Shared causes: one suspect for parts that fail together. Pure.

Three power supplies without input have one feed, eight GPUs without NVLink one Fabric Manager. The
causes are data (`shared_causes.csv`), each with its source: how many parts of which classes have
to be accused at once, and which other evidence a cause needs or excludes. The parts of a shared
cause keep a small share of their suspicion, as those that another finding explains.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources

from provisioner.model.base import Record
from provisioner.model.case import Fault, PartClass, RemedyKind, Suspect
from provisioner.model.inventory import DeviceKind, Inventory

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
        """Return the suspect that stands for the parts that it explains."""
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
    folder = resources.files("provisioner.planning.repair")
    text = folder.joinpath("shared_causes.csv").read_text()
    return tuple(_read_row(row) for row in csv.DictReader(text.splitlines()))


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

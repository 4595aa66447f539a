"""What the program says of each entry, and how often it is right, by kind of fault.

An entry goes the way of a validation in production: the checks judge the outputs, their findings
become faults, faults are placed by the names that the node's own tables give its parts, and the
table of diagnosis names suspects. The first suspect is the program's answer.

Of a kind: precision is the share of the entries accused of it that have it; recall the share of
those that have it and are accused of it; the culprit's accuracy the share of those that have it,
and name a part, whose first suspect is that part. The sums run over all kinds of fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from corpus_entries import HEALTHY, KINDS, Entry, build_outputs
from healthy_node import CONTEXT, INVENTORY, NODE, write_tables

from provisioner.model.base import Record
from provisioner.model.cohort import HealthReport
from provisioner.planning.repair.case_policy import faults_of
from provisioner.planning.repair.diagnosis import diagnose
from provisioner.planning.repair.part_names import at_missing, locate_fault, names_of

PRECISION_MIN = 0.97
RECALL_MIN = 0.95
CULPRIT_MIN = 0.95


class Answer(Record):
    """The program's answer to one entry: a kind of part and a part, or "healthy"."""

    entry: Entry
    kind: str
    part: str = ""
    evidence: str = ""

    @property
    def right_kind(self) -> bool:
        """Return whether the kind is the label's."""
        return self.kind == self.entry.kind

    @property
    def right_part(self) -> bool:
        """Return whether the culprit is the label's."""
        return self.right_kind and self.part == self.entry.part


class Score(Record):
    """Counts of one kind of fault, or of all."""

    kind: str
    entries: int
    accused: int
    right: int
    culprits: int  # entries of this kind that name a part
    right_culprits: int

    @property
    def precision(self) -> float:
        """Return the share of right accusations; 1 where there is none."""
        return self.right / self.accused if self.accused else 1.0

    @property
    def recall(self) -> float:
        """Return the share of faults that were recognised."""
        return self.right / self.entries if self.entries else 1.0

    @property
    def culprit(self) -> float:
        """Return the share of named parts that were the culprit."""
        return self.right_culprits / self.culprits if self.culprits else 1.0


def answer(entry: Entry) -> Answer:
    """Judge an entry's outputs and diagnose the node."""
    results = tuple(check.judge(outputs, CONTEXT) for check, outputs in build_outputs(entry))
    report = HealthReport(
        node=NODE.id, inventory_digest="", started_at=1.0, ended_at=2.0, results=results
    )
    faults = faults_of(NODE, report, ())
    if not faults:
        return Answer(entry=entry, kind=HEALTHY)
    names = names_of(NODE, INVENTORY, [write_tables()])
    placed = [locate_fault(f, names) for f in at_missing(faults, (), INVENTORY)]
    first = diagnose(placed, INVENTORY).suspects[0]
    return Answer(
        entry=entry,
        kind=first.kind.value,
        part=first.part,
        evidence=f"{first.rule}: {first.evidence}",
    )


def count_scores(answers: Sequence[Answer]) -> tuple[Score, ...]:
    """Return the scores of each kind that has an entry or an accusation, and "all" at the end."""
    rows = [_count(kind, answers) for kind in KINDS if kind != HEALTHY]
    rows = [row for row in rows if row.entries or row.accused]
    return (*rows, _add(rows))


def list_misses(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """Return the answers whose kind, or whose named culprit, is wrong."""
    return tuple(a for a in answers if not (a.right_part if a.entry.part else a.right_kind))


def _count(kind: str, answers: Sequence[Answer]) -> Score:
    labelled = [a for a in answers if a.entry.kind == kind]
    return Score(
        kind=kind,
        entries=len(labelled),
        accused=sum(a.kind == kind for a in answers),
        right=sum(a.right_kind for a in labelled),
        culprits=sum(bool(a.entry.part) for a in labelled),
        right_culprits=sum(bool(a.entry.part) and a.right_part for a in labelled),
    )


def _add(rows: Sequence[Score]) -> Score:
    return Score(
        kind="all",
        entries=sum(r.entries for r in rows),
        accused=sum(r.accused for r in rows),
        right=sum(r.right for r in rows),
        culprits=sum(r.culprits for r in rows),
        right_culprits=sum(r.right_culprits for r in rows),
    )

"""Golden values that a person admits from witness nodes: what to admit, what to leave out. Pure.

A signed answer of a witness proves whose it is and that it is new, not that its firmware is good:
that remains the reviewer's decision. An index that changed from one question to the next counts
something, and one with another value at each root of a group names the device: both are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from provisioner.checks.attestation.spdm_messages import parse_signed_measurements
from provisioner.checks.attested_firmware import name_row, read_report, read_rows, verify_row
from provisioner.checks.check import CheckContext, Unreadable
from provisioner.checks.collected_reports import KINDS, judge_devices
from provisioner.model.base import Record
from provisioner.model.certificate import Attestation, Effect, FindingName, Unacceptable
from provisioner.model.cohort import Evidence
from provisioner.model.matrix import AttestationRule, AttestedComponents, TrustedMaker

_WITHOUT_REFERENCE = frozenset(
    {FindingName.REFERENCE_MISSING, FindingName.RIM_NOT_ADMITTED, FindingName.RIM_OTHER}
)
_NUMBER = re.compile(r"_\d+$")


class WitnessedGroup(Record):
    """The roots of one glob: what may be admitted for them, and which indices are left out."""

    pattern: str
    roots: tuple[str, ...]
    questions: int  # fewest of one root: with one, an index that counts is not recognised
    digests: Mapping[int, tuple[str, ...]]
    counting: tuple[int, ...] = ()  # changed from one question to the next
    individual: tuple[int, ...] = ()  # with another value at each root

    def write_rule(self, learned_from: str) -> AttestedComponents:
        """Return the rule of the matrix that admits these values."""
        return AttestedComponents(
            count=len(self.roots), digests=dict(self.digests), learned_from=learned_from
        )


class Witnessed(Record):
    """The result over all evidence; with a refusal nothing should be admitted."""

    groups: tuple[WitnessedGroup, ...]
    refusals: tuple[tuple[str, str], ...] = ()  # root, and why its answer proves nothing


def collect_witnessed(
    questions: Sequence[Mapping[str, Evidence]],
    patterns: Sequence[str] = (),
    makers: Sequence[TrustedMaker] = (),
) -> Witnessed:
    """Return what the answers of witnesses show, by glob. Raises `Unreadable`.

    `questions`: the stored evidence of one or several questions, of one or several nodes.
    `patterns`: globs of the roots; by default one for the roots whose names differ by a number.
    """
    answers: dict[tuple[str, str], list[Mapping[int, str]]] = {}
    refusals: list[tuple[str, str]] = []
    for evidence in questions:
        rows, asked_at = read_rows(evidence)
        for row in rows:
            name = name_row(row)
            if patterns and not any(fnmatchcase(name, p) for p in patterns):
                continue
            if not isinstance(row.get("signed"), str):
                refusals.append((name, f"it gave no signed answer: {row.get('problem')}"[:200]))
                continue
            result = verify_row(row, makers, {}, "", asked_at)
            if reason := _find_reason(result):
                refusals.append((name, reason))
                continue
            answers.setdefault((name, result.identity), []).append(_read_values(read_report(row)))
    names = sorted({name for name, _ in answers})
    globs = list(patterns) or list(_find_globs(names))
    groups = (_group(glob, answers) for glob in globs)
    return Witnessed(groups=tuple(g for g in groups if g is not None), refusals=tuple(refusals))


def collect_devices(
    questions: Sequence[Mapping[str, Evidence]], makers: Sequence[TrustedMaker] = ()
) -> tuple[Mapping[str, WitnessedGroup], tuple[tuple[str, str], ...]]:
    """Return what reports of GPUs and NVSwitches show, by the name of their rule, and the refusals.

    Raises `Unreadable`.
    """
    asked = {"policy": "record"}
    rule = {"makers": tuple(makers), **{kind.name: asked for kind in KINDS}}
    context = CheckContext(attestation=AttestationRule.model_validate(rule))
    groups: dict[str, WitnessedGroup] = {}
    refusals: list[tuple[str, str]] = []
    for kind in KINDS:
        answers: dict[tuple[str, str], list[Mapping[int, str]]] = {}
        for evidence in (q for q in questions if kind.command.name in q):
            for device in judge_devices(kind, evidence, context)[0]:
                if reason := _find_reason(device.attestation):
                    refusals.append((device.name, reason))
                    continue
                key = (device.name, device.attestation.identity)
                answers.setdefault(key, []).append(_read_values(device.report))
        group = _group("*", answers)
        if group is not None:
            groups[kind.name] = group
    return groups, tuple(refusals)


def _find_reason(result: Attestation) -> str:
    """Return why an answer proves nothing; that no golden values exist yet is no reason."""
    return "; ".join(
        str(f)
        for f in result.findings
        if f.effect is not Effect.NOTES and f.name not in _WITHOUT_REFERENCE
    )[:300]


def _read_values(report: bytes) -> Mapping[int, str]:
    try:
        return {m.index: m.value.hex() for m in parse_signed_measurements(report).measurements}
    except Unacceptable as refused:  # it was parsed before
        raise Unreadable(str(refused.finding)) from None


def _find_globs(names: Sequence[str]) -> Iterator[str]:
    """Return a glob for each group of names that differ by their last number."""
    stems: dict[str, list[str]] = {}
    for name in names:
        stems.setdefault(_NUMBER.sub("_", name), []).append(name)
    for stem, members in stems.items():
        yield members[0] if len(members) == 1 else f"{stem}*"


def _group(
    pattern: str, answers: Mapping[tuple[str, str], Sequence[Mapping[int, str]]]
) -> WitnessedGroup | None:
    mine = {key: rows for key, rows in answers.items() if fnmatchcase(key[0], pattern)}
    if not mine:
        return None
    common = set.intersection(*(set(values) for rows in mine.values() for values in rows))
    digests: dict[int, tuple[str, ...]] = {}
    counting: list[int] = []
    individual: list[int] = []
    for index in sorted(common):
        of_roots = [{values[index] for values in rows} for rows in mine.values()]
        distinct = set().union(*of_roots)
        if any(len(values) > 1 for values in of_roots):
            counting.append(index)
        elif len(mine) > 1 and len(distinct) == len(mine):
            individual.append(index)
        else:
            digests[index] = tuple(sorted(distinct))
    return WitnessedGroup(
        pattern=pattern,
        roots=tuple(sorted({name for name, _ in mine})),
        questions=min(len(rows) for rows in mine.values()),
        digests=digests,
        counting=tuple(counting),
        individual=tuple(individual),
    )

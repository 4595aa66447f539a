"""Faults of a matrix, and the conditions in it that no version can meet. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from provisioner.model.versions import compare, parse_version
from provisioner.planning.matrix.located_yaml import Path
from provisioner.planning.path import conditions
from provisioner.planning.path.pins import grammar_of


class Fault(NamedTuple):
    """One fault. Without `blocks` it is worth a note only."""

    path: Path
    where: str
    problem: str
    remedy: str
    blocks: bool = True


def find_empty_condition(kind: str, text: str) -> str:
    """Return why a condition on a kind can never hold, "" if it can."""
    grammar = grammar_of(kind)
    terms = [term for term in conditions.parse_terms(text) if term[0] != "="]
    for operator, operand in terms:
        if grammar == "opaque" and operator not in ("==", "!="):
            return f"versions of {kind} have no order, so {operator}{operand} never holds"
        if grammar != "opaque" and parse_version(grammar, operand) is None:
            return f"'{operand}' is no version as {kind} writes them, so nothing compares with it"
    if len(terms) > 1 and not any(
        all(conditions.satisfies_term(grammar, version, term) for term in terms)
        for version in _list_candidates(grammar, terms)
    ):
        return f"no version of {kind} is {text}"
    return ""


def _list_candidates(grammar: str, terms: list[conditions.Term]) -> Iterator[str]:
    """Return versions of which one satisfies the terms if any version does.

    Beside the operands these are versions just above each operand: for numbers, the operand with
    one more part.
    """
    for _, operand in terms:
        yield operand
        for longer in (f"{operand}.1", f"{operand}.0.0.1", f"{operand}1"):
            if compare(grammar, longer, operand) == 1:
                yield longer

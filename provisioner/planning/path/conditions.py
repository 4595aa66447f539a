"""Version conditions of the matrix, and whether the running versions satisfy them.

    ==1.2   !=1.2   >=5.11.0.0026   <2   >=535,<580   =host.driver

A bare version means `==`. `=kind` means "the same version as that other component". A condition
that cannot be evaluated (an unreadable version, a grammar without an order) gives None, which never
counts as satisfied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from provisioner.model import versions

_TERM = re.compile(r"\s*(==|!=|>=|<=|=|>|<)?\s*([^\s<>=!,]+)\s*")
_KIND = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")  # "host.driver"; no version starts so

Term = tuple[str, str]  # operator, operand

# component kind -> the distinct versions that run, or None if no component of the kind is visible
Running = Callable[[str], Collection[str] | None]

_ORDER: dict[str, frozenset[int]] = {
    "==": frozenset({0}),
    "!=": frozenset({-1, 1}),
    ">=": frozenset({0, 1}),
    "<=": frozenset({0, -1}),
    ">": frozenset({1}),
    "<": frozenset({-1}),
}


@lru_cache(maxsize=4096)
def parse_terms(text: str) -> tuple[Term, ...]:
    """Parse a condition into its terms, all of which must hold.

    Raises ValueError if a term is not a version condition.
    """
    out: list[Term] = []
    for part in text.split(","):
        match = _TERM.fullmatch(part)
        if match is None:
            raise ValueError(f'"{part.strip()}" is not a version condition')
        operator = match[1] or "=="
        operand = match[2]
        if operator == "=" and not _KIND.fullmatch(operand):
            raise ValueError(f'"={operand}" must name a component kind; write "==" for a version')
        out.append((operator, operand))
    return tuple(out)


def list_kinds(side: Mapping[str, str]) -> set[str]:
    """Return the component kinds that a set of conditions reads, also as `=kind`."""
    operands = (term for text in side.values() for term in parse_terms(text))
    return set(side) | {operand for operator, operand in operands if operator == "="}


def satisfies_term(grammar: str, version: str, term: Term) -> bool | None:
    """Return whether one version satisfies one term; None if the two cannot be compared."""
    operator, operand = term
    order = versions.compare(grammar, version, operand)
    if order is not None:
        return order in _ORDER[operator]
    if grammar == "opaque" and operator in ("==", "!="):
        return operator == "!="  # two names that differ are two versions
    return None


def all_versions_satisfy(
    condition: str, kind: str, grammars: Mapping[str, str], running: Running
) -> bool | None:
    """Return whether every running version of `kind` satisfies the condition.

    Returns None if that cannot be evaluated, and False if no component of this kind is visible.
    """
    return _evaluate(all, condition, kind, grammars, running)


def any_version_satisfies(
    condition: str, kind: str, grammars: Mapping[str, str], running: Running
) -> bool | None:
    """Return whether at least one running version of `kind` satisfies the condition, or None."""
    return _evaluate(any, condition, kind, grammars, running)


def _evaluate(
    quantifier: Callable[[list[bool]], bool],
    condition: str,
    kind: str,
    grammars: Mapping[str, str],
    running: Running,
) -> bool | None:
    here = running(kind)
    if not here:
        return False
    results: list[bool | None] = []
    for version in sorted(here):
        each = [
            _evaluate_term(version, term, kind, grammars, running)
            for term in parse_terms(condition)
        ]
        results.append(False if False in each else None if None in each else True)
    if quantifier is any and True in results:
        return True
    if quantifier is all and False in results:
        return False
    if None in results:
        return None
    return quantifier([bool(r) for r in results])


def _evaluate_term(
    version: str, term: Term, kind: str, grammars: Mapping[str, str], running: Running
) -> bool | None:
    operator, operand = term
    grammar = grammars.get(kind, "opaque")
    if operator != "=":
        return satisfies_term(grammar, version, term)
    operand_versions = running(operand)
    if not operand_versions:
        return False
    return all(
        versions.is_same_version(grammar, version, operand_version)
        for operand_version in operand_versions
    )

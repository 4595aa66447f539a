"""Version conditions as the matrix writes them, and whether they hold for what runs.

    ==1.2   !=1.2   >=5.11.0.0026   <2   >=535,<580   =host.driver

A bare version means `==`. `=kind` means "the same version as that other component". What cannot be
told (an unreadable version, a grammar that has no order) is None: never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from provisioner.model import versions

_TERM = re.compile(r"\s*(==|!=|>=|<=|=|>|<)?\s*([^\s<>=!,]+)\s*")
_KIND = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")  # "host.driver"; no version starts so

Term = tuple[str, str]  # operator, operand

# component kind -> the distinct versions that run, or None if nothing of this kind is in sight
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
def terms(text: str) -> tuple[Term, ...]:
    """The condition as its terms, all of which must hold; ValueError says what is wrong."""
    out: list[Term] = []
    for part in text.split(","):
        found = _TERM.fullmatch(part)
        if found is None:
            raise ValueError(f'"{part.strip()}" is not a version condition')
        operator, operand = found[1] or "==", found[2]
        if operator == "=" and not _KIND.fullmatch(operand):
            raise ValueError(f'"={operand}" must name a component kind; write "==" for a version')
        out.append((operator, operand))
    return tuple(out)


def term_holds(grammar: str, version: str, term: Term) -> bool | None:
    """Whether one version satisfies one term that compares with a version."""
    operator, operand = term
    order = versions.compare(grammar, version, operand)
    if order is not None:
        return order in _ORDER[operator]
    if grammar == "opaque" and operator in ("==", "!="):
        return operator == "!="  # two names that differ are two versions
    return None


def holds(condition: str, kind: str, grammars: Mapping[str, str], running: Running) -> bool | None:
    """Whether every version of `kind` that runs satisfies the condition; None: cannot be told.

    A kind that is nowhere in sight is False.
    """
    return _over(all, condition, kind, grammars, running)


def any_holds(
    condition: str, kind: str, grammars: Mapping[str, str], running: Running
) -> bool | None:
    """Whether at least one version of `kind` that runs satisfies the condition."""
    return _over(any, condition, kind, grammars, running)


def _over(
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
        each = [_term(version, term, kind, grammars, running) for term in terms(condition)]
        results.append(False if False in each else None if None in each else True)
    if quantifier is any and True in results:
        return True
    if quantifier is all and False in results:
        return False
    if None in results:
        return None
    return quantifier([bool(r) for r in results])


def _term(
    version: str, term: Term, kind: str, grammars: Mapping[str, str], running: Running
) -> bool | None:
    operator, operand = term
    grammar = grammars.get(kind, "opaque")
    if operator != "=":
        return term_holds(grammar, version, term)
    others = running(operand)
    if not others:
        return False
    return all(versions.equal(grammar, version, other) for other in others)

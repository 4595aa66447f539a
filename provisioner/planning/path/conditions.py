"""Version conditions of the matrix, and whether the running versions satisfy them.

    ==1.2   !=1.2   >=5.11.0.0026   <2   >=535,<580   =host.driver

A bare version means `==`. `=kind` means "the same version as that other component". A condition
that cannot be evaluated (an unreadable version, a grammar without an order) gives None, which never
counts as satisfied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from provisioner import components
from provisioner.model import versions
from provisioner.model.machine.settings import NVME_FIRMWARE, have_same_model, split_version
from provisioner.model.matrix import Pin
from provisioner.model.versions import is_same_version

# ------------------------------------------------------------------------------
# Compare a running version with its pin, in one way for planner, drift, API and console.
#
# Versions are compared by the component's own grammar, never as text: 32.44.1036 and 32.44.1036.0
# may be one version, and devices print versions in many forms. Pure.


@dataclass(frozen=True)
class PinVerdict:
    """The result of a comparison.

    `met` is None if nothing can be compared, and `why` gives the cause.
    """

    met: bool | None
    why: str = ""


def grammar_of(kind: str) -> str:
    """Return the name of the grammar of a component's versions."""
    declared = components.ALL.get(kind)
    return "opaque" if declared is None else declared.grammar


def is_pinned(grammar: str, version: str, pin: Pin) -> bool:
    return any(is_same_version(grammar, version, name) for name in (pin.version, *pin.also))


def select_target(kind: str, version: str | None, pin: Pin) -> str:
    """Return the pinned version that a part running `version` must have.

    A pin of drives has one for each model; "" if it has none for the model of this drive.
    """
    if kind != NVME_FIRMWARE or not pin.known:
        return pin.version
    names = (pin.version, *pin.also)
    return next((name for name in names if have_same_model(name, version or "")), "")


def judge_pin(kind: str, version: str | None, pin: Pin | None) -> PinVerdict:
    """Return whether the running version meets the pin, or why the two cannot be compared."""
    if pin is None:
        return PinVerdict(None, "not pinned")
    if not pin.known:
        return PinVerdict(None, "the pin is unknown: nobody publishes the version")
    if not version:
        return PinVerdict(None, "the device gives no version")
    if not select_target(kind, version, pin):
        model = split_version(version)[0] or version
        return PinVerdict(None, f"no firmware is pinned for drives of the model {model}")
    return PinVerdict(is_pinned(grammar_of(kind), version, pin))


# ------------------------------------------------------------------------------
# The place of each component kind in the order of flashing, and kinds that go one at a time.
#
# Among plans of equal cost the order of tracks decides. source: as `flash_order`.


# kinds whose slots are written one at a time: six supplies at once leave the host without power
ONE_AT_A_TIME = frozenset({"host.psu"})

# by the beginning of a kind's name; the first that fits
_RANKS = (
    ("host.bmc", 0),
    ("host.erot", 1),
    ("host.cpld", 1),
    ("host.fpga", 1),
    ("host.", 2),
    ("hgx.", 3),
    ("", 4),  # cards, software and configuration
)


def get_rank(kind: str) -> int:
    """Return the place of a kind: BMC, roots of trust, motherboard tray, GPU tray, cards."""
    return next(rank for prefix, rank in _RANKS if kind.startswith(prefix))


# ------------------------------------------------------------------------------
# Names of GPU models, matched by whole tokens: "*H200*" is no GH200, and "*H20*" is no H200. Pure.
#
# A model is printed inside longer names ("NVIDIA H100 80GB HBM3"), and the names of other machines
# contain it, so that a plain glob takes a superchip for a baseboard.


def matches_token(glob: str, model: str) -> bool:
    """Return whether the glob, its outer "*" ending at edges of tokens, matches the model.

    At a leading "*" no letter or digit precedes the token; at a trailing one no digit follows it
    (MI300X is an MI300). Upper and lower case are the same.
    """
    return _pattern(glob).fullmatch(model.lower()) is not None


@lru_cache(maxsize=1024)  # as many as a matrix has profiles; far below
def _pattern(glob: str) -> re.Pattern[str]:
    token = glob.lower().strip("*")
    before = ".*(?<![a-z0-9])" if token[:1].isalnum() else ".*"
    after = "(?![0-9]).*" if token[-1:].isalnum() else ".*"
    before = before if glob.startswith("*") else ""
    after = after if glob.endswith("*") else ""
    return re.compile(before + translate(token).removesuffix(r"\Z") + after, re.DOTALL)


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

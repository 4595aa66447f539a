"""Matrix files with one fault each: none passes in silence, and each answer has line and remedy."""

from __future__ import annotations

import pytest
from treacherous_base import BASE, GOOD, REFUSED
from treacherous_edges import EDGES
from treacherous_releases import RELEASES

from provisioner.integrations.matrix_tools.deciding.review import Weight, review_matrix
from provisioner.model.input_error import InputError
from provisioner.planning.matrix.matrix_text import parse_located

FILES = {**EDGES, **RELEASES}


def judge(*texts: str) -> list[tuple[str, int, str]]:
    """Return (verdict, line, sentence) of each fault.

    Left out are those that only production asks about, and profiles without a policy of
    attestation: the base has none (`test_reference_gaps.py`).
    """
    try:
        matrix, located = parse_located([(f"{n}.yaml", t) for n, t in enumerate(texts, 1)])
    except InputError as error:
        line = error.where.removeprefix("line ").partition(",")[0]
        return [(REFUSED if error.remedy else "", int(line), error.problem)]
    remarks = review_matrix(matrix, located=located)
    return [
        (r.weight if r.remedy else "", r.line, f"{r.where}: {r.problem}")
        for r in remarks
        if r.weight is not Weight.PRODUCTION and not r.problem.startswith("no policy for ")
    ] or [(GOOD, 0, "")]


@pytest.mark.parametrize("name", FILES)
def test_a_fault_has_its_verdict_and_its_line(name: str) -> None:
    text, verdict, line = FILES[name]
    faults = judge(text)

    assert faults[0][0] == verdict, faults
    assert (verdict, line) in [fault[:2] for fault in faults], faults


def test_the_set_has_at_least_eighty_faults() -> None:
    assert sum(verdict != GOOD for _, verdict, _ in FILES.values()) >= 80


SITE_RULE = """
releases: {new: {requires: [{name: one rule, when: {host.bmc: ">=2"}, needs: {host.bmc: ">=1"},
  reason: a support case%s}]}}
"""
SITE_EDGE = """
edges: {host.bmc: [{from: ["1"], to: "2", activates_by: ac_cycle%s}]}
"""
LAYERS = {
    "a rule of an earlier name": (SITE_RULE % "", REFUSED),
    "a rule that replaces one": (SITE_RULE % ", override: true", GOOD),
    "a rule that replaces none": (
        SITE_RULE.replace("one rule", "two") % ", override: true",
        REFUSED,
    ),
    "a rule beside the earlier one": (SITE_RULE.replace("one rule", "two") % "", GOOD),
    "an edge that is there": (SITE_EDGE % "", REFUSED),
    "an edge that replaces one": (SITE_EDGE % ", override: true, reason: it needs power", GOOD),
    "an edge that replaces one without a reason": (SITE_EDGE % ", override: true", REFUSED),
    "an edge that replaces none": (
        SITE_EDGE.replace('to: "2"', 'to: "3"') % ", override: true, reason: it needs power",
        REFUSED,
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_an_overlay_replaces_or_adds_by_saying_so(name: str) -> None:
    site, verdict = LAYERS[name]
    faults = judge(BASE, site)

    assert faults[0][0] == verdict, faults


def test_a_replaced_rule_is_enforced_in_place_of_the_earlier_one() -> None:
    matrix, _ = parse_located([("base", BASE), ("site", SITE_RULE % ", override: true")])
    (rule,) = matrix.releases["new"].requires

    assert (rule.needs, rule.reason) == ({"host.bmc": ">=1"}, "a support case")


def test_a_replaced_edge_keeps_nothing_of_the_earlier_one() -> None:
    site = SITE_EDGE % ", override: true, reason: it needs power"
    matrix, _ = parse_located([("base", BASE), ("site", site)])
    (edge,) = matrix.edges["host.bmc"]

    assert (edge.activates_by, edge.evidence) == ("ac_cycle", "override: it needs power")

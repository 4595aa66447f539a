"""Which Cumulus release may follow which, and how: the published rules as sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner import components
from provisioner.integrations.matrix_tools.deciding.cumulus_moves import (
    find_forbidden_edges,
    find_violation,
)
from provisioner.integrations.matrix_tools.deciding.review import Weight, review_matrix
from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.matrix import Edge, Match, Matrix, Pin, Profile, Release
from provisioner.model.outcome import Reason
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.path.hops import IMAGE, ONIE, PACKAGES
from provisioner.planning.path.planner import plan

SHIPPED = Path(__file__).parents[2] / "firmware_matrix.yaml"
WAYS = {
    "the next maintenance release by image": ("5.11.3", "5.11.4", IMAGE, True),
    "two releases on by image": ("5.11.3.0012", "5.11.5.0040", IMAGE, True),
    "an older start has no image upgrade into 5.11.4": ("5.11.2", "5.11.4", IMAGE, False),
    "but packages": ("5.11.2", "5.11.4", PACKAGES, True),
    "packages from an older train where it is listed": ("5.10.1", "5.11.4", PACKAGES, True),
    "5.9.4 is listed": ("5.9.4", "5.11.5", PACKAGES, True),
    "5.9.3 is not": ("5.9.3", "5.11.5", PACKAGES, False),
    "packages never bring a new train": ("5.12.1", "5.13.0", PACKAGES, False),
    "an image does": ("5.11.0.0026", "5.12.1.100", IMAGE, True),
    "packages within a train": ("5.14.0", "5.14.1", PACKAGES, True),
    "no image leads back from 5.13 to 5.11": ("5.13.0", "5.11.5", IMAGE, False),
    "nor from later to earlier": ("5.16.1", "5.9.4", IMAGE, False),
    "ONIE does": ("5.16.1", "5.11.0.0026", ONIE, True),
    "ONIE leads anywhere": ("5.9.3", "5.11.5", ONIE, True),
}


@pytest.mark.parametrize("sentence", WAYS)
def test_a_release_may_follow_another(sentence: str) -> None:
    start, to, method, allowed = WAYS[sentence]

    assert (find_violation(start, to, method) == "") is allowed


def matrix(**edge: object) -> Matrix:
    pins = {"switch.os": Pin(version="5.11.5", artifact="a.bin", sha256="0" * 64, evidence="e")}
    profile = Profile(match=Match(kind="switch"), pins=pins)
    given = {"activates_by": Activation.IMAGE_REBOOT, "evidence": "e", "to": "5.11.5", **edge}
    return Matrix(
        releases={"r": Release(profiles={"p": profile})},
        edges={"switch.os": (Edge.model_validate(given),)},
    )


def at(version: str) -> Inventory:
    only = Component(kind="switch.os", slot="switch", version=version, source="test")
    return Inventory(node="leaf-0", vendor="nvidia", components=(only,))


@pytest.mark.parametrize(("method", "start"), [("onie", "5.9.3"), ("nvue_packages", "5.11.3")])
def test_onie_and_packages_are_planned_only_where_the_site_allows_them(
    method: str, start: str
) -> None:
    wanted = matrix(**{"from": [start], "method": method})

    refused = plan(at(start), wanted, "r", "p", kinds=components.ALL)
    allowed = plan(at(start), wanted, "r", "p", kinds=components.ALL, leave=frozenset({method}))

    assert [b.reason for b in refused.blockers] == [Reason.METHOD_FORBIDDEN]
    assert "switch_methods_allowed" in refused.blockers[0].unblock
    assert [s.method for s in allowed.steps if s.method] == [method]


def test_an_edge_that_the_published_rules_forbid_is_refused_with_the_matrix() -> None:
    wrong = matrix(**{"from": ["5.11.2"]})
    chained = matrix(**{"from": ["5.11.3"], "via": ["5.13.0"]})

    assert [r.weight for r in review_matrix(wrong) if "no published way" in r.problem] == [
        Weight.BLOCKS
    ]
    assert [place for place, _ in find_forbidden_edges(chained)] == [
        "edges.switch.os: 5.13.0 → 5.11.5"
    ]


def test_the_shipped_edges_follow_the_published_rules() -> None:
    shipped = parse([(str(SHIPPED), SHIPPED.read_text())])

    assert find_forbidden_edges(shipped) == ()
    assert {e.method for e in shipped.edges["switch.os"]} == {"", PACKAGES, ONIE}

"""What a move between two releases is said to cost, against what the matrix says."""

from __future__ import annotations

from pathlib import Path

from provisioner.model.matrix import Matrix
from provisioner.model.outcome import Reason
from provisioner.planning.matrix.diff import compare_releases
from provisioner.planning.matrix.matrix_text import parse

SHIPPED = Path(__file__).parents[2] / "firmware_matrix.yaml"

MOVE = """
releases:
  old: {profiles: {node: {match: {}, pins: {
    nic.cx7: {version: "1"}, host.bios: {version: "1"}, host.bmc: {version: unknown}}}}}
  new: {supersedes: old, profiles: {node: {match: {}, pins: {
    nic.cx7: {version: "2"}, host.bios: {version: "2"}, host.bmc: {version: unknown}}}}}
edges:
  nic.cx7: [{from: ["1"], to: "2", activates_by: cold_boot}]
"""
BIOS = '  host.bios: [{from: ["1"], to: "2", activates_by: cold_boot}]\n'


def shipped() -> Matrix:
    return parse([(SHIPPED.name, SHIPPED.read_text())])


def test_updates_that_share_a_reset_cost_one():
    (move,) = compare_releases(parse([("m", MOVE + BIOS)]), "old", "new")

    assert [(c.kind, c.before, c.after) for c in move.changes] == [
        ("nic.cx7", "1", "2"),
        ("host.bios", "1", "2"),
    ]
    assert move.left_out == ("host.bmc",)
    assert (move.resets, move.outages, move.blockers) == (1, 1, ())
    assert move.minutes > 0


def test_a_move_without_an_edge_is_blocked_by_name():
    (move,) = compare_releases(parse([("m", MOVE)]), "old", "new")

    assert [b.reason for b in move.blockers] == [Reason.NO_PATH]


def test_production_asks_for_evidence_too():
    (move,) = compare_releases(parse([("m", MOVE + BIOS)]), "old", "new", production=True)

    assert Reason.MISSING_EVIDENCE in {b.reason for b in move.blockers}


def test_a_release_against_itself_costs_nothing():
    for move in compare_releases(shipped(), "spectrum-x-1.3.0", "spectrum-x-1.3.0"):
        assert (move.changes, move.steps, move.blockers) == ((), (), ())


def test_the_shipped_move_to_1_3_0_is_possible_for_every_profile():
    moves = compare_releases(shipped(), "spectrum-x-1.2.0", "spectrum-x-1.3.0")

    assert [move.profile for move in moves] == ["hgx-h100-bf3", "hgx-h200-bf3", "sn5600"]
    assert [move.blockers for move in moves] == [(), (), ()]
    assert moves[-1].resets == 1

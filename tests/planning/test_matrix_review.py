"""What the review of a matrix finds, and what the map shows."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from provisioner.integrations.matrix_map.graph import (
    build_layout,
    draw_svg,
    select_releases,
)
from provisioner.integrations.matrix_tools.deciding.review import Weight, review_matrix
from provisioner.integrations.matrix_tools.deciding.unreachable import find_unreachable
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.model.node import NodeKind
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.matrix.readiness import judge_readiness
from provisioner.planning.matrix.standing import list_lines
from provisioner.planning.path.distances import find_cycle, find_reachable, map_moves

SHIPPED = Path(__file__).parents[2] / "firmware_matrix.yaml"

TWO = """
releases:
  old: {profiles: {node: {match: {}, pins: {nic.cx7: {version: "1"}}}}}
  new: {supersedes: old, profiles: {node: {match: {}, pins: {nic.cx7: {version: "3"}}}}}
"""


def shipped() -> Matrix:
    return parse([(SHIPPED.name, SHIPPED.read_text())])


def test_every_shipped_release_is_reachable_from_those_it_supersedes():
    assert find_unreachable(shipped()) == ()


def test_a_release_without_a_way_to_it_blocks():
    remarks = review_matrix(parse([("m", TWO)]))

    assert remarks[0].weight is Weight.BLOCKS
    assert remarks[0].where == "new/node: nic.cx7"


def test_a_chain_of_edges_reaches():
    edges = """
edges: {nic.cx7: [{from: ["1"], to: "2", activates_by: cold_boot},
                  {from: ["2"], to: "3", activates_by: cold_boot}]}
"""
    matrix = parse([("m", TWO + edges)])

    assert find_unreachable(matrix) == ()
    assert find_reachable(map_moves(matrix, "nic.cx7"), "1") == {"1", "2", "3"}


def test_an_edge_to_no_pin_is_a_dead_one():
    edges = '\nedges: {nic.cx7: [{from: ["3"], to: "4", activates_by: cold_boot}]}\n'
    dead = [r for r in review_matrix(parse([("m", TWO + edges)])) if "no pin" in r.problem]

    assert [r.where for r in dead] == ["edges.nic.cx7: 3 → 4"]


def test_a_way_back_that_does_not_say_so_blocks():
    edges = '\nedges: {nic.cx7: [{from: ["3"], to: "2", activates_by: cold_boot%s}]}\n'
    blocking = [
        [r.where for r in review_matrix(parse([("m", TWO + edges % more)])) if "older" in r.problem]
        for more in ("", ", downgrade: true")
    ]

    assert blocking == [["edges.nic.cx7: 3 → 2"], []]


def test_a_pin_that_no_device_could_print_blocks():
    remarks = review_matrix(parse([("m", TWO.replace('"3"', '"three"'))]))

    assert [r.where for r in remarks if "no version" in r.problem] == ["new/node: nic.cx7"]


def test_an_edge_without_evidence_is_not_for_production():
    remarks = [r for r in review_matrix(shipped()) if r.problem == "the edge has no evidence"]

    assert {r.weight for r in remarks} == {Weight.PRODUCTION}
    assert any("230517.3.0" in r.where for r in remarks)


def test_a_switch_that_is_chosen_by_network_cards_is_no_node_at_all():
    text = """
releases:
  r: {profiles: {leaf: {match: {kind: switch, cards: bluefield}, pins: {switch.os: {
    version: 5.16.1}}}}}
"""
    blocks = [r for r in review_matrix(parse([("m", text)])) if r.weight is Weight.BLOCKS]

    assert [r.problem for r in blocks] == ["a switch has no network cards, so no node fits"]


def test_only_drivers_are_ready_for_production_as_published():
    """They are installed as packages; everything else needs files or versions of the site.

    The files of racks' switches and shelves stand in a campaign, not in the matrix.
    """
    racks = {
        (name, profile)
        for name, release in shipped().releases.items()
        for profile, one in release.profiles.items()
        if one.match.kind not in set(NodeKind)
    }
    states = [s for s in judge_readiness(shipped()) if (s.release, s.profile) not in racks]

    assert {s.release for s in states if s.ready} == {
        name for name in shipped().releases if name.startswith("driver-")
    }
    stacks = [s for s in states if s.release.startswith("spectrum-x-1.")]
    assert all("host.driver" in s.unknown for s in stacks if s.profile.startswith("hgx"))


def test_every_shipped_version_names_its_source():
    assert [s for s in judge_readiness(shipped()) if s.no_evidence] == []


def test_a_release_with_files_digests_and_sources_is_ready():
    text = """
releases:
  r: {profiles: {node: {match: {}, pins: {nic.cx7: {
    version: "1", artifact: a.bin, sha256: "%s", evidence: "https://e"}}}}}
""" % ("0" * 64)

    assert [s.ready for s in judge_readiness(parse([("m", text)]))] == [True]


def test_circles_are_found_wherever_they_begin():
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ("b", "c", "b")
    assert find_cycle({"a": ["b", "c"], "b": ["d"], "c": ["d"]}) == ()


def test_the_known_bad_move_is_not_in_the_file():
    bundles = shipped().edges["bluefield.bundle"]

    assert not [e for e in bundles if e.to.startswith("3.0.") and "2.9" in str(e.from_versions)]


def test_the_map_has_a_stop_for_every_pin_and_none_on_another():
    matrix = shipped()
    for lane in build_layout(matrix).lanes:
        places = [(stop.column, stop.row) for stop in lane.stops]
        assert len(places) == len(set(places))
        for name, release in matrix.releases.items():
            for profile in release.profiles.values():
                pin = profile.pins.get(lane.kind)
                if pin and pin.known:
                    assert name in lane.stop(pin.version).releases


def test_the_picture_is_well_formed_and_names_every_version():
    picture = draw_svg(shipped())
    root = ElementTree.fromstring(picture)

    assert root.tag.endswith("svg")
    assert "32.44.1036" in picture


def test_hostile_names_do_not_break_the_picture():
    text = TWO.replace('"3"', "'<script>&\"'")

    ElementTree.fromstring(draw_svg(parse([("m", text)])))


def test_the_picture_in_the_documents_is_of_the_shipped_file():
    """If not: provisioner matrix graph --release spectrum-x-2.1.2 --svg docs/upgrade-paths.svg"""
    line = next(line for line in list_lines(shipped()) if "spectrum-x-2.1.2" in line)
    picture = draw_svg(select_releases(shipped(), line))

    assert (SHIPPED.parent / "docs" / "upgrade-paths.svg").read_text() == picture


IMAGE = """
images: {maintenance: {version: unknown}}
"""
BUILT = f"""
images:
  maintenance: {{version: "{"ab" * 32}", artifact: m.iso, sha256: "{"cd" * 32}", evidence: here}}
"""
ONE = 'releases: {r: {profiles: {node: {match: {}, pins: {host.doca: {version: "1"}}}}}}'


def test_a_maintenance_image_that_nobody_has_built_is_not_for_production():
    remarks = [
        r for r in review_matrix(parse([("m", ONE + IMAGE)])) if r.where == "images.maintenance"
    ]

    assert [r.weight for r in remarks] == [Weight.PRODUCTION]
    assert "make image" in remarks[0].remedy


def test_a_site_closes_the_maintenance_image_in_its_overlay():
    matrix = parse([("m", ONE + IMAGE), ("site", BUILT)])

    assert matrix.images["maintenance"].sha256 == "cd" * 32
    assert not [r for r in review_matrix(matrix) if r.where.startswith("images")]


def test_a_built_image_is_replaced_only_on_purpose():
    other = BUILT.replace("ab" * 32, "ef" * 32)
    reason = other.replace("evidence: here", "override: true, reason: a newer kernel")

    with pytest.raises(InputError, match="published version"):
        parse([("m", ONE + BUILT), ("site", other)])
    assert parse([("m", ONE + BUILT), ("site", reason)]).images["maintenance"].version == "ef" * 32

"""Ages, support, known issues and security notices of releases, and what `check` tells of them."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import pytest

from provisioner.integrations.matrix_tools.deciding.release_standing import (
    describe_release,
    list_release_notices,
)
from provisioner.integrations.matrix_tools.deciding.review import (
    Weight,
    count_unknown,
    group_remarks,
    review_matrix,
)
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.matrix_text import parse, parse_located
from provisioner.planning.matrix.standing import find_notices, list_lines

ROOT = Path(__file__).parents[2]
SHIPPED = (ROOT / "firmware_matrix.yaml").read_text()
TODAY = date(2026, 11, 29)

SMALL = """
security:
  N-1:
    published: 2026-06
    severity: critical
    cves: [CVE-2025-23350]
    says: a fault
    fixed: 32.46.3008
    evidence: https://e
    affected:
      bluefield.nic: ["<32.43.8002", ">=32.44.0,<32.46.3008"]
releases:
  old:
    published: 2025-01
    support: {ends: 2026-06, evidence: https://e}
    issues:
      "7": {says: it hangs, evidence: https://e, kinds: [bluefield.nic], blocks: true}
    profiles: {node: {match: {}, pins: {bluefield.nic: {version: 32.44.1036, evidence: e}}}}
  new:
    follows: old
    profiles: {node: {match: {}, pins: {bluefield.nic: {version: 32.47.1026, evidence: e}}}}
"""


def shipped() -> Matrix:
    return parse([("m", SHIPPED)])


def small(*more: str) -> Matrix:
    return parse([("m", SMALL), *(("site", text) for text in more)])


@pytest.mark.parametrize(
    ("version", "concerned"),
    [
        ("32.43.4100", True),
        ("32.43.8002", False),
        ("32.44.1036", True),
        ("32.46.3008", False),
        ("32.47.1026", False),
        ("a version that nobody can compare", True),  # unread is not fine
    ],
)
def test_a_notice_concerns_the_branches_that_it_names(version: str, concerned: bool) -> None:
    assert bool(find_notices(small(), "bluefield.nic", version)) is concerned
    assert not find_notices(small(), "nic.cx8", version)


def test_a_release_has_its_age_what_supersedes_it_and_the_end_of_its_support() -> None:
    old, new = (describe_release(small(), name, TODAY) for name in ("old", "new"))

    assert (old.age_days, old.is_exact, old.superseded_by) == (697, True, ("new",))
    assert (old.support, old.is_over) == ("until 2026-06", True)
    assert not describe_release(small(), "old", date(2026, 6, 30)).is_over
    assert (new.age_days, new.support, new.is_over) == (None, "not published", False)


def test_a_blocking_issue_keeps_production_out_until_a_site_accepts_it() -> None:
    accepted = "releases: {old: {issues: {'7': {accepted: our cards never reset}}}}"
    blocking = [
        [r.weight for r in review_matrix(matrix) if "known issue 7" in r.problem]
        for matrix in (small(), small(accepted))
    ]

    assert blocking == [[Weight.PRODUCTION], [Weight.NOTE]]


def test_a_notice_that_a_site_accepts_is_told_no_more() -> None:
    accepted = small("security: {N-1: {accepted: no virtual functions here}}")

    assert list_release_notices(small(), "old") == {"N-1": ["bluefield.nic"]}
    assert list_release_notices(accepted, "old") == {}
    assert not [r for r in review_matrix(accepted) if "N-1" in r.problem]


def test_a_line_without_a_published_move_is_told_and_blocks_nothing() -> None:
    told = [r for r in review_matrix(small()) if "no move from old" in r.problem]

    assert [(r.weight, r.where) for r in told] == [(Weight.NOTE, "new/node: bluefield.nic")]


def test_every_move_between_adjacent_shipped_releases_is_there_or_sought() -> None:
    told = [r for r in review_matrix(shipped()) if "no move from" in r.problem]

    assert told
    assert [r.where for r in told if "Sought: " not in r.remedy] == []


PIN = (
    "releases: {n: {profiles: {o: {match: {kind: switch}, pins: {nic.cx7: "
    "{version: unknown, MORE}}}}}}"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("releases: {new: {leaves: [bluefield.nic]}}", "left to the site"),
        ("releases: {new: {leaves: [no.kind]}}", "no component kind"),
        ("releases: {old: {follows: nowhere}}", "no release 'nowhere'"),
        ("releases: {old: {follows: new}}", "in a circle"),
        ("releases: {old: {published: soon}}", "published"),
        ("security: {N-2: {published: 2026-01, severity: bad}}", "severity"),
        (
            PIN.replace("MORE", "security: [N-9]"),
            "no notice",
        ),
        (
            PIN.replace("MORE", "bounds: 'about 5'"),
            "no condition",
        ),
    ],
)
def test_wrong_statements_are_refused_with_their_place(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        small(text)


def test_a_condition_that_no_version_compares_with_blocks() -> None:
    matrix = parse([("m", SMALL.replace('">=32.44.0,<32.46.3008"', '"<nonsense"'))])

    assert [r.where for r in review_matrix(matrix) if r.weight is Weight.BLOCKS] == [
        "security.N-1: bluefield.nic"
    ]


def test_each_fault_is_told_once_with_all_its_places() -> None:
    remarks = review_matrix(shipped())
    found = group_remarks(remarks)

    assert sum(len(f.places) for f in found) == len(remarks)
    assert len({(f.weight, f.problem, f.remedy) for f in found}) == len(found) < len(remarks) / 5


def test_unknown_pins_are_counted_by_release_and_kind_as_they_are_written() -> None:
    text = (
        "releases: {r: {profiles: {a: {match: {gpu_models: [H100]}, pins: {host.bios: {version: "
        "unknown}, host.bmc: {version: '1'}}}, b: {like: a, match: {gpu_models: [H200]}, "
        "pins: {host.bmc: {version: unknown}}}}}}"
    )
    counted = count_unknown(*parse_located([("m", text)]))

    assert (counted.pins, counted.unknown) == (3, 2)
    assert counted.by_release == {"r": {"host.bios": 1, "host.bmc": 1}}


def test_the_shipped_file_is_of_today_and_a_third_unknown() -> None:
    """65 of 125 were unknown before; those that are left name the page that lacks them."""
    matrix, located = parse_located([("m", SHIPPED)])
    counted = count_unknown(matrix, located)

    assert len(matrix.releases) >= 25
    assert counted.unknown / counted.pins < 0.35
    assert {line[-1] for line in list_lines(matrix)} >= {"spectrum-x-2.4", "doca-3.5.0"}


def test_every_release_of_the_shipped_file_is_dated_and_in_one_line() -> None:
    matrix = shipped()
    lines = list_lines(matrix)

    assert sorted(n for line in lines for n in line) == sorted(matrix.releases)
    assert not [n for n in matrix.releases if describe_release(matrix, n, TODAY).age_days is None]


def test_the_page_has_every_release_version_and_source_and_a_picture_of_each_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import reference_matrix

    page = reference_matrix.make_page()
    pins = [
        pin
        for release in shipped().releases.values()
        for profile in release.profiles.values()
        for pin in profile.pins.values()
    ]

    assert all(f"**{name}**" in page for name in shipped().releases)
    assert all(pin.version in page and pin.evidence in page for pin in pins)
    assert page.count("<svg") == len(list_lines(shipped()))
    sys.modules.pop("reference_matrix")

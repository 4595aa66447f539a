"""A draft closes pins where a person says so, and replaces no published version."""

from __future__ import annotations

import pytest
from drafting import HERE, MATRIX, OTHER_SHA, RELEASE, SHA, apply, draft, read, verdicts

from provisioner.integrations.published_versions.deciding.overlay_draft import Change, Draft, Place
from provisioner.model.input_error import InputError
from provisioner.planning.matrix.matrix_text import parse_located


def only(drafted: Draft) -> Change:
    assert len(drafted.changes) == 1
    return drafted.changes[0]


def test_a_pin_is_closed_only_where_a_person_says_so():
    got = read("n.csv", b"component,version\nhost.bios,1.0\n")

    assert verdicts(draft(got)) == [("unplaced", "host.bios")]
    closed = draft(got, place=HERE)
    profiles = apply(closed).releases[RELEASE].profiles
    assert only(closed).reason == "without a source: add --evidence"
    assert (only(closed).before, only(closed).after) == ("unknown", "1.0")
    assert profiles["h100"].pins["host.bios"].version == "1.0"


def test_a_published_version_is_never_replaced():
    got = read("n.csv", b"component,version,file\nnic.cx7,28.44.1036,fw.bin\n")

    drafted = draft(got, place=HERE)

    assert only(drafted).verdict == "differs"
    assert apply(drafted) == parse_located([("matrix", MATRIX)])[0]
    assert "# not written, differs: r/h100 nic.cx7 28.43.2026 -> 28.44.1036" in drafted.text


def test_another_file_or_digest_than_the_pinned_one_is_a_difference():
    pinned = MATRIX.replace("optional: true", f"artifact: fw.bin, sha256: {OTHER_SHA}")
    for row, reason in (
        (f"nic.cx7,28.43.2026,fw.bin,{SHA}", f"another digest is pinned: {OTHER_SHA}"),
        (f"nic.cx7,28.43.2026,x.bin,{OTHER_SHA}", "another file is pinned: fw.bin"),
    ):
        got = read("n.csv", f"component,version,file,sha256\n{row}\n".encode())

        assert {(c.verdict, c.reason) for c in draft(got, matrix=pinned).changes} == {
            ("differs", reason)
        }


def test_two_files_that_bring_one_version_are_a_conflict():
    rows = b"component,version,file\nnic.cx7,28.43.2026,a.bin\nnic.cx7,28.43.2026,b.bin\n"

    assert verdicts(draft(read("n.csv", rows))) == [("conflict", "nic.cx7")]


def test_an_optional_pin_stays_optional_when_it_is_closed():
    open_pin = MATRIX.replace("version: 28.43.2026, optional", "version: unknown, optional")
    got = read("n.csv", b"component,version\nnic.cx7,28.43.2026\n")

    drafted = draft(got, place=HERE, matrix=open_pin)

    assert apply(drafted, open_pin).releases[RELEASE].profiles["h100"].pins["nic.cx7"].optional


def test_a_profile_like_another_can_be_closed_alone():
    got = read("n.csv", b"component,version,profile\nhost.driver,570.133.20,h200\n")

    drafted = draft(got, place=Place(release=RELEASE, profiles=("h100", "h200")))
    profiles = apply(drafted).releases[RELEASE].profiles

    assert [c.profile for c in drafted.changes] == ["h200"]
    assert profiles["h200"].pins["host.driver"].version == "570.133.20"
    assert not profiles["h100"].pins["host.driver"].known


def test_a_version_that_yaml_takes_for_a_number_stays_text():
    got = read("n.csv", b"component,version,evidence\nhost.bios,2.10,a: b # c\n")

    pin = apply(draft(got, place=HERE)).releases[RELEASE].profiles["h100"].pins["host.bios"]

    assert (pin.version, pin.evidence) == ("2.10", "a: b # c")


@pytest.mark.parametrize(
    "place",
    [
        Place(release="r"),
        Place(profiles=("h100",)),
        Place(release="x", profiles=("h100",)),
        Place(release="r", profiles=("x",)),
    ],
)
def test_a_place_that_is_not_there_is_refused(place: Place):
    with pytest.raises(InputError):
        draft(place=place)

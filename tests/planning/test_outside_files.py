"""What is surely the same file of an outside server, and what must be read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.agent import FileReading, Validators
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.watch import outside_files
from provisioner.planning.watch.outside_files import (
    FRESH_S,
    NAME_MAX,
    is_plain_name,
    is_same_file,
    is_settled,
    is_still_valid,
)

ETAG, MONDAY = '"65532b00-249f00"', "Mon, 20 Nov 2023 10:00:00 GMT"
SEEN = Validators(etag=ETAG, modified=MONDAY, length=100, settled=True)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"etag": '"other"'}, False),
        ({"modified": "Mon, 20 Nov 2023 10:00:01 GMT"}, False),
        ({"length": 101}, False),
        ({"length": None}, False),
        ({"etag": ""}, False),
        ({"modified": ""}, False),
        ({"settled": False}, True),  # only when it was read does this count
    ],
)
def test_a_file_is_the_same_only_if_everything_that_it_is_known_by_is(
    changed: dict[str, object], expected: bool
) -> None:
    assert is_same_file(SEEN, SEEN.model_copy(update=changed)) is expected


@pytest.mark.parametrize(
    ("known_by", "expected"),
    [
        ({"modified": ""}, True),  # a strong ETag is enough
        ({"etag": ""}, True),  # so is a date, with the length
        ({"etag": 'W/"weak"'}, True),  # by its date
        ({"etag": 'W/"weak"', "modified": ""}, False),
        ({"etag": "", "modified": ""}, False),
        ({"length": None}, False),
        ({"settled": False}, False),
    ],
)
def test_what_is_known_by_too_little_is_never_the_same(
    known_by: dict[str, object], expected: bool
) -> None:
    seen = SEEN.model_copy(update=known_by)

    assert is_same_file(seen, seen) is expected


@pytest.mark.parametrize(
    ("etag", "modified", "date", "expected"),
    [
        (ETAG, MONDAY, "Mon, 20 Nov 2023 10:00:02 GMT", True),
        (ETAG, MONDAY, "Mon, 20 Nov 2023 10:00:01 GMT", False),
        (ETAG, MONDAY, "Mon, 20 Nov 2023 09:00:00 GMT", False),  # from the future
        (ETAG, MONDAY, "", False),
        (ETAG, "yesterday", MONDAY, False),
        (ETAG, "", "", True),
        ("", "", "", False),
    ],
)
def test_a_date_counts_once_its_second_is_over(
    etag: str, modified: str, date: str, expected: bool
) -> None:
    assert is_settled(etag, modified, date) is expected


@given(st.text(max_size=40), st.text(max_size=60), st.text(max_size=60))
def test_no_header_makes_it_fail(etag: str, modified: str, date: str) -> None:
    assert is_settled(etag, modified, date) in (True, False)


def test_without_good_validators_only_what_was_read_just_now_may_be_told() -> None:
    poor = Validators(length=100)
    seen = FileReading(validators=poor, sha256="0" * 64, at=1000.0)

    assert is_still_valid(seen, poor, 1000.0 + FRESH_S - 1)
    assert not is_still_valid(seen, poor, 1000.0 + FRESH_S)
    assert not is_still_valid(seen, poor, 999.0)  # the clock went back
    assert not is_still_valid(seen, Validators(length=101), 1001.0)


@given(st.text(max_size=300))
def test_a_plain_name_leads_nowhere_else(name: str) -> None:
    if is_plain_name(name):
        assert "/" not in name
        assert "\\" not in name
        assert not name.startswith(".")
        assert name.isprintable()
        assert 0 < len(name.encode()) <= NAME_MAX


def test_names_that_vendors_give_are_plain() -> None:
    names = ("nvfw_HGX-H100_0006_230915.1.0.fwpkg", "fw-ConnectX7-rel-28_44_1036.bin", "a b+c~d")

    assert all(map(is_plain_name, names))


URL = "http://files//firmware/x.bfb"


@pytest.mark.parametrize(
    ("no", "by_slashes"),
    [
        (outside_files.make_absent_blocker("x.bfb", URL), True),
        (outside_files.make_exchanged_blocker("x.bfb", URL), True),
        (outside_files.make_withheld_blocker("x.bfb", Reason.NOT_OFFERED, "403"), True),
        (outside_files.make_withheld_blocker("x.bfb", Reason.UNREACHABLE, "away"), False),
        (
            outside_files.make_withheld_blocker(
                "x.bfb", Reason.CERTIFICATE_UNTRUSTED, "not trusted"
            ),
            False,
        ),
    ],
)
def test_what_two_slashes_alone_do_not_find_needs_no_upload(no: Blocker, by_slashes: bool) -> None:
    told = outside_files.as_a_card_asks(no)

    assert (told.reason, told.subject, told.detail) == (no.reason, no.subject, no.detail)
    assert ("nginx before the bucket" in told.unblock) is by_slashes
    assert (told == no) is not by_slashes

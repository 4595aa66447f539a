"""What is said of a site before go-live: clocks, files, limits; nothing unknown is good."""

from __future__ import annotations

from email.utils import formatdate

from provisioner.model.matrix import MAINTENANCE, Matrix, Pin
from provisioner.planning.intake.examination import (
    Standing,
    artifact,
    clocks,
    disk,
    good,
    image,
    not_looked,
    open_files,
    ready,
    skew_s,
    warning,
)

NOW = 1_700_000_000.0
EMPTY = Matrix(releases={}, edges={}, images={})


def test_a_date_header_tells_how_far_ahead_a_clock_is() -> None:
    assert skew_s(formatdate(NOW + 90, usegmt=True), NOW) == 90


def test_a_garbled_date_tells_nothing() -> None:
    for text in ("", "yesterday", "Tue, 99 Foo 2023 99:99:99 GMT", "\x00" * 40):
        assert skew_s(text, NOW) is None, text


def test_one_wrong_clock_among_many_is_the_device_s() -> None:
    told = clocks({"a": 0.0, "b": 1.0, "c": -2.0, "d": 4000.0})

    assert [(e.subject, e.standing) for e in told] == [
        ("this machine", Standing.GOOD),
        ("d", Standing.BAD),
    ]
    assert "4000 s ahead" in told[1].detail


def test_where_devices_agree_with_each_other_our_own_clock_is_the_wrong_one() -> None:
    told = clocks({"a": 600.0, "b": 601.0, "c": 599.0, "d": 0.0})

    assert told[0].subject == "this machine"
    assert told[0].standing is Standing.BAD
    assert "600 s behind" in told[0].detail
    assert [e.subject for e in told[1:]] == ["d"]


def test_two_devices_do_not_outvote_us() -> None:
    told = clocks({"a": 600.0, "b": 600.0})

    assert told[0].standing is Standing.GOOD
    assert [e.subject for e in told[1:]] == ["a", "b"]


def test_a_small_difference_is_a_warning_and_none_at_all_is_silence() -> None:
    assert [e.standing for e in clocks({"a": 100.0})] == [Standing.GOOD, Standing.WARNING]
    assert clocks({"a": None})[0].standing is Standing.NOT_LOOKED


def test_room_and_open_files_are_told_before_they_run_out() -> None:
    assert disk("/var", 1 << 40).standing is Standing.GOOD
    assert disk("/var", 5 << 30).standing is Standing.WARNING
    assert disk("/var", 1 << 20).standing is Standing.BAD
    small = open_files(1024, 256, 4096, 512)
    assert small.standing is Standing.BAD
    assert "5120" in small.remedy
    assert open_files(65536, 256, 4096, 512).standing is Standing.GOOD


def test_an_artifact_passes_with_its_digest_only() -> None:
    assert artifact("fw.bin", "ab", "ab").standing is Standing.GOOD
    assert artifact("fw.bin", "ab", "cd").standing is Standing.BAD
    assert artifact("fw.bin", "", "cd").standing is Standing.WARNING
    assert artifact("fw.bin", "ab", None).standing is Standing.BAD


def test_no_maintenance_image_is_no_go_live() -> None:
    built = EMPTY.model_copy(update={"images": {MAINTENANCE: Pin(version="1", artifact="m.iso")}})

    assert image(EMPTY).standing is Standing.BAD
    assert image(built).standing is Standing.GOOD


def test_what_was_not_looked_at_is_not_ready() -> None:
    fine = good("bmc", "n1", "answers")
    annoying = warning("clock", "n1", "60 s ahead", "Set NTP on it.")
    unknown = not_looked("switch", "leaf-1", "by SSH only", "Try it by hand.")

    assert ready([fine, annoying])
    assert not ready([fine, unknown])

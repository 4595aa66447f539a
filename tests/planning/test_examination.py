"""What is said of a site before go-live: clocks, files, limits; nothing unknown is good."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from provisioner.integrations.site_examination.judging import (
    Standing,
    compute_skew_s,
    is_ready,
    judge_artifact,
    judge_clocks,
    judge_disk,
    judge_image,
    judge_open_files,
    report_good,
    report_not_looked,
    report_warning,
)
from provisioner.model.matrix import MAINTENANCE, Matrix, Pin
from provisioner.settings import Settings

NOW = 1_700_000_000.0
EMPTY = Matrix(releases={}, edges={}, images={})


def test_a_date_header_tells_how_far_ahead_a_clock_is() -> None:
    assert compute_skew_s(formatdate(NOW + 90, usegmt=True), NOW) == 90


def test_a_garbled_date_tells_nothing() -> None:
    for text in ("", "yesterday", "Tue, 99 Foo 2023 99:99:99 GMT", "\x00" * 40):
        assert compute_skew_s(text, NOW) is None, text


def test_one_wrong_clock_among_many_is_the_device_s() -> None:
    told = judge_clocks({"a": 0.0, "b": 1.0, "c": -2.0, "d": 4000.0})

    assert [(e.subject, e.standing) for e in told] == [
        ("this machine", Standing.GOOD),
        ("d", Standing.BAD),
    ]
    assert "4000 s ahead" in told[1].detail


def test_where_devices_agree_with_each_other_our_own_clock_is_the_wrong_one() -> None:
    told = judge_clocks({"a": 600.0, "b": 601.0, "c": 599.0, "d": 0.0})

    assert told[0].subject == "this machine"
    assert told[0].standing is Standing.BAD
    assert "600 s behind" in told[0].detail
    assert [e.subject for e in told[1:]] == ["d"]


def test_two_devices_do_not_outvote_us() -> None:
    told = judge_clocks({"a": 600.0, "b": 600.0})

    assert told[0].standing is Standing.GOOD
    assert [e.subject for e in told[1:]] == ["a", "b"]


def test_a_small_difference_is_a_warning_and_none_at_all_is_silence() -> None:
    assert [e.standing for e in judge_clocks({"a": 100.0})] == [Standing.GOOD, Standing.WARNING]
    assert judge_clocks({"a": None})[0].standing is Standing.NOT_LOOKED


def test_room_and_open_files_are_told_before_they_run_out() -> None:
    assert judge_disk("/var", 1 << 40).standing is Standing.GOOD
    assert judge_disk("/var", 5 << 30).standing is Standing.WARNING
    assert judge_disk("/var", 1 << 20).standing is Standing.BAD
    small = judge_open_files(1024, Settings())
    assert small.standing is Standing.BAD
    assert judge_open_files(65536, Settings()).standing is Standing.GOOD


@pytest.mark.parametrize(
    "name",
    [
        "requests_max", "watch_streams_max", "ssh_connections_max", "playbook_slots",
        "webhook_parallel", "api_connections_max", "agents_connections_max",
        "events_connections_max", "artifacts_connections_max", "metrics_connections_max",
    ],
)  # fmt: skip
def test_every_setting_that_opens_descriptors_is_counted(name: str) -> None:
    def needed(settings: Settings) -> int:
        return int(judge_open_files(1 << 30, settings).detail.split()[-4])

    usual = Settings()
    more = Settings(**{name: getattr(usual, name) + 1})
    assert needed(more) > needed(usual)


def test_an_artifact_passes_with_its_digest_only() -> None:
    assert judge_artifact("fw.bin", "ab", "ab").standing is Standing.GOOD
    assert judge_artifact("fw.bin", "ab", "cd").standing is Standing.BAD
    assert judge_artifact("fw.bin", "", "cd").standing is Standing.WARNING
    assert judge_artifact("fw.bin", "ab", None).standing is Standing.BAD


def test_no_maintenance_image_is_no_go_live() -> None:
    built = EMPTY.model_copy(update={"images": {MAINTENANCE: Pin(version="1", artifact="m.iso")}})

    assert judge_image(EMPTY).standing is Standing.BAD
    assert judge_image(built).standing is Standing.GOOD


def test_what_was_not_looked_at_is_not_ready() -> None:
    fine = report_good("bmc", "n1", "answers")
    annoying = report_warning("clock", "n1", "60 s ahead", "Set NTP on it.")
    unknown = report_not_looked("switch", "leaf-1", "by SSH only", "Try it by hand.")

    assert is_ready([fine, annoying])
    assert not is_ready([fine, unknown])

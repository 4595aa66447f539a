"""The page about tests names each module that a clone without recordings leaves tests of out."""

from __future__ import annotations

from recordings_wanted import (
    BEGIN,
    PAGE,
    TESTS,
    format_table,
    list_counted,
    list_modules,
    read_protection,
    read_table,
)


def test_the_pages_modules_are_there_and_say_what_they_protect() -> None:
    table = read_table(PAGE.read_text(encoding="utf-8"))
    counted = list_counted(table)

    assert BEGIN in PAGE.read_text(encoding="utf-8")
    assert len(counted) > 10
    for module in counted:
        assert f"| {read_protection(TESTS / module)} |" in table, module
    assert {TESTS / module for module in counted} <= set(list_modules())


def test_a_table_has_its_sums() -> None:
    module = "tests/recorded/test_recordings_wanted.py"
    counts = {(module, "PROVISIONER_SAMPLES"): 3, (module, "PROVISIONER_MOCKUPS"): 4}

    table = format_table(counts)

    assert "3 outputs | The page about tests names" in table
    assert table.endswith("7 tests: 4 want PROVISIONER_MOCKUPS, 3 want PROVISIONER_SAMPLES.")

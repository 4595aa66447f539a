"""Which daemons may work on one database together."""

from __future__ import annotations

import pytest

from provisioner.planning.watch.membership import (
    OF_ONE_MACHINE,
    Joined,
    describe_mixed_peers,
    digest_settings,
    find_end_reason,
    find_join_refusal,
)
from provisioner.settings import Settings

NOW = 1000.0
OLD = Joined(id="old", number=1, digests={"code": "1", "matrix": "a"})
NEW = Joined(id="new", number=2, digests={"code": "1", "matrix": "b"})


def declared(joined: Joined, until: float) -> Joined:
    return joined.model_copy(update={"change_until": until})


def test_a_daemon_that_works_by_the_same_is_let_in():
    assert find_join_refusal(OLD.model_copy(update={"id": "other"}), [OLD], NOW) == ""


def test_a_daemon_that_works_by_another_matrix_is_refused():
    assert find_join_refusal(NEW, [OLD], NOW) == "this daemon works by another matrix than old"


def test_a_daemon_of_a_version_that_does_not_say_differs_in_all():
    silent = Joined(id="silent", number=1)

    assert "another code and another matrix than silent" in find_join_refusal(NEW, [silent], NOW)


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_declared_change_lets_both_work_until_its_end(side):
    new = declared(NEW, NOW + 60) if side == "ours" else NEW
    old = declared(OLD, NOW + 60) if side == "theirs" else OLD

    assert find_join_refusal(new, [old], NOW) == ""
    assert find_join_refusal(new, [old], NOW + 61) != ""
    assert [find_end_reason(old, [new], NOW), find_end_reason(new, [old], NOW)] == ["", ""]


def test_after_its_end_those_end_that_joined_earlier():
    new = declared(NEW, NOW)

    assert "than new, which joined later; the change has ended" in find_end_reason(
        OLD, [new], NOW + 1
    )
    assert find_end_reason(new, [OLD], NOW + 1) == ""


def test_a_difference_is_named():
    assert describe_mixed_peers(OLD, [NEW]) == ("new works by another matrix",)
    assert describe_mixed_peers(OLD, [OLD.model_copy(update={"id": "other"})]) == ()


def test_settings_of_one_machine_do_not_count_and_all_others_do():
    settings = Settings(site="a")

    assert set(Settings.model_fields) >= OF_ONE_MACHINE
    changed = settings.model_copy(update={"api_port": 1, "operations_max": 7})
    assert digest_settings(changed) == digest_settings(settings)
    other = settings.model_copy(update={"retry_s": 1.5})
    assert digest_settings(other) != digest_settings(settings)

"""Every entry of the fault catalogue is a named preset, and the daemon's answer to it is pinned.

Outcomes are those of the turns that the scheduler would take: "done", or the blocker's reason. A
passing reason (busy, unreachable, locked, precondition) leads to the next turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import virtual_time
from drill import NODE, TURNS_MAX, Drill
from test_faults_wire import WIRE

from provisioner.integrations.sim.site.control import ALL, inject_fault

# The catalogue's numbers (docs/sources/bmc-faults.md): 74
NUMBERS = {"S": 13, "T": 16, "E": 14, "U": 19, "V": 10, "P": 2}
CATALOGUE = {f"{letter}{n}" for letter, last in NUMBERS.items() for n in range(1, last + 1)}


class Case(NamedTuple):
    """What is done with the BMC, how the turns end, and what else is seen."""

    act: str
    outcomes: str  # one word for each turn
    says: str = ""  # part of the last blocker's sentence
    unseen: str = ""  # why the inventory has a gap
    left: str = ""  # what is left behind, by no fault of ours


def _again(reason: str) -> str:
    return " ".join([reason] * TURNS_MAX)


def _ends(outcomes: str, says: str) -> Case:
    return Case("update", outcomes, says)


DONE = Case("update", "done")
VANISHED = "its task vanished, and nothing shows that it was written"
NOT_RUN = "after cold_boot: host.bios/BIOS runs BIOS Da"
CASES: dict[str, Case] = {
    "session_table_full": _ends(_again("account_locked"), "no session is free"),
    "logout_fails": Case("update", "done", left="1 sessions left"),
    "refresh_fails": DONE,
    "token_expires": DONE,
    "session_service_guarded": DONE,
    "root_needs_login": DONE,
    "session_without_location": DONE,
    "session_elsewhere": DONE,
    "token_dies_while_waiting": DONE,
    "locked_out": _ends(_again("account_locked"), "it asked to wait"),
    "password_must_change": _ends("login_refused", "/redfish/v1/Chassis did not answer: HTTP sta"),
    "forbidden_as_html": _ends("login_refused", "/redfish/v1/UpdateService/FirmwareInventory "),
    "short_sessions": DONE,
    "account_slots": Case("password", "done"),
    "drops_connections": Case("update", "unreachable " * 3 + "unreachable"),
    "post_lost_after": DONE,
    "flapping_service": _ends("unreachable busy busy busy", "HTTP status 503"),
    "gateway_timeout": _ends(_again("unreachable"), "login answered 504"),
    "slow_patch": Case("boot", "done"),
    "slow_inventory": DONE,
    "hangs": _ends(_again("unreachable"), "/NetworkAdapters did not answer"),
    "truncated_json": Case("update", "done", unseen="malformed"),
    "broken_off": _ends(_again("unreachable"), "/redfish/v1/UpdateService did not answer: th"),
    # a wet host whose chassis cannot be read must not get power
    "garbage": Case("update", _again("unreachable"), "not JSON", unseen="malformed"),
    "huge_answer": Case("update", "unreachable done"),
    "empty_body": Case("update", "done", unseen="malformed"),
    "etag_refused": Case("boot", "precondition done"),
    "if_match_needed": Case("boot", "done"),
    "etag_weak": Case("boot", "done"),
    "etag_empty": Case("boot", "done"),
    "etag_twice": Case("boot", "done"),
    "etag_number": Case("boot", "done"),
    "busy": Case("update", "unreachable unreachable unreachable done"),
    "busy_as_400": Case("update", "busy busy done"),
    "updating_400": Case("update", "busy done"),
    "updating_503": Case("update", "busy done"),
    "task_late": DONE,
    "empty_body_refused": Case("media", "done"),
    "settings_object": Case("boot", "done"),
    "info_is_object": Case("boot", "refused", says="HTTP status 400: x"),
    "no_task_location": DONE,
    "task_vanishes": _ends("update_failed", VANISHED),
    "resets_itself": Case("update", "unreachable done"),
    "task_purged": _ends("update_failed", VANISHED),
    "task_new": DONE,
    "monitor_ahead": DONE,
    "completed_critical": _ends("update_failed", "the task is Completed, but its status is Cri"),
    "exception_with_ok": _ends("update_failed", "the task ended as Exception"),
    "nothing_matched": _ends("update_failed", "The resource property Firmware Update Servic"),
    "skips_identical": _ends("not_activated", NOT_RUN),
    "copy_stuck": _ends(_again("busy"), "a reset must wait for background copy of hgx"),
    "activates_itself": DONE,
    "flaps_after_update": DONE,
    "reboot_before_update": _ends("refused", "HTTP status 400: MCTP endpoint not found."),
    "task_in_words": DONE,
    "task_two_names": DONE,
    "waits_for_start": _ends("not_activated", NOT_RUN),
    "task_stuck": _ends("update_stalled", "no end within 3600 s: Running, 40.0 %"),
    "update_hangs": _ends("update_stalled", "no end within 3600 s: Running, 80.0 %"),
    "unlicensed": _ends("not_offered", "HTTP status 403: Not licensed to perform thi"),
    "dpu_stays_on": Case("card", "not_activated",
                         says="after cold_boot: bluefield.nic/DPU_0 runs 32"),
    "numbers_as_strings": DONE,
    "members_null": Case("update", "done", unseen="malformed"),
    "member_twice": DONE,
    "no_vendor": DONE,
    "wrong_members": DONE,
    "bad_dates": Case("update", "done", unseen="malformed"),  # one property is there twice
    "empty_uuid": DONE,
    "odd_version": DONE,
    "item_renamed": DONE,
    "pages": DONE,
    "dangling_links": DONE,
    "override_ignored": Case("boot", "done"),
    "reset_ignored": Case("power", "power", says="the power state is On, Off was asked for"),
    "on_refused_a_while": Case("power", "done"),
    "media_sticks": Case("media", "done"),
    "media_by_hand": Case("media", "not_offered",
                          says="this service offers no virtual CD that takes"),
}  # fmt: skip


def test_the_catalogue_is_whole() -> None:
    presets = {p.catalogue for p in ALL.values()}

    assert len(CATALOGUE) == 74
    assert presets >= CATALOGUE
    tried = {ALL[name].catalogue for name in (*CASES, *WIRE)}
    assert tried == CATALOGUE
    assert set(CASES) | set(WIRE) == {n for n, p in ALL.items() if p.catalogue in CATALOGUE}


def tell_outcome(name: str) -> tuple[str, str, str, str, str]:
    """Return number, preset, fault, act and outcome: a row of the page that `make docs` makes."""
    preset, case = ALL[name], CASES.get(name)
    if case is None:
        told = "sockets", WIRE[name].__doc__.rstrip(".").lower() if WIRE[name].__doc__ else ""
    else:
        turns = case.outcomes.split()
        again = f"{turns[0]}, as long as it lasts" if len(set(turns)) == 1 < len(turns) else ""
        gap = f", with a gap: {case.unseen}" if case.unseen else ""
        told = case.act, (again or ", then ".join(turns)) + gap
    return preset.catalogue, f"`{name}`", preset.meaning, *told


def test_each_preset_has_its_row_on_the_page_of_outcomes() -> None:
    rows = [tell_outcome(name) for name in (*CASES, *WIRE)]

    assert len({row[1] for row in rows}) == len(rows) >= len(CATALOGUE)
    assert [row for row in rows if not all(row)] == []


@pytest.mark.parametrize("act", ["update", "power", "media", "boot", "password", "card"])
def test_without_a_fault_everything_is_done_at_once(tmp_path: Path, act: str) -> None:
    drill, outcomes, wrong = virtual_time.run(play_fault(tmp_path, "", act))

    assert outcomes == "done"
    assert wrong == ""
    assert drill.unseen == ""


@pytest.mark.parametrize("name", [pytest.param(n, id=f"{ALL[n].catalogue}-{n}") for n in CASES])
def test_a_fault_ends_with_its_outcome_and_reason(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    drill, outcomes, wrong = virtual_time.run(play_fault(tmp_path, name, case.act))

    assert outcomes == case.outcomes
    assert case.says in str(drill.last or "")
    assert drill.unseen == case.unseen
    assert wrong == case.left
    assert drill.stuck == (name == "media_sticks")
    if ALL[name].rules and name not in NEVER_MET:
        assert sum(rule.done for rule in drill.site.faults.rules) > 0, "the fault was never met"


# What these spoil is never sent: a look at the monitor beside a task, a PATCH without a tag, an
# action without a body, accounts made or deleted, the session service. That is the answer to them.
NEVER_MET = {"monitor_ahead", "if_match_needed", "empty_body_refused", "account_slots",
             "session_service_guarded"}  # fmt: skip


def test_a_failed_refresh_never_falls_back_to_the_password_in_each_request(tmp_path: Path) -> None:
    drill, _, _ = virtual_time.run(play_fault(tmp_path, "refresh_fails", "update"))

    assert drill.exchange.basic == 0


async def play_fault(directory: Path, name: str, act: str) -> tuple[Drill, str, str]:
    drill = await Drill(directory).open()
    if name:
        inject_fault(drill.site, name, NODE)
    outcomes = " ".join(await drill.play(act))
    return drill, outcomes, "; ".join(await drill.wrong())

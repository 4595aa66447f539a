"""A rack's firmware written for real: on the simulated rack, with each planted fault switched on.

The simulator (integrations/sim/racks) shares no code with what is tested; `violation` is its own
word for what would break a machine. Time is virtual.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from rack_rig import AFTER_NVOS, NEW, OLD, TARGETS, Rig, find_overlaps, finish, held, make, run

from provisioner.integrations.racks import update_shelves
from provisioner.integrations.racks.water import UnitWater, clear_latch
from provisioner.integrations.racks.water_file import open_water
from provisioner.integrations.sim.racks.rack import Event, Times
from provisioner.integrations.sim.racks.switch import DEFAULT
from provisioner.model.input_error import InputError

TRAY = {"compute-tray": TARGETS["compute-tray"]}
SWITCH = {"nvlink-switch": TARGETS["nvlink-switch"]}
FLASH = {"power-shelf": {"pmc": "3.2.4"}}
SUPPLY = {"power-shelf": {"psu": "0104"}}


def test_a_whole_rack_is_written_in_order_and_each_version_is_proved(tmp_path: Path) -> None:
    rig = Rig(tmp_path, trays=2)
    finish(rig)

    for n in range(2):
        assert rig.tray(f"t{n}").active == {**NEW["host"], **NEW["hgx"]}
        assert [name for _, name in rig.tray(f"t{n}").flashed] == ["host.fwpkg", "hgx.fwpkg"]
        assert rig.tray(f"t{n}").power == "On"
        assert rig.tray(f"t{n}").policy == "LastState"
        switch = rig.switch(f"s{n}")
        assert (switch.active, switch.images[switch.current]) == (NEW["switch"], AFTER_NVOS)
        assert rig.shelf(f"p{n}").flash == {"Primary": "3.2.4", "Backup": "3.2.4"}
        assert rig.shelf(f"p{n}").supplies == {1: "0104", 2: "0104"}
    cycles = [e.at for e in rig.rack.find("aux")]
    assert len(cycles) == 2
    assert min(cycles) > max(e.at for e in rig.rack.find("switch reboot"))
    assert min(e.at for e in rig.rack.log if e.unit.startswith("p")) > max(cycles)


def test_an_overlap_on_the_rack_is_found_in_its_log(tmp_path: Path) -> None:
    """`finish` asks it of every rack that ends here."""
    for first, second in (("p0", "t0"), ("t0", "p0"), ("p0", "p1"), ("s0", "p0")):
        rig = Rig(tmp_path, trays=1, shelves=2)
        rig.rack.note(first, "switch reboot" if first == "s0" else "push")
        rig.rack.advance(200)
        rig.rack.note(second, "push")
        assert find_overlaps(rig) != [], (first, second)
        rig.rack.log[-1] = Event(rig.rack.now + 900, second, "push")
        assert find_overlaps(rig) == [], (first, second)


@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_rack_of_other_timings_is_neither_held_nor_cycled_twice(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    rig = make(tmp_path, TRAY | SWITCH)
    rig.rack.times = Times(**{k: v * rng.uniform(0.6, 1.4) for k, v in vars(Times()).items()})
    finish(rig)
    assert len(rig.rack.find("aux")) == 1
    assert len(rig.rack.find("switch reboot")) == 1


def test_what_runs_already_is_not_written_again(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    rig.tray("t0").active |= NEW["host"]
    finish(rig)
    assert [name for _, name in rig.tray("t0").flashed] == ["hgx.fwpkg"]
    again = Rig(tmp_path / "..", targets=TRAY, trays=1, switches=1, shelves=1)
    again.folder = tmp_path / "again"
    again.folder.mkdir()
    again._write_packages()
    again.tray("t0").active |= {**NEW["host"], **NEW["hgx"]}
    assert again.run() == []
    assert again.rack.find("push") == []


# --- power cycles


def test_a_host_that_comes_on_before_the_aux_cycle_is_switched_off_again_once(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TRAY)
    rig.tray("t0").faults.comes_on_by_itself = 1
    finish(rig)
    assert len(rig.rack.find("aux refused")) == 1
    assert len(rig.rack.find("aux")) == 1


def test_a_host_that_always_comes_on_ends_in_a_hold_and_no_loop(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    rig.tray("t0").faults.comes_on_by_itself = 99
    key, why = held(rig)
    assert key == "t0/activate"
    assert "aux cycle" in why
    assert len(rig.rack.find("aux refused")) <= 2
    assert held(rig) == (key, why)  # also for a later process


def test_an_aux_cycle_whose_answer_is_lost_is_looked_at_and_not_sent_again(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    rig.tray("t0").faults.aux_answers_late = True
    finish(rig)
    assert len(rig.rack.find("aux")) == 1


def test_no_power_is_cut_while_a_copy_runs_and_one_that_never_ends_holds(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    rig.tray("t0").copied = rig.rack.now + 900.0
    finish(rig)
    (tmp_path / "other").mkdir()
    stuck = make(tmp_path / "other", TRAY)

    def begin(event: Event) -> None:
        if event.what == "bmc reset":
            stuck.tray("t0").faults.copy_never_ends = True

    stuck.rack.watch = begin
    key, why = held(stuck)
    assert key == "t0/hgx-bundle"
    assert "a copy of its firmware runs" in why
    assert stuck.rack.find("aux") == []


def test_an_hmc_that_stays_away_gets_one_aux_cycle_and_no_push(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    rig.tray("t0").faults.hmc_lost_after_reset = 1
    finish(rig)
    assert len(rig.rack.find("aux")) == 2  # one for the HMC, and the activation
    (tmp_path / "other").mkdir()
    dead = make(tmp_path / "other", TRAY)
    dead.tray("t0").faults.hmc_dead = True
    key, why = held(dead)
    assert key == "t0/host-bundle"
    assert "HMC did not come back" in why
    assert len(dead.rack.find("aux")) == 1
    assert [name for _, name in dead.tray("t0").flashed] == ["host.fwpkg"]


# --- pushes and tasks


@pytest.mark.parametrize("reaped", ["404", "empty"])
def test_a_task_that_vanishes_or_shows_no_percentage_stalls_nothing(
    tmp_path: Path, reaped: str
) -> None:
    rig = make(tmp_path, TRAY)
    rig.tray("t0").tasks.reaped = reaped
    rig.tray("t0").tasks.frozen_percent = True
    finish(rig)
    assert [name for _, name in rig.tray("t0").flashed] == ["host.fwpkg", "hgx.fwpkg"]


def test_a_tray_to_which_nothing_was_dispatched_is_named_and_no_success(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY, trays=3)
    rig.tray("t1").faults.not_dispatched = True
    outcome, hands = run(rig)
    assert not outcome.finished
    assert outcome.held == {"d01": "t1/activate"}
    assert "runs GB200Nvl-25.06" in hands.why["t1/activate"]
    for name in ("t0", "t2"):
        assert rig.tray(name).active == {**NEW["host"], **NEW["hgx"]}


def test_an_empty_slot_that_says_pending_is_no_staged_version(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    rig.tray("t0").faults.ghost = True
    rig.tray("t0").faults.fails_push = "ApplyFailed"
    key, why = held(rig)
    assert key == "t0/host-bundle"
    assert "ApplyFailed" in why
    assert rig.rack.find("aux") == []


def test_a_part_that_was_written_beside_the_named_ones_is_told(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    rig.tray("t0").active["FW_SMA_1"] = "0010.00.0130.0000"
    rig.tray("t0").faults.stages_also = {"FW_SMA_1": "0010.00.0131.0000"}
    finish(rig)
    (told,) = [s for s in rig.said if s.startswith("surplus")]
    assert "t0: FW_SMA_1 changed from 0010.00.0130.0000 to 0010.00.0131.0000" in told


def test_two_gpu_versions_of_one_bundle_pass_and_a_third_is_drift(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    finish(rig)
    assert {rig.tray("t0").active[f"HGX_FW_GPU_{n}"] for n in (0, 1)} == {
        "97.00.B9.00.99",
        "97.00.B9.00.98",
    }
    (tmp_path / "other").mkdir()
    drifted = make(tmp_path / "other", TRAY)
    drifted.tray("t0").faults.stages_also = {"HGX_FW_GPU_1": "97.00.B9.00.97"}
    key, why = held(drifted)
    assert key == "t0/activate"
    assert "HGX_FW_GPU_1 runs 97.00.B9.00.97" in why


def test_a_tray_that_does_not_answer_at_the_start_holds_the_domain_by_name(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TRAY, trays=3)
    rig.tray("t1").dead = True
    reasons = rig.run()
    assert isinstance(reasons, list)
    assert any(reason.startswith("t1: ") for reason in reasons)
    assert not any(reason.startswith(("t0: ", "t2: ")) for reason in reasons)
    assert rig.rack.find("push") == []


def test_a_tray_that_goes_silent_on_the_way_is_named_and_the_others_end(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY, trays=2)

    def die(event: Event) -> None:
        if (event.unit, event.what) == ("t1", "push"):
            rig.tray("t1").dead = True

    rig.rack.watch = die
    key, why = held(rig)
    assert key == "t1/host-bundle"
    assert "does not answer" in why


def test_a_domain_with_a_tenant_is_not_touched(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    rig.tenants["t0"] = "acme"
    key, why = held(rig)
    assert key == "d01/drain"
    assert "acme uses t0" in why
    assert rig.rack.find("push") == []


# --- water


def test_coolant_during_a_flash_is_no_failure_of_the_firmware_and_a_person_resumes_it(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TRAY)
    tray = rig.tray("t0")
    tray.faults.policy_cuts = True
    detector = next(iter(tray.detectors))
    rounds = 0

    def leak(event: Event) -> None:
        if event.what == "push" and not rig.rack.find("policy cut"):
            tray.detectors[detector] = "Critical"

    original = rig.pause

    async def pause(seconds: float) -> None:
        nonlocal rounds
        await original(seconds)
        if any("is wet" in each for each in rig.said):
            rounds += 1
        if rounds == 10:
            assert rig.rack.find("aux") == []
            tray.detectors[detector] = "OK"
        if rounds == 14:
            with open_water(tmp_path / "water.json") as store:
                cleared = clear_latch("t0", store.units["t0"], "amy", "new hose")
                assert isinstance(cleared, UnitWater), cleared
                store.units["t0"] = cleared
                store.save()

    rig.rack.watch = leak
    rig.pause = pause  # type: ignore[method-assign]
    finish(rig)
    assert rounds >= 14
    assert rig.rack.find("policy cut")
    assert not any("ForceOff" in e.detail for e in rig.rack.log if e.at < 1_100.0)
    assert tray.active == {**NEW["host"], **NEW["hgx"]}
    on = [e.at for e in rig.rack.find("powered")]
    assert all(at > rig.rack.find("aux")[0].at for at in on)


# --- switches


def test_nvos_that_says_system_is_offline_is_verified_after_the_reboot(tmp_path: Path) -> None:
    rig = make(tmp_path, SWITCH)
    rig.switch("s0").faults.offline_error = True
    finish(rig)
    assert rig.switch("s0").active == NEW["switch"]


def test_nvos_with_its_factory_password_gets_ours_before_anything_else_and_locks_nobody(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, SWITCH)
    rig.switch("s0").faults.default_after_reboot = True
    finish(rig)
    assert rig.switch("s0").password != DEFAULT
    assert [e.detail for e in rig.rack.find("password")] == ["ours"]


def test_a_death_before_the_password_is_changed_resumes_there(tmp_path: Path) -> None:
    rig = make(tmp_path, SWITCH)
    rig.switch("s0").faults.default_after_reboot = True
    kill(rig, lambda what: what == "PATCH /nvue_v1/system/aaa/user/admin?rev=1", times=1)
    assert rig.switch("s0").password != DEFAULT
    assert rig.violations() == []


def test_two_primaries_or_a_control_plane_that_is_never_configured_stop_before_the_trays(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, SWITCH | TRAY, switches=2)
    rig.switch("s1").faults.primary_too = True
    key, why = held(rig)
    assert (key, "s0 and s1 both run" in why) == ("d01/nvlink-cluster", True)
    assert rig.rack.find("aux") == []
    (tmp_path / "other").mkdir()
    never = make(tmp_path / "other", SWITCH | TRAY)
    never.switch("s0").faults.never_configured = True
    key, why = held(never)
    assert (key, "UNCONFIGURED" in why) == ("d01/nvlink-cluster", True)
    assert never.rack.find("aux") == []


def test_a_domain_without_any_controller_gets_one_on_its_first_switch(tmp_path: Path) -> None:
    rig = make(tmp_path, SWITCH, switches=2)
    rig.switch("s0").index, rig.switch("s1").index = 5, 6  # neither starts one by itself
    for n in range(2):
        rig.units[1 + n]["tray_index"] = 5 + n
    finish(rig)
    assert [e.unit for e in rig.rack.find("controller started")] == ["s0"]


def test_a_switch_whose_nvos_is_dead_is_written_by_its_bmc(tmp_path: Path) -> None:
    rig = make(tmp_path, {"nvlink-switch": {"switch-firmware": "88.0002.1958"}})
    switch = rig.switch("s0")

    def die(event: Event) -> None:
        if event.what == "job fetch":
            switch.faults.nvos_dead = True
        if event.what == "switch reboot":
            switch.faults.nvos_dead = False

    rig.rack.watch = die
    finish(rig)
    assert [e.detail for e in rig.rack.find("push by bmc")] == ["sw4.fwpkg", "sw6.fwpkg"]
    assert switch.active == NEW["switch"]


def test_two_full_partitions_are_left_to_a_person(tmp_path: Path) -> None:
    rig = make(tmp_path, SWITCH)
    rig.switch("s0").faults.full = True
    key, why = held(rig)
    assert (key, "partition" in why) == ("s0/nvos", True)
    assert rig.rack.find("switch reboot") == []


# --- shelves


def test_both_flashes_are_proved_and_the_selector_goes_back(tmp_path: Path) -> None:
    rig = make(tmp_path, FLASH)
    rig.shelf("p0").selector = "Backup"  # somebody left it there
    finish(rig)
    shelf = rig.shelf("p0")
    assert shelf.flash == {"Primary": "3.2.4", "Backup": "3.2.4"}
    assert (shelf.selector, shelf.apply) == ("Primary", "Immediate")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("selector_sticks", "selector stays on Primary"),
        ("reads_apply_onreset", "apply time stays OnReset"),
        ("wrong_flash", "FW_PMC_alt runs 3.2.3"),
    ],
)
def test_a_shelf_that_does_not_keep_a_setting_is_held_with_its_selector_on_primary(
    tmp_path: Path, fault: str, says: str
) -> None:
    rig = make(tmp_path, FLASH)
    setattr(rig.shelf("p0").faults, fault, True)
    key, why = held(rig)
    assert (key, says in why) == ("p0/pmc-backup", True), why
    assert rig.shelf("p0").selector == "Primary"
    if fault != "wrong_flash":
        assert rig.rack.find("push") == []


def test_files_for_another_controller_are_not_written(tmp_path: Path) -> None:
    rig = make(tmp_path, FLASH)
    rig.shelf("p0").part = "ECD70000011"
    assert held(rig)[0] == "p0/pmc-backup"
    assert rig.rack.find("push") == []


def test_a_shelf_of_the_other_dialect_has_one_flash_and_its_own_spelling(tmp_path: Path) -> None:
    rig = make(tmp_path, FLASH)
    shelf = rig.shelf("p0")
    shelf.delta, shelf.part = False, "CM-14MP-2RD"
    pmc = rig.packages["power-shelf"]["pmc"]
    pmc["versions"], pmc["part_numbers"] = {"PMC": ["3.2.4"]}, ["CM-14MP-2RD"]
    finish(rig)
    assert shelf.flash["Primary"] == "3.2.4"
    assert len(rig.rack.find("push")) == 1


@pytest.mark.parametrize("sick", ["off", "ill", "silent"])
def test_no_supply_is_written_while_another_one_of_the_rack_is_out(
    tmp_path: Path, sick: str
) -> None:
    rig = make(tmp_path, SUPPLY, shelves=2)
    other = rig.shelf("p1")

    def fail(event: Event) -> None:
        if event.what == "selector" or sick == "silent":
            return

    rig.rack.watch = fail
    if sick == "off":
        other.power[2] = "Off"
    elif sick == "ill":
        other.health[2] = "Critical"
    else:
        rig.rack.watch = lambda e: setattr(other.faults, "silent", e.what == "reset")
    key, why = held(rig)
    assert key == "p0/psu-1"
    assert "p1" in why
    assert rig.rack.find("push") == []


def test_supplies_are_written_one_after_the_other_in_an_unloaded_rack(tmp_path: Path) -> None:
    rig = make(tmp_path, SUPPLY, shelves=2)
    finish(rig)
    assert [e.unit for e in rig.rack.find("push")] == ["p0", "p0", "p1", "p1"]
    first = rig.rack.find("push")[0].at
    assert [e.detail for e in rig.rack.find("reset") if e.at < first] == ["ForceOff"]
    assert rig.tray("t0").power == "On"


def test_no_host_is_switched_off_for_a_supply_while_a_copy_runs_on_it(tmp_path: Path) -> None:
    rig = make(tmp_path, SUPPLY)
    rig.tray("t0").copied = ended = rig.rack.now + 900.0
    finish(rig)
    assert [e.at >= ended for e in rig.rack.find("reset") if e.detail == "ForceOff"] == [True]


# --- deaths


class Killed(BaseException):
    """The process died here."""


def kill(rig: Rig, at: object, times: int = 1) -> int:
    """Run it, die before or after each request that `at` chooses, and go on; return the deaths."""
    deaths = 0
    seen = 0

    def judge(when: str, call: object) -> None:
        nonlocal deaths, seen
        seen += 1
        what = f"{call.method} {call.path}"  # type: ignore[attr-defined]
        hit = at(what) if callable(at) else seen in at  # type: ignore[operator]
        if hit and deaths < times:
            deaths += 1
            raise Killed(when)

    rig.wires.before = lambda _, call: judge("before", call)
    rig.wires.after = lambda _, call: judge("after", call)
    while True:
        try:
            outcome, hands = run(rig)
        except Killed:
            rig.wires.at_once.clear()
            continue
        assert outcome.finished, (outcome, hands.why)
        return deaths


def test_deaths_at_the_writes_of_a_rack_change_neither_its_end_nor_what_is_written(
    tmp_path: Path,
) -> None:
    """Before and after each write; the journal and the units tell the next process."""
    writes = 0

    def is_write(what: str) -> bool:
        nonlocal writes
        if what.startswith("GET"):
            return False
        writes += 1
        return random.Random(writes).random() < 0.4

    rig = Rig(tmp_path, trays=1, switches=1, shelves=1)
    deaths = kill(rig, is_write, times=40)
    assert deaths >= 12
    assert rig.violations() == []
    assert rig.tray("t0").active == {**NEW["host"], **NEW["hgx"]}
    assert rig.switch("s0").active == NEW["switch"]
    assert rig.shelf("p0").flash == {"Primary": "3.2.4", "Backup": "3.2.4"}
    assert [name for _, name in rig.tray("t0").flashed] == ["host.fwpkg", "hgx.fwpkg"]
    assert len({name for _, name in rig.switch("s0").flashed}) == 3  # a lost job may be repeated
    assert len(rig.rack.find("aux")) == 1


def test_a_push_whose_answer_was_lost_is_not_sent_again_after_its_bmc_restarted(
    tmp_path: Path,
) -> None:
    """The restart that follows the push empties the list of tasks by which it was known."""
    asked: list[str] = []

    def answered(what: str) -> bool:
        asked.extend([what] if what.endswith("update-multipart") else [])
        return len(asked) == 2

    rig = make(tmp_path, {"compute-tray": {"host-bundle": TARGETS["compute-tray"]["host-bundle"]}})
    assert kill(rig, answered) == 1
    assert [name for _, name in rig.tray("t0").flashed] == ["host.fwpkg"]


def test_a_torn_last_line_of_the_journal_is_dropped_and_another_damaged_one_refused(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TRAY)
    rig.tenants["t0"] = "acme"
    run(rig)
    journal = tmp_path / "journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"key": "t0/host-bundle", "kind": "beg')
    run(rig)
    lines = journal.read_bytes()[len(whole) :].splitlines()
    assert journal.read_bytes().startswith(whole)
    assert {json.loads(line)["key"] for line in lines} == {"d01/drain"}
    journal.write_bytes(b"{}\n" + whole)
    with pytest.raises(InputError, match="line 1 is damaged"):
        rig.run()


def test_a_journal_of_another_campaign_is_refused(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    rig.tenants["t0"] = "acme"
    run(rig)
    rig.targets = FLASH
    with pytest.raises(InputError, match="another campaign"):
        rig.run()


def test_a_domain_that_its_tenant_left_meanwhile_goes_on_with_the_same_journal(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, FLASH)
    rig.tenants["t0"] = "acme"
    assert held(rig)[0] == "d01/drain"
    rig.tenants["t0"] = ""
    finish(rig)
    assert rig.shelf("p0").flash == {"Primary": "3.2.4", "Backup": "3.2.4"}


def test_what_was_read_before_anything_was_begun_is_read_anew(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    rig.tray("t0").dead = True
    told = rig.run()
    assert isinstance(told, list)
    assert any("t0" in one for one in told)
    rig.tray("t0").dead = False
    finish(rig)


def test_a_file_that_only_nvos_could_fetch_is_refused_for_a_tray(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)
    rig.packages["compute-tray"]["hgx-bundle"]["files"] = [{"url": "https://files.example/h"}]
    with pytest.raises(InputError, match="only NVOS fetches"):
        rig.run()
    assert rig.wires.calls == 0


def test_a_shelfs_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make(tmp_path, FLASH)
    monkeypatch.setattr(update_shelves, "FILE_MAX_BYTES", 4)
    _, why = held(rig)
    assert "its file has more than" in why
    assert rig.rack.find("push") == []


def test_a_package_that_is_not_the_pinned_one_is_refused_before_anything_is_read(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TRAY)
    (tmp_path / "hgx.fwpkg").write_text(json.dumps(OLD["hgx"]))
    with pytest.raises(InputError, match="SHA-256"):
        rig.run()
    assert rig.wires.calls == 0

"""Units of a rack leave for good: nothing upon one look, nothing unproved, nothing sent twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rack_rig import Rig, make
from test_handed_over_partitions import UUID, Wire
from test_nvlink_partitions import PASSWORD, make_manager, make_plan, served
from typer.testing import CliRunner

from provisioner.integrations.demo.rack_site import CHASSIS
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.leaving.decommission import (
    DECOMMISSION,
    NVOS_RESET,
    Disks,
    list_by_hand,
    take_out,
)
from provisioner.integrations.racks.leaving.decommission_commands import (
    choose,
    find_open_journals,
    read_disks,
)
from provisioner.integrations.racks.leaving.decommission_run import RESETS_MAX, Decommission
from provisioner.integrations.racks.partitions.nmx_client import VARIABLE, NmxClient
from provisioner.integrations.racks.partitions.owed_acts import OwedActs
from provisioner.integrations.racks.plan import RackPlan
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.racks.update_log import BEGAN, Line, open_log
from provisioner.integrations.racks.update_world import Update
from provisioner.integrations.racks.water_file import open_water
from provisioner.integrations.sim.racks.nmx import Nmx
from provisioner.model.input_error import InputError
from provisioner.ports import SwitchAddress

RETIRED = {"t0": Disks("n0", "retired")}


class Died(Exception):
    """The process is gone."""


class Leaving:
    """A rack with one tray, one switch and one shelf, its manager, and a journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rig: Rig = make(folder, {"compute-tray": {"host-bundle": "25.08-9"}})
        self.manager = Nmx()
        self.manager.add_tray(UUID, CHASSIS, self.rig.tray("t0").slot)
        self.tenants: dict[str, str | None] = {"t0": ""}
        self.disks: Mapping[str, Disks] = RETIRED
        self.journals: Callable[[Any], list[str]] = lambda _: []

    def update(self) -> Update:
        update = self.rig.update()

        async def who_uses(names: Any, *, hold: bool) -> Mapping[str, str | None]:
            return self.tenants

        update.who_uses = who_uses
        return update

    def take(self, *names: str) -> dict[str, str]:
        """Take units out, each as if by a command of its own; return why one stays."""

        async def run() -> dict[str, str]:
            update = self.update()
            client = NmxClient(Wire(self.manager), SwitchAddress("https://m"), self.rig.pause)
            told = {}
            with open_log(self.folder / "out.journal") as log:
                owed = OwedActs(self.folder, client)
                one = Decommission(update, log, client, self.disks, self.journals, owed)
                for name in names:
                    told[name] = await one.take(*update.find(name))
            return told

        return asyncio.run(run())

    def power_off(self) -> None:
        self.rig.tray("t0").power = "Off"

    @property
    def resets(self) -> int:
        return len(self.rig.rack.find("factory reset"))


def test_a_rack_leaves_tray_by_switch_by_shelf_and_a_second_run_sends_nothing(
    tmp_path: Path,
) -> None:
    site = Leaving(tmp_path)
    assert site.take("t0", "s0", "p0") == {"t0": "", "s0": "", "p0": ""}
    assert site.rig.violations() == []
    assert site.resets == 1
    assert site.rig.switch("s0").password != site.rig.switch("s0").wanted
    sent = len(site.rig.rack.log)
    assert site.take("t0", "s0", "p0") == {"t0": "", "s0": "", "p0": ""}
    assert len(site.rig.rack.log) == sent


def test_the_file_of_the_latch_is_free_while_nvos_takes_its_time(tmp_path: Path) -> None:
    site = Leaving(tmp_path)
    pause = site.rig.pause
    free = 0

    async def look(seconds: float) -> None:
        nonlocal free
        if site.resets:
            with open_water(site.update().water):
                free += 1
        await pause(seconds)

    site.rig.pause = look  # type: ignore[method-assign]
    assert site.take("t0", "s0") == {"t0": "", "s0": ""}
    assert free


def _give(site: Leaving, tray: str, tenant: str) -> None:
    own = [site.manager.place(gpu) for gpu in site.manager.gpus]
    site.manager._store("p1", 5, f"{tenant}.d01", own)


WRONG: dict[str, tuple[Callable[[Leaving], Any], str, str]] = {
    "tenant": (lambda s: s.tenants.update(t0="acme"), "t0", "acme uses t0"),
    "nobody says": (lambda s: s.tenants.clear(), "t0", "nobody says whose host t0 is"),
    "partition": (lambda s: _give(s, "t0", "acme"), "t0", "t0 is in partition"),
    "foreign": (lambda s: s.manager._store("p", 5, "x", [s.manager.place(s.manager.gpus[0])]),
                "s0", "x: it is nobody's of ours"),
    "unlisted": (lambda s: (s.manager.gpus.clear(), s.manager._store("p", 5, "x", [{
        "DomainUUID": UUID, "ChassisID": 1, "SlotID": 1, "HostID": 1, "DeviceID": 1}])),
        "t0", "lists no GPU of rack"),
    "disks": (lambda s: setattr(s, "disks", {"t0": Disks("n0", "certified")}), "t0",
              "its disks are not proved to be erased: node n0 is certified"),
    "no node": (lambda s: setattr(s, "disks", {}), "t0", "no node of it is shown"),
    "journal": (lambda s: setattr(s, "journals", lambda _: ["winter is not proved"]), "s0",
                "winter is not proved"),
    "tray is on": (lambda _: None, "s0", "t0 is On, and has to be Off"),
    "another tray": (lambda s: setattr(s.rig.tray("t0"), "slot", 5), "t0", "slot"),
    "another switch": (lambda s: (s.power_off(), setattr(s.rig.switch("s0"), "chassis", "1829999")),
                       "s0", "1829999"),
    "rest stays": (lambda _: None, "p0", "s0 of its rack has not left"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_proved_stays_and_nothing_is_sent(tmp_path: Path, case: str) -> None:
    site = Leaving(tmp_path)
    break_it, unit, told = WRONG[case]
    break_it(site)
    assert told in site.take(unit)[unit]
    assert (site.resets, site.rig.rack.find("reset")) == (0, [])


def test_a_persons_word_on_the_disks_stands_for_a_node(tmp_path: Path) -> None:
    site = Leaving(tmp_path)
    site.disks = {"t0": Disks(word="shredded, certificate 4711")}
    assert site.take("t0") == {"t0": ""}


def test_a_tenant_that_comes_between_the_looks_stops_it(tmp_path: Path) -> None:
    site = Leaving(tmp_path)
    asked = 0

    def journals(_: Any) -> list[str]:
        nonlocal asked
        asked += 1
        site.tenants["t0"] = "acme" if asked == 1 else ""
        return []

    site.journals = journals
    assert "acme uses t0" in site.take("t0")["t0"]
    assert site.rig.rack.find("reset") == []


@pytest.mark.parametrize("after", [False, True])
def test_a_death_at_any_write_resumes_and_resets_once(tmp_path: Path, after: bool) -> None:
    site = Leaving(tmp_path)
    assert site.take("t0") == {"t0": ""}
    deaths = 0

    def die(url: str, call: Any) -> None:
        nonlocal deaths
        if call.method == "POST" and deaths < 2:
            deaths += 1
            raise Died

    hook = "after" if after else "before"
    setattr(site.rig.wires, hook, die)
    for _ in range(4):
        try:
            told = site.take("s0")
        except Died:
            continue
        break
    assert told == {"s0": ""}
    assert deaths >= 1
    assert site.resets == 1


def test_a_reset_that_does_nothing_is_tried_twice_and_then_told(tmp_path: Path) -> None:
    site = Leaving(tmp_path)
    site.take("t0")
    site.rig.switch("s0").faults.ignores_reset = True
    assert f"was reset {RESETS_MAX} times" in site.take("s0")["s0"]
    assert site.resets == RESETS_MAX


def test_what_has_left_is_taken_out_of_the_plan_and_what_a_person_does_is_named(
    tmp_path: Path,
) -> None:
    plan = make(tmp_path, {}).plan()
    chosen = choose(plan, [plan.racks[0].name])
    assert [unit.kind for _, unit in chosen] == [
        Kind.COMPUTE_TRAY,
        Kind.NVLINK_SWITCH,
        Kind.POWER_SHELF,
    ]
    kept = take_out(plan, ["s0"])
    assert kept is not None
    assert [unit.name for unit in kept.racks[0].units if unit.name == "s0"] == []
    assert RackPlan.model_validate_json(kept.model_dump_json()) == kept
    assert take_out(plan, [unit.name for _, unit in chosen]) is None
    twice = plan.model_copy(update={"racks": plan.racks * 2})
    with pytest.raises(ValueError, match="stands twice"):  # no command would read it
        take_out(twice, ["s0"])
    assert all(any("BMC" in each for each in list_by_hand(unit)) for _, unit in chosen)
    with pytest.raises(InputError, match="no such unit"):
        choose(plan, ["nowhere"])


def test_the_disks_are_told_by_the_node_whose_bmc_the_tray_has(tmp_path: Path) -> None:
    plan = make(tmp_path, {}).plan()
    (tray,) = [unit for _, unit in choose(plan, ["t0"])]
    shown = {"id": "n0", "state": "retired", "bmcs": [{"url": f"{tray.bmc}:443"}]}
    (tmp_path / "n0.json").write_text(json.dumps(shown))
    assert read_disks(plan, [tmp_path / "n0.json"], "") == {"t0": Disks("n0", "retired")}
    assert read_disks(plan, [], "shredded") == {"t0": Disks(word="shredded")}
    (tmp_path / "n0.json").write_text("[1]")
    with pytest.raises(InputError, match="it shows no node"):
        read_disks(plan, [tmp_path / "n0.json"], "")


def test_an_open_journal_of_the_racks_folder_keeps_its_domain(tmp_path: Path) -> None:
    plan = make(tmp_path, {}).plan()
    ((_, unit),) = choose(plan, ["s0"])
    hands = tmp_path / "by-hand"
    hands.mkdir()
    with open_log(hands / "amy.journal") as log:
        log.write(Line("t0/host-bundle", BEGAN, "push", 1.0))
        asyncio.run(log.sync())
    own = hands / "own.journal"
    with open_log(own) as log:
        log.write(Line(f"s0/{DECOMMISSION}", BEGAN, NVOS_RESET, 1.0))
        asyncio.run(log.sync())
    (told,) = find_open_journals(plan, tmp_path, own, unit)
    assert told.startswith("by-hand/amy.journal may have written")
    (hands / "amy.journal").write_text("damaged\n")
    (told,) = find_open_journals(plan, tmp_path, own, unit)
    assert "cannot be judged" in told


def test_the_command_says_what_is_missing_and_by_hand_and_sends_nothing(tmp_path: Path) -> None:
    """Over HTTPS to the manager; the BMC's address is closed."""
    plan = make_plan(1).model_dump(mode="json")
    plan["racks"][0]["units"][0]["bmc"] = "https://127.0.0.1:1"
    (tmp_path / "r.yaml").write_text(json.dumps(plan))
    told = {"targets": {"compute-tray": {}}, "units": {"t0": {"tenant": ""}}}
    (tmp_path / "c.yaml").write_text(json.dumps(told))
    manager = make_manager(1)  # the factory's partition has its GPUs

    def run(*more: str) -> Any:
        files = [str(tmp_path / "r.yaml"), str(tmp_path / "c.yaml"), "t0"]
        water = ["--water", str(tmp_path / "w.json"), "--journal", str(tmp_path / "j")]
        login = ["--manager", url, "--manager-user", "rw-user", "--ca", str(ca)]
        words = ["decommission", *files, *water, *login, "--who", "amy", "--why", "replaced"]
        return CliRunner().invoke(app, [*words, *more], env={VARIABLE: PASSWORD})

    with served(manager, tmp_path) as (url, ca):
        shown = run()
        assert shown.exit_code == 1, shown.output
        assert "t0: would send off" in shown.output
        assert "t0: by hand: its BMC: restore its factory defaults" in shown.output
        assert "t0 is in partition Default" in shown.output
        assert "its disks are not proved to be erased: no node of it is shown" in shown.output
        stays = run("--apply", "--yes", "--disks", "shredded")
        assert (stays.exit_code, manager.log) == (1, [])
        assert "t0 is in partition Default" in stays.output
    assert '"what": "amy: replaced"' in (tmp_path / "j").read_text()

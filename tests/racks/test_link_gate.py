"""Links and control plane of an NVLink domain's switches: judged, read, and asked at a handover.

The switches are `integrations/sim/racks/switch.py`: interfaces as NVIDIA's manual of NVOS 25.02
("NVLink Interface") names them, states as NVUE's API has them (docs/sources/hardware.md#links).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from proved_domain import LOGIN, SWITCHES, make_switches
from served_rack import ServedRack
from test_handed_over_partitions import SERIAL, Rig, make_node, owners, write_plan
from typer.testing import CliRunner

from provisioner.integrations.demo.rack_site import OURS, RackSite, RackWires
from provisioner.integrations.racks.fabric import switch_looks
from provisioner.integrations.racks.fabric.link_gate import (
    FAULTS_MAX,
    SwitchView,
    find_link_faults,
    judge_domain,
    judge_nodes,
    list_switches,
    read_links,
)
from provisioner.integrations.racks.fabric.switch_looks import look_at_switches
from provisioner.integrations.racks.partitions.tenant_partitions import SwitchNode
from provisioner.integrations.racks.plan import PlannedRack, RackPlan, read_plan
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.racks.update_steps import Controller
from provisioner.integrations.sim.racks.switch import Switch
from provisioner.model.node import State
from provisioner.model.outcome import Blocker

DOWN = {"down": {}}


def view(
    effective: Mapping[str, str],
    applied: Mapping[str, str] | None = None,
    startup: Mapping[str, str] | None = None,
) -> SwitchView:
    said = {"operational": effective, "applied": applied or {}, "startup": startup or {}}
    return SwitchView(said, Controller("s0", 0, running=True, configured=True))


GOOD = {"acp1": "up", "fnm1": "up", "sw1p1s1": ""}
LINKS: dict[str, tuple[SwitchView, dict[str, str], list[str]]] = {
    "nobody set any": (view(GOOD), {}, []),
    "set and saved": (view(GOOD, {"acp1": "up"}, {"acp1": "up"}), {}, []),
    "down": (view({**GOOD, "acp1": "down"}), {}, ["acp1"]),
    "applied down": (view(GOOD, {"fnm1": "down"}), {}, ["fnm1"]),
    "saved down": (view(GOOD, {"acp1": "up"}, {"acp1": "down"}), {}, ["acp1"]),
    "gone from what is in force": (view({"acp1": "up"}, {"acp2": "up"}), {}, ["acp2"]),
    "another shape": (view({**GOOD, "acp1": "unreadable"}), {}, ["acp1"]),
    "nothing to the trays": (view({"fnm1": "up"}), {}, [""]),
    "an unknown role": (view({**GOOD, "nv1": "up"}), {}, ["nv1"]),
    "a port that was cut and not saved": (view(GOOD, {"sw1p1s1": "down"}), {}, ["sw1p1s1"]),
    # what the plan states is a saved target, which a default does not satisfy
    "stated, and a default": (view(GOOD), {"acp": "up"}, ["acp1"]),
    "stated, and applied alone": (view(GOOD, {"acp1": "up"}), {"acp": "up"}, ["acp1"]),
    "stated": (view(GOOD, {"acp1": "up"}, {"acp1": "up"}), {"acp": "up"}, []),
    "stated down": (
        view({**GOOD, "acp1": "down"}, {"acp1": "down"}, {"acp1": "down"}),
        {"acp1": "down"},
        [],
    ),
    "stated down, and up": (view(GOOD), {"acp1": "down"}, ["acp1"]),
    "stated and not there": (view(GOOD), {"acp2": "up"}, ["acp2"]),
    "a name before its role": (view({**GOOD, "acp1": "down"}), {"acp": "up", "acp1": "any"}, []),
    "any, and not saved": (view(GOOD, {"acp1": "down"}), {"acp1": "any"}, ["acp1"]),
}


@pytest.mark.parametrize("name", LINKS)
def test_each_link_that_is_not_wanted_effective_applied_and_saved_alike_is_named(name: str) -> None:
    seen, planned, named = LINKS[name]
    assert [who for who, _ in find_link_faults(seen, planned, spans=False)] == named


def test_front_panel_ports_have_to_be_up_in_a_domain_of_several_racks() -> None:
    ((name, why),) = find_link_faults(view(GOOD), {}, spans=True)
    assert name == "sw1p1s1"
    assert why == "wanted up, effective not said, applied not said, startup not said"


@pytest.mark.parametrize("body", [None, {}, [], "up", {f"acp{n}": {} for n in range(5000)}])
def test_what_is_no_whole_list_of_interfaces_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match="no list"):
        read_links(body)


def test_both_shapes_of_a_state_are_read_and_every_other_one_is_none() -> None:
    states = ["up", {"up": {}}, {}, None, {"up": {}, "down": {}}, "Up", 1, ["up"], {"x": {}}]
    body: dict[str, Any] = {f"acp{n}": {"link": {"state": s}} for n, s in enumerate(states)}
    body |= {"eth0": {"type": "eth"}, "acp90": None, "acp91": {"link": 7}, "x\n": {"type": "nvl"}}
    bad = "unreadable"
    said = ["up", "up", "", "", bad, bad, bad, bad, bad]
    assert read_links(body) == {
        **{f"acp{n}": word for n, word in enumerate(said)},
        "acp90": "",
        "acp91": "",
        "?": "",
    }


@dataclass
class Domain:
    """d01 of `write_plan`, and NVOS of its two switches."""

    plan: RackPlan
    wires: RackWires

    def switch(self, name: str) -> Switch:
        found = self.wires.rack.units[name]
        assert isinstance(found, Switch)
        return found

    def look(self) -> list[str]:
        seen = asyncio.run(look_at_switches(self.plan, "d01", self.wires, LOGIN))
        return tell(judge_domain(self.plan, "d01", seen))


def tell(faults: tuple[Blocker, ...]) -> list[str]:
    assert all(one.unblock for one in faults)
    return [f"{one.subject}: {one.detail}" for one in faults]


def make(folder: Path) -> Domain:
    return Domain(read_plan(write_plan(folder)), make_switches())


def _fail(switch: Switch, **faults: Any) -> None:
    for name, value in faults.items():
        setattr(switch.faults, name, value)


BAD = {
    "saved down": (
        {"links": {"startup/acp3": DOWN}},
        "s1/acp3: wanted up, effective up, applied not said, startup down",
    ),
    "applied down": (
        {"links": {"applied/fnm1": "down"}},
        "s1/fnm1: wanted up, effective up, applied down, startup not said",
    ),
    "down": (
        {"links": {"operational/acp2": DOWN}},
        "s1/acp2: wanted up, effective down, applied not said, startup not said",
    ),
    "one is missing": (
        {"links": {f"{r}/acp4": None for r in ("operational", "applied", "startup")}},
        "s1/acp4: ",
    ),
    "nothing saved": (
        {"silent": "startup"},
        "s1: its links and its controller were not read: it is no list of interfaces",
    ),
    "two primaries": (
        {"primary_too": True},
        "d01: the controller has to run on one switch, CONFIGURED: s0 (",
    ),
    "mute": (
        {"nvos_dead": True},
        "s1: its links and its controller were not read: its place: no answer",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_switch_with_a_fault_is_named_and_no_pass(tmp_path: Path, name: str) -> None:
    domain = make(tmp_path)
    assert domain.look() == []
    faults, told = BAD[name]
    _fail(domain.switch("s1"), **faults)
    assert any(one.startswith(told) for one in domain.look()), domain.look()


def test_a_control_plane_without_a_primary_or_never_configured_is_named(tmp_path: Path) -> None:
    domain = make(tmp_path)
    domain.switch("s0").faults.never_configured = True
    (told,) = domain.look()
    has_to = "d01: the controller has to run on one switch, CONFIGURED:"
    assert told.startswith(f"{has_to} s0 (not ok, UNCONFIGURED")
    domain.switch("s0").controller_since = None
    assert domain.look() == [f"{has_to} it runs on none"]


def test_another_switch_at_its_address_a_wrong_login_and_no_login_are_no_reading(
    tmp_path: Path,
) -> None:
    domain = make(tmp_path)
    domain.switch("s0").chassis = "C2"
    (told,) = domain.look()
    assert told.endswith("another switch answers at its address, slot 30 of chassis C2")
    domain.switch("s0").chassis = SERIAL
    domain.switch("s1").password = "another"
    (told,) = domain.look()
    assert told.startswith("s1: its links and its controller were not read: its place: ")
    assert domain.switch("s1").refused == 1  # it is shown once, and then rests
    domain.look()
    assert domain.switch("s1").refused == 1
    nobody = asyncio.run(look_at_switches(domain.plan, "d01", domain.wires, lambda _: None))
    assert len(judge_domain(domain.plan, "d01", nobody)) == len(SWITCHES)


def test_a_domain_without_planned_switches_and_one_that_was_not_asked_are_faults(
    tmp_path: Path,
) -> None:
    plan = make(tmp_path).plan
    assert tell(judge_domain(plan, "d02", {})) == [
        "d02: the plan has no NVLink switch of the domain"
    ]
    assert list_switches(plan, "") == []
    assert len(judge_domain(plan, "d01", {})) == len(SWITCHES)


# --- the manager's word


def _with_links(plan: RackPlan, **links: Any) -> RackPlan:
    (rack,) = plan.racks
    whole = {**rack.model_dump(), "links": links}
    return RackPlan(racks=(PlannedRack.model_validate(whole),))


def test_each_switch_that_the_manager_does_not_call_healthy_or_nobody_planned_is_named(
    tmp_path: Path,
) -> None:
    plan = make(tmp_path).plan

    def judge(changes: Mapping[int, str], *more: SwitchNode, of: RackPlan = plan) -> list[str]:
        health = dict.fromkeys(SWITCHES.values(), "HEALTHY") | changes
        nodes = [SwitchNode(f"n{slot}", SERIAL, slot, said) for slot, said in health.items()]
        return tell(judge_nodes(of, "d01", [*nodes, *more]))

    assert judge({}) == []
    assert judge({}, SwitchNode("x", "another rack", 3, "UNHEALTHY")) == []
    assert judge({31: "MISSING_NVLINK"}) == ["s1: the manager says MISSING_NVLINK"]
    lenient = _with_links(plan, acp3="any")
    assert judge({31: "MISSING_NVLINK"}, of=lenient) == []
    assert judge({31: "UNHEALTHY"}, of=lenient) != []
    assert tell(judge_nodes(plan, "d01", [SwitchNode("n30", SERIAL, 30, "")])) == [
        "s0: the manager says no health of it",
        "s1: the manager lists no switch in its slot",
    ]
    assert judge({40: "HEALTHY"}) == [
        "r01: the manager lists a switch in slot 40, and the plan none"
    ]
    assert judge({}, SwitchNode("x", SERIAL, 31, "HEALTHY")) == [
        "r01: the manager lists 2 switches in its slot 31"
    ]


@pytest.mark.parametrize(
    ("serial", "slot", "holds"),
    [
        (SERIAL, None, True),
        ("another rack", None, False),
        ("", None, True),
        ("", 40, True),
        ("", 31, False),  # the switch of that slot is listed
    ],
)
def test_a_switch_node_without_a_whole_place_holds_only_domains_that_it_may_be_of(
    tmp_path: Path, serial: str, slot: int | None, holds: bool
) -> None:
    rig = Rig(tmp_path)
    at = {"ChassisSerialNumber": serial, "SlotID": slot, "ChassisID": 1}
    strange = {"ID": "node-7", "LocationInfo": at, "Health": "HEALTHY"}
    rig.manager.switches.append(strange)
    told = rig.do("admit", make_node("t0", "acme"))
    if not holds:
        assert (told, owners(rig.manager, "t0")) == ([], {"acme.d01"})
        return
    (why,) = told
    assert why.startswith("d01: switch node node-7 has no whole place at the manager")
    assert (rig.manager.log, owners(rig.manager, "t0")) == ([], {"Default"})
    rig.manager.switches.remove(strange)  # as its `unblock` has it
    assert rig.do("admit", make_node("t0", "acme")) == []


# --- a handover


def test_no_tray_is_handed_over_while_a_switch_of_its_domain_is_not_as_wanted(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    node = make_node("t0", "acme")
    switch = rig.wire.switches.rack.units["s1"]
    assert isinstance(switch, Switch)
    switch.faults.links = {"startup/acp3": DOWN}
    (told,) = rig.do("admit", node)
    assert told == "s1/acp3: wanted up, effective up, applied not said, startup down"
    assert (rig.manager.log, owners(rig.manager, "t0")) == ([], {"Default"})
    switch.faults.links = {}
    rig.manager.switches[1]["Health"] = "MISSING_NVLINK"
    assert rig.do("admit", node) == ["s1: the manager says MISSING_NVLINK"]
    rig.manager.switches[1]["Health"] = "HEALTHY"
    assert rig.do("admit", node) == []
    assert [verdict for verdict, _ in rig.judge(node)] == ["pass"]


def test_the_gate_of_a_release_looks_at_the_switches_anew(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    node = make_node("t0", "acme")
    assert rig.do("admit", node) == []
    switch = rig.wire.switches.rack.units["s0"]
    assert isinstance(switch, Switch)
    switch.faults.links = {"operational/acp1": DOWN}
    ((verdict, why),) = rig.judge(node)
    assert (verdict, "s0/acp1" in why) == ("unknown", True)
    switch.faults.links = {}
    switch.faults.nvos_dead = True
    ((verdict, why),) = rig.judge(node)
    assert (verdict, "were not read" in why) == ("unknown", True)
    switch.faults.nvos_dead = False
    whole = list(rig.manager.switches)
    rig.manager.switches.clear()
    ((verdict, why),) = rig.judge(node)
    assert (verdict, "lists no switch" in why) == ("unknown", True)
    rig.manager.switches = [*whole, {"ID": "s32", "Health": "HEALTHY"}]  # without a place
    ((verdict, why),) = rig.judge(node)
    assert (verdict, "has no whole place" in why) == ("unknown", True)


def test_a_tray_leaves_its_partition_whatever_the_switches_say(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert rig.do("admit", make_node("t0", "acme")) == []
    for name in SWITCHES:
        switch = rig.wire.switches.rack.units[name]
        assert isinstance(switch, Switch)
        switch.faults.nvos_dead = True
    assert rig.do("expel", make_node("t0", "acme", State.DRAINING)) == []
    assert owners(rig.manager, "t0") == {""}


def test_of_many_faults_a_handover_names_a_few_and_counts_the_rest(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for name in SWITCHES:
        switch = rig.wire.switches.rack.units[name]
        assert isinstance(switch, Switch)
        named = [f"acp{n}" for n in (1, 2, 3, 4)] + ["fnm1"]
        switch.faults.links = {f"applied/{n}": DOWN for n in named}
    told = rig.do("admit", make_node("t0", "acme"))
    assert len(told) == FAULTS_MAX + 1
    assert told[-1] == "d01: and 2 more (`rack fabric`)"


# --- the command


def test_the_command_reads_the_switches_over_https_and_names_each_deviation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = RackSite(tmp_path, trays=1, switches=2, shelves=0)
    site.rack.now = 1e6
    rack = ServedRack(site, tmp_path, 1.0)
    monkeypatch.setenv(switch_looks.OURS, OURS)
    with rack.serve():
        plan = tmp_path / "racks.json"
        plan.write_text(site.plan().model_dump_json())
        words = ["fabric", str(plan), site.plan().racks[0].name, "--nvos-user", "admin"]
        words += ["--ca", str(rack.authority), "--json"]
        good = CliRunner().invoke(app, words)
        site.switch("s1").faults.links = {"startup/acp3": DOWN}
        site.switch("s0").faults.nvos_dead = True
        bad = CliRunner().invoke(app, words)
    assert (good.exit_code, json.loads(good.stdout)["faults"]) == (0, []), good.output
    assert bad.exit_code == 1
    told = {one["subject"]: one["detail"] for one in json.loads(bad.stdout)["faults"]}
    assert told["s1/acp3"] == "wanted up, effective up, applied not said, startup down"
    assert told["s0"].startswith("its links and its controller were not read: ")


def test_the_command_judges_nothing_that_was_not_given(tmp_path: Path) -> None:
    plan = str(write_plan(tmp_path))
    for more in ([], ["--imex"], ["--nvos-user", "admin", "--nccl"]):
        refused = CliRunner().invoke(app, ["fabric", plan, "r01", *more]).exception
        assert "nothing is given to be judged" in str(refused)
    unread = CliRunner().invoke(app, ["fabric", plan, "r01", "--nvos-user", "admin"])
    assert unread.exit_code == 1  # no password
    assert "no PROVISIONER_NVOS_PASSWORD" in unread.output

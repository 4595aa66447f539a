"""One row per rule of the planner: what it merges, what it waits for, and how it says no."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner import components
from provisioner.model.inventory import Activation, BackgroundCopy, Component, Device, Inventory
from provisioner.model.matrix import Edge, Match, Matrix, Pin, Profile, Release, Requirement
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import History, Neighbour, Plan, StagedFact, StepKind
from provisioner.planning.matrix.diff import build_node_at_pins
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.path.planner import PlanCache, PlanningNode, plan, plan_fleet
from provisioner.planning.path.profiles import choose_profile

OLD, NEW = "HGX-H100x8_0002_221216.1.0", "HGX-H100x8_0002_230517.3.0"
CONTENTS = {
    OLD: {"hgx.gpu": "96.00.61.00.01", "hgx.bmc": "HGX-22.10-1-rc31"},
    NEW: {"hgx.gpu": "96.00.68.00.01", "hgx.bmc": "HGX-22.10-1-rc36"},
}
SHIPPED = Path(__file__).parents[2] / "firmware_matrix.yaml"
SWITCH = (Neighbour(node="leaf1", versions={"switch.os": ("5.11.0.0026",)}),)


def edge(start: str, to: str, by: Activation, **more: Any) -> Edge:
    given = {"artifact": "file", "sha256": "0" * 64, "evidence": "notes"} | more
    return Edge(from_versions=(start,), to=to, activates_by=by, **given)


BMC = (edge("1.0", "2.0", Activation.BMC_RESET),)


def matrix(
    pins: dict[str, str | Pin],
    edges: dict[str, tuple[Edge, ...]],
    requires: tuple[Requirement, ...] = (),
) -> Matrix:
    made = {k: p if isinstance(p, Pin) else Pin(version=p) for k, p in pins.items()}
    profile = Profile(match=Match(), pins=made)
    return Matrix(
        releases={"r": Release(profiles={"p": profile}, requires=requires)},
        edges=edges,
        bundles={"hgx.bundle": CONTENTS},
    )


def node(*rows: tuple[str, str, str | None], **more: Any) -> Inventory:
    found = tuple(
        Component(kind=k, slot=s, version=v, source=f"/{s}", bmc="host", **more) for k, s, v in rows
    )
    return Inventory(node="n", vendor="v", components=found)


def titles(found: Plan) -> list[str]:
    assert not found.blockers, found.blockers
    return [step.title for step in found.steps]


def reasons(found: Plan) -> list[tuple[Reason, str]]:
    assert not found.steps
    return [(b.reason, b.subject) for b in found.blockers]


def baseboard(gpu: str = "96.00.61.00.01", bmc: str = "HGX-22.10-1-rc31") -> Inventory:
    gpus = [("hgx.gpu", f"GPU_SXM_{n}", gpu) for n in range(1, 9)]
    return node(*gpus, ("hgx.bmc", "BMC_0", bmc))


def test_nothing_is_done_when_every_pin_runs() -> None:
    found = plan(node(("host.bmc", "BMC", "2.0")), matrix({"host.bmc": "2.0"}, {}), "r", "p")

    assert found.done


def test_updates_that_wait_for_one_reset_share_it() -> None:
    edges = {
        "host.bios": (edge("1.0", "2.0", Activation.COLD_BOOT),),
        "host.cpld": (edge("1.0", "2.0", Activation.AC_CYCLE),),
    }
    seen = node(*[(kind, "0", "1.0") for kind in edges])
    found = plan(seen, matrix(dict.fromkeys(edges, "2.0"), edges), "r", "p")

    assert [s.kind for s in found.steps] == [StepKind.UPDATE] * 2 + [StepKind.ACTIVATE]
    assert (found.steps[-1].activation, found.outages, found.resets) == (Activation.AC_CYCLE, 1, 1)
    assert "covers" in found.steps[-1].reason


def test_each_stop_of_an_upgrade_path_runs_before_the_next_is_written() -> None:
    path = (
        edge("1.0", "3.0", Activation.BMC_RESET, via=("2.0",)),
        edge("0.9", "2.0", Activation.BMC_RESET),
    )
    seen = node(("host.bmc", "BMC", "1.0"))
    found = plan(seen, matrix({"host.bmc": "3.0"}, {"host.bmc": path}), "r", "p")

    assert titles(found) == [
        "host.bmc 1.0 → 2.0",
        "bmc_reset (1 waiting)",
        "host.bmc 2.0 → 3.0",
        "bmc_reset (1 waiting)",
    ]
    assert found.steps[1].bmcs == ("host",)
    assert found.steps[2].expected[0].version == "2.0"


def test_a_package_is_known_by_its_contents_and_brings_them() -> None:
    edges = {"hgx.bundle": (edge(OLD, NEW, Activation.AC_CYCLE),)}
    found = plan(baseboard(), matrix({"hgx.bundle": NEW}, edges), "r", "p")

    assert titles(found) == [f"hgx.bundle {OLD} → {NEW}", "ac_cycle (1 waiting)"]
    assert dict(found.steps[0].carries) == CONTENTS[NEW]
    assert {e.kind for e in found.steps[0].expected} == {"hgx.gpu", "hgx.bmc"}
    after = baseboard("96.00.68.00.01", "HGX-22.10-1-rc36")
    assert plan(after, matrix({"hgx.bundle": NEW}, edges), "r", "p").done


def test_mixed_contents_are_refused_with_the_parts_that_differ() -> None:
    edges = {"hgx.bundle": (edge(OLD, NEW, Activation.AC_CYCLE),)}
    found = plan(baseboard(bmc="odd"), matrix({"hgx.bundle": NEW}, edges), "r", "p")

    assert reasons(found) == [(Reason.NO_PATH, "hgx.bundle")]
    assert "hgx.bmc/BMC_0 runs odd, not HGX-22.10-1-rc31" in found.blockers[0].detail


def test_what_one_card_carries_does_not_touch_another() -> None:
    edges = {
        "bluefield.bundle": (
            edge(
                "2.9.0-90", "2.10.0-147", Activation.COLD_BOOT, carries={"bluefield.nic": "32.44"}
            ),
        )
    }
    rows = [("bluefield.bundle", f"DPU_{n}", v) for n, v in ((1, "2.9.0-90"), (2, "2.10.0-147"))]
    rows += [("bluefield.nic", "DPU_1", "32.43"), ("bluefield.nic", "DPU_2", "32.40")]
    pins: dict[str, str | Pin] = {"bluefield.bundle": "2.10.0-147", "bluefield.nic": "32.44"}
    found = plan(node(*rows), matrix(pins, edges), "r", "p")

    assert reasons(found) == [(Reason.NO_PATH, "bluefield.nic/DPU_2")]


def test_a_version_that_the_ledger_knows_as_staged_is_only_activated() -> None:
    fact = StagedFact(kind="host.bmc", slot="BMC", version="2.0", activation=Activation.BMC_RESET)
    wanted = matrix({"host.bmc": "2.0"}, {"host.bmc": BMC})
    seen = node(("host.bmc", "BMC", "1.0"))
    found = plan(seen, wanted, "r", "p", history=History(staged=(fact,)))

    assert titles(found) == ["bmc_reset (1 waiting)"]
    assert found.steps[0].activates == (("host.bmc/BMC", "2.0"),)


def test_a_running_copy_of_flash_stops_everything() -> None:
    seen = node(("host.bmc", "BMC", "1.0"), background_copy=BackgroundCopy.IN_PROGRESS)
    found = plan(seen, matrix({"host.bmc": "2.0"}, {"host.bmc": BMC}), "r", "p")

    assert (found.in_flight, found.steps) == (
        ("host.bmc/BMC: background copy is InProgress",),
        (),
    )


def test_a_rule_about_the_switch_names_who_stands_at_the_other_end() -> None:
    rule = Requirement(
        name="nic and switch",
        when={"host.bmc": ">=2"},
        needs={"switch.os": ">=5.12"},
        reason="tested together",
    )
    wanted = matrix({"host.bmc": "2.0"}, {"host.bmc": BMC}, (rule,))
    found = plan(node(("host.bmc", "BMC", "1.0")), wanted, "r", "p", neighbours=SWITCH)

    assert reasons(found) == [(Reason.CONSTRAINT, "switch.os")]
    assert "leaf1 runs 5.11.0.0026" in found.blockers[0].detail


def test_equal_components_change_together_when_a_rule_says_so() -> None:
    rule = Requirement(
        name="same version",
        when={"host.driver": ">0"},
        needs={"host.fabric_manager": "=host.driver"},
        reason="it refuses to start",
    )
    edges = {
        k: (edge("535.1", "570.1", Activation.WARM_REBOOT),)
        for k in ("host.driver", "host.fabric_manager")
    }
    seen = node(*[(kind, "0", "535.1") for kind in edges])
    found = plan(seen, matrix(dict.fromkeys(edges, "570.1"), edges, (rule,)), "r", "p")

    assert len(titles(found)) == 3
    assert found.resets == 1


NO = [
    ({"version": None}, {}, {}, Reason.VERSION_MISSING),
    ({"version": "0.5"}, {}, {}, Reason.NO_PATH),
    ({"version": "3.0"}, {}, {}, Reason.DOWNGRADE),
    ({"version": "RA1.3"}, {}, {}, Reason.UNKNOWN_GRAMMAR),
    ({"updateable": False}, {}, {}, Reason.NOT_UPDATEABLE),
    ({}, {"artifact": ""}, {}, Reason.MISSING_ARTIFACT),
    ({}, {"sha256": ""}, {}, Reason.MISSING_DIGEST),
    ({}, {"evidence": ""}, {}, Reason.MISSING_EVIDENCE),
    ({}, {"requires": {"switch.os": ">=5.12"}}, {}, Reason.CONSTRAINT),
    ({}, {}, {"failures": (("host.bmc", "BMC", "2.0", 3),)}, Reason.ATTEMPTS_EXHAUSTED),
    ({}, {}, {"completed": (("host.bmc", "BMC", "2.0"),)}, Reason.NOT_ACTIVATED),
]


@pytest.mark.parametrize(("part", "way", "past", "reason"), NO)
def test_every_no_has_its_name(
    part: dict[str, Any], way: dict[str, Any], past: dict[str, Any], reason: Reason
) -> None:
    row = {"kind": "host.bmc", "slot": "BMC", "version": "1.0", "source": "/", "bmc": "host"}
    seen = Inventory(node="n", vendor="v", components=(Component(**(row | part)),))
    wanted = matrix(
        {"host.bmc": "2.0"}, {"host.bmc": (edge("1.0", "2.0", Activation.BMC_RESET, **way),)}
    )
    found = plan(seen, wanted, "r", "p", history=History(**past))

    assert [b.reason for b in found.blockers] == [reason]
    assert found.blockers[0].unblock
    assert not found.steps


def test_a_one_way_edge_is_never_gone_back() -> None:
    edges = {
        "host.bmc": (
            edge("1.0", "2.0", Activation.BMC_RESET, one_way=True),
            edge("2.0", "1.0", Activation.BMC_RESET, downgrade=True),
        )
    }
    found = plan(node(("host.bmc", "BMC", "2.0")), matrix({"host.bmc": "1.0"}, edges), "r", "p")

    assert reasons(found) == [(Reason.ANTI_ROLLBACK, "host.bmc/BMC")]


def test_unknown_pins_block_in_production_and_are_left_alone_in_a_lab() -> None:
    wanted = matrix({"host.bmc": "2.0", "host.bios": "unknown"}, {"host.bmc": BMC})
    seen = node(("host.bmc", "BMC", "2.0"))

    assert reasons(plan(seen, wanted, "r", "p")) == [(Reason.UNKNOWN_PIN, "host.bios")]
    assert plan(seen, wanted, "r", "p", production=False).done


def test_a_lab_sees_the_way_before_it_has_the_files_and_production_names_each_missing_one() -> None:
    shipped = parse([(SHIPPED.name, SHIPPED.read_text())])
    profile = shipped.releases["spectrum-x-1.2.0"].profiles["hgx-h100-bf3"]
    at_1_2_0 = build_node_at_pins(profile, "n")
    unconfigured = Component(kind="nic.config", slot="0", version="none", source="mlxconfig")
    seen = at_1_2_0.model_copy(update={"components": (*at_1_2_0.components, unconfigured)})
    there = ("spectrum-x-1.3.0", "hgx-h100-bf3")
    lab = plan(seen, shipped, *there, neighbours=SWITCH, production=False)
    production = plan(seen, shipped, *there, neighbours=SWITCH)

    pushed = {"bluefield.bundle", "supernic.nic", "nic.cx7"}
    assert not lab.blockers
    assert pushed < {s.component for s in lab.steps}
    assert {(s.artifact, s.sha256) for s in lab.steps} == {("", "")}
    assert not production.steps
    missing = {b.subject for b in production.blockers if b.reason is Reason.MISSING_ARTIFACT}
    assert missing == {f"{kind}/0" for kind in pushed}


def test_a_pinned_component_that_nobody_sees_is_missing_even_in_a_lab() -> None:
    found = plan(node(), matrix({"host.bmc": "2.0"}, {}), "r", "p", production=False)

    assert reasons(found) == [(Reason.VERSION_MISSING, "host.bmc")]


def test_equal_situations_are_worked_out_once_and_keep_their_own_names() -> None:
    wanted = matrix({"host.bmc": "2.0"}, {"host.bmc": BMC})
    cache = PlanCache(wanted, components.ALL, production=True)
    seen = [
        node(("host.bmc", "BMC", v)).model_copy(update={"node": f"n{i}"})
        for i, v in enumerate(("1.0", "2.0", "1.0"))
    ]
    found = plan_fleet([PlanningNode(s, "r", "p") for s in seen], cache)

    assert cache.searches == 2
    assert [p.node for p in found] == ["n0", "n1", "n2"]
    assert found == [plan(s, wanted, "r", "p") for s in seen]


def test_a_profile_is_chosen_by_models_and_its_absence_is_named() -> None:
    profiles = {
        name: Profile(match=Match(gpu_models=(f"*{name}*",)), pins={}) for name in ("H100", "H200")
    }
    release = Release(profiles=profiles)
    gpu = Device(kind="gpu", slot="GPU_SXM_1", model="NVIDIA H100 80GB HBM3")
    seen = node().model_copy(update={"devices": (gpu,)})

    assert choose_profile(seen, release) == "H100"
    other = choose_profile(seen, release, NodeKind.SWITCH)
    assert isinstance(other, Blocker)
    assert other.reason is Reason.NO_PROFILE

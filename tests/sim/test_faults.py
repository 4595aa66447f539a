"""Fault rules and presets of the simulated site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.integrations.sim.faults.faults import (
    ACTIONS,
    BadRule,
    FaultRules,
    Rule,
    read_rules,
)
from provisioner.integrations.sim.hardware.clock import HandClock
from provisioner.integrations.sim.redfish.redfish_tree import GONE, Answer
from provisioner.integrations.sim.site.control import ALL, inject_fault
from provisioner.integrations.sim.site.site import Site

NODE = "su0-n00"
TASK = "/redfish/v1/TaskService/Tasks/3"
GOOD = Answer(200, {"ETag": '"7"'}, b'{"TaskState":"Completed","PercentComplete":100}')


@pytest.fixture
def site() -> Site:
    return Site(nodes=2, clock=HandClock())


def ask(
    rules: FaultRules, path: str = TASK, method: str = "GET", endpoint: str = "n/host"
) -> Answer:
    return rules.apply_rules(endpoint, method, path, lambda: GOOD)


# --- rules


def test_without_rules_the_answer_is_untouched() -> None:
    assert ask(FaultRules()) is GOOD


def test_a_rule_is_for_its_endpoint_path_and_method_only() -> None:
    rules = FaultRules()
    rules.add(Rule("x", "status", endpoint="n/NIC_*", path="/redfish/v1/Task*", value=503))
    rules.add(Rule("x", "status", method="POST", value=503))

    assert ask(rules).status == 200
    assert ask(rules, endpoint="n/NIC_3").status == 503
    assert ask(rules, endpoint="n/NIC_3", path="/redfish/v1").status == 200
    assert ask(rules, method="POST").status == 503


def test_a_rule_ends_after_its_count_and_begins_after_its_skip() -> None:
    rules = FaultRules()
    rules.add(Rule("x", "drop", skip=1, count=2))

    assert [ask(rules) is GONE for _ in range(5)] == [False, True, True, False, False]


def test_a_rule_can_be_for_every_third_request() -> None:
    rules = FaultRules()
    rules.add(Rule("x", "drop", every=3))

    assert [ask(rules) is GONE for _ in range(7)] == [True, False, False] * 2 + [True]


def test_a_dropped_request_is_not_carried_out_unless_dropped_after() -> None:
    served = []

    def serve() -> Answer:
        served.append(1)
        return GOOD

    before, after = FaultRules(), FaultRules()
    before.add(Rule("x", "drop"))
    after.add(Rule("x", "drop_after"))

    assert before.apply_rules("n", "POST", "/x", serve) is GONE
    assert served == []
    assert after.apply_rules("n", "POST", "/x", serve) is GONE
    assert served == [1]


def test_a_merge_can_write_null() -> None:
    rules = FaultRules()
    rules.add(Rule("x", "merge", value={"TaskState": None}))

    assert json.loads(ask(rules).body) == {"TaskState": None, "PercentComplete": 100}


@pytest.mark.parametrize(
    ("action", "value"),
    [("truncate", 10), ("garbage", None), ("stringify", None), ("pad", 64), ("break", 5)],
)
def test_answers_are_damaged_the_same_way_each_time(action: str, value: Any) -> None:
    rules = FaultRules()
    rules.add(Rule("x", action, value=value))

    assert ask(rules) == ask(rules) != GOOD


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "x"},
        {"name": "x", "action": "drop", "path": 3},
        {"name": "x", "action": "drop", "because": "fun"},
    ],
)
def test_a_rule_that_cannot_be_read_names_its_field(entry: dict[str, Any]) -> None:
    with pytest.raises(BadRule, match=r"action|path|because"):
        read_rules([entry])


# --- presets


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_preset_can_be_put_on_a_site(site: Site, name: str) -> None:
    preset = ALL[name]
    subject = "leaf-su0-r0" if preset.target == "switch" else NODE
    inject_fault(site, name, subject)

    assert preset.catalogue
    assert preset.meaning
    assert site.injected == [(subject, name)]


def test_a_preset_changes_one_machine_only(site: Site) -> None:
    inject_fault(site, "dead_gpu", NODE)

    assert not site.machines[NODE].devices["GPU_SXM_5"].present
    assert site.machines["su0-n01"].devices["GPU_SXM_5"].present


def test_a_preset_on_something_that_is_not_there_is_refused(site: Site) -> None:
    for name, subject, part in [
        ("no_such", NODE, ""),
        ("dead_gpu", "nobody", ""),
        ("dead_gpu", NODE, "GPU_SXM_99"),
        ("apply_fails", NODE, ""),
    ]:
        with pytest.raises(BadRule):
            inject_fault(site, name, subject, part)
    assert site.injected == []


def test_swapped_cables_are_seen_from_both_ends(site: Site) -> None:
    before = [c.switch.name for c in site.hosts[NODE].cables[:2]]
    inject_fault(site, "cables_swapped", NODE)
    after = [c.switch.name for c in site.hosts[NODE].cables[:2]]

    assert after == before[::-1]


def test_the_document_lists_every_action() -> None:
    file = Path(__file__).parents[2] / "docs" / "simulator_interface.yaml"
    rows = yaml.safe_load(file.read_text())["actions"]

    assert {row["action"].strip("`") for row in rows} == set(ACTIONS)

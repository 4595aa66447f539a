"""Fault rules and presets of the simulated site, its ground truth, and the socket to both."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from provisioner.sim.clock import HandClock
from provisioner.sim.control import Control
from provisioner.sim.fault_presets import ALL, inject
from provisioner.sim.faults import BadRule, FaultRules, Rule, read_rules
from provisioner.sim.redfish_answers import GONE, Answer
from provisioner.sim.site import Site
from provisioner.sim.truth import (
    switch_outages,
    truth,
    uncertified_in_customer_vrf,
    violations,
)

NODE = "su0-n00"
TASK = "/redfish/v1/TaskService/Tasks/3"
GOOD = Answer(200, {"ETag": '"7"'}, b'{"TaskState":"Completed","PercentComplete":100}')


@pytest.fixture
def site() -> Site:
    return Site(nodes=2, clock=HandClock())


def ask(
    rules: FaultRules, path: str = TASK, method: str = "GET", endpoint: str = "n/host"
) -> Answer:
    return rules.around(endpoint, method, path, lambda: GOOD)


def later(site: Site, seconds: float) -> float:
    assert isinstance(site.clock, HandClock)
    site.clock.move(seconds)
    return site.advance()


def move(site: Site, node: str, vrf: str) -> None:
    """Bring all ports of a node into a VRF, past the API."""
    place = site.places[node]
    for rail in range(8):
        leaf = site.switches[place.leaf(rail)]
        revision = leaf.new_revision()
        change = {"ip": {"vrf": vrf}}
        revision.changes.append((("interface", place.interface), change))
        leaf.apply(revision, site.clock.now())
    later(site, 30)


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

    assert before.around("n", "POST", "/x", serve) is GONE
    assert served == []
    assert after.around("n", "POST", "/x", serve) is GONE
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
    inject(site, name, subject)

    assert preset.catalogue
    assert preset.meaning
    assert site.injected == [(subject, name)]


def test_a_preset_changes_one_machine_only(site: Site) -> None:
    inject(site, "dead_gpu", NODE)

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
            inject(site, name, subject, part)
    assert site.injected == []


def test_swapped_cables_are_seen_from_both_ends(site: Site) -> None:
    before = [c.switch.name for c in site.hosts[NODE].cables[:2]]
    inject(site, "cables_swapped", NODE)
    after = [c.switch.name for c in site.hosts[NODE].cables[:2]]

    assert after == before[::-1]


# --- truth


def test_a_fresh_site_has_no_violation_and_no_customer(site: Site) -> None:
    found = truth(site)

    assert found["violations"] == found["switch_outages"] == []
    assert all(not node["customer_ports"] for node in found["nodes"].values())
    assert json.loads(json.dumps(found)) == found


def test_truth_shows_where_ports_are_and_what_runs(site: Site) -> None:
    move(site, NODE, "RED")
    found = truth(site)["nodes"]

    assert len(found[NODE]["customer_ports"]) == 8
    assert found["su0-n01"]["customer_ports"] == []
    assert found[NODE]["running"]["NIC_0/DPU_NIC"] == "32.43.1014"
    assert found[NODE]["running"]["host.driver"] == "535.129.03"


def test_power_while_in_a_customer_vrf_is_a_violation_and_before_or_after_is_not(
    site: Site,
) -> None:
    machine = site.machines[NODE]
    machine.restart(site.clock.now())
    later(site, 3600)
    move(site, NODE, "RED")
    machine.restart(site.clock.now())
    later(site, 3600)
    move(site, NODE, "MAINT")
    machine.restart(site.clock.now())
    found = violations(site)

    assert [(v.node, v.kind) for v in found] == [(NODE, "in_customer_vrf")]


def test_a_power_act_in_the_middle_of_a_write_is_a_violation(site: Site) -> None:
    machine = site.machines[NODE]
    machine.note(1.0, "write_start", "host/HGX_FW_BMC_0")
    machine.note(2.0, "power", "host", "ForceOff")
    machine.note(3.0, "write_end", "host/HGX_FW_BMC_0")
    machine.note(4.0, "power", "host", "PowerCycle")

    assert [v.kind for v in violations(site)] == ["power_during_write"]


def test_a_reset_disturbs_only_what_is_behind_that_bmc(site: Site) -> None:
    machine = site.machines[NODE]
    machine.note(1.0, "copy_start", "NIC_1/Bluefield_ERoT")
    machine.note(2.0, "bmc_reset", "NIC_2")
    machine.note(3.0, "bmc_reset", "NIC_1")

    assert [(v.kind, v.time) for v in violations(site)] == [("reset_during_copy", 3.0)]


def test_two_writes_to_one_component_are_a_violation(site: Site) -> None:
    machine = site.machines[NODE]
    machine.note(1.0, "write_start", "NIC_1/DPU_OS")
    machine.note(2.0, "write_start", "NIC_2/DPU_OS")
    machine.note(3.0, "write_start", "NIC_1/DPU_NIC")

    assert [v.kind for v in violations(site)] == ["overlapping_writes"]


def test_a_leaf_that_reboots_under_a_customer_is_an_outage(site: Site) -> None:
    move(site, NODE, "RED")
    site.switches["leaf-su0-r2"].reboot(site.clock.now())

    assert [(v.node, v.detail) for v in switch_outages(site)] == [("leaf-su0-r2", NODE)]


def test_a_customer_node_needs_a_certificate_for_what_runs_in_it_now(site: Site) -> None:
    move(site, NODE, "RED")
    good = {
        "node": NODE,
        "versions": [["supernic.nic/NIC_0", "32.43.1014"], ["hgx.bundle/HGX_0", "x"]],
        "serials": [],
        "expires_at": site.clock.now() + 1e6,
    }
    other = good | {"versions": [["supernic.nic/NIC_0", "32.44.1036"]]}
    swapped = good | {"serials": ["somebody else's"]}
    old = good | {"expires_at": 1.0}

    def why(*certificates: dict[str, Any]) -> list[str]:
        found = uncertified_in_customer_vrf(truth(site), certificates)
        return [entry["why"].split()[0] for entry in found]

    assert why(good) == []
    assert why() == ["no"]
    assert [why(bad) for bad in (other, swapped, old)] == [["supernic.nic/NIC_0"], ["GPU"], ["the"]]


# --- control


def test_the_socket_is_the_owners_and_answers_everything(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "sim.sock"

    async def talk() -> dict[str, Any]:
        control = Control(site, path)
        await control.start()
        mode = stat.S_IMODE(path.stat().st_mode)
        answers: dict[str, Any] = {"mode": mode}
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session:
            for name in ("truth", "expected", "site", "clock", "requests", "faults", "endpoints"):
                async with session.get(f"http://sim/{name}") as reply:
                    answers[name] = await reply.json()
            for name, body in {
                "inband": {"play": "run_commands", "host": NODE, "variables": {"commands": []}},
                "faults": {"preset": "dead_gpu", "node": NODE},
                "uncertified": {"certificates": []},
            }.items():
                async with session.post(f"http://sim/{name}", json=body) as reply:
                    answers[f"post {name}"] = await reply.json()
            for body in ({}, [], {"preset": "x"}, {"rules": [{}]}, "x"):
                async with session.post("http://sim/faults", json=body) as reply:
                    assert reply.status == 400
                    assert (await reply.json())["error"]
        await control.stop()
        return answers

    answers = asyncio.run(talk())

    assert answers["mode"] == 0o600
    assert answers["clock"]["speed"] == 1.0
    assert answers["truth"]["in_customer_vrf"] == []
    assert answers["endpoints"]["bmcs"] == []
    assert answers["post inband"]["status"] == "ok"
    assert answers["post faults"]["injected"] == "dead_gpu"
    assert answers["post uncertified"] == {"nodes": []}
    assert set(answers["requests"]) == {"redfish", "nvue", "inband"}
    assert not path.exists()

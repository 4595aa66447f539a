"""Ground truth of a simulated site, and the socket to it."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from provisioner.integrations.sim.hardware.build import make_image
from provisioner.integrations.sim.hardware.clock import HandClock
from provisioner.integrations.sim.redfish.bmc import from_files
from provisioner.integrations.sim.site.control import Control, list_logs
from provisioner.integrations.sim.site.serve import Front
from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.sim.site.truth import (
    collect_truth,
    find_switch_outages,
    find_uncertified,
    find_violations,
)

NODE = "su0-n00"


@pytest.fixture
def site() -> Site:
    return Site(nodes=2, clock=HandClock())


def later(site: Site, seconds: float) -> float:
    assert isinstance(site.clock, HandClock)
    site.clock.move(seconds)
    return site.advance()


def move(site: Site, node: str, vrf: str) -> None:
    """Bring all ports of a node into a VRF, past the API."""
    place = site.places[node]
    for rail in range(8):
        leaf = site.switches[place.name_leaf(rail)]
        revision = leaf.new_revision()
        change = {"ip": {"vrf": vrf}}
        revision.changes.append((("interface", place.interface), change))
        leaf.apply(revision, site.clock.now())
    later(site, 30)


# --- logs


def test_machines_log_what_happens_to_them_and_only_append(site: Site) -> None:
    leaf = site.places[NODE].name_leaf(0)
    before = list_logs(site)
    move(site, NODE, "RED")
    site.machines[NODE].restart_host(site.clock.now())
    later(site, 900)
    after = list_logs(site)

    assert all(after[name][: len(lines)] == lines for name, lines in before.items())
    written = after[leaf][len(before[leaf]) :]
    assert any(line.startswith("<30>nvued[") for line in written)
    assert (
        sum(line.startswith("<6>kernel: ") and "link becomes ready" in line for line in written)
        == 1
    )
    started = after[NODE][len(before[NODE]) :]
    assert [line.partition(":")[0] for line in started] == [
        "<5>kernel",
        "<30>systemd[1]",
        *["<30>nv-fabricmanager[1120]"] * 2,
    ]
    assert "su0-n01" in after


# --- truth


def test_a_fresh_site_has_no_violation_and_no_customer(site: Site) -> None:
    found = collect_truth(site)

    assert found["violations"] == found["switch_outages"] == []
    assert all(not node["customer_ports"] for node in found["nodes"].values())
    assert json.loads(json.dumps(found)) == found


def test_truth_shows_where_ports_are_and_what_runs(site: Site) -> None:
    move(site, NODE, "RED")
    found = collect_truth(site)["nodes"]

    assert len(found[NODE]["customer_ports"]) == 8
    assert found["su0-n01"]["customer_ports"] == []
    assert found[NODE]["running"]["NIC_0/DPU_NIC"] == "32.43.1014"
    assert found[NODE]["running"]["host.driver"] == "535.129.03"


def test_power_while_in_a_customer_vrf_is_a_violation_and_before_or_after_is_not(
    site: Site,
) -> None:
    machine = site.machines[NODE]
    machine.restart_host(site.clock.now())
    later(site, 3600)
    move(site, NODE, "RED")
    machine.restart_host(site.clock.now())
    later(site, 3600)
    move(site, NODE, "MAINT")
    machine.restart_host(site.clock.now())
    found = find_violations(site)

    assert [(v.node, v.kind) for v in found] == [(NODE, "in_customer_vrf")]


def test_a_power_act_in_the_middle_of_a_write_is_a_violation(site: Site) -> None:
    machine = site.machines[NODE]
    machine.log_event(1.0, "write_start", "host/HGX_FW_BMC_0")
    machine.log_event(2.0, "power", "host", "ForceOff")
    machine.log_event(3.0, "write_end", "host/HGX_FW_BMC_0")
    machine.log_event(4.0, "power", "host", "PowerCycle")

    assert [v.kind for v in find_violations(site)] == ["power_during_write"]


def test_a_reset_disturbs_only_what_is_behind_that_bmc(site: Site) -> None:
    machine = site.machines[NODE]
    machine.log_event(1.0, "copy_start", "NIC_1/Bluefield_ERoT")
    machine.log_event(2.0, "bmc_reset", "NIC_2")
    machine.log_event(3.0, "bmc_reset", "NIC_1")

    assert [(v.kind, v.time) for v in find_violations(site)] == [("reset_during_copy", 3.0)]


def test_two_writes_to_one_component_are_a_violation(site: Site) -> None:
    machine = site.machines[NODE]
    machine.log_event(1.0, "write_start", "NIC_1/DPU_OS")
    machine.log_event(2.0, "write_start", "NIC_2/DPU_OS")
    machine.log_event(3.0, "write_start", "NIC_1/DPU_NIC")

    assert [v.kind for v in find_violations(site)] == ["overlapping_writes"]


def test_a_leaf_that_reboots_under_a_customer_is_an_outage(site: Site) -> None:
    move(site, NODE, "RED")
    site.switches["leaf-su0-r2"].reboot(site.clock.now())

    assert [(v.node, v.detail) for v in find_switch_outages(site)] == [("leaf-su0-r2", NODE)]


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
        found = find_uncertified(collect_truth(site), certificates)
        return [entry["why"].split()[0] for entry in found]

    assert why(good) == []
    assert why() == ["no"]
    assert [why(bad) for bad in (other, swapped, old)] == [["supernic.nic/NIC_0"], ["GPU"], ["the"]]


# --- a well-behaved operator


def test_updates_done_in_order_are_no_violation(site: Site) -> None:
    files = {
        "x.bfb": make_image("bluefield.bundle", {"DPU_OS": "x", "BMC_Firmware": "BF-25.01-1"}),
    }
    front = Front(site, from_files(files))
    machine = site.machines[NODE]
    body = {
        "TransferProtocol": "HTTP",
        "ImageURI": "10.0.0.9:8080//x.bfb",
        "Targets": ["redfish/v1/UpdateService/FirmwareInventory/DPU_OS"],
    }
    for card in ("DPU_0", "DPU_1"):
        service = front.redfish[f"{NODE}/{card}"]
        bmc = machine.bmcs[card]
        service.accounts.accounts[bmc.username].change_required = False
        basic = base64.b64encode(f"{bmc.username}:{bmc.password}".encode()).decode()
        headers = {"authorization": f"Basic {basic}", "content-type": "application/json"}
        path = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"
        answer = service.handle("POST", path, {}, headers, json.dumps(body).encode())
        assert answer.status == 202
    later(site, 4 * 3600)
    asyncio.run(site.inband.run("host_software", NODE, {"packages": {"host.driver": "550.1"}}))
    asyncio.run(site.inband.run("reboot", NODE, {}))
    machine.power_cycle(site.clock.now())
    later(site, 3600)
    move(site, NODE, "RED")
    found = collect_truth(site)

    assert found["violations"] == []
    assert found["nodes"][NODE]["running"]["DPU_1/BMC_Firmware"] == "BF-25.01-1"
    assert found["nodes"][NODE]["running"]["host.driver"] == "550.1"


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
            bad = {"play": "run_commands", "host": NODE, "variables": {"commands": [7]}}
            async with session.post("http://sim/inband", json=bad) as reply:
                assert reply.status == 400
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
    assert answers["endpoints"] == {}
    assert answers["post inband"]["status"] == "ok"
    assert answers["post faults"]["injected"] == "dead_gpu"
    assert answers["post uncertified"] == {"nodes": []}
    assert set(answers["requests"]) == {"redfish", "redfish_by_bmc", "nvue", "inband", "agents"}
    assert sum(answers["requests"]["redfish_by_bmc"].values()) == answers["requests"]["redfish"]
    assert not path.exists()

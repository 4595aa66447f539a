"""Health checks run on simulated hosts and switches, from commands to the report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from leaf_rig import Rig

from provisioner import checks
from provisioner.execution.validate.validator import Validator
from provisioner.integrations.sim.site.control import inject_fault
from provisioner.model.cohort import HealthReport, Verdict
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.matrix import Match, Matrix, Pin, Profile, Release
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.matrix.matrix_text import parse

NODE, LEAF = "su0-n00", "leaf-su0-r0"


def matrix(driver: str) -> Matrix:
    profile = Profile(match=Match(devices={"gpu": 8}), pins={"host.driver": Pin(version=driver)})
    return Matrix(releases={"r": Release(profiles={"hgx-h100-bf3": profile})})


def validate(
    fault: str = "",
    *,
    node: str = NODE,
    driver: str = "",
    gen: int = 5,
    width: int = 16,
    off: bool = False,
    traits: Mapping[str, dict[str, Any]] | None = None,
    preset: str = "",
) -> tuple[Any, Rig]:
    """The report of one node with one fault, and the site it was made on."""

    async def main() -> tuple[Any, Rig]:
        rig = await Rig().open()
        machine = rig.site.machines[NODE]
        machine.faults |= {fault} if fault else set()
        if preset:
            inject_fault(rig.site, preset, NODE)
        gpus = [d for d in machine.devices.values() if d.kind == "gpu"]
        gpus[3].link_gen, gpus[3].link_width = gen, width
        for slot, changes in (traits or {}).items():
            machine.devices[slot].traits.update(changes)
        view = rig.site.hosts[NODE]
        if off:
            machine.host.phase = "off"
        inventory = Inventory(
            node=node,
            vendor="x",
            devices=tuple(
                Device(
                    kind=DeviceKind(d.kind), slot=d.slot, model=d.model, serial=d.serial, pci=d.pci
                )
                for d in machine.devices.values()
                if d.kind in ("gpu", "nic", "dpu")
            ),
        )
        record = rig.nodes[node].model_copy(update={"release": "r", "profile": "hgx-h100-bf3"})
        pinned = matrix(driver or view.driver)
        report = await Validator(rig.effects, rig.store, checks.ALL, pinned).validate(
            record, inventory
        )
        if isinstance(report, HealthReport):
            for result in report.results:
                if result.evidence:
                    raw = await rig.store.evidence.get_output(result.evidence)
                    assert raw
                    assert isinstance(json.loads(raw), dict)
        await rig.close()
        return report, rig

    return asyncio.run(main())


def test_a_healthy_host_passes_every_required_check() -> None:
    report, _ = validate()

    assert [r.findings for r in report.failures] == []
    assert tuple(r.check for r in report.results) == checks.list_required_results(NodeKind.HOST)


def test_a_gate_is_asked_in_few_calls_and_errors_are_looked_for_after_each_load() -> None:
    report, rig = validate()
    plain = checks.list_standard_checks(NodeKind.HOST)
    loads = [c.commands[0].name for c in checks.ALL if c.load and c.name in plain]

    assert len(rig.hosts.calls) == 1 + 2 * len(loads)
    assert [c[0] for c in rig.hosts.calls[1::2]] == loads
    assert all("kernel_log" in calls for calls in rig.hosts.calls[::2])
    assert {r.check for r in report.results} >= {f"ecc after {c}" for c in ("dcgm_diag",)}


def test_what_an_earlier_gate_failed_ends_it_and_later_checks_are_skipped() -> None:
    report, rig = validate(width=8)
    by_name = {r.check: r for r in report.results}

    assert by_name["pcie_link"].verdict is Verdict.FAIL
    assert by_name["dcgm_diag"].verdict is Verdict.SKIPPED
    assert len(rig.hosts.calls) == 1


def test_a_link_of_a_lower_generation_is_judged_under_load_and_not_while_the_gpu_is_idle() -> None:
    report, _ = validate(gen=4)
    by_name = {r.check: r for r in report.results}

    assert by_name["pcie_link"].verdict is Verdict.PASS
    assert by_name["pcie_link after dcgm_diag"].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("slot", "changes", "check"),
    [
        ("GPU_SXM_2", {"sram_uncorrected": 1}, "sram_ecc"),
        ("GPU_SXM_2", {"fabric_state": "In Progress"}, "fabric_registration"),
        ("GPU_SXM_2", {"mig": "Enabled"}, "gpu_processes"),
        ("GPU_SXM_2", {"clocks_slowed": "HW Thermal Slowdown"}, "clocks"),
        ("GPU_SXM_2", {"temperature": 88}, "temperatures"),
        ("GPU_SXM_2", {"nvlink_errors": 12}, "nvlink_errors"),
        ("CPU1", {"memory_ue": 1}, "memory_errors"),
        ("NVMe_2", {"critical_warning": 4}, "nvme_smart"),
        ("NIC_3", {"aer": 1}, "pcie_errors"),
        ("NIC_3", {"mtu": 1500}, "rdma_links"),
        ("NIC_3", {"effective_ber": "3E-10"}, "mlxlink"),
        ("NIC_3", {"fec_tail": 2}, "fec_histogram"),
        ("NIC_3", {"rx_power_dbm": -11.5}, "optics"),
        ("NIC_3", {"flaps": 9}, "link_flaps"),
        ("NIC_3", {"queue_stuck": 1}, "devlink_health"),
    ],
)
def test_a_fault_of_a_part_is_found_before_any_load(
    slot: str, changes: dict[str, Any], check: str
) -> None:
    report, rig = validate(traits={slot: changes})

    assert {r.check: r.verdict for r in report.results}[check] is Verdict.FAIL
    assert len(rig.hosts.calls) == 1


@pytest.mark.parametrize(
    ("counter", "per_s", "check"),
    [
        ("symbol_error", 1, "rdma_counters"),
        ("link_downed", 0.1, "rdma_counters"),
        ("local_ack_timeout_err", 3, "rdma_counters"),
        ("rx_icrc_encapsulated", 0.5, "roce_transport"),
        ("rx_discards_phy", 1, "congestion"),
    ],
)
def test_what_a_counter_was_before_is_no_fault_and_what_it_grows_by_is(
    counter: str, per_s: float, check: str
) -> None:
    report, _ = validate(traits={"NIC_3": {counter: per_s}})
    by_name = {r.check: r.verdict for r in report.results}

    assert by_name[check] is Verdict.PASS
    assert by_name[f"{check} after dcgm_diag"] is Verdict.FAIL


def test_two_cables_that_are_swapped_are_seen_at_the_cards_they_are_plugged_into() -> None:
    report, _ = validate(preset="cables_swapped")
    result = next(r for r in report.results if r.check == "lldp")

    assert len(result.findings) == 2
    for finding in result.findings:
        fault, _, remedy = finding.detail.partition(". ")
        assert fault == "the cable is plugged into another card than planned"
        assert remedy.startswith("swapped: Exchange the plugs at leaf-su0-r")
        assert "this host/0000:" in remedy  # both true ends: cards by address, ports by name


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("gpu_fell_off", "gpu_inventory"),
        ("nccl_slow", "nccl_single"),
        ("nccl_corrupts", "nccl_single"),
        ("persistence_off", "services"),
        ("dcgm_skips_memory", "dcgm_diag"),
        ("tools_hang", "gpu_inventory"),
    ],
)
def test_a_fault_of_the_machine_fails_its_check(fault: str, check: str) -> None:
    report, _ = validate(fault)

    assert {r.check: r.verdict for r in report.results}[check] is Verdict.FAIL


def test_a_driver_that_is_not_the_pinned_one_fails() -> None:
    report, _ = validate(driver="999.1")

    assert "versions" in {r.check for r in report.failures}


def test_a_host_that_does_not_answer_gives_no_report() -> None:
    report, _ = validate(off=True)

    assert isinstance(report, Blocker)
    assert report.reason is Reason.UNREACHABLE


def test_a_switch_is_judged_by_its_health() -> None:
    report, rig = validate(node=LEAF)

    assert report.failures == ()
    assert [r.check for r in report.results] == ["switch_health"]
    assert rig.hosts.calls == []


def test_a_host_at_the_pins_of_the_shipped_matrix_passes_and_one_behind_them_does_not() -> None:
    shipped = Path(__file__).parents[2] / "firmware_matrix.yaml"
    pinned = parse([(shipped.name, shipped.read_text())])
    profile = pinned.releases["spectrum-x-1.3.0"].profiles["hgx-h100-bf3"]
    record_of = {"release": "spectrum-x-1.3.0", "profile": "hgx-h100-bf3"}

    async def main() -> list[list[str]]:
        rig = await Rig().open()
        machine = rig.site.machines[NODE]
        record = rig.nodes[NODE].model_copy(update=record_of)
        inventory = Inventory(
            node=NODE,
            vendor="x",
            devices=tuple(
                Device(
                    kind=DeviceKind(d.kind), slot=d.slot, model=d.model, serial=d.serial, pci=d.pci
                )
                for d in machine.devices.values()
                if d.kind in ("gpu", "nic", "dpu")
            ),
        )
        validator = Validator(rig.effects, rig.store, checks.ALL, pinned)
        failures = []
        for turn in ("behind", "converged", "settings do not stay"):
            if turn == "settings do not stay":
                machine.restart_host(rig.clock.now())
                await rig.clock.sleep(3600.0)
                machine.faults.add("runtime_is_forgotten")
            if turn == "converged":
                for kind in ("host.doca", "host.spcx_cc"):
                    machine.host.packages[kind] = profile.pins[kind].version
                for card in machine.bluefields.values():
                    machine.firmware[card.slot, "DPU_NIC"].running = "32.44.1036"
                    if card.slot.startswith("NIC_"):
                        card.nv_config.update(pinned.nic_profiles["RA1.3"])
                        card.nv_config_next.update(pinned.nic_profiles["RA1.3"])
            report = await validator.validate(record, inventory)
            assert isinstance(report, HealthReport)
            failures.append([r.check for r in report.failures if r.verdict is Verdict.FAIL])
        await rig.close()
        return failures

    behind, at_the_pins, after_a_boot = asyncio.run(main())

    assert behind == ["versions", "nic_inventory", "nic_config", "nic_binding"]
    assert at_the_pins == []
    assert after_a_boot == ["roce_runtime"]

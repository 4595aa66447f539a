"""Health checks run on simulated hosts and switches, from commands to the report."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from leaf_rig import Rig

from provisioner import checks
from provisioner.execution.validator import Validator
from provisioner.model.health import HealthReport, Verdict
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.matrix import Match, Matrix, Pin, Profile, Release
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.matrix_text import parse

NODE, LEAF = "su0-n00", "leaf-su0-r0"


def matrix(driver: str) -> Matrix:
    profile = Profile(match=Match(devices={"gpu": 8}), pins={"host.driver": Pin(version=driver)})
    return Matrix(releases={"r": Release(profiles={"hgx-h100-bf3": profile})})


def validate(
    fault: str = "", *, node: str = NODE, driver: str = "", gen: int = 5, off: bool = False
) -> tuple[Any, Rig]:
    """The report of one node with one fault, and the site it was made on."""

    async def main() -> tuple[Any, Rig]:
        rig = await Rig().open()
        machine = rig.site.machines[NODE]
        machine.faults |= {fault} if fault else set()
        gpus = [d for d in machine.devices.values() if d.kind == "gpu"]
        gpus[3].link_gen = gen
        view = rig.site.hosts[NODE]
        if off:
            machine.host.phase = "off"
        inventory = Inventory(
            node=node,
            vendor="x",
            devices=tuple(
                Device(kind=DeviceKind.GPU, slot=g.slot, model="H100 80GB HBM3", serial=g.serial)
                for g in gpus
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
                    raw = await rig.store.evidence(result.evidence)
                    assert raw
                    assert isinstance(json.loads(raw), dict)
        await rig.close()
        return report, rig

    return asyncio.run(main())


def test_a_healthy_host_passes_every_required_check() -> None:
    report, _ = validate()

    assert [r.findings for r in report.failures] == []
    assert tuple(r.check for r in report.results) == checks.required(NodeKind.HOST)


def test_a_gate_is_asked_in_few_calls_and_errors_are_looked_for_after_each_load() -> None:
    report, rig = validate()
    loads = ["dcgm", "nvbandwidth", "nccl"]

    assert len(rig.hosts.calls) == 1 + 2 * len(loads)
    assert [c[0] for c in rig.hosts.calls[1::2]] == loads
    assert all("kernel_log" in calls for calls in rig.hosts.calls[::2])
    assert {r.check for r in report.results} >= {f"ecc after {c}" for c in ("dcgm_diag",)}


def test_what_an_earlier_gate_failed_ends_it_and_later_checks_are_skipped() -> None:
    report, rig = validate(gen=4)
    by_name = {r.check: r for r in report.results}

    assert by_name["pcie_link"].verdict is Verdict.FAIL
    assert by_name["dcgm_diag"].verdict is Verdict.SKIPPED
    assert len(rig.hosts.calls) == 1


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
        for converge in (False, True):
            if converge:
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

    behind, at_the_pins = asyncio.run(main())

    assert behind == ["versions", "nic_inventory", "nic_config"]
    assert at_the_pins == []

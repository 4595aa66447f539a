"""Load tests on simulated hosts: the plain ones, and long ones where they are selected."""

from __future__ import annotations

import asyncio

import pytest
from leaf_rig import Rig
from test_validator import NODE, matrix, validate

from provisioner import checks
from provisioner.execution.validate.validator import Validator
from provisioner.model.cohort import HealthReport, Verdict
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.node import NodeKind

LONG = ("dcgm_long", "dcgm_xlong", "gpu_burn_long", "cpu_stress")


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("gpu_wrong_results", "gpu_burn"),
        ("gpu_slow_under_load", "gpu_burn"),
        ("hbm_slow", "hbm"),
        ("loopback_slow", "gdr_loopback"),
    ],
)
def test_a_fault_that_only_load_shows_fails_its_check_alone(fault: str, check: str) -> None:
    report, _ = validate(fault)

    assert {r.check for r in report.results if r.verdict is Verdict.FAIL} == {check}


def selected(names: tuple[str, ...], fault: str = "") -> HealthReport:
    """The report of one healthy node on which only these checks were run."""

    async def main() -> HealthReport:
        rig = await Rig().open()
        machine = rig.site.machines[NODE]
        machine.faults |= {fault} if fault else set()
        node = await rig.store.nodes.get(NODE)
        assert node is not None
        gpus = [d for d in machine.devices.values() if d.kind == "gpu"]
        devices = tuple(
            Device(kind=DeviceKind.GPU, slot=d.slot, model=d.model, serial=d.serial) for d in gpus
        )
        inventory = Inventory(node=NODE, vendor="x", devices=devices)
        validator = Validator(rig.effects, rig.store, checks.ALL, matrix(""))
        report = await validator.validate(node, inventory, names)
        await rig.close()
        assert isinstance(report, HealthReport)
        return report

    return asyncio.run(main())


def test_only_what_was_selected_is_run_and_required() -> None:
    report = selected(LONG)

    assert tuple(r.check for r in report.results) == checks.list_required_results(
        NodeKind.HOST, LONG
    )
    assert [r.findings for r in report.failures] == []


def test_memory_that_flips_bits_fails_the_stress_test() -> None:
    assert selected(("cpu_stress",), "memory_flips_bits").failures[0].check == "cpu_stress"


def test_what_has_no_floor_yet_is_skipped_and_still_measured() -> None:
    names = ("nccl_collectives", "storage_load", "cpu_stream")

    report = selected(names)

    assert {r.verdict for r in report.results} == {Verdict.SKIPPED}
    assert all(r.measured for r in report.results)


def test_a_plain_validation_has_neither_fabric_nor_long_tests() -> None:
    plain = checks.list_required_results(NodeKind.HOST)

    assert {"gpu_burn", "hbm", "gdr_loopback"} <= set(plain)
    assert not {*LONG, "nccl_pair", "rdma_pair", "dcgm_software"} & set(plain)

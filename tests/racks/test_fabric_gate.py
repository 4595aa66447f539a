"""The gate of an NVLink partition: what each GPU says, and what all of them say together."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from provisioner.integrations.racks import rack_commands
from provisioner.integrations.racks.fabric.fabric_gate import (
    GpuFabric,
    find_gpu_faults,
    judge_partition,
    read_fabric,
    read_mask,
)

CLUSTER = "b2daed23-1111-4222-8333-444455556666"
HEALTHY = {
    "Summary": "Healthy",
    "Bandwidth": "Full",
    "Route Recovery in progress": "False",
    "Route Unhealthy": "False",
    "Access Timeout Recovery": "False",
    "Incorrect Configuration": "None",
}


def gpu(tray: str = "t0", name: str = "0", **changed: object) -> GpuFabric:
    sound = GpuFabric(tray, name, "Completed", "Success", "7", CLUSTER, HEALTHY, None)
    return replace(sound, **changed)  # type: ignore[arg-type]


def printed(*gpus: GpuFabric) -> str:
    """Return what `nvidia-smi -q` prints of the fabric, with blocks before and behind it."""
    lines = ["==============NVSMI LOG==============", "Attached GPUs : 4"]
    for n, one in enumerate(gpus):
        lines += [f"GPU 0000000{n}:01:00.0", "    Product Name : NVIDIA GB200"]
        lines += [
            f"    Serial Number                         : {one.serial or 'N/A'}",
            "    Fabric",
        ]
        lines += [f"        State                             : {one.state}"]
        lines += [f"        Status                            : {one.status}"]
        lines += [f"        CliqueId                          : {one.clique}"]
        lines += [f"        ClusterUUID                       : {one.cluster}", "        Health"]
        lines += [f"            {key:34}: {value}" for key, value in (one.health or {}).items()]
        lines += ["    Processes                             : None", "        State : Fine"]
    return "\n".join(lines)


def tray(name: str, **changed: object) -> list[GpuFabric]:
    return [gpu(name, str(n), **changed) for n in range(4)]


PLANNED = {f"t{n}": 4 for n in range(18)}


def rack(**trays: list[GpuFabric]) -> list[GpuFabric]:
    return [one for name in PLANNED for one in trays.get(name, tray(name))]


def told(gpus: list[GpuFabric], **given: str) -> dict[str, list[str]]:
    faults: dict[str, list[str]] = {}
    for one in judge_partition(PLANNED, gpus, **given):
        faults.setdefault(one.subject, []).append(one.detail)
    return faults


def test_a_completed_gpu_with_bad_status_or_health_fails_and_a_mask_of_0xaa_passes() -> None:
    assert list(find_gpu_faults(gpu(status="Insufficient Resources"))) == [
        "its status is Insufficient Resources"
    ]
    unhealthy = {**HEALTHY, "Summary": "Unhealthy"}
    assert list(find_gpu_faults(gpu(health=unhealthy))) == ["Summary: Unhealthy"]
    for mask in (0xAA, 0x1AA):
        assert list(find_gpu_faults(gpu(health=None, mask=mask))) == []
    assert list(find_gpu_faults(gpu(health=None, mask=0x6A)))
    both = list(find_gpu_faults(gpu(mask=0x1A6)))
    assert both == ["healthMask 0x1a6: route recovery"]


def test_a_tray_with_another_clique_or_cluster_is_named() -> None:
    other = CLUSTER.replace("b2", "c3")
    faults = told(rack(t4=tray("t4", clique="8"), t9=tray("t9", cluster=other)))
    assert faults == {
        "t4": ["its clique is 8, and the others' is 7"],
        "t9": [f"its cluster is {other}, and the others' is {CLUSTER}"],
    }
    assert told(rack()) == {}
    assert set(told(rack(), clique="9")) == set(PLANNED)


def test_a_tray_that_was_not_read_fails_the_partition() -> None:
    assert told(rack(t3=[])) == {"t3": ["0 of 4 GPUs were read"]}
    assert told(rack(t3=tray("t3")[:3])) == {"t3": ["3 of 4 GPUs were read"]}
    assert "t3x" in told(rack(t3=tray("t3x")))


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "In Progress"},
        {"state": ""},
        {"clique": "0"},
        {"clique": "N/A"},
        {"cluster": "00000000-0000-0000-0000-000000000000"},
        {"cluster": ""},
        {"health": {}},
        {"health": {"Summary": "N/A"}},
        {"health": {**HEALTHY, "Bandwidth": "Degraded"}},
        {"health": {**HEALTHY, "Incorrect Configuration": "Invalid Location"}},
        {"health": None, "mask": 0},
        {"mask": 0x2AA},
        {"mask": 0x7AA},
        {"mask": 0xFFFAA},
        {"mask": 0xAB},
    ],
)
def test_what_is_missing_or_unknown_is_no_health(changed: dict[str, object]) -> None:
    assert list(find_gpu_faults(gpu(**changed)))


def test_no_fault_is_missed_and_none_invented_over_four_hundred_labelled_gpus() -> None:
    """The labels are dealt before the records are made; the records go through the printed form."""
    rng = random.Random(44)
    faults: list[dict[str, object]] = [
        {"state": "In Progress", "clique": "N/A"},
        {"status": "Insufficient Resources"},
        {"status": "Unknown Error"},
        {"clique": "0"},
        {"cluster": "00000000-0000-0000-0000-000000000000"},
        {"health": {**HEALTHY, "Summary": "Unhealthy", "Route Unhealthy": "True"}},
        {"health": {**HEALTHY, "Access Timeout Recovery": "True"}},
        {"health": {**HEALTHY, "Summary": "Limited Capacity"}},
    ]
    sound: list[dict[str, object]] = [
        {},
        {"health": {k: v for k, v in HEALTHY.items() if k != "Incorrect Configuration"}},
        {"health": {**HEALTHY, "Summary": "N/A"}},
        {"clique": "32766"},
    ]
    missed = invented = 0
    for _ in range(400):
        bad = rng.random() < 0.5
        made = gpu(**rng.choice(faults if bad else sound))
        (read,) = read_fabric("t0", printed(made))
        found = bool(list(find_gpu_faults(read)))
        missed += bad and not found
        invented += found and not bad
    assert (missed, invented) == (0, 0)


def test_each_gpu_of_a_printed_tray_is_read_and_other_blocks_are_not() -> None:
    gpus = read_fabric("t0", printed(*tray("t0")))
    assert [one.gpu for one in gpus] == [f"0000000{n}:01:00.0" for n in range(4)]
    assert {(one.state, one.cluster) for one in gpus} == {("Completed", CLUSTER)}
    assert read_fabric("t0", "") == ()
    bare = read_fabric("t0", "GPU 00000000:01:00.0\n    Product Name : x\n")
    assert list(find_gpu_faults(bare[0]))
    twice = printed(gpu()).replace("        Health", "        State : Failed\n        Health")
    assert list(find_gpu_faults(read_fabric("t0", twice)[0]))
    assert list(read_mask(0xAA)) == []


def test_the_command_judges_the_whole_domain_and_a_tray_without_a_file_fails_it(
    tmp_path: Path,
) -> None:
    def rack(name: str, first: int) -> dict[str, object]:
        unit = {"kind": "compute-tray"}
        units = [
            {**unit, "name": f"t{n}", "u": n + 1, "slot": n, "tray_index": n}
            for n in range(first, first + 2)
        ]
        return {"name": name, "chassis_serial": name, "domain": "d1", "units": units}

    plan = tmp_path / "racks.json"
    plan.write_text(json.dumps({"racks": [rack("r1", 0), rack("r2", 2)]}))
    for n in range(4):
        (tmp_path / f"t{n}.txt").write_text(printed(*tray(f"t{n}")))
    words = ["fabric", str(plan), "r1", str(tmp_path)]

    assert CliRunner().invoke(rack_commands.app, words).exit_code == 0
    (tmp_path / "t3.txt").unlink()
    told = CliRunner().invoke(rack_commands.app, [*words, "--json"])
    assert told.exit_code == 1
    assert [one["subject"] for one in json.loads(told.stdout)["faults"]] == ["t3"]

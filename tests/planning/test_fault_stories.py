"""Published faults lead to the part that was the cause, and to no remedy that would do harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.model.case import Fault, RemedyKind
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.planning.repair.diagnosis import Diagnosis, diagnose, load_shared_causes
from provisioner.planning.repair.remedies import load_escalation_orders

STORIES: dict[str, dict[str, Any]] = {
    s["story"]: s
    for s in yaml.safe_load(Path(__file__).with_name("fault_stories.yaml").read_text())
}
RIGHT_MIN = 55  # of 60
HARMFUL = {
    RemedyKind.REFLASH,
    RemedyKind.REPLACE,
    RemedyKind.AC_CYCLE,
}  # where the part is innocent


def read_faults(story: dict[str, Any]) -> list[Fault]:
    texts = [t.format(n=n) for n in range(story.get("n", 1)) for t in story["faults"]]
    return [
        Fault(source=source, id=name, part=part, detail=detail)
        for source, name, part, detail in (t.split("|", 3) for t in texts + story.get("also", []))
    ]


def read_inventory(story: dict[str, Any]) -> Inventory | None:
    if "lists" not in story:
        return None
    devices = tuple(
        Device(kind=DeviceKind(kind), slot=f"{kind}_{n}")
        for kind in story["lists"]
        for n in range(8)
    )
    return Inventory(node="n", vendor="", devices=devices)


def diagnose_story(name: str) -> Diagnosis:
    story = STORIES[name]
    return diagnose(read_faults(story), read_inventory(story))


def is_right(name: str) -> bool:
    story, diagnosis = STORIES[name], diagnose_story(name)
    start = diagnosis.start.value if diagnosis.start else None
    return diagnosis.suspects[0].kind.value == story["kind"] and start in story["first"]


def test_nearly_every_story_ends_with_its_cause() -> None:
    wrong = [name for name in STORIES if not is_right(name)]

    assert len(STORIES) >= 60
    assert all(story["source"] for story in STORIES.values())
    assert len(STORIES) - len(wrong) >= RIGHT_MIN + len(STORIES) - 60, wrong
    assert wrong == []


@pytest.mark.parametrize("name", STORIES)
def test_no_story_begins_with_a_remedy_that_harms_an_innocent_part(name: str) -> None:
    diagnosis = diagnose_story(name)
    best = diagnosis.suspects[0]
    first = diagnosis.start or load_escalation_orders()[best.kind][0].remedy

    assert best.kind.value == STORIES[name]["kind"] or first not in HARMFUL


COUNTED = {
    DeviceKind.SYSTEM: "host",
    DeviceKind.BMC: "bmc",
    DeviceKind.BASEBOARD: "baseboard",
    DeviceKind.GPU: "gpu",
    DeviceKind.NVSWITCH: "nvswitch",
    DeviceKind.NIC: "nic",
    DeviceKind.DPU: "dpu",
    DeviceKind.CPU: "cpu",
    DeviceKind.MEMORY: "memory",
    DeviceKind.STORAGE: "storage",
    DeviceKind.PSU: "psu",
}


@pytest.mark.parametrize("kind", DeviceKind)
@pytest.mark.parametrize("words", ["bill_of_materials", "PartMissing"])
def test_a_part_of_each_kind_that_is_missing_accuses_its_own_kind(
    kind: DeviceKind, words: str
) -> None:
    if words == "PartMissing":
        detail = f"{kind}/{kind}_1 with serial 123456 is no longer present"
        fault = Fault(source="alert", id=words, part=f"{kind}/{kind}_1", detail=detail)
    else:
        detail = "3 found, 4 wanted by profile hgx-h100-bf3"
        fault = Fault(source="work", id=words, part=f"su0-n00/{kind}", detail=detail)

    assert diagnose([fault], None).suspects[0].kind.value == COUNTED[kind]


def test_a_shared_cause_leaves_its_parts_in_doubt_and_names_them() -> None:
    diagnosis = diagnose_story("three power supplies without input")
    feed, *rest = diagnosis.suspects

    assert feed.part == "power feed"
    assert len(feed.evidence) == 3
    assert all(s.confidence < 0.5 for s in rest)


def test_every_shared_cause_has_a_ladder_with_its_first_remedy() -> None:
    for cause in load_shared_causes():
        rungs = {rung.remedy for rung in load_escalation_orders()[cause.kind]}
        assert cause.start is None or cause.start in rungs, cause.name

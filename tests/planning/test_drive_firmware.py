"""Firmware of NVMe drives: read in the host, pinned by model, planned as one step for each model.

Recorded values, source: OVH's guide to firmware of the Micron 7500 (model, serials, revisions);
Nutanix, manual firmware updates (Samsung MZWLL1T6HEHP, GPNABB3Q); `nvme fw-log` of a drive with
AFI 0x21 as an article on firmware slots prints it; JSON as nvme-cli 2.3 writes it.
"""

from __future__ import annotations

import json

import pytest

from provisioner.integrations.matrix_tools.deciding.review import review_matrix
from provisioner.model.cohort import Evidence
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.machine.settings import join_version
from provisioner.model.outcome import Reason
from provisioner.model.plan import Plan
from provisioner.planning.intake.inband_facts import COMMAND, is_pinned_somewhere, read_drives
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.path.conditions import judge_pin, select_target
from provisioner.planning.path.planner import plan

MICRON, SAMSUNG = "MTFDKCC1T9TGP-1BK1DABYY", "SAMSUNG MZWLL1T6HEHP-00003"
MATRIX = f"""\
schema: 1
releases:
  r:
    profiles:
      p:
        match: {{gpu_models: ["*H100*"]}}
        pins:
          drive.nvme:
            version: {MICRON}@E3MQ005
            also: ["{SAMSUNG}@GPNABB3Q"]
            evidence: OVH
edges:
  drive.nvme:
    - from: [{MICRON}@E3MQ001]
      to: {MICRON}@E3MQ005
      activates_by: cold_boot
      artifact: Micron_7500_E3MQ005_release.ubi
      sha256: {"a" * 64}
      evidence: OVH
    - from: ["{SAMSUNG}@GPNA9B3Q"]
      to: {SAMSUNG}@GPNABB3Q
      activates_by: cold_boot
      artifact: GPNABB3Q.bin
      sha256: {"b" * 64}
      evidence: Nutanix
"""
PINS = parse([("matrix", MATRIX)]).releases["r"].profiles["p"].pins


def printed(*drives: str, end: bool = True) -> Evidence:
    text = "\n".join((*drives, *(["end-of-output"] if end else [])))
    return Evidence(source=COMMAND[1], exit_code=0, text=f"{text}\n")


def drive(
    serial: str = "032510B842C5",
    revision: str = "E3MQ001",
    *,
    model: str = MICRON,
    transport: str = "pcie",
    tool: str = "",
) -> str:
    lines = ["drive nvme0", f"transport {transport}", f"serial {serial:20}", f"model {model:40}"]
    return "\n".join((*lines, f"firmware_rev {revision}", tool))


def documents(revision: str, afi: int, **slots: str) -> str:
    page: dict[str, object] = {"Active Firmware Slot (afi)": afi}
    page |= {f"Firmware Rev Slot {n[1:]}": f"1 ({r})" for n, r in slots.items()}
    identity = {"sn": "x", "mn": "x", "fr": f"{revision:8}", "frmw": 0x17}
    return json.dumps(identity, indent=2) + "\n" + json.dumps({"nvme0": page}, indent=2)


def node(**drives: str) -> Inventory:
    listed = tuple(
        Component(kind="drive.nvme", slot=slot, version=version, source="nvme")
        for slot, version in drives.items()
    )
    return Inventory(node="n", vendor="v", components=listed)


def planned(inventory: Inventory, *, production: bool = True) -> Plan:
    return plan(inventory, parse([("matrix", MATRIX)]), "r", "p", production=production)


def test_what_runs_and_what_the_next_reset_brings_are_read_apart():
    tool = documents("80002C00", 0x21, s1="80002C00", s2="80003C00")
    (component,), gaps = read_drives(printed(drive(revision="80002C00", tool=tool)))

    assert (component.slot, component.version) == ("032510B842C5", f"{MICRON}@80002C00")
    assert (component.staged, component.pending) == (f"{MICRON}@80003C00", Activation.COLD_BOOT)
    assert gaps == ()


@pytest.mark.parametrize(
    "tool",
    [
        "",  # no nvme-cli
        "nvme: command not found",
        documents("E3MQ001", 0x2, s1="E3MQ001", s2="E3MQ001"),
        documents("E3MQ001", 0x12, s1="E3MQ001"),  # the announced one is what runs
        documents("E3MQ001", 0x32, s1="E3MQ001"),  # an announced slot without a revision
        '{"nvme0": {"Active Firmware Slot (afi)": "0x21"}}',
        "{" * 99,
    ],
)
def test_a_drive_that_announces_nothing_has_nothing_staged(tool: str):
    (component,), _ = read_drives(printed(drive(tool=tool)))

    assert (component.version, component.staged) == (f"{MICRON}@E3MQ001", None)


def test_what_runs_comes_from_the_drive_where_the_kernels_copy_is_old():
    (component,), _ = read_drives(printed(drive(tool=documents("E3MQ005", 0x3))))

    assert component.version == f"{MICRON}@E3MQ005"


def test_drives_of_storage_systems_and_output_without_an_end_are_left_out():
    assert read_drives(printed(drive(transport="tcp"))) == ((), ())
    components, gaps = read_drives(printed(drive(), end=False))
    assert (components, len(gaps)) == ((), 1)
    components, gaps = read_drives(printed(drive(serial=""), drive(), drive()))
    assert ([c.slot for c in components], len(gaps)) == (["032510B842C5"], 2)


@pytest.mark.parametrize(
    ("model", "firmware"), [("", "1"), ("a@b", "1"), ("m", ""), ("m", "a b"), ("m", "123456789")]
)
def test_a_model_or_firmware_of_no_such_form_is_no_version(model: str, firmware: str):
    assert join_version(model, firmware) is None
    (component,), gaps = read_drives(printed(drive(revision=firmware, model=model)))
    assert component.version is None
    assert gaps[0].reason is Reason.VERSION_MISSING


def test_each_model_is_one_step_with_its_own_file_and_one_reset_follows():
    found = planned(node(A=f"{MICRON}@E3MQ001", B=f"{SAMSUNG}@GPNA9B3Q", C=f"{MICRON}@E3MQ001"))

    assert [(s.title, s.slots, s.artifact) for s in found.steps[:2]] == [
        (
            f"drive.nvme {MICRON}@E3MQ001 → {MICRON}@E3MQ005",
            ("A", "C"),
            "Micron_7500_E3MQ005_release.ubi",
        ),
        (f"drive.nvme {SAMSUNG}@GPNA9B3Q → {SAMSUNG}@GPNABB3Q", ("B",), "GPNABB3Q.bin"),
    ]
    assert [s.activation for s in found.steps[2:]] == [Activation.COLD_BOOT]
    assert f"pins drive.nvme to {SAMSUNG}@GPNABB3Q" in found.steps[1].reason
    assert planned(node(A=f"{MICRON}@E3MQ005", B=f"{SAMSUNG}@GPNABB3Q")).done


def test_a_drive_of_a_model_without_a_pin_is_named_and_never_written():
    strange = node(A=f"{MICRON}@E3MQ005", B="KIOXIA KCM61RUL3T84@0106")

    (blocker,) = planned(strange).blockers
    verdict = judge_pin("drive.nvme", "KIOXIA KCM61RUL3T84@0106", PINS["drive.nvme"])

    assert (blocker.reason, blocker.subject) == (Reason.UNKNOWN_PIN, "drive.nvme/B")
    assert "KIOXIA KCM61RUL3T84" in blocker.detail
    assert planned(strange, production=False).done
    assert verdict.met is None
    assert "KIOXIA KCM61RUL3T84" in verdict.why
    assert select_target("drive.nvme", f"{SAMSUNG}@X", PINS["drive.nvme"]).endswith("GPNABB3Q")


def test_a_drive_without_an_edge_from_its_firmware_is_refused_with_its_own_pin():
    (blocker,) = planned(node(B=f"{SAMSUNG}@OLDER")).blockers

    assert blocker.reason is Reason.NO_PATH
    assert f"{SAMSUNG}@GPNABB3Q" in blocker.detail


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (f"version: {MICRON}@E3MQ005", "version: E3MQ005", "names no model and firmware"),
        (f'also: ["{SAMSUNG}@GPNABB3Q"]', "also: [GPNABB3Q]", "names no model and firmware"),
        (f"from: [{MICRON}@E3MQ001]", 'from: ["*"]', "every drive"),
        (f"from: [{MICRON}@E3MQ001]", f'from: ["{SAMSUNG}@1"]', "is no version of the model"),
        (f"to: {MICRON}@E3MQ005", "to: E3MQ005", "names no model and firmware"),
    ],
)
def test_a_matrix_that_mixes_models_is_refused_when_it_is_read(old: str, new: str, message: str):
    assert old in MATRIX
    with pytest.raises(InputError, match=message):
        parse([("matrix", MATRIX.replace(old, new, 1))])


def test_the_matrix_is_sound_and_hosts_are_asked_because_of_it():
    pinned = parse([("matrix", MATRIX)])

    assert is_pinned_somewhere(pinned)
    assert not is_pinned_somewhere(parse([("m", MATRIX.replace("drive.nvme", "host.nvme"))]))
    assert [r.problem for r in review_matrix(pinned) if "drive.nvme" in r.where] == []

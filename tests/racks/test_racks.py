"""Racks: kinds by content, places by every witness, and no proof where one did not speak.

The trees have the shape of public ones (docs/sources/hardware.md#racks): a GB300 tray and
LiteOn's and Delta's power shelves in LambdaLabs/redfish_exporter, an NVLink switch in NVIDIA's
infra-controller. Serials are made up.
"""

from __future__ import annotations

import asyncio
import csv
import json
import re
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pydantic import ValidationError
from rack_trees import ROOT, Tree, liteon, ref, switch, tray
from typer.testing import CliRunner

from provisioner.adapters.redfish.recorded import RecordedTransport, Recording
from provisioner.integrations.racks import rack_commands
from provisioner.integrations.racks.elevation import draw_elevation
from provisioner.integrations.racks.identity import (
    Kind,
    Marks,
    Supply,
    classify,
    find_shelves,
    judge_shelf,
    read_cartridge,
    read_gpu_place,
    read_supply,
    read_switch_place,
)
from provisioner.integrations.racks.membership import (
    RackVerdict,
    UnitReading,
    Water,
    judge_rack,
    judge_water,
)
from provisioner.integrations.racks.plan import PlannedUnit, RackPlan, read_plan
from provisioner.integrations.racks.reading import read_unit
from provisioner.model.input_error import InputError
from provisioner.ports import BmcAddress


def read(tree: Mapping[str, Mapping[str, Any]]) -> UnitReading:
    address = BmcAddress(url="https://bmc.invalid")
    return asyncio.run(read_unit(RecordedTransport(tree), address))


PLAN = RackPlan.model_validate(
    {
        "racks": [
            {
                "name": "r01",
                "chassis_serial": "1820001",
                "units": [
                    {"name": "t1", "kind": "compute-tray", "u": 12, "slot": 12, "tray_index": 1},
                    {"name": "t2", "kind": "compute-tray", "u": 13, "slot": 13, "tray_index": 2},
                    {"name": "p1", "kind": "power-shelf", "u": 6},
                ],
            },
            {
                "name": "r02",
                "chassis_serial": "1820002",
                "units": [
                    {"name": "x1", "kind": "compute-tray", "u": 12, "slot": 12, "tray_index": 1}
                ],
            },
        ]
    }
)


def judge(**trees: Tree) -> RackVerdict:
    whole = {"t1": tray(), "t2": tray(13, 2), "p1": liteon()} | trees
    return judge_rack(PLAN, "r01", {name: read(one) for name, one in whole.items()})


def told(verdict: RackVerdict) -> str:
    return " | ".join(
        str(f) for f in (*verdict.findings, *(f for u in verdict.units for f in u.findings))
    )


def test_kinds_are_told_by_content() -> None:
    assert read(tray()).kind is Kind.COMPUTE_TRAY
    assert read(liteon()).kind is Kind.POWER_SHELF
    assert read(switch()).kind is Kind.NVLINK_SWITCH


@pytest.mark.parametrize(
    ("marks", "kind"),
    [
        # an eight-GPU host has switches and a baseboard, and is no unit of a rack
        (Marks("NVIDIA", "DGX H100", ("DGX", "HGX_Baseboard_0"), ("HGX_NVSwitch_0",)), Kind.OTHER),
        # a GH200 host prints the switch's board id
        (Marks("NVIDIA", "P3809", ("System_0",), ("HGX_GPU_0",)), Kind.OTHER),
        # a box without systems that is no shelf (the exporter's own counter-example)
        (Marks(systems=None, chassis=("Server_0",), chassis_makers=("NVIDIA",)), Kind.OTHER),
        # DMTF's PDU shows power equipment and no systems, as its shelf does
        (Marks(systems=None, chassis=("PDU", "TransferSwitch1"), power_equipment=True), Kind.OTHER),
        (Marks(systems=None, chassis=("PowerShelf",), power_equipment=True), Kind.POWER_SHELF),
        (Marks("Delta Electronics Inc.", "", None, ("PowerShelf_0",)), Kind.POWER_SHELF),
        (Marks("WIWYNN", "GB200 NVL", ("System_0",), ("CBC_0", "HGX_GPU_0")), Kind.COMPUTE_TRAY),
        (Marks("NVIDIA", "VR NVL72", ("System_0",), ("CBC_0",)), Kind.COMPUTE_TRAY),
        # newer switch firmware drops the prefix of its ids
        (Marks("NVIDIA", "P3809", ("System_0",), ("NVSwitch_0",)), Kind.NVLINK_SWITCH),
        (Marks(), Kind.OTHER),
        # two kinds with equal evidence are none
        (Marks("NVIDIA", "P3809", (), ("CBC_0", "MGX_NVSwitch_0"), gpu_topologies=1), None),
    ],
)
def test_a_name_alone_tells_no_kind_and_a_tie_is_refused(marks: Marks, kind: Kind | None) -> None:
    assert classify(marks).kind is kind


def test_a_rack_as_planned_is_proved() -> None:
    verdict = judge()

    assert verdict.proved, told(verdict)
    assert [u.water for u in verdict.units] == [Water.DRY, Water.DRY, Water.NONE]


def without_places(tree: Tree, gpus: int) -> Tree:
    for gpu in range(gpus):
        tree[f"{ROOT}/Systems/HGX_Baseboard_0/Processors/GPU_{gpu}"].pop("Oem")
    return tree


def bench(tree: Tree) -> Tree:
    oem = {"ChassisPhysicalSlotNumber": 1, "ComputeTrayIndex": 0, "TopologyId": 0}
    tree[f"{ROOT}/Chassis/CBC_0"]["Oem"]["Nvidia"] = oem
    return tree


def other_cartridge(tree: Tree) -> Tree:
    tree[f"{ROOT}/Chassis/CBC_0"]["SerialNumber"] = "C99"
    return tree


def lost(tree: Tree, path: str) -> Tree:
    del tree[f"{ROOT}/{path}"]
    return tree


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (tray(14, 3), "state slot 14, and the plan has 13"),
        (tray(12, 2), "state the same slot 12"),
        (tray(13, 2, "1820002"), "chassis serial 1820002 (r02's), and the plan has 1820001"),
        (tray(13, 9), "state tray index 9, and the plan has 2"),
        (bench(tray(13, 2)), "bench cartridge"),
        (other_cartridge(tray(13, 2)), "cable cartridges differ"),
        (without_places(tray(13, 2), 4), "nothing states a chassis serial"),
        (without_places(tray(13, 2), 1), "3 of 4 GPUs state a place"),
        (lost(tray(13, 2), "Systems/HGX_Baseboard_0/Processors/GPU_3"), "was not read"),
        (tray(13, 2, wet="Critical"), "coolant at"),
        (liteon(), "the plan has a compute-tray here, and this is a power-shelf"),
        (tray(), "are one machine: serial T12"),
        ({ROOT: {}}, "t2"),
        ({}, "unreachable: t2"),
    ],
)
def test_what_disagrees_or_is_not_read_is_no_proof(second: Tree, reason: str) -> None:
    verdict = judge(t2=second)

    assert not verdict.proved
    assert reason in told(verdict)
    assert verdict.units[0].member


def test_a_unit_without_an_address_is_no_member() -> None:
    verdict = judge_rack(PLAN, "r01", {"t1": read(tray()), "p1": read(liteon())})

    assert not verdict.proved
    assert "no address is planned" in told(verdict)


def test_a_shelf_that_is_listed_twice_is_one_and_any_supply_off_is_off() -> None:
    reading = read(liteon((True, "true", "On")))
    assert (reading.power, len(reading.supplies)) == ("On", 3)
    assert read(liteon((True, False))).power == "Off"
    assert read(liteon((True, None))).power == "Unknown"
    assert read(liteon(())).power == "Unknown"
    dead = read(lost(liteon((False,)), "Chassis/PowerShelf_0/PowerSubsystem"))
    assert (dead.power, dead.gaps) == ("Off", ())
    two = [("/a", {"Id": "PowerShelf_0", "SerialNumber": "A"}), ("/b", {"Id": "PowerShelf_1"})]
    assert len(find_shelves(two)) == 2


def test_a_shelf_whose_subsystem_is_linked_wrongly_is_read_at_the_schemas_path() -> None:
    """DMTF's mockup public-power-shelf links to its sensors as its PowerSubsystem."""
    tree = liteon((True, False))
    for name in ("PowerShelf_0", "powershelf"):
        tree[f"{ROOT}/Chassis/{name}"]["PowerSubsystem"] = ref(f"Chassis/{name}/Sensors")
        tree[f"{ROOT}/Chassis/{name}/Sensors"] = {"Members": [], "Members@odata.count": 0}
    reading = read(tree)
    assert (reading.power, len(reading.supplies), reading.gaps) == ("Off", 2, ())


def test_supplies_that_answer_twice_and_differently_are_unknown() -> None:
    delta = {"Oem": {"deltaenergysystems": {"Power": True}}}
    assert read_supply(delta) is Supply.ON
    assert read_supply({**delta, "PowerState": "Off"}) is Supply.UNKNOWN
    assert read_supply({"PowerState": 1}) is Supply.UNKNOWN
    assert judge_shelf([Supply.ON, Supply.UNKNOWN]) is Supply.UNKNOWN
    assert judge_shelf([]) is Supply.UNKNOWN


TRAY = Kind.COMPUTE_TRAY


def test_water_is_unknown_until_each_detector_says_dry() -> None:
    assert judge_water(None, Kind.POWER_SHELF) is Water.UNKNOWN
    assert judge_water(read({p: r for p, r in tray().items() if "/Chassis" not in p}), TRAY) is (
        Water.UNKNOWN
    )
    assert judge_water(read(switch()), Kind.NVLINK_SWITCH) is Water.UNKNOWN
    assert judge_water(read(tray(wet="Unavailable")), Kind.COMPUTE_TRAY) is Water.UNKNOWN
    assert judge_water(read(tray(wet="LeakDetected")), Kind.COMPUTE_TRAY) is Water.WET


def test_a_switch_states_its_place_through_nvos_alone() -> None:
    said = {
        "chassis-sn": "999WWYY123456",
        "slot-number": "5",
        "tray-index": "0",
        "topology-id": "GB200 NVL36",
    }
    place = read_switch_place(said)
    assert place is not None
    assert (place.chassis_serial, place.slot, place.tray_index) == ("999WWYY123456", 5, 0)
    for outside in ({"chassis-sn": "N/A", "slot-number": "0"}, {**said, "topology-id": "Loopback"}):
        assert read_switch_place(outside) is None
    for odd in (None, [], "x", {"chassis-sn": {}}, {"chassis-sn": "a" * 200}, {"chassis-sn": True}):
        assert read_switch_place(odd) is None


@pytest.mark.parametrize("odd", [True, -1, "1.5", 2**70, None, [], "0x5", 1e3])
def test_a_slot_that_is_no_small_number_is_none(odd: object) -> None:
    told_gpu = {"ChassisSerialNumber": "1", "TraySlotNumber": odd}
    place = read_gpu_place({"Oem": {"Nvidia": {"MNNVLinkTopology": told_gpu}}}, "GPU_0")
    assert place is not None
    assert place.slot is None
    assert read_cartridge({"Oem": {"Nvidia": {"ComputeTrayIndex": odd}}}, "CBC_0") is None
    assert read_cartridge({"Oem": odd}, "CBC_0") is None


SHELF = {"name": "p", "kind": "power-shelf", "u": 1}


def plan_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "racks.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("racks", "says"),
    [
        ("[", "no YAML"),
        ("[]", "racks"),
        ("*a", "aliases"),
        ("[" * 5000, "nested more than 16 deep"),
        ([{"name": "t", "kind": "compute-tray", "u": 1}], "needs `slot`"),
        ([SHELF, SHELF | {"name": "q"}], "`u` 1 stands twice"),
        ([SHELF, SHELF | {"u": 2}], "`name` p stands twice"),
        ([SHELF | {"slot": 1}], "a shelf states no slot"),
        ([SHELF | {"nvos": "https://x"}], "only an NVLink switch"),
    ],
)
def test_a_wrong_plan_is_refused_by_its_field(tmp_path: Path, racks: object, says: str) -> None:
    written = f"a: &a [1]\nracks: {racks}"
    if not isinstance(racks, str):
        written = json.dumps({"racks": [{"name": "r", "chassis_serial": "s", "units": racks}]})
    with pytest.raises(InputError, match=says):
        read_plan(plan_file(tmp_path, written))


UNIT = "name: t1, kind: compute-tray, u: 11"
TWICE = [
    "racks: []\nracks: []\n",
    f"racks: [{{name: a, chassis_serial: x, units: [{{{UNIT}, u: 12}}]}}]",
    f"racks: [{{name: a, chassis_serial: x, chassis_serial: y, units: [{{{UNIT}}}]}}]",
    f'racks: [{{"name": a, name: b, chassis_serial: x, units: [{{{UNIT}}}]}}]',
    '{"racks": [], "racks": []}',
    '{"racks": [{"name": "a", "chassis_serial": "x", "chassis_serial": "x", "units": []}]}',
]


@pytest.mark.parametrize("written", TWICE)
def test_a_key_that_stands_twice_is_refused_before_one_of_its_values_is_meant(
    tmp_path: Path, written: str
) -> None:
    (tmp_path / "racks.yaml").write_text(written)
    with pytest.raises(InputError, match="stands twice"):
        read_plan(tmp_path / "racks.yaml")


@pytest.mark.parametrize(
    ("address", "good"),
    [
        ("https://10.0.0.1", True), ("https://[2001:db8::1]:8443/", True), ("", True),
        ("http://127.0.0.1:8000", True), ("https://root:pw@10.0.0.1", False),
        ("https://root@10.0.0.1", False), ("file:///etc/passwd", False), ("10.0.0.1", False),
        ("https://10.0.0.1/redfish?x=pw", False), ("https://10.0.0.1\\@evil", False),
        ("https://10.0.0.1\n", False), ("https://", False),
    ],
)  # fmt: skip
def test_an_address_is_a_host_without_login_path_or_query(address: str, good: bool) -> None:
    switch = {"name": "s", "kind": "nvlink-switch", "u": 1, "slot": 1, "tray_index": 0}
    for field in ("bmc", "nvos"):
        with nullcontext() if good else pytest.raises(ValidationError, match=field):
            PlannedUnit.model_validate({**switch, field: address})


def test_a_key_may_stand_again_in_another_object_and_as_a_value(tmp_path: Path) -> None:
    units = "[{name: name, kind: power-shelf, u: 1}, {name: kind, kind: power-shelf, u: 2}]"
    (tmp_path / "r.yaml").write_text(f"racks: [{{name: u, chassis_serial: name, units: {units}}}]")
    assert [u.name for u in read_plan(tmp_path / "r.yaml").racks[0].units] == ["name", "kind"]


def test_two_racks_with_one_serial_are_refused() -> None:
    rack = {"chassis_serial": "s", "units": [SHELF]}
    with pytest.raises(ValueError, match="`chassis_serial` s stands twice"):
        RackPlan.model_validate({"racks": [rack | {"name": "r"}, rack | {"name": "q"}]})


def test_a_recording_is_inspected_as_a_bmc_is(tmp_path: Path) -> None:
    file = tmp_path / "tray.json"
    file.write_text(
        Recording(source="made", vendor="", tree=tray(wet="Critical")).model_dump_json()
    )

    result = CliRunner().invoke(rack_commands.app, ["inspect", str(file), "--json"])

    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["kind"], said["water"], said["power"]) == ("compute-tray", "wet", "On")
    assert {p["witness"] for p in said["places"]} == {"GPU_0", "GPU_1", "GPU_2", "GPU_3", "CBC_0"}
    shown = CliRunner().invoke(rack_commands.app, ["inspect", str(file)]).stdout
    assert "compute-tray" in shown
    assert "1820001" in shown


def test_a_plan_is_counted_and_an_unknown_rack_names_those_there_are(tmp_path: Path) -> None:
    file = plan_file(tmp_path, json.dumps(PLAN.model_dump(mode="json")))

    counted = CliRunner().invoke(rack_commands.app, ["check", str(file), "--json"])
    assert json.loads(counted.stdout) == {
        "racks": 2,
        "units": {"compute-tray": 3, "power-shelf": 1},
    }
    with pytest.raises(InputError, match="it has r01, r02"):
        PLAN.find("r09")


def test_a_rack_without_addresses_is_drawn_and_not_proved(tmp_path: Path) -> None:
    file = plan_file(tmp_path, json.dumps(PLAN.model_dump(mode="json")))

    result = CliRunner().invoke(rack_commands.app, ["show", str(file), "r01"])

    assert result.exit_code == 1
    assert "not proved: 3 reasons" in result.stdout
    drawn = [line for line in result.stdout.splitlines() if "│ t" in line or "│ p1" in line]
    assert [line.split("│")[1].strip() for line in drawn] == ["13", "12", "6"]


def test_the_elevation_is_drawn_with_its_reasons_and_each_text_escaped(tmp_path: Path) -> None:
    wet = tray(13, 2, wet="Critical")
    wet[f"{ROOT}/Systems/System_0"]["SerialNumber"] = "<script>&\x07" + "9" * 200
    drawn = draw_elevation(judge(t2=wet))

    svg = ElementTree.fromstring(drawn)
    texts = [each.text or "" for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    heights = {
        name: float(each.attrib["y"])
        for each in svg.iter("{http://www.w3.org/2000/svg}text")
        if (name := each.text or "") in {"t1", "t2", "p1"}
    }
    assert heights["t2"] < heights["t1"] < heights["p1"]
    assert "On, wet" in texts
    assert "coolant at" in drawn
    assert "<script" not in drawn
    file = plan_file(tmp_path, json.dumps(PLAN.model_dump(mode="json")))
    shown = ["show", str(file), "r01", "--svg", str(tmp_path / "r01.svg")]
    assert CliRunner().invoke(rack_commands.app, shown).exit_code == 1
    assert (tmp_path / "r01.svg").read_text().startswith("<svg")


def test_each_criterion_names_a_test_that_exists_or_is_not_done() -> None:
    root = Path(__file__).parents[2]
    folders = ("racks", "building_water")
    files = [file for name in folders for file in (root / "tests" / name).glob("test_*.py")]
    written = "".join(file.read_text() for file in files)
    with (root / "docs" / "racks_criteria.csv").open() as opened:
        listed = list(csv.DictReader(opened))

    ids = [
        f"{kind}{n}" for kind, last in (("F", 24), ("A", 15), ("S", 16)) for n in range(1, last + 1)
    ]
    assert [row["id"] for row in listed] == ids
    for row in listed:
        name = row["test"].strip("`")
        assert row["state"] in {"holds", "partly", "not done"}, row
        assert bool(name) is (row["state"] != "not done"), row
        assert not name or f"def {name}(" in written, row
        assert row["what is missing"] or row["state"] != "partly", row
        if bench := re.search(r"make bench NAME=(\w+)", row["what is missing"]):
            assert (root / "tests" / "bench" / f"bench_{bench[1]}.py").is_file()

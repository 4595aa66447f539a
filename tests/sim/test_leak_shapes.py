"""A tray whose tree hides a wet detector gets no power: no shape of the tree reads as dry.

source of the shapes: LambdaLabs/redfish_exporter at 610113a, chassis_collector.go lines 308 to 337
(the path is read itself, as makers leave the link out or print a wrong one); DMTF schemas
ThermalSubsystem 1.3.0, LeakDetection 1.1.0, LeakDetectorCollection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.recorded import RecordedTransport
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.watch import alerts as rules
from provisioner.planning.watch.leaks import carry_detectors, drop_accepted, list_signals
from provisioner.ports import BmcAddress, Call, Reply, Secret, Unreachable

ROOT = "/redfish/v1"
CHASSIS = f"{ROOT}/Chassis/Chassis_0"
THERMAL = f"{CHASSIS}/ThermalSubsystem"
DETECTION = f"{THERMAL}/LeakDetection"
DETECTORS = f"{DETECTION}/LeakDetectors"
NAMES = ("0_ColdPlate", "0_Manifold", "1_ColdPlate", "1_Manifold")
Tree = dict[str, dict[str, Any]]


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def tray(wet: str = "1_ColdPlate") -> Tree:
    """A liquid-cooled tray with four detectors, one of them wet, all links in place."""
    paths = [f"{DETECTORS}/{name}" for name in NAMES]
    tree: Tree = {
        ROOT: {"Vendor": "NVIDIA", "Chassis": link(f"{ROOT}/Chassis")},
        f"{ROOT}/Chassis": {"Members": [link(CHASSIS)], "Members@odata.count": 1},
        CHASSIS: {"Id": "Chassis_0", "ThermalSubsystem": link(THERMAL)},
        THERMAL: {"Id": "ThermalSubsystem", "LeakDetection": link(DETECTION)},
        DETECTION: {"Id": "LeakDetection", "LeakDetectors": link(DETECTORS)},
        DETECTORS: {"Members": [link(p) for p in paths], "Members@odata.count": len(paths)},
    }
    for name, path in zip(NAMES, paths, strict=True):
        state = "Critical" if name == wet else "OK"
        status = {"State": "Enabled", "Health": "OK"}
        tree[path] = {"Id": name, "DetectorState": state, "Status": status}
    return {path: {"@odata.id": path, **body} for path, body in tree.items()}


def client_of(tree: Mapping[str, Mapping[str, Any]]) -> Redfish:
    address = BmcAddress("https://192.0.2.1", "root", Secret("x"))
    return Redfish(RecordedTransport(tree), address, quirks.UNKNOWN)


def _unlink(tree: Tree) -> None:
    del tree[THERMAL]["LeakDetection"]


def _link_elsewhere(tree: Tree) -> None:
    tree[THERMAL]["LeakDetection"] = link(f"{ROOT}/Chassis/Other/ThermalSubsystem/LeakDetection")


def _link_nowhere(tree: Tree) -> None:
    _link_elsewhere(tree)
    for path in [p for p in tree if p.startswith(DETECTION)]:
        del tree[path]


def _lose_the_subsystem(tree: Tree) -> None:
    del tree[THERMAL]


def _lose_all_below_the_chassis(tree: Tree) -> None:
    for path in [p for p in tree if p.startswith(THERMAL)]:
        del tree[path]


def _unlink_the_collection(tree: Tree) -> None:
    del tree[DETECTION]["LeakDetectors"]


def _link_the_collection_elsewhere(tree: Tree) -> None:
    tree[DETECTION]["LeakDetectors"] = link(f"{DETECTION}/Detectors")


def _lose_the_collection(tree: Tree) -> None:
    for path in [p for p in tree if p.startswith(DETECTORS)]:
        del tree[path]


def _list_fewer_than_counted(tree: Tree) -> None:
    tree[DETECTORS]["Members"] = tree[DETECTORS]["Members"][:1]


def _list_none_of_those_counted(tree: Tree) -> None:
    tree[DETECTORS]["Members"] = []


def _lose_a_member(tree: Tree) -> None:
    del tree[f"{DETECTORS}/1_ColdPlate"]


def _lose_the_second_page(tree: Tree) -> None:
    tree[DETECTORS] |= {
        "Members": tree[DETECTORS]["Members"][:1],
        "Members@odata.count": 1,  # as services count that count the page
        "Members@odata.nextLink": f"{DETECTION}/Page2",
    }


def _answer_no_list(tree: Tree) -> None:
    tree[DETECTORS]["Members"] = "none"


def _show_a_detection_without_detectors(tree: Tree) -> None:
    _lose_the_collection(tree)
    del tree[DETECTION]["LeakDetectors"]


def _leave_out_the_state(tree: Tree) -> None:
    del tree[f"{DETECTORS}/1_ColdPlate"]["DetectorState"]


def _unlink_the_subsystem(tree: Tree) -> None:
    del tree[CHASSIS]["ThermalSubsystem"]


def _show_detectors_at_the_chassis(tree: Tree) -> None:
    """As SONiC's BMC has them, without a link."""
    _lose_all_below_the_chassis(tree)
    _unlink_the_subsystem(tree)
    path = f"{CHASSIS}/LeakDetectors"
    tree[path] = {"@odata.id": path, "Members": [link(f"{path}/1")]}
    tree[f"{path}/1"] = {"@odata.id": f"{path}/1", "DetectorState": "Critical"}


def _unlink_the_chassis(tree: Tree) -> None:
    del tree[ROOT]["Chassis"]


def _lose_the_chassis(tree: Tree) -> None:
    del tree[CHASSIS]


def _err_at_the_chassis(tree: Tree) -> None:
    tree[CHASSIS] = {"error": {"code": "Base.1.12.InternalError"}}


def _group(tree: Tree, *shown: dict[str, Any]) -> None:
    tree[DETECTION]["LeakDetectorGroups"] = [{"GroupName": "tray", "Detectors": list(shown)}]


def _show_one_detector_in_its_group_alone(tree: Tree) -> None:
    _show_a_detection_without_detectors(tree)
    uri = f"{DETECTORS}/0_ColdPlate"
    tree[uri] = {"@odata.id": uri, "DetectorState": "OK"}
    _group(tree, {"DataSourceUri": uri, "DetectorState": "OK"}, {"DetectorState": "Critical"})


def _contradict_in_the_group(tree: Tree) -> None:
    wet = f"{DETECTORS}/1_ColdPlate"
    tree[wet]["DetectorState"] = "OK"
    _group(tree, {"DataSourceUri": wet, "DetectorState": "Critical"})


def _tell_by_the_group(tree: Tree) -> None:
    tree[f"{DETECTORS}/1_ColdPlate"]["DetectorState"] = "OK"
    tree[DETECTION]["LeakDetectorGroups"] = [{"Status": {"Health": "Critical"}}]


def _show_a_group_that_cannot_be_read(tree: Tree) -> None:
    _show_a_detection_without_detectors(tree)
    _group(tree, {"DetectorState": "OK"}, {"DeviceName": "1_ColdPlate"})


def _tell_by(**status: Any) -> Callable[[Tree], None]:
    def change(tree: Tree) -> None:
        tree[f"{DETECTORS}/1_ColdPlate"] |= {"DetectorState": "OK", "Status": status}

    return change


def _tell_by_the_detection(tree: Tree) -> None:
    tree[f"{DETECTORS}/1_ColdPlate"]["DetectorState"] = "OK"
    tree[DETECTION]["Status"] = {"State": "Enabled", "HealthRollup": "Critical"}


def _tell_in_one_word(tree: Tree) -> None:
    tree[f"{DETECTORS}/1_ColdPlate"] |= {"DetectorState": "OK", "Status": "Critical"}


def _put(state: object) -> Callable[[Tree], None]:
    return lambda tree: tree[f"{DETECTORS}/1_ColdPlate"].update(DetectorState=state)


def _embed_the_detection(tree: Tree) -> None:
    tree[THERMAL]["LeakDetection"] = {"Id": "LeakDetection", "LeakDetectors": link(DETECTORS)}


def _embed_the_members(tree: Tree) -> None:
    members = [{"Id": name, "DetectorState": "Critical"} for name in NAMES]
    _lose_the_collection(tree)
    tree[DETECTORS] = {"@odata.id": DETECTORS, "Members": members}


def _stand_alone(kind: str, **links: object) -> Callable[[Tree], None]:
    """A chassis of a type that parts have, which links nothing, and which no chassis contains."""

    def change(tree: Tree) -> None:
        _unlink_the_subsystem(tree)
        tree[CHASSIS] |= {"ChassisType": kind, "Links": links}

    return change


def _ring(tree: Tree) -> None:
    """Two parts, each of which says that the other contains it."""
    other = f"{ROOT}/Chassis/Chassis_1"
    _stand_alone("Module", ContainedBy=link(other))(tree)
    tree[other] = {
        "@odata.id": other,
        "ChassisType": "Module",
        "Links": {"ContainedBy": link(CHASSIS), "Contains": [link(CHASSIS)]},
    }
    members = [link(CHASSIS), link(other)]
    tree[f"{ROOT}/Chassis"] |= {"Members": members, "Members@odata.count": 2}


SHAPES: tuple[tuple[str, Callable[[Tree], None]], ...] = (
    ("all links in place", lambda _: None),
    ("LeakDetection is not linked", _unlink),
    ("the link to LeakDetection leads elsewhere", _link_elsewhere),
    ("the link to LeakDetection leads nowhere, and nothing is at its path", _link_nowhere),
    ("the thermal subsystem is gone, and the detectors are there", _lose_the_subsystem),
    ("the thermal subsystem and all below it is gone", _lose_all_below_the_chassis),
    ("LeakDetectors is not linked", _unlink_the_collection),
    ("the link to LeakDetectors leads elsewhere", _link_the_collection_elsewhere),
    ("LeakDetectors is gone", _lose_the_collection),
    ("fewer members are listed than counted", _list_fewer_than_counted),
    ("no member is listed, and four are counted", _list_none_of_those_counted),
    ("a member is gone", _lose_a_member),
    ("the second page is gone", _lose_the_second_page),
    ("Members is no list", _answer_no_list),
    ("LeakDetection shows no detector", _show_a_detection_without_detectors),
    ("a detector has no state", _leave_out_the_state),
    ("ThermalSubsystem is not linked", _unlink_the_subsystem),
    ("the chassis has the detectors, without a link", _show_detectors_at_the_chassis),
    ("the list of chassis is not linked", _unlink_the_chassis),
    ("a listed chassis is gone", _lose_the_chassis),
    ("a listed chassis is an error inside a 200", _err_at_the_chassis),
    ("one detector is in its group alone", _show_one_detector_in_its_group_alone),
    ("the group contradicts the detector", _contradict_in_the_group),
    ("only the group says so", _tell_by_the_group),
    ("a detector in its group alone has no state", _show_a_group_that_cannot_be_read),
    ("only LeakDetection says so", _tell_by_the_detection),
    ("only the detector's health says so, in small letters", _tell_by(Health="critical")),
    ("only the roll-up says so", _tell_by(HealthRollup="Critical")),
    ("only a condition says so", _tell_by(Conditions=[{"Severity": "Critical"}])),
    ("Status is a word", _tell_in_one_word),
    ("the state in small letters", _put("critical")),
    ("a state of no schema", _put("Wet")),
    ("a state in capitals", _put("LEAK")),
    ("a state that is a list", _put(["Critical"])),
    ("a state that is true", _put(True)),
    ("LeakDetection is embedded", _embed_the_detection),
    ("the members are embedded", _embed_the_members),
    ("a Module in nothing", _stand_alone("Module")),
    ("a Component in nothing", _stand_alone("Component")),
    (
        "a Cartridge in a chassis that is not listed",
        _stand_alone("Cartridge", ContainedBy=link(f"{ROOT}/Chassis/Rack")),
    ),
    ("a Card in itself", _stand_alone("Card", ContainedBy=link(CHASSIS))),
    ("a Module in what is no link", _stand_alone("Module", ContainedBy=[], Contains="all")),
    ("two Modules in each other", _ring),
)


@pytest.mark.parametrize(("shape", "change"), SHAPES, ids=[name for name, _ in SHAPES])
def test_no_shape_of_the_tree_gives_a_wet_tray_power(
    shape: str, change: Callable[[Tree], None]
) -> None:
    tree = tray()
    change(tree)

    refused = asyncio.run(client_of(tree).admit_act())

    assert isinstance(refused, Blocker), shape
    assert refused.reason is Reason.LEAK


@pytest.mark.parametrize("listed", [{"Members": []}, {"Members": [], "Members@odata.count": 1}])
def test_a_bmc_that_lists_no_chassis_has_not_said_that_it_is_dry(listed: dict[str, Any]) -> None:
    tree = tray()
    tree[f"{ROOT}/Chassis"] = {"@odata.id": f"{ROOT}/Chassis", **listed}

    with pytest.raises(Unreachable, match=r"none listed|no chassis is listed"):
        asyncio.run(client_of(tree).admit_act())


def test_a_list_of_chassis_that_is_linked_and_gone_is_no_answer() -> None:
    tree = tray()
    del tree[f"{ROOT}/Chassis"]

    with pytest.raises(Unreachable, match="no chassis is listed"):
        asyncio.run(client_of(tree).admit_act())
    del tree[ROOT]["Chassis"]  # a service that has none at all has no detector
    assert asyncio.run(client_of(tree).admit_act()) is None


@pytest.mark.parametrize("below", [True, False])
def test_parts_of_a_chassis_are_not_asked_for_what_they_do_not_link(below: bool) -> None:
    tree = tray(wet="")
    part = f"{ROOT}/Chassis/HGX_GPU_SXM_1"
    tree[f"{ROOT}/Chassis"] |= {"Members": [link(CHASSIS), link(part)], "Members@odata.count": 2}
    tree[part] = {"@odata.id": part, "Id": "HGX_GPU_SXM_1", "ChassisType": "Component"}
    if below:
        tree[part]["Links"] = {"ContainedBy": link(f"{CHASSIS}/")}
    else:
        tree[CHASSIS]["Links"] = {"Contains": [link(part)]}
    asked: list[str] = []

    class Transport(RecordedTransport):
        async def request(self, bmc: BmcAddress, call: Call) -> Reply:
            asked.append(call.path)
            return await super().request(bmc, call)

    address = BmcAddress("https://192.0.2.1", "root", Secret("x"))
    client = Redfish(Transport(tree), address, quirks.UNKNOWN)

    assert asyncio.run(client.admit_act()) is None
    assert [path for path in asked if path.startswith(part)] == [part]


def test_a_group_whose_detectors_are_dry_is_dry() -> None:
    tree = tray(wet="")
    _show_a_detection_without_detectors(tree)
    _group(tree, {"DetectorState": "OK"}, {"DetectorState": "ok"})

    assert asyncio.run(client_of(tree).admit_act()) is None


def test_a_dry_tray_without_a_link_is_read_at_the_schemas_path() -> None:
    tree = tray(wet="")
    _unlink(tree)
    client = client_of(tree)

    assert asyncio.run(client.admit_act()) is None
    assert len(asyncio.run(client.read_leak_detectors())) == len(NAMES)


def test_a_chassis_cooled_by_air_has_no_detector() -> None:
    """Its thermal subsystem links to no LeakDetection, and none is at the schema's path."""
    tree = tray()
    _unlink(tree)
    for path in [p for p in tree if p.startswith(DETECTION)]:
        del tree[path]

    assert asyncio.run(client_of(tree).read_leak_detectors()) == ()


def test_a_detector_that_leaves_the_list_keeps_the_power_off() -> None:
    """The list is whole by its own count: only the earlier look knows of the others."""
    tree = tray(wet="")
    client = client_of(tree)

    async def look_twice() -> tuple[Blocker | None, Blocker | None]:
        before = await client.admit_act()
        members = tree[DETECTORS]["Members"][:1]
        tree[DETECTORS] |= {"Members": members, "Members@odata.count": 1}
        return before, await client.admit_act()

    before, after = asyncio.run(look_twice())

    assert before is None
    assert after is not None
    assert "does not show it any more" in after.detail


# --- detectors that were seen before

PLATE = LeakDetector(slot="0/plate", moisture=Moisture.DRY, detail="state OK", source="/p")
HOSE = PLATE.model_copy(update={"slot": "0/hose", "source": "/h"})


def test_a_detector_that_is_not_shown_any_more_has_no_reading() -> None:
    carried = carry_detectors((PLATE, HOSE), (PLATE,))

    assert {d.slot: d.moisture for d in carried} == {
        "0/plate": Moisture.DRY,
        "0/hose": Moisture.UNREADABLE,
    }
    assert carry_detectors(carried, (PLATE, HOSE)) == (HOSE, PLATE)


def test_only_a_person_who_cleared_its_own_alert_lets_a_detector_go() -> None:
    carried = carry_detectors((PLATE, HOSE), (PLATE,))
    (gone,) = list_signals("n0", carried, "leaks/host", 10.0)
    alert = rules.apply_signal(None, gone)
    assert alert is not None
    cleared = rules.clear_alert(alert, 20.0, "operator: the hose has no detector now")
    wet = HOSE.model_copy(update={"moisture": Moisture.WET, "detail": "state Critical"})
    (leak,) = list_signals("n0", [wet], "leaks/host", 1.0)
    earlier = rules.apply_signal(None, leak)
    assert cleared is not None
    assert earlier is not None
    dried = rules.clear_alert(earlier, 5.0, "operator: dried")
    assert dried is not None

    assert drop_accepted(carried, [alert]) == carried
    assert drop_accepted(carried, [dried]) == carried  # that clearing was about water
    assert drop_accepted(carried, [cleared]) == (PLATE,)
    assert drop_accepted([wet], [cleared]) == (wet,)

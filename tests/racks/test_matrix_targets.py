"""The matrix pins whole racks, and campaigns take their targets from it: nothing is guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rack_rig import Rig, finish
from typer.testing import CliRunner, Result

from provisioner.integrations.racks import rack_commands
from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.targets.matrix_targets import (
    SHOWN,
    draft_campaign,
    fill_targets,
    find_targets,
)
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.matrix_text import parse

ROOT = Path(__file__).parents[2]
MATRIX: Matrix = parse([("m.yaml", (ROOT / "firmware_matrix.yaml").read_text())])
GB200, GB300 = "dgx-gb200-1.3", "dgx-gb300-1.0.1"
STACKS = [
    (GB200, "nvlink-switch", {"nvswitch.os": "25.02.2445", "nvswitch.bmc": "88.0002.1301"}),
    (GB200, "power-shelf", {"shelf.pmc": "3.2.4", "shelf.psu": "0104"}),
    (GB300, "nvlink-switch", {"nvswitch.os": "25.02.4317", "nvswitch.bmc": "88.0002.1958"}),
    (GB300, "power-shelf-delta", {"shelf.pmc": "3.2.4", "shelf.psu": "0104"}),
    (GB300, "power-shelf-liteon", {"shelf.pmc": "1.3.10", "shelf.psu": "0101"}),
]
DELTA, LITEON = "power-shelf-delta", "power-shelf-liteon"


@pytest.mark.parametrize(("release", "profile", "versions"), STACKS)
def test_the_published_stacks_have_their_switches_nvos_and_shelves_each_with_its_source(
    release: str, profile: str, versions: dict[str, str]
) -> None:
    pins = MATRIX.releases[release].profiles[profile].pins

    assert {kind: pins[kind].version for kind in versions} == versions
    assert all(pin.evidence.startswith("https://docs.nvidia.com/") for pin in pins.values())


def test_what_nobody_publishes_of_a_rack_is_unknown_and_has_no_target() -> None:
    for release in ("dgx-gb200-1.3.6", "dgx-gb300-1.0.6"):
        told = find_targets(MATRIX, release)
        assert not [one for one in told.found if one.kind is not Kind.COMPUTE_TRAY]
        for name in ("nvswitch.os", "nvswitch.bmc", "shelf.pmc", "shelf.psu"):
            assert [gap for gap in told.gaps if f"{name} is unknown: package contents" in gap], name


def test_a_release_with_two_makes_of_shelves_has_no_target_until_one_is_named() -> None:
    told = find_targets(MATRIX, GB300)
    assert {one.component for one in told.found} == set(SHOWN) - {"pmc", "psu"}
    assert "power-shelf-delta, power-shelf-liteon. One is needed" in told.gaps[-1]

    named = find_targets(MATRIX, GB300, ["power-shelf-liteon"])
    assert {one.component: one.version for one in named.found}["pmc"] == "1.3.10"
    assert find_targets(MATRIX, GB300, [DELTA]).gaps == ()
    with pytest.raises(InputError, match="no such profile"):
        find_targets(MATRIX, GB300, ["x"])


def test_a_package_is_proved_by_its_parts_and_each_in_the_spelling_that_devices_print() -> None:
    found = {one.component: one for one in find_targets(MATRIX, "dgx-gb300-1.0.6").found}
    assert found["hgx-bundle"].versions == {  # by what the pinned package holds
        "HGX_FW_BMC_0": ("GB200Nvl-25.08-B",),
        "HGX_FW_GPU_*": ("97.10.4A.00.1F",),
        "HGX_FW_ERoT_*": ("01.04.0031.0000", "01.04.0031.0000_n04"),
        "HGX_FW_CPLD_0": ("0.22",),
    }
    found = {one.component: one for one in find_targets(MATRIX, GB200).found}
    assert found["nvos"].versions == {"nvos": ("nvos-25.02.2445",)}
    assert found["switch-firmware"].versions["FPGA"] == ("1A", "0.1A")


def test_every_version_of_a_draft_stands_in_the_campaign_that_is_made_of_it() -> None:
    told = find_targets(MATRIX, GB200)
    drafted = yaml.safe_load("\n".join(draft_campaign(GB200, told)))
    for components in drafted["packages"].values():
        for one in components.values():
            assert one["files"] == []  # a person's
            one["files"] = [{"file": "a", "sha256": "0" * 64}]
    asked = CampaignFile.model_validate(drafted)

    for one in told.found:
        assert asked.targets[one.kind][one.component] == one.version
        assert asked.packages[one.kind][one.component].versions == one.versions
    assert fill_targets(asked, MATRIX, GB200) == (asked, ())


def test_a_shelf_whose_ids_nobody_publishes_is_proved_by_no_id_of_another_maker() -> None:
    """`FW_PMC_*` is Delta's; what LiteOn calls its controller there is in no source."""
    shelf = [Kind.POWER_SHELF]
    told = find_targets(MATRIX, GB300, [LITEON], shelf)
    assert [(one.component, one.version, one.versions) for one in told.found] == [
        ("pmc", "1.3.10", {}),
        ("psu", "0101", {}),
    ]
    assert [gap.partition(": no source tells the ids of PF-*")[0] for gap in told.gaps] == [
        "power-shelf: pmc",
        "power-shelf: psu",
    ]
    drafted = "\n".join(draft_campaign(GB300, told))
    assert "FW_" not in drafted
    asked = CampaignFile.model_validate(yaml.safe_load(drafted))
    assert asked.targets[Kind.POWER_SHELF] == {"pmc": "1.3.10", "psu": "0101"}
    assert asked.packages == {}
    file = {"file": "a", "sha256": "0" * 64}
    pmc = {"pmc": {"files": [file], "versions": {"PMC": ["1.3.9"]}}}
    wrong = ask(targets={"power-shelf": {}}, packages={"power-shelf": pmc})
    with pytest.raises(InputError, match=r"pins 1\.3\.10, and nothing here proves it"):
        fill_targets(wrong, MATRIX, GB300, [LITEON])


def ask(**more: Any) -> CampaignFile:
    return CampaignFile.model_validate({"targets": {"nvlink-switch": {}}, **more})


def test_only_kinds_that_the_file_names_are_filled_and_its_own_targets_stay() -> None:
    filled, _ = fill_targets(ask(), MATRIX, GB300)
    assert filled.targets == {
        Kind.NVLINK_SWITCH: {"switch-firmware": "88.0002.1958", "nvos": "25.02.4317"}
    }
    own = ask(targets={"nvlink-switch": {"nvos": "25.02.9999"}})
    filled, _ = fill_targets(own, MATRIX, GB300)
    assert filled.targets[Kind.NVLINK_SWITCH]["nvos"] == "25.02.9999"


def test_a_package_that_proves_another_version_than_the_release_is_refused() -> None:
    url = "https://files.example/nvos.bin"
    for versions, fine in ((["nvos-25.02.4317"], True), (["nvos-25.02.2445"], False)):
        nvos = {"nvos": {"files": [{"url": url}], "versions": {"nvos": versions}}}
        asked = ask(packages={"nvlink-switch": nvos})
        if fine:
            fill_targets(asked, MATRIX, GB300)
            continue
        with pytest.raises(InputError, match=r"pins nvos-25\.02\.4317"):
            fill_targets(asked, MATRIX, GB300)


@pytest.mark.parametrize(
    ("versions", "fine"),
    [
        ({"FW_PMC_*": ["3.2.4"]}, True),
        ({"PMC": ["3.2.4"]}, True),  # another maker's word for it
        ({"FW_*": ["3.2.3"]}, False),  # it stands for all that the release pins
        ({"FW_PSU_1": ["3.2.3"]}, False),
        ({"PMC": ["3.2.3"]}, False),
    ],
)
def test_a_package_that_does_not_prove_what_the_release_pins_is_refused(
    versions: dict[str, list[str]], fine: bool
) -> None:
    """Else a unit that runs something else would count as one that runs the release."""
    file = {"file": "a", "sha256": "0" * 64}
    pmc = {"pmc": {"files": [file], "versions": versions}}
    asked = ask(targets={"power-shelf": {}}, packages={"power-shelf": pmc})
    if fine:
        assert fill_targets(asked, MATRIX, GB300, [DELTA])[0].targets[Kind.POWER_SHELF]["pmc"]
        return
    with pytest.raises(InputError, match=r"pins 3\.2\.4"):
        fill_targets(asked, MATRIX, GB300, [DELTA])


def plan(tmp_path: Path, campaign: dict[str, Any], *words: str) -> Result:
    rig = Rig(tmp_path, targets={}, trays=1, switches=1, shelves=1)
    racks = tmp_path / "racks.yaml"
    racks.write_text(rig.plan().model_dump_json())
    file = tmp_path / "campaign.yaml"
    file.write_text(json.dumps(campaign))
    return CliRunner().invoke(rack_commands.app, ["plan", str(racks), str(file), *words])


def test_a_plan_takes_its_targets_from_a_release_of_the_matrix(tmp_path: Path) -> None:
    running = {
        "t0": {"host-bundle": "1", "hgx-bundle": "1"},
        "s0": {"switch-firmware": "1", "nvos": "25.02.4317"},
        "p0": {"pmc": "1", "psu": "1"},
    }
    units = {
        name: {"running": versions, "tenant": "", "water": "dry", "member": True}
        for name, versions in running.items()
    }
    targets: dict[str, Any] = {"nvlink-switch": {}, "power-shelf": {}}
    release = ["--release", GB300]
    shown = plan(
        tmp_path, {"targets": targets, "units": units}, *release, "--profile", DELTA, "--json"
    )

    assert shown.exit_code == 0, shown.output
    acts = {a["key"]: a["to"] for job in json.loads(shown.stdout)["jobs"] for a in job["acts"]}
    assert acts["s0/switch-firmware"] == "88.0002.1958"
    assert "s0/nvos" not in acts  # it runs
    assert acts["p0/pmc-backup"] == "3.2.4"
    assert not [key for key in acts if key.startswith("t0/h")]  # no kind that the file names
    assert plan(tmp_path, {"targets": targets, "units": units}, *release).exit_code == 0
    wrong = plan(tmp_path, {"targets": targets, "units": units}, "--release", "dgx-gb300-9")
    assert "no such release" in str(wrong.exception or wrong.output)
    alone = plan(tmp_path, {"targets": targets, "units": units}, "--profile", DELTA)
    assert isinstance(alone.exception, InputError)


def test_a_rack_is_updated_to_what_a_release_pins(tmp_path: Path) -> None:
    targets = {"nvlink-switch": {}, "power-shelf": {}}
    rig = Rig(tmp_path, targets=targets, trays=1, switches=1, shelves=1)
    # the simulated package holds another BIOS beside the pinned one
    bios = rig.packages["nvlink-switch"]["switch-firmware"]["versions"]["BIOS"]
    bios.append("0ACTV_00.01.020")
    filled, _ = fill_targets(rig.campaign(), MATRIX, GB300, [DELTA])
    rig.targets = {kind.value: dict(listed) for kind, listed in filled.targets.items()}

    finish(rig)

    shown = rig.switch("s0")
    assert (shown.active["BMC"], shown.images[shown.current]) == ("88.0002.1958", "nvos-25.02.4317")
    assert set(rig.shelf("p0").flash.values()) == {"3.2.4"}
    assert set(rig.shelf("p0").supplies.values()) == {"0104"}
    assert not rig.tray("t0").flashed


def test_the_command_drafts_a_file_and_keeps_one_that_is_there(tmp_path: Path) -> None:
    out = tmp_path / "c.yaml"
    words = ["targets", GB300, "--profile", DELTA, "--out", str(out)]
    assert CliRunner().invoke(rack_commands.app, words).exit_code == 0
    assert yaml.safe_load(out.read_text())["targets"]["power-shelf"] == {
        "pmc": "3.2.4",
        "psu": "0104",
    }
    again = CliRunner().invoke(rack_commands.app, words)
    assert isinstance(again.exception, InputError)
    open_one = CliRunner().invoke(rack_commands.app, ["targets", "dgx-gb200-1.3.6"])
    assert open_one.exit_code == 1
    assert "# open: nvlink-switch: nvos: nvswitch.os is unknown" in open_one.output

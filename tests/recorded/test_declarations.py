"""Declarations of kinds and vendors hold together, and their documentation is whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from provisioner import components, quirks
from provisioner.components import Item, classify
from provisioner.model import versions

FLAGS = (Path(quirks.__file__).parent / "README.md").read_text()
METHODS = {
    "redfish_push",
    "bluefield_bfb",
    "playbook_host_software",
    "playbook_nic_firmware",
    "playbook_nic_config",
    "playbook_drive_firmware",
    "playbook_host_baseline",
    "playbook_check_tools",
    "redfish_bios_settings",
    "redfish_bmc_settings",
    "redfish_card_settings",
    "nvue_image",
    "switch_settings",
    "deploy_image",
    "with_bundle",
    "none",
}


@pytest.mark.parametrize("flag", quirks.Quirk.model_fields)
def test_every_quirk_flag_is_documented_once(flag: str) -> None:
    assert len(re.findall(rf"^\|[^|]*`{flag}`", FLAGS, re.MULTILINE)) == 1


def test_every_vendor_is_under_its_own_name() -> None:
    assert {name: q.name for name, q in quirks.ALL.items()} == {n: n for n in quirks.ALL}


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ({"Vendor": "Dell"}, "dell_idrac"),
        ({"Vendor": "HPE", "Oem": {"Hpe": {}}}, "hpe_ilo"),
        ({"Vendor": "Lenovo"}, "lenovo_xcc"),
        ({"Oem": {"Supermicro": {}}}, "supermicro"),
        ({"Vendor": "AMI", "Product": "AMI Redfish Server"}, "ami_megarac"),
        ({"Vendor": "Nvidia", "Product": "Nvidia-BMCMezz"}, "nvidia_openbmc"),
        ({"Vendor": "NVIDIA", "Product": "GB200 NVL"}, "nvidia_openbmc"),
        ({"Product": "GB300 NVL"}, "nvidia_openbmc"),
        ({"Vendor": "Contoso", "Oem": {"Contoso": {}}}, "unknown"),
        ({"Vendor": None, "Product": 7, "Oem": []}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_a_vendor_is_known_by_its_service_root(root: dict[str, object], name: str) -> None:
    assert quirks.identify(root).name == name


@pytest.mark.parametrize("kind", components.ALL.values(), ids=components.ALL)
def test_a_component_kind_has_a_known_grammar_and_method(kind: components.ComponentKind) -> None:
    assert kind.grammar in versions.GRAMMARS
    assert kind.method in METHODS
    assert kind.duration_s > 0
    assert all(r.id or r.name or r.software_id or r.related for r in kind.rules)


@pytest.mark.parametrize(
    ("item", "kind", "slot"),
    [
        (Item(id="HGX_FW_GPU_SXM_3"), "hgx.gpu", "GPU_SXM_3"),
        (Item(id="HGX_FW_GPU_2"), "hgx.gpu", "GPU_2"),
        (Item(id="HGX_FW_ERoT_GPU_SXM_3"), "hgx.erot", "GPU_SXM_3"),
        (Item(id="HGX_PCIeSwitchConfig_0"), "hgx.pcieswitch", "PCIeSwitchConfig_0"),
        (Item(id="HGX_Driver_GPU_SXM_1", software=True), "hgx.driver", "GPU_SXM_1"),
        (Item(id="HGX_Driver_GPU_SXM_1"), "unclassified", "HGX_Driver_GPU_SXM_1"),
        (Item(id="6d53cf4d_BMC_Firmware", dpu=True), "bluefield.bmc", "DPU_1"),
        (Item(id="Bluefield_FW_BMC_0", dpu=True), "bluefield4.firmware", "DPU_1:FW_BMC_0"),
        (
            Item(id="BlueField_OS_Image_CPU_0", dpu=True),
            "bluefield4.firmware",
            "DPU_1:OS_Image_CPU_0",
        ),
        (Item(id="Bluefield_FW_ERoT", dpu=True), "bluefield.erot", "DPU_1"),
        (Item(id="BMC_Firmware"), "host.bmc", "BMC_Firmware"),
        (Item(id="NIC_0", version="32.41.1300"), "bluefield.nic", "NIC_0"),
        (Item(id="NIC_0", version="28.39.1002"), "nic.cx7", "NIC_0"),
        (Item(id="NIC_0", version="1.2"), "nic.other", "NIC_0"),
        (Item(id="CX8_0", version="40.46.1006"), "nic.cx8", "CX8_0"),
        (Item(id="NIC_3", version="40.47.1026"), "nic.cx8", "NIC_3"),
        (Item(id="7", name="NVIDIA ConnectX-8 SuperNIC"), "nic.cx8", "7"),
        # Supermicro SYS-821GE-TNHR (NVIDIA/libredfish, tests/mockups/supermicro)
        (
            Item(
                id="Capsule_BIOS",
                name="Capsule BIOS",
                version="1.0",
                related="/redfish/v1/Systems/1/Bios",
            ),
            "host.me",
            "Capsule_BIOS",
        ),
        (Item(id="Capsule_MCU", related="/redfish/v1/Systems/1/Bios"), "host.me", "Capsule_MCU"),
        (Item(id="BIOS", name="BIOS", related="/redfish/v1/Systems/1/Bios"), "host.bios", "BIOS"),
        (Item(id="1", name="iLO 5"), "host.bmc", "1"),
        (Item(id="8", name="Redundant System ROM"), "copy.backup", "8"),
        (Item(id="Golden_BIOS"), "copy.golden", "Golden_BIOS"),
        (Item(id="golden_image_nic", dpu=True), "bluefield.golden", "DPU_1:nic"),
        (Item(id="Slot_9{0}"), "unclassified", "Slot_9{0}"),
    ],
)
def test_an_item_is_recognised_by_what_it_is(item: Item, kind: str, slot: str) -> None:
    assert classify(item, "DPU_1")[:2] == (kind, slot)

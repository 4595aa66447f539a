"""What a host's commands say of its components: good, garbled and hostile outputs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.cohort import Evidence
from provisioner.model.inventory import Activation, Component, DeviceKind
from provisioner.model.node import BmcRef
from provisioner.model.outcome import Reason
from provisioner.planning.intake.inband_facts import COMMANDS, InbandFacts, read

CARDS = (
    BmcRef(name="DPU_0", url="https://a", kind="dpu", base_mac="5c:25:73:00:00:01"),
    BmcRef(name="NIC_0", url="https://b", kind="supernic", pci="0000:18:00.0"),
)
PROFILES = {
    "roce": {"LINK_TYPE_P1": "2", "SRIOV_EN": "1"},
    "small": {"LINK_TYPE_P1": "2"},
    "empty": {},
}
GPU = "{n}, GPU-{n}, 16{n}, NVIDIA H100, 00000000:{n}8:00.0, 96.00.74.00.01, {driver}\n"
PACKAGES = """\
nvidia-fabricmanager-535 535.154.05-1 ii
doca-host 2.10.0-093000-25.01-ubuntu2204 ii
doca-spcx-cc 2.10.0 ii
nvidia-fabricmanager-dev-535 535.161.07-1 ii
nvidia-fabricmanager-550 550.54.14-1 un
"""


def device(pci: str, mac: str, versions: str, kind: str = "BlueField3") -> str:
    return (
        f'<Device pciName="{pci}" type="{kind}" psid="MT_1" partNumber="900-9D3B6">'
        f'<Versions>{versions}</Versions><MACs Base_Mac="{mac}"/></Device>'
    )


DPU = device("0000:06:00.0", "5c2573000001", '<FW current="32.44.1036"/><PXE current="3.7"/>')
WAITS = '<FW current="32.44.1036"/><FW_Running current="32.43.1014"/>'
NIC = device("0000:18:00.0", "N/A", WAITS)
LOCKED = device("0000:18:00.0", "N/A", '<FW current="--"/>')
CX7 = device("0000:2A:00.0", "a088c2000001", '<FW current="28.43.1014"/>', "ConnectX7")


def config(pci: str = "18:00.0", current: str = "IB(1)", following: str = "ETH(2)") -> str:
    table = {
        "LINK_TYPE_P1": {"current_value": current, "next_value": following},
        "SRIOV_EN": {"current_value": "True(1)", "next_value": "True(1)"},
    }
    return "queried\n" + json.dumps({"Device #1": {"device": pci, "tlv_configuration": table}})


GOOD = {
    "boot_id": "3f6c0d6e-0000-4000-8000-000000000001\n",
    "gpus": "".join(GPU.format(n=n, driver="535.154.05") for n in range(8)),
    "packages": PACKAGES,
    "nics": f"tool says\n<Devices>{DPU}{NIC}{CX7}</Devices>\n",
    "nic_config": config(),
}


def answers(exit_code: int | None = 0, **changed: str) -> InbandFacts:
    outputs = {
        name: Evidence(source=command, exit_code=exit_code, text=(GOOD | changed)[name])
        for name, command, _ in COMMANDS
        if name in GOOD | changed
    }
    return read(outputs, CARDS, PROFILES)


def of(answered: InbandFacts, kind: str) -> list[Component]:
    return [c for c in answered.components if c.kind == kind]


def test_good_outputs_give_every_component_and_no_gap():
    facts = answers()

    assert facts.gaps == ()
    assert facts.boot_id == GOOD["boot_id"].strip()
    assert {(c.kind, c.slot, c.version) for c in facts.components} == {
        ("host.driver", "host", "535.154.05"),
        ("host.fabric_manager", "host", "535.154.05"),
        ("host.doca", "host", "2.10.0-093000-25.01-ubuntu2204"),
        ("host.spcx_cc", "host", "2.10.0"),
        ("bluefield.nic", "DPU_0", "32.44.1036"),
        ("supernic.nic", "NIC_0", "32.43.1014"),
        ("nic.cx7", "0000:2a:00.0", "28.43.1014"),
        ("nic.config", "NIC_0", "none"),
    }


def test_a_connectx_8_is_a_kind_of_its_own():
    card = device("0000:2A:00.0", "a088c2000001", '<FW current="40.46.1006"/>', "ConnectX8")

    (nic,) = of(answers(nics=f"<Devices>{card}</Devices>"), "nic.cx8")

    assert (nic.slot, nic.version) == ("0000:2a:00.0", "40.46.1006")


def test_firmware_that_is_burned_and_does_not_run_waits_for_a_cold_boot():
    (nic,) = of(answers(), "supernic.nic")

    assert (nic.version, nic.staged, nic.pending) == (
        "32.43.1014",
        "32.44.1036",
        Activation.COLD_BOOT,
    )


def test_a_card_is_known_by_its_mac_or_by_its_place():
    devices = {d.slot: d for d in answers().devices}

    assert devices["DPU_0"].kind is DeviceKind.DPU
    assert devices["DPU_0"].mac == "5c:25:73:00:00:01"
    assert (devices["NIC_0"].kind, devices["NIC_0"].mac) == (DeviceKind.NIC, None)
    assert set(devices) == {"DPU_0", "NIC_0", "0000:2a:00.0"}


@pytest.mark.parametrize(
    ("current", "following", "version", "staged"),
    [
        ("IB(1)", "IB(1)", "none", None),
        ("IB(1)", "ETH(2)", "none", "roce"),
        ("ETH(2)", "ETH(2)", "roce", None),
        ("ETH(2)", "IB(1)", "roce", "none"),
        ("2", "2", "roce", None),
        ("ETH(22)", "ETH(22)", "none", None),
    ],
)
def test_a_profile_is_in_force_when_each_of_its_parameters_is(
    current: str, following: str, version: str, staged: str | None
):
    (found,) = of(answers(nic_config=config(current=current, following=following)), "nic.config")

    assert (found.version, found.staged) == (version, staged)


# sentence: (command, its output, the component that must not be told, reason of the gap)
GARBLED: dict[str, tuple[str, str, str, Reason]] = {
    "no boot id": ("boot_id", "\n", "", Reason.MALFORMED),
    "a boot id that is none": ("boot_id", "../../etc/passwd", "", Reason.MALFORMED),
    "no GPU answers": ("gpus", "No devices were found\n", "host.driver", Reason.MALFORMED),
    "GPUs disagree about the driver": (
        "gpus",
        GPU.format(n=0, driver="535.154.05") + GPU.format(n=1, driver="550.54.14"),
        "host.driver",
        Reason.MALFORMED,
    ),
    "a driver that is an error": (
        "gpus",
        GPU.format(n=0, driver="[Unknown Error]"),
        "host.driver",
        Reason.MALFORMED,
    ),
    "a row without end": ("gpus", '"' + "x" * 300_000, "host.driver", Reason.MALFORMED),
    "a package that is not there": (
        "packages",
        PACKAGES.replace("doca-host", "doca-hose"),
        "host.doca",
        Reason.VERSION_MISSING,
    ),
    "a package that was removed": (
        "packages",
        PACKAGES.replace("ubuntu2204 ii", "ubuntu2204 rc"),
        "host.doca",
        Reason.VERSION_MISSING,
    ),
    "a package in two versions": (
        "packages",
        PACKAGES.replace("550.54.14-1 un", "550.54.14-1 ii"),
        "host.fabric_manager",
        Reason.DUPLICATE,
    ),
    "no package manager": ("packages", "sh: not found", "host.doca", Reason.VERSION_MISSING),
    "no XML": ("nics", "-E- no device\n", "supernic.nic", Reason.MALFORMED),
    "XML that is cut off": ("nics", GOOD["nics"][:200], "supernic.nic", Reason.MALFORMED),
    "XML that is broken": ("nics", "<Devices><Device></Devices>", "supernic.nic", Reason.MALFORMED),
    "a bomb of entities": (
        "nics",
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><Devices>&b;</Devices>',
        "supernic.nic",
        Reason.MALFORMED,
    ),
    "a locked card": (
        "nics",
        f"<Devices>{LOCKED}</Devices>",
        "supernic.nic",
        Reason.VERSION_MISSING,
    ),
    "a device without a place": (
        "nics",
        f"<Devices>{device('', '', WAITS)}</Devices>",
        "supernic.nic",
        Reason.MALFORMED,
    ),
    "no JSON": ("nic_config", "-E- failed\n", "nic.config", Reason.MALFORMED),
    "JSON that is cut off": ("nic_config", config()[:60], "nic.config", Reason.MALFORMED),
    "JSON that is deep": ("nic_config", '{"a":' * 100_000, "nic.config", Reason.MALFORMED),
    "a number without end": ("nic_config", '{"a": ' + "9" * 10_000, "nic.config", Reason.MALFORMED),
    "JSON of another card": ("nic_config", config("99:00.0"), "nic.config", Reason.VERSION_MISSING),
    "JSON of something else": ("nic_config", '{"a": [1]}', "nic.config", Reason.VERSION_MISSING),
}  # fmt: skip


@pytest.mark.parametrize("sentence", GARBLED)
def test_what_cannot_be_read_is_a_gap_and_never_a_version(sentence: str):
    command, output, kind, reason = GARBLED[sentence]

    facts = answers(**{command: output})

    sources = {name: source for name, source, _ in COMMANDS}
    assert (sources[command], reason) in {(g.source, g.reason) for g in facts.gaps}
    assert [c for c in of(facts, kind) if c.version is not None] == []
    assert all(len(g.detail) < 1000 for g in facts.gaps)
    if command == "boot_id":
        assert facts.boot_id is None


def test_two_devices_in_one_place_are_told_and_counted_once():
    facts = answers(nics=f"<Devices>{NIC}{NIC}</Devices>")

    assert [g.reason for g in facts.gaps] == [Reason.DUPLICATE]
    assert len(of(facts, "supernic.nic")) == 1


@pytest.mark.parametrize("exit_code", [1, None])
def test_a_command_that_failed_or_did_not_end_gives_no_driver(exit_code: int | None):
    facts = answers(exit_code)

    assert facts.boot_id is None
    assert of(facts, "host.driver") == []


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), st.text(max_size=200), min_size=1))
def test_any_text_is_read_to_an_end(changed: dict[str, str]):
    facts = answers(**changed)

    keys = [(c.kind, c.slot) for c in facts.components]
    assert len(keys) == len(set(keys))


@given(st.sampled_from(sorted(GOOD)), st.integers(0, 2000), st.text(max_size=5))
def test_a_good_output_that_is_damaged_anywhere_is_read_to_an_end(name: str, at: int, put: str):
    text = GOOD[name]
    at %= len(text)

    facts = answers(**{name: text[:at] + put + text[at + 1 :]})

    assert all(c.slot for c in facts.components)


def test_what_a_site_adds_to_a_host_is_read_with_its_package_and_missed_by_nobody():
    more = "libnccl2 2.29.2-1+cuda13.0 ii \nbeegfs-client 7.4.6 ii \nlibnccl2-dev 2.1 ii \n"

    found = answers(packages=PACKAGES + more)
    plain = answers()

    versions = {c.kind: c.version for c in found.components}
    assert versions["host.nccl"] == "2.29.2-1+cuda13.0"
    assert versions["host.storage_client"] == "beegfs-client=7.4.6"
    assert found.gaps == plain.gaps


@pytest.mark.parametrize(
    ("listing", "kind", "version"),
    [
        ("nvidia-driver-570-server-open 570.1-0ubuntu1 hi \n", "host.driver_packages",
         "ubuntu-server-open"),
        ("nvidia-driver-535-server 535.1-0ubuntu1 ii \n", "host.driver_packages", "ubuntu-server"),
        ("nvidia-driver 535.1-1 ii \nnvidia-kernel-dkms 535.1-1 ii \n", "host.driver_packages",
         "debian"),
        ("doca-ofed 2.10.0-0.5.3 ii \ndoca-roce 2.10.0-0.5.3 ii \n", "host.doca_ofed",
         "doca-ofed=2.10.0-0.5.3"),
        ("MLNX_OFED_LINUX-23.10-0.5.5.0:\n", "host.doca", "MLNX_OFED_LINUX-23.10-0.5.5.0"),
        ("libnccl2 2.29.2-1+cuda13.0 hi \n", "host.nccl", "2.29.2-1+cuda13.0"),
        (("linux-image-6.8.0-57-generic 6.8.0-57.59 hi \nlinux-image-6.8.0-60-generic 6.8.0-60.63"
         " ii \nrunning-kernel 6.8.0-57-generic ii\n"), "host.kernel",
         "6.8.0-57-generic=6.8.0-57.59"),
        (("linux-image-unsigned-6.8.0-57-generic 6.8.0-57.59 ii \n"
         "running-kernel 6.8.0-57-generic ii\n"), "host.kernel", "6.8.0-57-generic=6.8.0-57.59"),
        ("linux-image-6.8.0-57-generic 6.8.0-57.59 rc \nrunning-kernel 6.12.0-own ii\n",
         "host.kernel", "6.12.0-own"),
    ],
)  # fmt: skip
def test_flavour_profile_and_holds_are_read_from_the_packages(
    listing: str, kind: str, version: str
):
    facts = answers(packages=listing)

    assert [c.version for c in facts.components if c.kind == kind] == [version]


def test_a_doca_profile_of_another_release_than_its_repository_is_a_gap():
    facts = answers(packages=PACKAGES + "doca-ofed 2.9.0-0.4.7 ii \n")

    assert "of two releases" in str(facts.gaps)

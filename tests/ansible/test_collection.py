"""Our own collection: what its parsers make of tools' outputs, and that it builds and installs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import role_readme
from role_lab import ANSIBLE

from provisioner.model.host_packages import classify_package

sys.path.insert(0, str(ANSIBLE / "collections"))

from ansible_collections.provisioner.fleet.plugins.module_utils import (
    debian,
    dms,
    driver_scheme,
    flint,
    kernel,
    nvconfig,
    rshim,
    tools,
)

FLEET = ANSIBLE / "collections" / "ansible_collections" / "provisioner" / "fleet"
ROOT = Path(__file__).parents[2]
SAMPLES = Path(os.environ.get("PROVISIONER_SAMPLES", ROOT.parent / "shared" / "samples"))
QUERY = """\
Image type:            FS4
FW Version:            {flash}
{running}FW Release Date:       16.2.2025
Product Version:       {flash}
Rom Info:              type=UEFI version=14.37.14 cpu=AMD64,AARCH64
PSID:                  MT_0000001010
Security Attributes:   secure-fw
"""


def test_flint_names_the_running_version_only_where_it_is_another():
    same = flint.parse_firmware(QUERY.format(flash="32.44.1036", running=""), "x")
    burned = QUERY.format(flash="32.44.1036", running="FW Version(Running):   32.43.1014\n")

    assert same == {"burned": "32.44.1036", "running": "32.44.1036", "psid": "MT_0000001010"}
    assert flint.parse_firmware(burned, "x")["running"] == "32.43.1014"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-E- Cannot open Device",
        "FW Version: N/A\nPSID: MT_1\n",
        "FW Version: 1.2.3\n",
        "\x00" * 9,
    ],
)
def test_flint_without_a_version_or_psid_is_never_believed(text: str):
    with pytest.raises(tools.Unreadable):
        flint.parse_firmware(text, "x")


def config(**values: object) -> str:
    table = {
        name: {"current_value": value, "next_value": value, "read_only": False}
        for name, value in values.items()
    }
    return json.dumps({"Device #1": {"device_type": "BlueField3", "tlv_configuration": table}})


def test_a_configuration_is_compared_by_number_whatever_the_spelling():
    table = nvconfig.parse_config(config(A="True(1)", B="ETH(2)", C=16, D="0x1"), "x")["table"]

    assert {name: entry["next"] for name, entry in table.items()} == {
        "A": "1",
        "B": "2",
        "C": "16",
        "D": "1",
    }
    assert nvconfig.find_differences(table, {"A": "1", "B": "1", "D": "0x1"}, "x") == {"B": "1"}


def test_a_parameter_that_is_not_there_or_cannot_be_written_is_refused():
    table = nvconfig.parse_config(config(A=1), "x")["table"]
    table["A"]["read_only"] = True

    with pytest.raises(tools.Refused, match="has no parameter B"):
        nvconfig.find_differences(table, {"B": "1"}, "x")
    with pytest.raises(tools.Refused, match="cannot be written"):
        nvconfig.find_differences(table, {"A": "2"}, "x")


@pytest.mark.parametrize(
    "text", ["", "-E- failed", "[]", '{"Device #1": {}}', '{"a":' * 50_000, config(A=1)[:-9]]
)
def test_mlxconfig_that_is_no_configuration_is_never_believed(text: str):
    with pytest.raises(tools.Unreadable):
        nvconfig.parse_config(text, "x")


@pytest.mark.parametrize(
    ("name", "value"), [("A=B", "1"), ("-y", "1"), ("AB", "1 B=2"), ("ab", "1")]
)
def test_a_parameter_that_the_tool_could_read_as_something_else_is_refused(name: str, value: str):
    with pytest.raises(tools.Refused):
        nvconfig.require_parameters({name: value})


@pytest.mark.parametrize("name", ["mlxconfig_json_basic.json", "mlxconfig_json_arrays.json"])
def test_a_recorded_configuration_is_read_whole(name: str):
    file = SAMPLES / "mlx" / name
    if not file.is_file():
        pytest.skip("no samples here: set PROVISIONER_SAMPLES")
    recorded = json.loads(file.read_text())["Device #1"]["tlv_configuration"]

    assert nvconfig.parse_config(file.read_text(), "x")["table"].keys() == recorded.keys()


@pytest.mark.parametrize(
    ("version", "pin", "fits"),
    [
        ("550.90.07-0ubuntu1", "550.90.07", True),
        ("1:4.2.3-2", "4.2.3", True),
        ("2.29.2-1+cuda13.0", "2.29.2-1+cuda13.0", True),
        ("2.10.0-0.5.3", "2.10.0-0.5.3", True),
        ("550.90.070-1", "550.90.07", False),
        ("2.10.01", "2.10.0", False),
    ],
)
def test_a_pin_stands_for_its_upstream_version_and_no_other(version: str, pin: str, *, fits: bool):
    assert debian.satisfies_pin(version, pin) is fits


def test_what_apt_would_do_is_read_from_its_simulation():
    told = (
        "NOTE: This is only a simulation!\nRemv nvidia-driver-535-server [535.129.03-0ubuntu1]\n"
        "Inst nvidia-driver-550-server (550.90.07-0ubuntu1 mirror [all])\n"
        "Inst libnccl2 [2.21.5-1+cuda12.4] (2.29.2-1+cuda13.0 mirror [all])\n"
        "Conf libnccl2 (2.29.2-1+cuda13.0 mirror [all])\n"
    )

    install, remove = debian.parse_simulation(told)

    assert install == {
        "nvidia-driver-550-server": "550.90.07-0ubuntu1",
        "libnccl2": "2.29.2-1+cuda13.0",
    }
    assert remove == {"nvidia-driver-535-server": "535.129.03-0ubuntu1"}


@pytest.mark.parametrize(
    ("names", "packaging"),
    [
        (["nvidia-driver-535-server", "nvidia-dkms-535-server"], "ubuntu-server"),
        (["nvidia-driver-570-server-open"], "ubuntu-server-open"),
        (["nvidia-headless-535-server", "nvidia-utils-535-server"], "ubuntu-headless-server"),
        (["cuda-drivers-550", "nvidia-driver-550"], "nvidia"),
        (["nvidia-open", "nvidia-driver-open"], "nvidia-open"),
        (["nvidia-driver", "nvidia-kernel-dkms"], "debian"),
        (["nvidia-container-toolkit", "nvidia-driver-assistant"], ""),
    ],
)
def test_the_packaging_of_a_driver_is_named_by_its_packages(names: list[str], packaging: str):
    installed = dict.fromkeys(names, "550.1-1")

    assert driver_scheme.find_installed(installed)[0] == packaging
    assert set(driver_scheme.list_others(installed, [])) <= set(names)


def test_names_of_nvidias_packages_have_no_branch_from_590_on():
    assert driver_scheme.list_names("nvidia-open", "580.65.06") == ["nvidia-open-580"]
    assert driver_scheme.list_names("nvidia-open", "590.48.01") == ["nvidia-open"]
    # its dependency nvidia-driver-550 has a name of Ubuntu's, and is left to apt
    present = {"cuda-drivers-550": "550.54.15-1", "nvidia-driver-550": "550.54.15-1"}
    assert driver_scheme.list_others(present, ["cuda-drivers-570"]) == ["cuda-drivers-550"]
    with pytest.raises(tools.Refused, match=r"pin host\.driver_packages"):
        driver_scheme.choose("", "550.90.07", {})


@pytest.mark.parametrize(
    ("packaging", "version", "name"),
    [
        ("ubuntu-server", "535.161.08", "nvidia-fabricmanager-535"),
        ("ubuntu-server-open", "580.126.20", "nvidia-fabricmanager-580"),
        ("ubuntu-headless-server-open", "595.71.05", "nvidia-fabricmanager-595"),
        ("nvidia", "575.57.08", "nvidia-fabricmanager-575"),
        ("nvidia-open", "580.65.06", "nvidia-fabricmanager"),
        ("nvidia", "590.48.01", "nvidia-fabricmanager"),
        ("debian-open", "570.211.01", "nvidia-fabricmanager-570"),  # the repository is NVIDIA's
        ("debian", "610.57.04", "nvidia-fabricmanager"),
    ],
)
def test_fabric_manager_is_named_by_branch_and_provider(packaging: str, version: str, name: str):
    assert driver_scheme.name_fabric_manager(packaging, version) == name
    # each of its names is replaced by each other one, and is a Fabric Manager to the inventory
    assert any(fnmatch(name, glob) for glob in driver_scheme.FABRIC_MANAGERS)
    assert classify_package(name, version) == ("host.fabric_manager", version)
    with pytest.raises(tools.Refused, match="no branch"):
        driver_scheme.name_fabric_manager(packaging, "latest")


def test_only_packages_of_the_replaced_branch_belong_to_it():
    replaced = ["nvidia-driver-535-server"]
    of_branch = [
        name
        for name in (
            "libnvidia-compute-535-server",
            "linux-modules-nvidia-535-server-generic",
            "nvidia-firmware-535-server-535.261.03",
            "nvidia-container-toolkit",
            "nvidia-system-core",
            "libnvidia-compute-550-server",
            "site-535-agent",
        )
        if debian.is_of_branch(name, replaced)
    ]

    assert of_branch == [
        "libnvidia-compute-535-server",
        "linux-modules-nvidia-535-server-generic",
        "nvidia-firmware-535-server-535.261.03",
    ]


def test_a_package_on_hold_is_installed_and_an_unfinished_one_is_not():
    states = "a 1 ii \nb 2 hi \nc 3 iF \nd 4 rc \ne 5 iU \n"

    assert debian.parse_installed(states) == {"a": "1", "b": "2"}
    assert debian.parse_held(states) == ["b"]
    assert debian.parse_unfinished(states) == {"c": "half-configured", "e": "unpacked"}


@pytest.mark.parametrize(
    ("default", "chosen"),
    [
        ("", "5.15.0-101-generic"),
        ("0", "5.15.0-101-generic"),
        ("Advanced options for Ubuntu>Ubuntu, with Linux 5.15.0-91-generic", "5.15.0-91-generic"),
    ],
)
def test_the_next_kernel_is_grubs_choice(default: str, chosen: str):
    kernels = ["5.15.0-101-generic", "5.15.0-91-generic"]

    assert kernel.choose_kernel(kernels, default, "6.1.0-1") == chosen
    assert kernel.choose_kernel([], default, "6.1.0-1") == "6.1.0-1"
    with pytest.raises(tools.Refused, match="names no kernel"):
        kernel.choose_kernel(kernels, "1>3", "6.1.0-1")


def test_grubs_settings_and_the_keys_of_the_kernel_are_read_from_files(tmp_path: Path):
    (tmp_path / "boot").mkdir()
    (tmp_path / "etc" / "default" / "grub.d").mkdir(parents=True)
    for name in ("5.15.0-91-generic", "5.15.0-101-generic"):
        (tmp_path / "boot" / f"vmlinuz-{name}").touch()
    (tmp_path / "etc" / "default" / "grub").write_text("GRUB_DEFAULT=0\n#GRUB_DEFAULT=saved\n")
    newest = kernel.read_next_kernel(str(tmp_path))
    pinned = tmp_path / "etc" / "default" / "grub.d" / "60-kernel.cfg"
    pinned.write_text('GRUB_DEFAULT="gnulinux-5.15.0-91-generic-advanced"\n')
    (tmp_path / "secure").write_bytes(b"\x06\x00\x00\x00\x01")
    keys = (
        "0a1 I------ 1 perm 1f030000 0 0 asymmetri Canonical Ltd. Kernel Module Signing:"
        " 88f752e560a1e0737e31163a466ad7b70a850c19: X509.rsa 0a850c19 []\n0b2 I--Q 1 keyring"
    )

    assert newest == "5.15.0-101-generic"
    assert kernel.read_next_kernel(str(tmp_path)) == "5.15.0-91-generic"
    assert kernel.is_secure_boot_on(str(tmp_path / "secure"))
    assert not kernel.is_secure_boot_on(str(tmp_path / "none"))
    assert kernel.parse_keys(keys) == {
        "Canonical Ltd. Kernel Module Signing": {"88f752e560a1e0737e31163a466ad7b70a850c19"}
    }


def test_an_rshim_device_is_its_cards_and_its_log_is_printable(tmp_path: Path):
    for number, address in enumerate(("0000:1a:00.2", "0000:3c:00.2")):
        folder = tmp_path / f"rshim{number}"
        folder.mkdir()
        log = " INFO[MISC]: Linux up\n ERR[MISC]: a\x1b[2J\x07b\n"
        (folder / "misc").write_text(f"{'#' * 16}DISPLAY_LEVEL 2\nDEV_NAME pcie-{address}\n{log}")

    assert rshim.find_device("0000:3c:00.0", str(tmp_path)) == "rshim1"
    assert rshim.parse_log(rshim.read_misc("rshim0", str(tmp_path)))[1] == ("ERR", "a b")
    with pytest.raises(tools.Refused, match="no rshim devices belong to"):
        rshim.find_device("0000:9d:00.0", str(tmp_path))


STARTED = " INFO[PSC]: PSC BL1 START\n INFO[MISC]: Ubuntu installation started\n"
# what the levels look like: Mellanox/rshim-user-space, src/rshim_log.c; Mellanox/bfb-build,
# common/install.env; the ends: scripts/bfb-install, wait_for_update_to_finish
FAILURES = {
    " ERR[MISC]: Failed to access BMC": "Failed to access BMC",
    " ASSERT[BL2]: DDR training failed": "ASSERT: DDR training failed",
    " PANIC(BL31): PC = 0x1234": "PANIC: PC = 0x1234",
    " Exception(BL31): syndrome = 0xbf000000(SError)": "Exception: syndrome = 0xbf000000(SError)",
    " CRIT[UEFI]: a level of a later version": "CRIT: a level of a later version",
    " INFO[MISC]: CRITICAL ERROR": "CRITICAL ERROR",
    "Error: Command failed: [cat misc]": "Error: Command failed: [cat misc]",
    "ERROR: Failed to activate LFWP": "ERROR: Failed to activate LFWP",
    "Transfer/Verify failed": "Transfer/Verify failed",
    "512KiB 0:00:01\r1.4GiB 0:02:21\r ERR[BL2]: eMMC timeout": "eMMC timeout",
    " INFO[MISC]: NIC firmware update failed": "NIC firmware update failed",
    " INFO[MISC]: DPU Golden Image installed failed": "DPU Golden Image installed failed",
    " INFO[MISC]: Failed to create BFB: config.bfb": "Failed to create BFB: config.bfb",
    " WARN[MISC]: BMC update FAILED": "BMC update FAILED",
    "BlueField Update Failed": "BlueField Update Failed",
    " INFO[MISC]: Error: cannot flash BMC": "Error: cannot flash BMC",
    " INFO[MISC]: Timeout waiting for BMC": "Timeout waiting for BMC",
    " INFO[MISC]: Unable to update CEC": "Unable to update CEC",
    " INFO[MISC]: Installation aborted": "Installation aborted",
    " INFO[MISC]: No space left on device": "No space left on device",
    " INFO[MISC]: mlxfwmanager: command not found": "mlxfwmanager: command not found",
    " INFO[BL2]: Authentication error: image": "Authentication error: image",
    " err[MISC]: in small letters": "in small letters",
    "[12:00:01] ERR[MISC]: behind a time": "behind a time",
    "\x1b[31m ERR[MISC]: in red\x1b[0m": "in red",
    " ERR[ATF.MISC]: of a part": "of a part",
}


@pytest.mark.parametrize(("line", "error"), FAILURES.items())
def test_every_level_of_a_cards_log_that_is_not_harmless_is_an_error(line: str, error: str):
    output = f"Pushing bfb\n{STARTED}{line}\n INFO[MISC]: Linux up\n INFO[MISC]: DPU is ready\n"

    assert rshim.list_errors(output) == [error]


@pytest.mark.parametrize(
    ("end", "done"),
    [
        (" INFO[MISC]: Installation finished", True),
        (" INFO[MISC]: Rebooting...", True),
        (" INFO[MISC]: DPU is ready", True),
        (" INFO[MISC]: Linux up", True),
        (" INFO[MISC]: In Enhanced NIC mode", True),
        (" INFO[MISC]: Runtime upgrade finished", True),
        (" INFO[MISC]: Updating NIC firmware...", False),
        (" INFO[MISC]: 0 failures, no errors\n INFO[MISC]: Linux up", True),
        (" INFO[MISC]: done without any errors", False),
        (" INFO[BL31]: PTMERROR: Unknown OPN\n INFO[MISC]: Linux up", True),
        (" WARN[MISC]: NIC Firmware files were not found\n INFO[MISC]: Linux up", True),
        (" ERR[MISC]: NIC Firmware reset failed. Host power cycle\n INFO[MISC]: Linux up", True),
        (" INFO[MISC]: NIC Firmware reset failed\r INFO[MISC]: Linux up", True),
        (" WARN[MISC]: Rebooting...", False),
        ("Linux up", False),
        ("", False),
    ],
)
def test_an_installation_has_ended_by_a_message_of_the_card_alone(end: str, *, done: bool):
    output = f"Pushing bfb\n{STARTED}{end}\n"

    assert rshim.list_errors(output) == []
    assert rshim.has_ended(output) is done


def test_dmsc_tells_one_value_a_path_in_either_spelling():
    # shape of a recorded answer: nic-configuration-operator, pkg/dms/client_test.go
    one = {"Path": "/interfaces/interface[name=a]/x/pfc", "values": {"interfaces/x/pfc": "1"}}
    two = {"Path": "interfaces/interface[name=a]/x/gap", "values": {"x/gap": "25"}}
    text = json.dumps([{"source": "dmsc", "updates": [one]}, {"source": "dmsc", "updates": [two]}])

    assert dms.parse_values("warning: plain\n" + text) == {
        "interfaces/interface[name=a]/x/pfc": "1",
        "interfaces/interface[name=a]/x/gap": "25",
    }
    for garbled in (
        "",
        "rpc error",
        "[1]",
        '[{"updates": [{"Path": "a", "values": {}}]}]',
        text[:-5],
    ):
        with pytest.raises(tools.Unreadable):
            dms.parse_values(garbled)


def test_a_setting_of_priorities_stands_for_all_eight():
    plain = dms.expand_paths("/interfaces/interface/nvidia/qos/config/pfc", "enp1s0np0")
    each = dms.expand_paths("/interfaces/interface/nvidia/cc/config/priority/rp_enabled", "a")

    assert plain == ["/interfaces/interface[name=enp1s0np0]/nvidia/qos/config/pfc"]
    assert len(each) == 8
    assert each[3].endswith("/priority[id=3]/rp_enabled")


def test_the_collection_builds_and_installs_without_a_network_and_documents_its_modules(
    tmp_path: Path,
):
    galaxy = str(Path(sys.executable).with_name("ansible-galaxy"))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    environment["ANSIBLE_COLLECTIONS_PATH"] = str(tmp_path / "installed")

    def run(*words: str) -> str:
        done = subprocess.run(
            words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(galaxy, "collection", "build", str(FLEET), "--output-path", str(tmp_path))
    (built,) = tmp_path.glob("provisioner-fleet-*.tar.gz")
    run(galaxy, "collection", "install", "--offline", str(built), "-p", str(tmp_path / "installed"))
    modules = sorted(p.stem for p in (FLEET / "plugins" / "modules").glob("*.py"))
    names = [f"provisioner.fleet.{m}" for m in modules]
    told = json.loads(run(galaxy.replace("ansible-galaxy", "ansible-doc"), "-j", *names))

    assert sorted(told) == names
    for name, facts in told.items():
        assert facts["doc"]["attributes"]["check_mode"]["support"] == "full", name
        assert facts["examples"], name
        assert facts["return"], name
        assert f"`{name.rpartition('.')[2]}`" in (FLEET / "README.md").read_text()


@pytest.mark.parametrize("role", sorted(role_readme.ROLES.iterdir()), ids=lambda r: r.name)
def test_a_roles_readme_is_its_specification(role: Path):
    assert (role / "README.md").read_text() == role_readme.readme(role)
    assert f"`{role.name}`" in (ROOT / "docs" / "ansible.md").read_text()


def test_every_play_ends_with_its_result_and_binds_no_host_to_another():
    forbidden = ("any_errors_fatal", "max_fail_percentage", "serial:", "ignore_errors", ".shell:")
    for file in sorted((ANSIBLE / "playbooks").glob("*.yml")):
        text = file.read_text()
        assert "provisioner_result" in text.rpartition("- name:")[2], file.name
        assert f"play: '`{file.stem}`'" in (ANSIBLE / "plays.yaml").read_text()
    for file in (*ANSIBLE.glob("playbooks/*.yml"), *ANSIBLE.glob("roles/*/tasks/*.yml")):
        assert [w for w in forbidden if w in file.read_text()] == [], file.name

"""What DKMS and modinfo say of the modules of the next kernel: each line is read, or refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from role_lab import ANSIBLE

sys.path.insert(0, str(ANSIBLE / "collections"))

from ansible_collections.provisioner.fleet.plugins.module_utils import kernel, tools
from ansible_collections.provisioner.fleet.plugins.modules import kernel_modules


def test_a_module_of_dkms_is_built_if_its_newest_version_is_for_the_next_kernel():
    # dkms 3.0 of Debian 12 and 2.8 of Ubuntu 22.04
    text = (
        "nvidia/535.129.03, 5.15.0-91-generic, x86_64: installed\n"
        "nvidia/550.90.07, 5.15.0-101-generic, x86_64: installed (original_module exists)\n"
        "vastnfs, 4.0: added\nknem, 1.1, 5.15.0-91-generic, x86_64: installed\n"
        "Deprecated feature: REMAKE_INITRD (/etc/dkms/x.conf)\n"
    )

    rows = kernel.parse_status(text)

    assert kernel.find_unbuilt(rows, "5.15.0-101-generic") == ["knem", "vastnfs"]
    assert kernel.find_unbuilt(rows, "5.15.0-91-generic") == ["nvidia/550.90.07", "vastnfs"]


DIFF = " (WARNING! Diff between built and installed module!)"
GONE = "nvidia/580.95.05: Missing the module source directory or the symbolic link pointing to it."
ROW = "nvidia/580.95.05, 6.8.0-45-generic, x86_64: installed"


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (ROW, "installed"),
        ("nvidia, 580.95.05, 6.8.0-45-generic, x86_64: installed (original_module exists)",
         "installed"),
        (f"{ROW} (Original modules exist)", "installed"),
        (f"{ROW}{DIFF}", "differs"),
        (f"{ROW} (original_module exists){2 * DIFF}", "differs"),
        (f"{ROW} (Differences between built and installed modules)", "differs"),
        (f"{ROW} (WARNING! Missing some built modules!)", "incomplete"),
        (f"{ROW} (Built modules are missing in the kernel modules folder)", "incomplete"),
        (ROW.replace("installed", "installed-weak from 6.8.0-40-generic"), "installed-weak"),
        (ROW.replace("installed", "built"), "built"),
        (f"nvidia/580.95.05: broken\nError! {GONE}\nManual intervention is required!", "broken"),
        # of no known form: a module whose row is passed over is missed by nobody
        (f"{ROW} (a remark of a later version)", None),
        (f"{ROW}Error! Could not locate dkms.conf file.", None),  # both streams in one line
        ("Error! Could not locate dkms.conf file.", None),
        ("Error! gdrdrv/2.4: Missing the module source directory", None),  # of no row
        ("File: /var/lib/dkms/gdrdrv/2.4/source/dkms.conf does not exist.", None),
        ("nvidia/580.95.05, 6.8.0-45-generic, x86_64", None),
        ("nvidia/580.95.05 (6.8.0-45-generic) installed", None),
        ("nvid\x1b[31mia/580", None),
        ('{"nvidia": "580.95.05"}', None),
    ],
)  # fmt: skip
def test_each_line_of_dkms_is_read_or_refused(line: str, state: str | None):
    if state is None:
        with pytest.raises(tools.Unreadable, match="a line of no known form"):
            kernel.parse_status(f"{line}\n")
        return
    ((module, version, _, found),) = kernel.parse_status(f"\n{line}\nWarning: no signing key\n")
    assert (module, version) == ("nvidia", "580.95.05")
    assert found.startswith(state)
    unbuilt = kernel.find_unbuilt([(module, version, "6.8.0-45-generic", found)],
                                  "6.8.0-45-generic")  # fmt: skip
    assert (unbuilt == []) is (found in ("installed", "differs"))


@pytest.mark.parametrize(
    ("loaded", "kept", "refusal"),
    [
        ("A1", {"nvidia.ko": "A1", "nvidia-uvm.ko.zst": "A1"}, ""),  # signed after it was built
        ("A1", {"nvidia.ko": "A1", "nvidia-uvm.ko": "B2"}, "nvidia_uvm for 6.8.0"),
        ("A1", {}, "DKMS keeps no module of nvidia 580"),
    ],
)
def test_what_dkms_calls_different_is_what_it_built_or_refused(
    loaded: str, kept: dict[str, str], refusal: str, tmp_path: Path, monkeypatch
):
    place = tmp_path / "dkms" / "nvidia" / "580" / "6.8.0" / "x86_64" / "module"
    place.mkdir(parents=True)
    for name, digest in kept.items():
        (place / name).write_text(digest)
    tool = tmp_path / "modinfo"
    tool.write_text(f"#!/bin/sh\ncase $1 in -k) echo '{loaded}';; *) cat $3;; esac\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    root = str(tmp_path / "dkms")
    older = [("nvidia", "570", "6.8.0", "differs")]  # nobody loads it any more

    kernel_modules.verify_differing("6.8.0", [("nvidia", "580", "6.8.0", "installed")], root)
    rows = [*older, ("nvidia", "580", "6.8.0", "differs")]
    if not refusal:
        kernel_modules.verify_differing("6.8.0", rows, root)
        return
    with pytest.raises(tools.Refused, match=refusal):
        kernel_modules.verify_differing("6.8.0", rows, root)


def test_a_module_of_an_earlier_version_is_not_the_one_that_dkms_has():
    """An installation whose build failed leaves the earlier module where modprobe finds it."""
    older = "mlnx-ofed-kernel/24.10.OFED.24.10.0.7.0.1, 6.8.0, x86_64: installed\n"
    newer = "mlnx-ofed-kernel/25.04.OFED.25.04.0.6.1.1"
    built = f"{newer}, 6.8.0, x86_64: installed\n"

    for state in (": added", ", 6.8.0, x86_64: built", ", 6.5.0, x86_64: installed"):
        rows = kernel.parse_status(older + newer + state)
        assert kernel.find_unbuilt(rows, "6.8.0") == [newer], state
    assert kernel.find_unbuilt(kernel.parse_status(older + built), "6.8.0") == []
    assert kernel.find_unbuilt(kernel.parse_status(older), "6.8.0") == []


@pytest.mark.parametrize(
    ("loaded", "built", "refusal"),
    [
        ("A1B2", {"mlx5_core.ko.xz": "A1B2"}, ""),
        ("A1B2", {"mlx5_core.ko": "C3D4"}, "is not the one of mlnx-ofed-kernel 25.04"),
        ("", {"mlx5_core.ko": "A1B2"}, "is not the one of mlnx-ofed-kernel 25.04"),
        ("A1B2", {"mlx5_ib.ko": "A1B2"}, "DKMS has no mlx5_core of mlnx-ofed-kernel 25.04"),
        ("A1B2", {}, "DKMS has no mlx5_core of mlnx-ofed-kernel 25.04"),
    ],
)
def test_a_module_that_the_next_kernel_loads_is_the_one_that_dkms_built(
    loaded: str, built: dict[str, str], refusal: str, tmp_path: Path, monkeypatch
):
    """The one before stays in extra/ or updates/ and is found first: its version may be alike."""
    place = tmp_path / "dkms" / "mlnx-ofed-kernel" / "25.04" / "6.8.0" / "x86_64" / "module"
    place.mkdir(parents=True)
    for name, digest in built.items():
        (place / name).write_text(digest)
    tool = tmp_path / "modinfo"
    tool.write_text(f"#!/bin/sh\ncase $1 in -k) echo '{loaded}';; *) cat $3;; esac\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    rows = [("mlnx-ofed-kernel", "24.10", "6.8.0", "installed")]
    rows += [("mlnx-ofed-kernel", "25.04", "6.8.0", "installed")]

    def verify(rows: list[tuple[str, str, str, str]]) -> None:
        root = str(tmp_path / "dkms")
        kernel_modules.verify_build("mlx5_core", "6.8.0", rows, "mlnx-ofed-kernel", root)

    verify([])  # built by nobody here: a package brought it
    if not refusal:
        verify(rows)
        return
    with pytest.raises(tools.Refused, match=refusal):
        verify(rows)


@pytest.mark.parametrize(
    ("printed", "pinned", "refusal"),
    [
        ("580.95.05", {"nvidia": "580.95.05"}, ""),
        ("580.95.05", {}, ""),
        ("580.95.05", {"mlx5_core": "25.04-0.6.1"}, ""),
        ("535.129.03", {"nvidia": "580.95.05"}, "is 535.129.03, not 580.95.05"),
        ("580.95.050", {"nvidia": "580.95.05"}, "is 580.95.050, not 580.95.05"),
        ("", {"nvidia": "580.95.05"}, "is without a version, not 580.95.05"),
        ("580.95.05\n535.129.03", {"nvidia": "580.95.05"}, "is 580.95.05.535.129.03, not"),
        ("modinfo: WARNING: x\n580.95.05", {"nvidia": "580.95.05"}, "not 580.95.05"),
    ],
)
def test_a_module_of_another_version_is_refused_before_the_reboot(
    printed: str, pinned: dict[str, str], refusal: str, tmp_path: Path, monkeypatch
):
    """modinfo(8): -F FIELD prints the field's value alone, and nothing where there is none."""
    tool = tmp_path / "modinfo"
    fields = f"filename) echo /lib/modules/6.8.0/updates/dkms/$5.ko;; version) echo '{printed}';;"
    tool.write_text(f"#!/bin/sh\ncase $4 in {fields} vermagic) echo 6.8.0 SMP;; esac\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    params = {"outside_tree": True, "versions": pinned}

    if not refusal:
        assert kernel_modules.verify("nvidia", "6.8.0", params, None).endswith("nvidia.ko")
        return
    with pytest.raises(tools.Refused, match=refusal):
        kernel_modules.verify("nvidia", "6.8.0", params, None)

"""Variables of operating systems are removed from the firmware's store; its own stay.

Names are those that efivarfs shows of a Linux crash, of `mokutil --import`, and of systemd-boot.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from provisioner_hardware_manager import boot_entries, uefi_variables
from test_hardware_boot_entries import Firmware

STORED, COPY = b"\x07\0\0\0", b"\x06\0\0\0"  # non-volatile or not, boot services, run time
SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
PSTORE = "cfc8fc79-be2e-4ddc-97f0-9f98bfe298a0"
LOADER = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
KEYS = "d719b2cb-3d3a-4596-a3bc-dad00e67656f"
PLANTED = (
    f"dump-type0-1-1-1360834322-C-{PSTORE}",
    f"MokNew-{SHIM}",
    f"MokAuth-{SHIM}",
    f"SbatPolicy-{SHIM}",
    f"LoaderEntryDefault-{LOADER}",
)
OWN = (
    f"BootOrder-{GLOBAL}",
    f"PK-{GLOBAL}",
    f"dbx-{KEYS}",
    "Setup-ec87d643-eba4-4bb5-a1e5-3f3e36b20da9",
    "MokNew",
    f"{SHIM}",
)


@pytest.fixture
def variables(tmp_path: Path) -> Path:
    for name in (*PLANTED, *OWN):
        (tmp_path / name).write_bytes(STORED + b"content")
    (tmp_path / f"MokListRT-{SHIM}").write_bytes(COPY + b"shim's copy of this boot")
    return tmp_path


def test_what_an_operating_system_left_is_removed_and_the_firmwares_own_stays(
    variables: Path,
) -> None:
    removed, left = uefi_variables.remove_of_systems(variables)

    assert (sorted(removed), left) == (sorted(PLANTED), [])
    assert {f.name for f in variables.iterdir()} == {*OWN, f"MokListRT-{SHIM}"}


def test_the_step_names_them(variables: Path) -> None:
    answer = boot_entries.clear(Firmware(variables).run, variables)

    assert answer["result"] == "done"
    assert "5 variables: LoaderEntryDefault-" in answer["detail"]
    again = boot_entries.clear(Firmware(variables).run, variables)
    assert again["detail"] == "1 boot entries of disks were removed"


def test_a_variable_that_the_firmware_keeps_is_not_done(
    variables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_file: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(uefi_variables, "_make_mutable", refuse)
    answer = boot_entries.clear(Firmware(variables).run, variables)

    assert answer["result"] == "not_done"
    assert "5 variables of operating systems cannot be removed" in answer["detail"]


def test_a_machine_that_shows_no_variables_has_none_to_remove(tmp_path: Path) -> None:
    assert uefi_variables.remove_of_systems(tmp_path / "missing") == ([], [])

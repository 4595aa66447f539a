"""What a role cannot read is not absent: siblings of faults that were found in other readers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from role_lab import ANSIBLE

from provisioner.integrations.cumulus import nvue_calls

sys.path.insert(0, str(ANSIBLE / "collections"))

from ansible_collections.provisioner.fleet.plugins.module_utils import (
    kernel,
    nvconfig,
    nvue,
    tools,
)

VARIABLE = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
OTHER = "BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def write(name: str, content: bytes) -> Callable[[Path], None]:
    def make(efi: Path) -> None:
        (efi / "efivars").mkdir(parents=True)
        (efi / "efivars" / name).write_bytes(content)

    return make


MACHINES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "on": (write(VARIABLE, b"\6\0\0\0\1"), True),
    "off": (write(VARIABLE, b"\6\0\0\0\0"), False),
    "cut short": (write(VARIABLE, b"\6\0\0\0"), True),
    "empty": (write(VARIABLE, b""), True),
    "another value than 0 and 1": (write(VARIABLE, b"\6\0\0\0\2"), True),
    "other variables alone": (write(OTHER, b"\7\0\0\0\1\0"), False),
    "UEFI, whose variables are not mounted": (
        lambda efi: (efi / "efivars").mkdir(parents=True), True),
    "UEFI without the folder of variables": (lambda efi: efi.mkdir(), True),
    "no UEFI": (lambda efi: None, False),
    "a variable that is a folder": (
        lambda efi: (efi / "efivars" / VARIABLE).mkdir(parents=True), True),
}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_secure_boot_is_off_only_where_that_is_read(name: str, tmp_path: Path) -> None:
    make, is_on = MACHINES[name]
    efi = tmp_path / "firmware" / "efi"
    efi.parent.mkdir()
    make(efi)

    assert kernel.is_secure_boot_on(str(efi / "efivars" / VARIABLE)) is is_on


@pytest.mark.parametrize(
    "table",
    [{}, {"SRIOV_EN": "True(1)"}, {"SRIOV_EN": {"current_value": "True(1)"}}, None, [], "busy"],
)
def test_a_card_without_a_row_has_not_said_that_nothing_waits(table: object) -> None:
    text = json.dumps({"Device #1": {"device": "18:00.0", "tlv_configuration": table}})

    with pytest.raises(tools.Unreadable):
        nvconfig.parse_config(text, "0000:18:00.0")


SAME = "config apply executed with no config diff"


@pytest.mark.parametrize("state", ["failed", "invalid", "pending", "ays_fail"])
@pytest.mark.parametrize(
    ("issue", "same"),
    [
        ({"0": {"message": SAME}}, True),
        ({"0": {"message": f"{SAME}."}, "1": SAME.capitalize()}, True),
        ([{"message": SAME}], True),
        ([SAME], True),
        (SAME, True),
        ({"0": {"message": SAME}, "1": {"message": "no such interface"}}, False),
        ([SAME, "no such interface"], False),
        ({"0": {"code": "config_invalid"}}, False),
        ({}, False),
        ([], False),
        (None, False),
        ("", False),
        (7, False),
    ],
)
def test_a_revision_without_a_difference_is_known_in_each_form_of_its_issue(
    state: str, issue: object, same: bool
) -> None:
    answer = {"state": state, "transition": {"issue": issue, "progress": ""}}

    read = nvue_calls.read_revision(answer)

    assert read is not None
    assert read.applied is same
    assert nvue._changes_nothing(answer) is same

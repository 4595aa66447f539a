"""Sets of host settings: their values, and how a look at a host is compared with them."""

from __future__ import annotations

import pytest

from provisioner.model.cohort import Evidence
from provisioner.planning.certification.host_settings import (
    find_differences,
    find_setting_fault,
)
from provisioner.planning.intake.host_tools import build_look, read_facts, read_sets

CARD = "0000:1a:00.0"
SET = {"roce_trust": "dscp", "kernel_arguments": "iommu=pt", "package:nccl-tests": "2.14.1-1"}
LOOK = """\
card 0000:1a:00.0
Priority trust state: dscp
card 0000:9d:00.0
Priority trust state: pcp
card none
kernel_arguments BOOT_IMAGE=/vmlinuz ro iommu=pt quiet
package:nccl-tests 2.14.1-1 hi\x20
end-of-output
"""


def named(text: str, exit_code: int = 0) -> str | None:
    sets = {"host.baseline": {"one": SET}}
    evidence = Evidence(source="look", exit_code=exit_code, text=text)
    (component,) = read_sets(evidence, sets, [CARD], 9216)
    return component.version


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("roce_trust", "dscp", True),
        ("roce_trust", "dscp; reboot", False),
        ("roce_pfc", "0001000", False),
        ("kernel_arguments", "iommu=pt intel_iommu=on", True),
        ("kernel_arguments", "quiet $(id)", False),
        ("package:nccl-tests", "1:2.14~rc1-1", True),
        ("package:nccl-tests", "*", False),
        ("package:a;b", "1", False),
        ("service:nvidia-dcgm", "off", False),
        ("colour", "red", False),
    ],
)
def test_a_value_that_could_be_a_command_or_is_none_is_refused(
    name: str, value: str, fits: bool
) -> None:
    assert (find_setting_fault(name, value) is None) is fits


def test_a_set_is_in_force_only_if_all_of_it_is() -> None:
    assert named(LOOK) == "one"  # the other card carries no rail; a package on hold is installed
    for line in LOOK.splitlines()[1:2] + LOOK.splitlines()[5:7]:
        assert named(LOOK.replace(line, "")) == "none", line


@pytest.mark.parametrize("text", ["", LOOK.replace("end-of-output\n", "")])
def test_a_look_that_is_cut_short_names_no_set(text: str) -> None:
    assert named(text) is None


def test_a_host_that_was_not_asked_has_no_line() -> None:
    assert build_look({}, ()) is None


def test_cards_that_disagree_are_no_value() -> None:
    text = LOOK.replace("9d:00.0", "3c:00.0")

    facts = read_facts(text, [CARD, "0000:3c:00.0"], 9216)

    assert find_differences(SET, facts) == {"roce_trust": "dscp|pcp"}


@pytest.mark.parametrize(
    ("fabric", "state", "value"),
    [
        ("Completed", "active", "nvswitch"),
        ("Completed", "inactive", "off"),
        ("[N/A]", "inactive", "nvswitch"),
        ("[N/A]", "active", "on"),
        ("", "active", ""),
    ],
)
def test_fabric_manager_runs_only_with_nvswitches(fabric: str, state: str, value: str) -> None:
    text = f"fabric {fabric}\nfabric_manager {state}\n"

    assert read_facts(text, (), 9216)["fabric_manager"] == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("acs 0000:00:01.0 0000\nacs 0000:00:02.0 \n", "off"),
        ("acs 0000:00:01.0 0000\nacs 0000:00:02.0 001d\n", "on"),
        ("acs 0000:00:01.0 \nacs 0000:00:02.0 \n", ""),  # no setpci
        ("", ""),  # no lspci
    ],
)
def test_bridges_that_show_no_controls_have_none_that_are_off(text: str, value: str) -> None:
    assert read_facts(text, (), 9216)["acs"] == value

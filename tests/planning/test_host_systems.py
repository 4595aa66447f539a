"""Which operating systems the roles work on, and which are refused at intake by name."""

from __future__ import annotations

import pytest

from provisioner.model.matrix import Pin
from provisioner.planning.intake.host_tools import refuse_system

PINS = {
    "host.driver": Pin(version="550.90.07"),
    "host.bios": Pin(version="1.2"),
    "nic.cx7": Pin(version="28.44.1036"),
}
UBUNTU = 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n'
ROCKY = (
    'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\nPRETTY_NAME="Rocky Linux 9.4"\n'
)
SUSE = 'ID="sles"\nVERSION_ID="15.6"\nPRETTY_NAME="SUSE Linux Enterprise Server 15 SP6"\n'
OLD = 'ID=ubuntu\nVERSION_ID="20.04"\n'


def look(release: str) -> str:
    lines = [f"system {line}" for line in release.splitlines()]
    return "\n".join(["has ip", *lines, "looked"]) + "\n"


@pytest.mark.parametrize(
    ("release", "name", "why"),
    [
        (ROCKY, "Rocky Linux 9.4", "RPMs"),
        (UBUNTU + "DGX=1\n", "DGX OS on Ubuntu 22.04.5 LTS", "belong to its own releases"),
        (SUSE, "SUSE Linux Enterprise Server 15 SP6", "no role was tried on it"),
        (OLD, "ubuntu 20.04", "no role was tried on version 20.04"),
    ],
)
def test_a_system_that_the_roles_do_not_know_is_refused_by_name(release: str, name: str, why: str):
    blocker = refuse_system(look(release), "n1", PINS)

    assert blocker is not None
    assert blocker.detail.startswith(name + ": ")
    assert why in blocker.detail
    assert blocker.detail.endswith("pinned are host.driver")
    assert "Pin host.os with an image (debian 12, ubuntu 22.04, ubuntu 24.04)" in blocker.unblock


@pytest.mark.parametrize("release", [UBUNTU, 'ID=debian\nVERSION_ID="12"\n', ""])
def test_a_known_system_and_one_that_was_not_read_are_not_refused(release: str):
    assert refuse_system(look(release), "n1", PINS) is None


def test_a_system_matters_only_where_it_stays_and_software_is_pinned_in_it():
    written = PINS | {"host.os": Pin(version="ubuntu-24.04-1")}

    assert refuse_system(look(ROCKY), "n1", written) is None
    assert refuse_system(look(ROCKY), "n1", {"nic.cx7": Pin(version="28.44.1036")}) is None
    assert refuse_system(look(ROCKY), "n1", {"host.driver": Pin(version="unknown")}) is None

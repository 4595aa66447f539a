"""Hosts on which apt and dpkg cannot simply work: waited for, repaired, or named as the cause."""

from __future__ import annotations

from pathlib import Path

import package_index
import pytest
from hosts import Host
from role_lab import held_of, play, refresh, state_of, versions_of

NCCL = {"packages": {"host.nccl": "2.29.2-1+cuda13.0"}}
DRIVER = {"packages": {"host.driver": "550.90.07"}}
LOCKED = """\
import fcntl, time
file = open("/var/lib/apt/lists/lock", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
time.sleep(6)
"""
# dkms 3.0, `dkms build`: what it prints where a build fails
BROKEN = """\
#!/bin/sh
[ -e /srv/mended ] && exit 0
echo "Error! Bad return status for module build on kernel: 5.15.0-91-generic (x86_64)"
echo "Consult /var/lib/dkms/vastnfs/4.0/build/make.log for more information."
exit 10
"""
SOURCES = "deb [trusted=yes] file:/srv/mirror ./\n"
DEAD = "deb [trusted=yes] http://127.0.0.1:9/ubuntu ./\n"

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def as_new(furnished: list[Host], tmp_path: Path) -> None:
    """Every host as furnished, the second with a package whose kernel module does not build."""
    control = "Package: vastnfs-dkms\nVersion: 4.0\nArchitecture: all\n"
    control += "Maintainer: test <test@example.invalid>\nDescription: empty\n"
    (tmp_path / "debs").mkdir()
    package = package_index.build_package(control, BROKEN)
    (tmp_path / "debs" / "vastnfs-dkms.deb").write_bytes(package)
    for host in furnished:
        refresh(host)
        host.put("/etc/apt/sources.list", SOURCES)
        host.run("rm -f /srv/mended; apt-mark unhold libnccl2")
    furnished[1].copy(tmp_path / "debs", "/srv/debs")
    furnished[1].run("dpkg -i /srv/debs/vastnfs-dkms.deb", check=False)


@pytest.mark.long
def test_locks_are_waited_for_and_what_is_broken_is_named_and_then_repaired(
    furnished: list[Host], tmp_path: Path
):
    locked, broken, dead = furnished
    locked.put("/srv/lock.py", LOCKED)
    locked.run("rm -rf /var/lib/apt/lists/* && setsid python3 /srv/lock.py >/dev/null 2>&1 &")
    dead.put("/etc/apt/sources.list", DEAD)
    dead.run("rm -rf /var/lib/apt/lists/*")

    first = play("host_software", dict.fromkeys(furnished, NCCL), tmp_path)
    untouched = versions_of(broken)["libnccl2"]
    broken.run("touch /srv/mended")
    dead.put("/etc/apt/sources.list", SOURCES)
    dead.run("apt-mark hold libnccl2")
    second = play("host_software", {broken: NCCL, dead: NCCL}, tmp_path)
    third = play("host_software", {dead: NCCL}, tmp_path)

    assert first["host-1"].ok, first["host-1"].message
    assert "vastnfs-dkms could not be configured" in first["host-2"].message
    assert "did not build for kernel 5.15.0-91-generic" in first["host-2"].message
    assert "/var/lib/dkms/vastnfs/4.0/build/make.log" in first["host-2"].message
    assert untouched == "2.21.5-1+cuda12.4"
    assert "no package libnccl2=2.29.2-1+cuda13.0 is available" in first["host-3"].message
    assert "not read: http://127.0.0.1:9/ubuntu" in first["host-3"].message
    assert second["host-2"].ok, second["host-2"].message
    assert second["host-2"].result["configured"] == ["vastnfs-dkms"]
    assert second["host-3"].ok, second["host-3"].message
    assert versions_of(dead)["libnccl2"] == "2.29.2-1+cuda13.0"
    assert held_of(dead) == ["libnccl2"]
    assert third["host-3"].changed == 0


@pytest.mark.long
def test_a_host_without_nvswitches_and_one_whose_new_package_breaks(
    furnished: list[Host], tmp_path: Path
):
    """Only a driver is pinned, and no unit of Fabric Manager is there."""
    plain, broken, _ = furnished
    units = ["nvidia-persistenced"]
    refresh(plain, units=units)
    plain.run("dpkg --purge nvidia-fabricmanager-535")
    broken.run("dpkg --purge --force-all vastnfs-dkms")
    broken.run("cp /srv/debs/vastnfs-dkms.deb /srv/mirror/ && cd /srv/mirror"
               " && printf '\\n%s\\nFilename: ./vastnfs-dkms.deb\\nSize: %s\\nSHA256: %s\\n'"
               " \"$(dpkg-deb -f vastnfs-dkms.deb)\" $(stat -c %s vastnfs-dkms.deb)"
               " $(sha256sum vastnfs-dkms.deb | cut -d' ' -f1) >>Packages")  # fmt: skip
    client = {"packages": {"host.storage_client": "vastnfs-dkms=4.0"}}

    ended = play("host_software", {plain: DRIVER, broken: client}, tmp_path)

    assert ended["host-1"].ok, ended["host-1"].message
    assert "nvidia-fabricmanager" not in state_of(plain)["units_enabled"]
    assert "vastnfs-dkms could not be configured" in ended["host-2"].message

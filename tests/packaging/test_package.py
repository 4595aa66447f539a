"""The Debian package: installed by dpkg and started by systemd in a throw-away copy of Debian."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from throwaway_debian import require_boot, run_booted

from delivery.package import RECIPE, SCRIPTS, build_package
from delivery.release import build_release
from delivery.sources import DeliveryError
from delivery.tree import PYTHON

EPOCH = 1_700_000_000
SHELLCHECK = Path(sys.executable).with_name("shellcheck")
WALK = Path(__file__).with_name("walk.sh")
WALK_LIMIT_S = 1500.0
INSTALL = """\
set -ex
trap 'journalctl --unit provisioner --no-pager | tail -n 20' ERR
dpkg --install /test/package.deb
[ "$(systemctl is-enabled provisioner)" = disabled ]
[ "$(systemctl is-active provisioner || true)" = inactive ]
echo 'PROVISIONER_OPTIONS="--lab"' > /etc/provisioner/provisioner.env
systemctl start provisioner
ask() { runuser -u provisioner -- provisioner node list --json --data /var/lib/provisioner; }
for second in $(seq 60); do ask && break; sleep 1; done
ask
install --directory --owner nobody /walk
runuser -u nobody -- sh /test/walk.sh /usr/bin/provisioner /walk
echo "runs as $(ps -o user= -p "$(systemctl show -P MainPID provisioner)")"
# installed again, as an upgrade is: the daemon that runs is another process
before=$(systemctl show -P MainPID provisioner)
dpkg --install /test/package.deb
[ "$(systemctl is-active provisioner)" = active ]
[ "$(systemctl show -P MainPID provisioner)" != "$before" ]
grep -q lab /etc/provisioner/provisioner.env
for second in $(seq 60); do ask && break; sleep 1; done
systemctl stop provisioner
systemctl show -p Result -p ExecMainStatus provisioner
/opt/provisioner/bin/ansible-playbook --version
systemctl start provisioner
dpkg --purge gpu-provisioner
[ "$(systemctl is-active provisioner || true)" = inactive ]
[ ! -e /opt/provisioner/bin ] && [ ! -e /usr/bin/provisioner ] && [ ! -e /etc/provisioner ]
[ -e /var/lib/provisioner/master.key ]
echo whole
"""


def require_index() -> None:
    """Skip where the packages cannot be fetched or Debian's Python is not here."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is not here (apt-get install python3.11)")
    try:
        socket.create_connection(("pypi.org", 443), timeout=10).close()
    except OSError as error:
        pytest.skip(f"pypi.org cannot be reached: {error}")


def test_the_scripts_that_dpkg_runs_as_root_are_sound():
    for name in SCRIPTS:
        checked = subprocess.run(
            [SHELLCHECK, "--shell=sh", RECIPE / name], capture_output=True, text=True, timeout=60
        )
        assert checked.returncode == 0, checked.stdout


def test_a_tree_without_a_release_is_refused(tmp_path: Path):
    require_index()
    with pytest.raises(DeliveryError, match="failed"):
        build_package(tmp_path, EPOCH)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_the_package_is_installed_started_upgraded_and_purged(tmp_path: Path):
    require_boot()
    require_index()
    release = tmp_path / "release"
    build_release(release, EPOCH)
    package = build_package(release, EPOCH)
    listed = subprocess.run(
        ["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    files = {"package.deb": package, "walk.sh": WALK}
    code, output = run_booted(tmp_path, INSTALL, files, WALK_LIMIT_S)

    assert code == 0, output[-40_000:]
    assert output.endswith("whole\n")
    assert "ended with 0: rehearse\nwalked\n" in output
    assert re.search(r"^runs as provision", output, re.MULTILINE)
    assert "Result=success\nExecMainStatus=0" in output.replace(
        "ExecMainStatus=0\nResult=success", "Result=success\nExecMainStatus=0"
    )
    # everything belongs to root, and nobody else may write it
    assert {line.split()[1] for line in listed.splitlines()} == {"root/root"}
    assert not [x for x in listed.splitlines() if x[0] != "l" and (x[5] == "w" or x[8] == "w")]

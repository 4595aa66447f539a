"""The removal of the daemon's login on a host: useradd's account, OpenSSH, cloud-init's files."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, hosts, why_not

from provisioner.adapters.ssh import SshShell
from provisioner.model.inventory import Component, Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Reason
from provisioner.model.recovery import RowVerdict
from provisioner.planning.erasure.deployment import build_volume
from provisioner.planning.release.tenant_login import (
    END,
    build_removal,
    judge_removal,
    refuse_removal,
)
from provisioner.ports import LoginRefused, Remote, ShellCommand
from provisioner.ports.wire import Secret

USER, PORT = "provisioner", 2222
NODE = Node(id="h0", kind=NodeKind.HOST)
# files as cloud-init 22.4 and later writes them for the users of planning/erasure/deployment.py
SUDOERS = """\
# Created by cloud-init v. 24.1 on Mon, 01 Jan 2024 00:00:00 +0000

# User rules for provisioner
provisioner ALL=(ALL) NOPASSWD:ALL
# User rules for tenant
tenant ALL=(ALL) ALL
"""
SSHD = """\
Port 2222
HostKey /etc/provisioner-test/host_key
StrictModes no
UsePAM no
PasswordAuthentication no
PidFile none
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    if reason := why_not():
        pytest.skip(reason)
    with hosts(1, tmp_path / "hosts") as (one,):
        yield one


def put_login(host: Host, key: str) -> None:
    """What cloud-init leaves: account, key, rule, its own copies, and the configuration drive."""
    host.run(f"useradd -m -s /bin/bash {USER} && usermod -p '*' {USER}")
    host.run("useradd -m tenant && usermod -p '*' tenant")
    host.put(f"/home/{USER}/.ssh/authorized_keys", key)
    host.put("/home/tenant/.ssh/authorized_keys", "ssh-ed25519 AAAAtenant tenant\n")
    host.put("/root/.ssh/authorized_keys", f"ssh-rsa AAAAroot site\n{key}")
    host.put("/etc/sudoers.d/90-cloud-init-users", SUDOERS, 0o440)
    host.put("/etc/cloud/cloud.cfg", "datasource_list: [NoCloud]\n")
    host.put("/var/lib/cloud/instances/h0-1/user-data.txt", f"#cloud-config\n{key}")
    host.put("/etc/provisioner-test/standard.conf", SSHD)
    host.run("/usr/sbin/sshd -f /etc/provisioner-test/standard.conf")
    drive = host.folder / "drive" / "cidata.iso"
    drive.parent.mkdir()
    drive.write_bytes(build_volume({"meta-data": "{}", "user-data": key}))
    host.run("mkdir -p /dev/disk/by-label")
    host.copy(drive.parent, "/run/drive")
    host.run("ln -s /run/drive/cidata.iso /dev/disk/by-label/cidata")


def try_login(host: Host, tmp_path: Path) -> bool:
    """Whether the daemon's own adapter is let in with its key."""
    remote = Remote(USER, host.key, tmp_path / "known_hosts", learn=True, port=PORT)

    async def run() -> bool:
        shell = SshShell(remote, 1)
        try:
            sends = ShellCommand("login", "cat", 20.0, Secret("on standard input"))
            (output,) = await shell.run(host.name, host.address, [sends])
            assert output.stdout == "on standard input"
        except LoginRefused:
            return False
        finally:
            await shell.close()
        return True

    return asyncio.run(run())


def read_key(host: Host) -> str:
    args = ["ssh-keygen", "-y", "-f", str(host.key)]
    return subprocess.run(args, capture_output=True, text=True, check=True).stdout


def test_nothing_is_left_and_the_host_refuses_the_key(host: Host, tmp_path: Path) -> None:
    key = read_key(host)
    put_login(host, key)
    assert try_login(host, tmp_path)
    assert "cidata" in host.run("blkid -p -o value -s LABEL /dev/disk/by-label/cidata").stdout

    removed = host.run(build_removal(USER, key)).stdout

    row = judge_removal(NODE, removed, admitted=try_login(host, tmp_path))
    assert (row.verdict, row.seen) == (
        RowVerdict.PASS,
        "nothing is left of it, and the host refused the key",
    )
    blob = key.split()[1]
    places = "/root/.ssh /home /etc/sudoers.d /var/lib/cloud /run/drive"
    searched = host.run(f"grep -rlsaF '{blob}' {places}", check=False)
    assert searched.stdout == ""
    assert host.run(f"getent passwd {USER}", check=False).returncode == 2
    assert "AAAAroot" in host.get("/root/.ssh/authorized_keys")
    assert "AAAAtenant" in host.get("/home/tenant/.ssh/authorized_keys")
    assert "tenant ALL=(ALL) ALL" in host.get("/etc/sudoers.d/90-cloud-init-users")
    assert USER not in host.get("/etc/sudoers.d/90-cloud-init-users")
    host.run("test -e /etc/cloud/cloud-init.disabled")
    assert host.run(build_removal(USER, key)).stdout == f"{END}\n"  # repeated, it harms nothing


@pytest.mark.parametrize(
    ("undo", "remains"),
    [
        ("/root/.ssh/authorized_keys", "key in /root/.ssh/authorized_keys"),
        ("/etc/ssh/keys/provisioner", "key in /etc/ssh/keys/provisioner"),
        ("/etc/sudoers", "rule in /etc/sudoers"),
    ],
)
def test_what_it_cannot_remove_is_named(host: Host, undo: str, remains: str) -> None:
    key = read_key(host)
    host.put(undo, f"{key}{USER} ALL=(ALL) NOPASSWD:ALL\n")
    if undo.startswith("/root"):
        host.run(f"mount --bind -r {undo} {undo}")  # as an immutable file

    removed = host.run(build_removal(USER, key), check=False).stdout

    row = judge_removal(NODE, removed, admitted=False)
    assert row.verdict is RowVerdict.FAIL
    assert remains in row.seen


def test_an_answer_that_is_cut_off_is_no_proof() -> None:
    whole = f"{END}\n"
    rows = [
        judge_removal(NODE, text, admitted=admitted)
        for text, admitted in ((None, False), ("", False), (whole, None), (whole, True))
    ]

    assert [r.verdict for r in rows] == [RowVerdict.UNKNOWN] * 3 + [RowVerdict.FAIL]


@pytest.mark.parametrize(
    ("system", "user", "reason"),
    [
        ("ubuntu-22.04-hgx-1", USER, None),
        ("ubuntu-22.04-hgx-1", "", "the daemon has no --ssh-key"),
        ("ubuntu 22.04", USER, "the daemon did not write its system"),
        ("none", USER, "the daemon did not write its system"),
        (None, USER, "the daemon did not write its system"),
    ],
)
def test_a_login_stays_where_the_daemon_could_not_come_back(
    system: str | None, user: str, reason: str | None
) -> None:
    name = Component(kind="host.os", slot="host", version=system, source="stamp")
    inventory = Inventory(node="h0", vendor="v", components=(name,))

    refused = refuse_removal(NODE, inventory, user)

    assert (refused.reason if refused else None) == (Reason.NOT_OFFERED if reason else None)
    assert (reason or "") in (refused.detail if refused else "")
    assert refuse_removal(NODE, None, user) is not None

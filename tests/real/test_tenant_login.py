"""A tenant's login on a host: useradd's account, OpenSSH, and keys that people send."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, hosts, why_not

from provisioner.model.node import Node, NodeKind
from provisioner.model.recovery import RowVerdict
from provisioner.planning.erasure.deployment import ADDRESS, ROOT, build_metadata
from provisioner.planning.release.tenant_login import (
    END,
    build_login,
    compute_fingerprint,
    judge_login,
    parse_public_key,
    refuse_login,
)

NODE = Node(id="h0", kind=NodeKind.HOST)
SSHD = """\
Port 2222
HostKey /etc/provisioner-test/host_key
StrictModes yes
UsePAM no
PasswordAuthentication no
PidFile none
"""
SSH = ("ssh", "-F", "none", "-p", "2222", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
TRUST = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    if reason := why_not():
        pytest.skip(reason)
    with hosts(1, tmp_path / "hosts") as (one,):
        yield one


def make_key(file: Path, *kind: str) -> str:
    subprocess.run(
        ["ssh-keygen", "-q", *(kind or ("-t", "ed25519")), "-N", "", "-f", str(file)], check=True
    )
    return file.with_suffix(".pub").read_text()


def try_login(host: Host, key: Path) -> bool:
    words = [*SSH, *TRUST, "-i", str(key), f"tenant@{host.address}", "id -un"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode == 0 and done.stdout == "tenant\n"


def test_the_account_opens_with_exactly_the_tenants_keys(host: Host, tmp_path: Path) -> None:
    host.put("/etc/provisioner-test/tenant.conf", SSHD)
    host.run("/usr/sbin/sshd -f /etc/provisioner-test/tenant.conf")
    host.run(f"mkdir -p /etc/sudoers.d {ROOT}/latest/meta-data")
    one = tmp_path / "one"
    two = tmp_path / "two"
    first = parse_public_key(make_key(one))
    second = parse_public_key(make_key(two, "-t", "ecdsa"))

    text = host.run(build_login("tenant", [first])).stdout

    row = judge_login(NODE, "tenant", [first], text)
    assert row.verdict is RowVerdict.PASS, (row, text)
    assert compute_fingerprint(first) in row.seen
    assert try_login(host, one)
    assert not try_login(host, two)
    assert host.get(f"{ROOT}/latest/meta-data/public-keys/0/openssh-key") == f"{first}\n"
    assert host.get("/etc/sudoers.d/91-tenant") == "tenant ALL=(ALL) NOPASSWD:ALL\n"
    # again for another tenant: the first one's key opens nothing any more
    again = host.run(build_login("tenant", [second])).stdout
    assert judge_login(NODE, "tenant", [second], again).verdict is RowVerdict.PASS
    assert judge_login(NODE, "tenant", [first, second], again).verdict is RowVerdict.FAIL
    assert try_login(host, two)
    assert not try_login(host, one)


def test_a_host_answers_at_the_link_local_address_with_its_metadata(host: Host) -> None:
    parts = build_metadata({"instance-id": "h0-1", "local-hostname": "h0"})
    for file in parts["write_files"]:
        host.put(file["path"], file["content"])
    program = next(f["path"] for f in parts["write_files"] if f["path"].endswith(".py"))
    host.run(f"ip address replace {ADDRESS}/32 dev lo")
    host.run(f"setsid python3 {program} >/dev/null 2>&1 </dev/null &")
    url = f"http://{ADDRESS}/latest"

    tries = f"curl -sf --retry 20 --retry-delay 1 --retry-all-errors {url}/meta-data/"
    listed = host.run(tries).stdout

    assert listed == "instance-id\nlocal-hostname"
    assert host.run(f"curl -s {url}/meta-data/instance-id").stdout == "h0-1"
    outside = f"curl -s -o /dev/null -w '%{{http_code}}' --path-as-is http://{ADDRESS}/"
    assert host.run(f"{outside}../../../etc/passwd").stdout == "404"
    assert host.run(f"{outside}nothing").stdout == "404"
    unit = next(f["content"] for f in parts["write_files"] if f["path"].endswith(".service"))
    assert f"ExecStart=/usr/bin/python3 {program}" in unit


@pytest.mark.parametrize("kind", [("-t", "ed25519"), ("-t", "ecdsa"), ("-t", "rsa", "-b", "2048")])
def test_keys_and_fingerprints_are_those_of_ssh_keygen(
    tmp_path: Path, kind: tuple[str, ...]
) -> None:
    line = make_key(tmp_path / "key", *kind)

    parsed = parse_public_key(line)

    assert line.startswith(f"{parsed} ")
    printed = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(tmp_path / "key.pub")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert compute_fingerprint(parsed) == printed.stdout.split()[1]


GOOD = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "one line"),
        ("ssh-ed25519", "one line"),
        (f"ssh-ed25519 {GOOD} a\nssh-ed25519 {GOOD} b", "one line"),
        (f'command="true" ssh-ed25519 {GOOD}', "the first word"),
        (f"ssh-dss {GOOD}", "the first word"),
        (f"ecdsa-sha2-nistp256 {GOOD}", "none of ecdsa"),
        (f"ssh-ed25519 {GOOD[:-4]}", "none of ssh-ed25519"),
        (f"ssh-ed25519 '{GOOD}", "base64"),
        ("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAABP////8=", "32 bits"),
    ],
)
def test_what_is_no_key_is_refused_with_the_reason(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_public_key(line)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (None, RowVerdict.UNKNOWN),
        ("", RowVerdict.UNKNOWN),
        (f"keys {'0' * 64} tenant:600\n{END}\n", RowVerdict.FAIL),
        (f"{END}\n", RowVerdict.FAIL),
    ],
)
def test_an_answer_that_is_cut_off_or_of_other_keys_is_no_proof(
    text: str | None, verdict: RowVerdict
) -> None:
    assert judge_login(NODE, "tenant", [f"ssh-ed25519 {GOOD}"], text).verdict is verdict


def test_keys_that_the_daemon_cannot_write_keep_a_node_from_its_tenant() -> None:
    for login in ("", "tenant"):
        row = refuse_login(NODE, "tenant", login)
        assert row is not None
        assert row.bad
    assert refuse_login(NODE, "tenant", "provisioner") is None

"""User data of tenants: the forms that are taken, and the proof that a node has it."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from provisioner.model.node import Node, NodeKind
from provisioner.model.recovery import RowVerdict
from provisioner.planning.release.tenant_login import (
    CLOUD_CONFIG,
    END,
    SCRIPT,
    SEED,
    SETTINGS,
    USER_DATA_MAX,
    build_placement,
    build_removal,
    judge_placement,
    parse_user_data,
)

NODE = Node(id="su0-n01", kind=NodeKind.HOST)
TEXT = "#!/bin/sh\necho hunter2 'quoted' $HOME\n"
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("#cloud-config\npackages: [htop]\n", CLOUD_CONFIG),
        ("#cloud-config \r\n{}\n", CLOUD_CONFIG),
        ("#!/bin/bash -e\ntrue\n", SCRIPT),
        ("#!/usr/bin/env python3\npass\n", SCRIPT),
        ("#!/bin/sh\n# café\n", SCRIPT),
    ],
)
def test_a_cloud_config_and_a_script_are_taken(text: str, kind: str) -> None:
    assert parse_user_data(text) == kind


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "first line"),
        ("packages: [htop]\n", "first line"),
        ("#include\nhttps://evil.example/x\n", "first line"),
        ("## template: jinja\n#cloud-config\n", "first line"),
        ("#!sh\n", "first line"),
        ("#cloud-config\n- a list\n", "mapping"),
        ("#cloud-config\n", "mapping"),
        ("#cloud-config\na: [hunter2\n", "see line"),
        ("#cloud-config\n" + "[" * 9000, "YAML"),
        ("#cloud-config\na: !!python/object/apply:os.system [id]\n", "YAML"),
        ("#!/bin/sh\n\0", "control"),
        ("#!/bin/sh\n\x1b[2J", "control"),
        ("#!/bin/sh\n" + "é" * (USER_DATA_MAX // 2), "bytes"),
    ],
)
def test_everything_else_is_refused_without_a_word_of_its_text(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault) as refused:
        parse_user_data(text)

    assert "hunter2" not in str(refused.value)


def test_the_line_writes_exactly_the_text_that_it_is_sent(tmp_path: Path) -> None:
    """The line runs in this machine's shell, with its places below a folder of the test."""
    line = build_placement(NODE, "v1")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "cloud-init").touch(0o755)
    placed = line.replace(SEED, f"{tmp_path}{SEED}").replace(SETTINGS, f"{tmp_path}{SETTINGS}")
    placed = placed.replace("mkdir -p ", f"mkdir -p {tmp_path}{SETTINGS.rpartition('/')[0]} ")
    placed = placed.replace(f" {SETTINGS.rpartition('/')[0]};", ";").replace("%U", "%u")

    done = subprocess.run(
        ["sh", "-c", placed],
        input=TEXT.encode(),
        capture_output=True,
        check=True,
        env={"PATH": f"{tools}:/usr/bin:/bin"},
        timeout=60,
    )

    file = Path(f"{tmp_path}{SEED}/user-data")
    assert file.read_text() == TEXT
    assert f"placed {DIGEST} {file.stat().st_uid}:600" in done.stdout.decode()
    assert '"su0-n01-tenant-v1"' in Path(f"{tmp_path}{SEED}/meta-data").read_text()
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (f"placed {DIGEST} root:600\n{END}\n", RowVerdict.PASS),
        (f"placed {DIGEST} root:644\n{END}\n", RowVerdict.FAIL),
        (f"placed {'0' * 64} root:600\n{END}\n", RowVerdict.FAIL),
        (f"remains no cloud-init\nplaced {DIGEST} root:600\n{END}\n", RowVerdict.FAIL),
        (f"{END}\n", RowVerdict.FAIL),
        (f"placed {DIGEST} root:600\n", RowVerdict.UNKNOWN),
        (None, RowVerdict.UNKNOWN),
    ],
)
def test_a_node_has_it_only_if_its_digest_came_back(text: str | None, verdict: RowVerdict) -> None:
    row = judge_placement(NODE, TEXT, text)

    assert row.verdict is verdict
    assert DIGEST not in row.model_dump_json()


def test_the_removal_of_the_login_leaves_the_tenants_seed_and_cloud_init_on() -> None:
    left = build_removal("provisioner", KEY, seeded=True)
    gone = build_removal("provisioner", KEY)

    assert ("/var/lib/cloud/seed" in left, "/var/lib/cloud/seed" in gone) == (False, True)
    assert "rm -f /etc/cloud/cloud-init.disabled" in left
    assert ": >/etc/cloud/cloud-init.disabled" in gone
    assert ("remains cloud-init" in left, "remains cloud-init" in gone) == (False, True)

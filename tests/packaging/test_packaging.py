"""What the wheel holds, the unit as systemd reads it, the container's file."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from delivery.sources import ROOT, SOURCES
from provisioner.cli.offline.pages import find_tables
from provisioner.runtime.shipped import CONTENT, find_pages

UNIT = ROOT / "images" / "daemon" / "provisioner.service"
CONTAINER = ROOT / "images" / "daemon" / "Containerfile"


def test_the_wheel_has_all_that_the_program_needs(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    here = {
        "provisioner/" + str(p.relative_to(ROOT / "provisioner"))
        for p in (ROOT / "provisioner").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts and "content" not in p.parts
    }
    content = {
        "provisioner/content/" + str(p.relative_to(ROOT))
        for p in (ROOT / "ansible").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts and not p.name.startswith(".")
    }

    topics = {
        "provisioner/content/" + str(path.relative_to(CONTENT))
        for path in (*find_pages().values(), *(CONTENT / t["file"] for t in find_tables().values()))
        if path.is_relative_to(CONTENT / "docs")
    }

    assert here - names == set()
    assert content - names == set()
    assert len(topics) > 100
    assert topics - names == set()
    assert "provisioner/content/firmware_matrix.yaml" in names
    assert not [
        n for n in names if n.startswith(("tests/", "images/", "delivery/")) or "__pycache__" in n
    ]


def test_systemd_takes_the_unit_and_calls_it_well_confined(tmp_path: Path):
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not here (apt-get install systemd)")
    unit = tmp_path / "provisioner.service"
    text = UNIT.read_text()
    unit.write_text(text.replace("/opt/provisioner/bin/provisioner", sys.executable))
    verified = subprocess.run(
        [tool, "verify", "--man=no", unit], capture_output=True, text=True, timeout=60
    )
    confined = subprocess.run(
        [tool, "security", "--offline=true", "--threshold=20", unit],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert verified.returncode == 0, verified.stderr
    assert "provisioner.service:" not in verified.stderr  # an unknown or wrong line
    assert confined.returncode == 0, confined.stdout[-3000:]
    # playbook runs outlive the daemon, and so do their variables, which are in /dev/shm
    assert "KillMode=process" in text
    assert "RemoveIPC=no" in text


def test_the_unit_restarts_as_the_page_of_several_daemons_says():
    page = (UNIT.parents[2] / "docs" / "high-availability.md").read_text()
    said = re.findall(r"`((?:Restart|RestartSec|StartLimitIntervalSec)=\w+)`", page)
    lines = UNIT.read_text().splitlines()

    assert sorted(said) == ["Restart=always", "RestartSec=2", "StartLimitIntervalSec=0"]
    assert sorted(n for n in lines if n.startswith(("Restart", "StartLimit"))) == sorted(said)
    assert not re.search(r"^(Restart|StartLimit)\w*=", page, re.MULTILINE)  # no second place


def test_the_container_copies_what_the_wheel_is_made_of_and_does_not_run_as_root():
    lines = CONTAINER.read_text().replace("\\\n", " ").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD"}
    copied = {
        w for line in words if line[0] == "COPY" and "--from" not in line[1] for w in line[1:]
    }
    users = [line[1] for line in words if line[0] == "USER"]
    last = max(n for n, line in enumerate(words) if line[0] == "FROM")

    assert {line[0].lstrip() for line in words} <= known
    assert {*SOURCES} <= copied
    assert users
    assert users[-1] not in ("root", "0")
    assert all(n > last for n, line in enumerate(words) if line[0] == "USER")
    assert not [w for w in copied if w not in (".", "./") and not (ROOT / w).exists()]

"""Fetches what goes into the image, and verifies each file by its digest before it is used.

Everything comes from PyPI by the hashes in `lock/agent.lock`; what a former build left is verified
again. Nothing is checked out from git.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from images.locks import BadInput, Requirement, requirements, verify

AGENT = "ironic-python-agent"
MANAGER = "provisioner-hardware-manager"
# The ramdisk is Debian 12 on x86-64: CPython 3.11 and glibc 2.36, whatever builds it.
TARGET = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "abi3",
          "--abi", "none", "--platform", "manylinux_2_34_x86_64",
          "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_17_x86_64",
          "--platform", "manylinux2014_x86_64", "--platform", "any")  # fmt: skip
# wheels of our own are the same bytes for the same source: zip keeps no time before 1980
SOURCE_DATE_EPOCH = "315532800"


@dataclass(frozen=True)
class Inputs:
    """What diskimage-builder is given. All paths are absolute."""

    wheelhouse: Path
    source: Path  # the agent's sdist
    constraints: Path  # tar of upper-constraints.txt
    agent_version: str


def builder(lock: Path, venv: Path) -> Path:
    """The virtual environment with diskimage-builder, made anew when its lock changes."""
    stamp, text = venv / "lock", lock.read_text()
    if stamp.is_file() and stamp.read_text() == text and (venv / "bin/disk-image-create").exists():
        return venv
    shutil.rmtree(venv, ignore_errors=True)
    requirements(text, lock.name)
    call(sys.executable, "-m", "venv", "--without-pip", str(venv))
    pip("--python", str(venv / "bin/python"), "install", "--require-hashes", "--no-deps",
        "-r", str(lock))  # fmt: skip
    stamp.write_text(text)
    return venv


def fetch(lock: Path, manager: Path, venv: Path, folder: Path) -> Inputs:
    """Wheels, the agent's source and our hardware manager's wheel, in a folder of their own."""
    wanted = requirements(lock.read_text(), lock.name)
    if AGENT not in wanted:
        raise BadInput(f"{lock.name}: {AGENT} is not in it")
    wheels, sources = folder / "wheels", folder / "sources"
    for each in (wheels, sources):
        each.mkdir(parents=True, exist_ok=True)
    for own in wheels.glob("provisioner_*.whl"):
        own.unlink()  # made from our source below, in no lock
    _forget_others(wheels, sources, wanted)
    if not _complete(wheels, wanted):
        pip("download", "--no-deps", "--require-hashes", "--only-binary", ":all:", *TARGET,
            "-d", str(wheels), "-r", str(lock))  # fmt: skip
    if not list(sources.glob("*.tar.gz")):
        one = folder / "agent-source.txt"
        hashes = " ".join(f"--hash=sha256:{h}" for h in sorted(wanted[AGENT].hashes))
        one.write_text(f"{AGENT}=={wanted[AGENT].version} {hashes}\n")
        pip("--python", str(venv / "bin/python"), "download", "--no-deps", "--require-hashes",
            "--no-build-isolation", "--no-binary", AGENT, "-d", str(sources),
            "-r", str(one))  # fmt: skip
    verify([*wheels.iterdir(), *sources.iterdir()], wanted)
    _own_wheel(manager, venv, wheels, folder / "manager")
    (source,) = sources.glob("*.tar.gz")
    return Inputs(wheels, source, _constraints(wanted, folder), wanted[AGENT].version)


def _forget_others(wheels: Path, sources: Path, wanted: dict[str, Requirement]) -> None:
    """Files of a former lock."""
    for file in [*wheels.iterdir(), *sources.iterdir()]:
        try:
            verify([file], wanted)
        except BadInput:
            file.unlink()


def _complete(wheels: Path, wanted: dict[str, Requirement]) -> bool:
    there = {w.name.split("-")[0].replace("_", "-").replace(".", "-").lower() for w in
             wheels.glob("*.whl")}  # fmt: skip
    return there >= wanted.keys()


def _own_wheel(manager: Path, venv: Path, wheels: Path, scratch: Path) -> None:
    """Built from a copy: setuptools writes into the source."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(manager, scratch, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    pip("--python", str(venv / "bin/python"), "wheel", "--no-deps", "--no-build-isolation",
        "-w", str(wheels), str(scratch))  # fmt: skip


def _constraints(wanted: dict[str, Requirement], folder: Path) -> Path:
    """What the builder's install script gives to pip with -c: /tmp/requirements in the chroot."""
    text = folder / "upper-constraints.txt"
    text.write_text("".join(f"{r.name}==={r.version}\n" for n, r in wanted.items() if n != AGENT))
    archive = folder / "requirements.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(text, "upper-constraints.txt")
    return archive


def pip(*arguments: str) -> None:
    """pip of the environment that runs us. Raises BadInput with its last words."""
    call(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)


def call(*command: str) -> None:
    """Run a tool. Raises BadInput with its last words if it fails."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH}
    ended = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env=environment
    )
    if ended.returncode:
        words = "\n".join((ended.stderr + ended.stdout).strip().splitlines()[-8:])
        raise BadInput(f"{' '.join(command[:6])} ... failed:\n{words}")

"""Fetches the inputs of the image, and verifies each file by its digest before use.

Everything comes from PyPI by the hashes in `lock/agent.lock`; files of a former build are verified
again. Nothing is checked out from git.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from delivery import tools
from images.locks import BadInput, Requirement, parse_requirements, verify

AGENT = "ironic-python-agent"
MANAGER = "provisioner-hardware-manager"
# The ramdisk is Debian 12 on x86-64: CPython 3.11 and glibc 2.36, whatever machine builds it.
TARGET = (
    "--python-version",
    "3.11",
    "--implementation",
    "cp",
    "--abi",
    "cp311",
    "--abi",
    "abi3",
    "--abi",
    "none",
    "--platform",
    "manylinux_2_34_x86_64",
    "--platform",
    "manylinux_2_28_x86_64",
    "--platform",
    "manylinux_2_17_x86_64",
    "--platform",
    "manylinux2014_x86_64",
    "--platform",
    "any",
)
# our own wheels are reproducible: zip keeps no time before 1980
SOURCE_DATE_EPOCH = "315532800"


@dataclass(frozen=True)
class Inputs:
    """The inputs of diskimage-builder. All paths are absolute."""

    wheelhouse: Path
    source: Path  # the agent's sdist
    constraints: Path  # tar of upper-constraints.txt
    agent_version: str


def make_builder(lock: Path, venv: Path) -> Path:
    """Return the virtual environment with diskimage-builder, made anew when its lock changes."""
    stamp, text = venv / "lock", lock.read_text()
    if stamp.is_file() and stamp.read_text() == text and (venv / "bin/disk-image-create").exists():
        return venv
    shutil.rmtree(venv, ignore_errors=True)
    parse_requirements(text, lock.name)
    run_tool(sys.executable, "-m", "venv", "--without-pip", str(venv))
    run_pip(
        "--python",
        str(venv / "bin/python"),
        "install",
        "--require-hashes",
        "--no-deps",
        "-r",
        str(lock),
    )
    stamp.write_text(text)
    return venv


def fetch(lock: Path, manager: Path, venv: Path, folder: Path) -> Inputs:
    """Fetch wheels and the agent's source into a folder, and build our hardware manager's wheel."""
    pins = parse_requirements(lock.read_text(), lock.name)
    if AGENT not in pins:
        raise BadInput(f"{lock.name}: {AGENT} is not in it")
    wheels, sources = folder / "wheels", folder / "sources"
    for each in (wheels, sources):
        each.mkdir(parents=True, exist_ok=True)
    for own in wheels.glob("provisioner_*.whl"):
        own.unlink()  # built from our source below, in no lock
    _remove_unlocked(wheels, sources, pins)
    if not _is_complete(wheels, pins):
        run_pip(
            "download",
            "--no-deps",
            "--require-hashes",
            "--only-binary",
            ":all:",
            *TARGET,
            "-d",
            str(wheels),
            "-r",
            str(lock),
        )
    if not list(sources.glob("*.tar.gz")):
        source_pin = folder / "agent-source.txt"
        hashes = " ".join(f"--hash=sha256:{h}" for h in sorted(pins[AGENT].hashes))
        source_pin.write_text(f"{AGENT}=={pins[AGENT].version} {hashes}\n")
        run_pip(
            "--python",
            str(venv / "bin/python"),
            "download",
            "--no-deps",
            "--require-hashes",
            "--no-build-isolation",
            "--no-binary",
            AGENT,
            "-d",
            str(sources),
            "-r",
            str(source_pin),
        )
    verify([*wheels.iterdir(), *sources.iterdir()], pins)
    _build_own_wheel(manager, venv, wheels, folder / "manager")
    (source,) = sources.glob("*.tar.gz")
    return Inputs(wheels, source, _write_constraints(pins, folder), pins[AGENT].version)


def _remove_unlocked(wheels: Path, sources: Path, pins: dict[str, Requirement]) -> None:
    """Remove files of a former lock."""
    for file in [*wheels.iterdir(), *sources.iterdir()]:
        try:
            verify([file], pins)
        except BadInput:
            file.unlink()


def _is_complete(wheels: Path, pins: dict[str, Requirement]) -> bool:
    present = {
        w.name.split("-")[0].replace("_", "-").replace(".", "-").lower()
        for w in wheels.glob("*.whl")
    }
    return present >= pins.keys()


def _build_own_wheel(manager: Path, venv: Path, wheels: Path, scratch: Path) -> None:
    """Build our wheel from a copy, because setuptools writes into the source."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(manager, scratch, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    run_pip(
        "--python",
        str(venv / "bin/python"),
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(wheels),
        str(scratch),
    )


def _write_constraints(pins: dict[str, Requirement], folder: Path) -> Path:
    """Return the archive of constraints that the builder's install script passes to pip with -c.

    The script finds it as /tmp/requirements in the chroot.
    """
    text = folder / "upper-constraints.txt"
    text.write_text("".join(f"{r.name}==={r.version}\n" for n, r in pins.items() if n != AGENT))
    archive = folder / "requirements.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(text, "upper-constraints.txt")
    return archive


def run_pip(*arguments: str) -> None:
    """Run pip of our own environment. Raises BadInput with its last lines."""
    run_tool(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)


def run_tool(*command: str) -> None:
    """Run a tool. Raises BadInput with its last lines of output if it fails."""
    epoch = {"SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH}
    tools.run_tool(*command, error=BadInput, environment=epoch)

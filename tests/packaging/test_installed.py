"""The wheel where a new user installs it: with pip, into an environment that has nothing else.

In every run the packages that the wheel declares, and theirs, are linked from our own environment:
what nobody declares is not there; a module with the text of ours is not compiled again. The long
tests have pip find them all at the index that it is configured with, in the versions of
requirements.lock, and add each extra. Nothing is compiled ahead: most of the modules, Ansible's
above all, are never loaded here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution, distributions
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from postgres_server import PASSWORD, Server

from delivery.sources import ROOT
from delivery.tree import PYTHON

INSTALL_LIMIT_S = 300
SERVE_LIMIT_S = 90
WALK_LIMIT_S = 900
WALK = Path(__file__).with_name("walk.sh")
INDEX = ("pypi.org", 443)
WITHOUT_DRIVER = "postgresql://nobody@127.0.0.1:1/none"

# Every command with every subcommand: the help loads the module and all that it imports.
EVERY_HELP = """
import contextlib, io, json, traceback
from provisioner.cli.commands import COMMANDS, load

def names(command):
    return list(getattr(command, "commands", {}))

done, failed = 0, {}
for first in COMMANDS:
    try:
        command = load(first)
    except Exception as error:
        failed[first] = repr(error)
        continue
    for words in [[], *([name] for name in names(command))]:
        done += 1
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                command.main([*words, "--help"], prog_name=first, standalone_mode=False)
        except BaseException:
            failed[" ".join([first, *words])] = traceback.format_exc()
        if "Usage" not in said.getvalue():
            failed.setdefault(" ".join([first, *words]), "no usage: " + said.getvalue())
print(json.dumps({"done": done, "failed": failed}))
"""


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, used from a directory that has no checkout."""

    wheel: Path
    place: Path
    elsewhere: Path

    @property
    def program(self) -> Path:
        return self.place / "bin" / "provisioner"

    def add(self, *extras: str) -> None:
        """Install the wheel, with these extras."""
        chosen = f"{self.wheel}[{','.join(extras)}]" if extras else str(self.wheel)
        words = [
            str(self.place / "bin" / "python"), "-m", "pip", "install", "--quiet",
            "--disable-pip-version-check", "--no-compile",
            "--constraint", str(self.place / "constraints"), chosen,
        ]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
        assert done.returncode == 0, done.stderr[-3000:]

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the program to its end."""
        return self.call([str(self.program), *words], environment)

    def every_help(self) -> Mapping[str, str]:
        """Ask every command for its help, most of whose time goes into frames around the options:
        without them; return those that failed."""
        python = self.place / "bin" / "python"
        done = self.call([str(python), "-I", "-c", EVERY_HELP], {"TYPER_USE_RICH": "0"})
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["done"] > 100
        failed: Mapping[str, str] = result["failed"]
        return failed

    def call(
        self, words: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.elsewhere, env={**clean(), **environment},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def assert_serves(self, data: str, *words: str, **environment: str) -> None:
        """Run the daemon until it serves and its API answers, then end it."""
        with (self.elsewhere / f"{data}.log").open("w+") as log:
            (self.elsewhere / "artifacts").mkdir(exist_ok=True)
            process = subprocess.Popen(
                [str(self.program), "serve", "--lab", "--data", data, "--api-port", "0",
                 "--artifact-port", "0", "--agent-port", "0", *words],
                cwd=self.elsewhere, env={**clean(), **environment}, stdout=log, stderr=log,
            )  # fmt: skip
            with ended(process):
                said = wait_for(process, Path(log.name), r"\bserving\b")
                api = re.search(r"https://127\.0\.0\.1:(\d+)", said)
                assert api is not None, said
                socket.create_connection(("127.0.0.1", int(api[1])), timeout=10).close()
            assert process.returncode == 0, Path(log.name).read_text()


def clean() -> dict[str, str]:
    """Return our environment without what would lead the program back to the checkout."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PROVISIONER"))}


def wait_for(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Return the log once it matches; fail if the process ends or the limit passes."""
    until = time.monotonic() + SERVE_LIMIT_S
    while not re.search(pattern, said := log.read_text()):
        assert process.poll() is None, said
        assert time.monotonic() < until, said
        time.sleep(0.1)
    return said


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the process, and wait for it."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


@pytest.fixture
def bare(wheel: Path, tmp_path: Path) -> Installed:
    """The wheel in an environment of its own."""
    return install_bare(wheel, tmp_path)


def install_bare(wheel: Path, tmp_path: Path, python: str = sys.executable) -> Installed:
    """Install the wheel below a folder; skips where no package index can be reached."""
    try:
        socket.create_connection(INDEX, timeout=10).close()
    except OSError as error:
        pytest.skip(f"{INDEX[0]} cannot be reached: {error}")
    place, elsewhere = tmp_path / "environment", tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run([python, "-m", "venv", "--without-pip", place], check=True, timeout=100)
    lend_pip(place)
    (place / "constraints").write_text(locked_versions())
    installed = Installed(wheel, place, elsewhere)
    installed.add()
    return installed


def lend_pip(place: Path) -> None:
    """Install pip with our pip: Debian's python3.11 comes without ensurepip."""
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install"]
    subprocess.run(
        [*pip, "--quiet", "--disable-pip-version-check", "--no-compile", "pip"],
        check=True,
        timeout=INSTALL_LIMIT_S,
    )


def locked_versions() -> str:
    """Return NAME==VERSION of each locked package: pip takes no digests in constraints."""
    text = (ROOT / "requirements.lock").read_text()
    pins = re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[a-z,]+\])?(==\S+)", text, re.MULTILINE)
    return "".join(f"{name}{version}\n" for name, version in pins)


@pytest.fixture
def linked(wheel: Path, tmp_path: Path) -> Installed:
    """The wheel in an environment that has what it declares, linked from ours."""
    place, elsewhere = tmp_path / "environment", tmp_path / "elsewhere"
    elsewhere.mkdir()
    python = str(place / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=100)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    install = [*pip, "install", "--quiet", "--no-compile", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, timeout=INSTALL_LIMIT_S)
    (packages,) = place.glob("lib/python*/site-packages")
    (own,) = distributions(path=[str(packages)])
    link_required(own, packages)
    lend_compiled(packages)
    checked = subprocess.run([*pip, "check"], capture_output=True, text=True, timeout=100)
    assert checked.returncode == 0, checked.stdout  # each has what it declares, in such a version
    return Installed(wheel, place, elsewhere)


def link_required(own: Distribution, packages: Path) -> None:
    """Link every distribution that one needs without an extra, and what these need."""
    waiting, seen = [(own, "")], set()
    while waiting:
        dist, extra = waiting.pop()
        for line in dist.requires or ():
            asked = Requirement(line)
            if asked.marker is not None and not asked.marker.evaluate({"extra": extra}):
                continue
            for wanted in ("", *asked.extras):
                if (asked.name, wanted) not in seen:
                    seen.add((asked.name, wanted))
                    waiting.append((distribution(asked.name), wanted))
    for name in {name for name, _ in seen}:
        for file in distribution(name).files or ():
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            link(Path(file.locate()), packages / file)
            if file.suffix == ".py":  # compiled as it is for us
                compiled = (
                    Path(cache_from_source(str(p))) for p in (file.locate(), packages / file)
                )
                link(*compiled)


def lend_compiled(packages: Path) -> None:
    """Link what our own tree has compiled beside each installed module of the same text: Python
    takes it for a module of the same length and time."""
    for installed in (packages / "provisioner").rglob("*.py"):
        source = ROOT / installed.relative_to(packages)
        if source.is_file() and source.read_bytes() == installed.read_bytes():
            told = source.stat()
            os.utime(installed, ns=(told.st_atime_ns, told.st_mtime_ns))
            link(Path(cache_from_source(str(source))), Path(cache_from_source(str(installed))))


def link(source: Path, target: Path) -> None:
    if source.exists() and not target.exists():  # two may share a folder of licences
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)


@pytest.mark.slow
def test_the_installed_wheel_shows_every_help_serves_and_names_the_extra_that_it_lacks(
    linked: Installed,
):
    assert linked.every_help() == {}
    framed = linked.run("node", "list", "--help")
    assert framed.returncode == 0
    assert "╭─ Options" in framed.stdout
    assert linked.run("--version").returncode == 0
    table = linked.run("help", "bmc-faults")  # a page whose rows are a file
    assert (table.returncode, table.stderr) == (0, "")
    assert "| S1 | Sessions/auth |" in table.stdout
    linked.assert_serves("bare")

    # what needs an extra says which
    no_driver = linked.run("node", "list", "--offline", PROVISIONER_DATABASE=WITHOUT_DRIVER)
    assert (no_driver.returncode, no_driver.stdout) == (2, "")
    assert 'pip install "gpu-provisioner[postgresql]"' in no_driver.stderr
    no_traces = linked.run("serve", "--settings", write_traced(linked))
    assert no_traces.returncode == 2
    assert "pip install 'gpu-provisioner[traces]'" in no_traces.stderr


def write_traced(bare: Installed) -> str:
    """Write settings that need the extra for traces; returns their file's name."""
    text = "trace_endpoint: http://127.0.0.1:9/v1/traces\n"
    (bare.elsewhere / "traced.yaml").write_text(text)
    return "traced.yaml"


@pytest.mark.long
@pytest.mark.slow
def test_the_installed_wheel_serves_with_each_extra(bare: Installed):
    write_traced(bare)
    bare.add("traces")
    bare.assert_serves("traced", "--settings", "traced.yaml")

    bare.add("postgresql")
    assert bare.every_help() == {}
    bare.assert_serves("file")
    with server() as database:
        if database:
            bare.assert_serves("shared", "--database", database, PGPASSWORD=PASSWORD)


@pytest.mark.long
@pytest.mark.slow
def test_somebody_with_the_wheel_alone_comes_to_a_rehearsed_site(wheel: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    if not PYTHON.exists():  # one in root's home is closed to others
        pytest.skip(f"{PYTHON} is not here (apt-get install python3.11)")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)  # pytest's own folders are closed to others
        installed = install_bare(wheel, place, str(PYTHON))
        installed.elsewhere.chmod(0o777)
        shutil.copyfile(WALK, place / "walk.sh")
        nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        words = ["sh", str(place / "walk.sh"), str(installed.program), str(installed.elsewhere)]
        walked = subprocess.run(
            [*nobody, *words], cwd="/", env=clean(), capture_output=True, text=True,
            timeout=WALK_LIMIT_S,
        )  # fmt: skip

    assert walked.returncode == 0, walked.stdout + walked.stderr
    assert walked.stdout.endswith("ended with 0: rehearse\nwalked\n")


@contextmanager
def server() -> Iterator[str]:
    """Run a PostgreSQL server with an empty database; yields its URL, or "" where there is none."""
    if not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        yield ""
        return
    running = Server(memory=True)
    try:
        running.start()
        yield running.url(running.make())
    finally:
        running.stop()
        running.remove()

"""The second command of a new contributor, on a Debian 12 that has nothing else installed.

A package that happens to be on a developer's machine hides a step that `.ci/packages` lacks, as
`sudo` was hidden. Here a root file system is made by mmdebstrap with what `.ci/run` says that it
needs, and in it packages are installed, the environment is made, and tests of programs are run; at
last `.ci/run` as a whole. Needs root, a Debian mirror and package indexes; some gigabytes, and ten
minutes or more, for the whole three quarters of an hour.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery.tools import ToolError, run_tool

ROOT = Path(__file__).parents[2]
NEEDED = ("python3.11", "python3.11-venv", "make", "ca-certificates")  # as .ci/run says
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")  # with what this machine's network wants
PASSED_ON = re.compile(r"(?i)(\w+_proxy|PIP_INDEX_URL|PIP_EXTRA_INDEX_URL|UV_INDEX_URL)$")
MADE_S, INSTALLED_S, TRIED_S = 900, 3000, 1500
WHOLE_S = 4 * 3600  # of .ci/run, which is freed of its own limit: others may use this machine
# programs of .ci/packages that these start: sudo, sshd, ip, openssl, nginx, PostgreSQL, ipmi_sim
TRIED = (
    "tests/real/test_login_removal.py",
    "tests/real/test_tenant_login.py",
    "tests/real/test_ssh_ends.py",
    "tests/real/test_ipmi_consoles.py",
    "tests/packaging/test_skips_told.py",
    "tests/packaging/test_tools.py",
)
# A machine apart from this one but for its network and kernel; its processes end with the first.
# Its root is that of the mount namespace: in a mere chroot, `nsenter` of a test's throw-away hosts
# comes out at the root of this machine, and writes there. That is tried before anything is run.
# /run/lock is there on any Debian: ipmi_sim locks its serial line in it, or serves no console.
ENTER = """\
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --rbind /dev dev
mount -t sysfs sysfs sys
mount -t tmpfs tmpfs run
mkdir -m 1777 run/lock
mkdir -p outside
pivot_root . outside
cd /
umount -l /outside
nsenter --mount=/proc/self/ns/mnt test -e /bare -a ! -e /outside/bin
exec /bin/sh -ec "$2"
"""
pytestmark = pytest.mark.long


def run_inside(root: Path, line: str, limit_s: float) -> str:
    """Run a line as root in the file system, with a plain environment; return its output."""
    kept = {k: v for k, v in os.environ.items() if PASSED_ON.match(k)}
    plain = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "PIP_CERT": str(CERTIFICATES),
        "SSL_CERT_FILE": str(CERTIFICATES),
        "NODE_EXTRA_CA_CERTS": str(CERTIFICATES),
    }
    words = [f"{name}={value}" for name, value in {**kept, **plain}.items()]
    apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
    return run_tool(
        *("env", "-i", *words, *apart, "sh", "-c", ENTER, "enter", root, f"cd /clone; {line}"),
        timeout_s=limit_s,
    )


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root file system, with this commit in /clone."""
    if os.geteuid() != 0:
        pytest.skip("a root file system of its own needs root")
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed: apt-get install mmdebstrap")
    root = tmp_path_factory.mktemp("bare") / "root"
    words = ("--variant=minbase", f"--include={','.join(NEEDED)}", "--format=directory")
    try:
        run_tool("mmdebstrap", "--quiet", *words, "bookworm", root, timeout_s=MADE_S)
    except ToolError as error:
        pytest.skip(f"needs a Debian mirror: {str(error)[-300:]}")
    for file in (Path("/etc/resolv.conf"), CERTIFICATES):
        if file.exists():
            shutil.copyfile(file, root / file.relative_to("/"))
    (root / "bare").touch()
    run_tool("git", "clone", "--quiet", "--no-local", ROOT, root / "clone")
    yield root
    shutil.rmtree(root, ignore_errors=True)


def test_a_bare_debian_comes_to_tests_that_pass_by_the_steps_that_are_written(bare: Path) -> None:
    missing = run_inside(bare, "for p in sudo sshd git; do command -v $p || echo $p; done", 60)
    assert missing.split() == ["sudo", "sshd", "git"]  # bare indeed

    run_inside(bare, ".ci/run packages", INSTALLED_S)
    wanted = [n for n in (ROOT / ".ci/packages").read_text().split("\n") if n and n[0] != "#"]
    kept = run_inside(bare, "dpkg-query -W -f '${Package} ${db:Status-Abbrev}\\n'", 60)
    assert {f"{name} ii" for name in wanted} <= {line.strip() for line in kept.splitlines()}

    run_inside(bare, "make setup", TRIED_S)
    line = f".venv/bin/pytest -p no:cacheprovider --tb=short {' '.join(TRIED)} || true"
    said = run_inside(bare, line, TRIED_S)

    assert re.search(r"=+ \d+ passed[^=]*=+\s*$", said), said[-8000:]
    assert " failed" not in said.splitlines()[-1], said[-8000:]
    assert ".ci/packages" not in said, said[-8000:]  # no test is skipped for want of a package


def test_the_packages_of_continuous_integration_are_found_missing_one_by_one(bare: Path) -> None:
    """The guard asks dpkg of each name: with one of them gone, it installs again."""
    run_inside(bare, "dpkg -r --force-depends ipmitool busybox", 300)

    run_inside(bare, ".ci/run packages", INSTALLED_S)

    found = run_inside(bare, "for p in ipmitool busybox; do command -v $p; done", 60)
    assert len(found.split()) == 2  # dash's `command -v` takes one name


def test_the_whole_of_continuous_integration_is_good_on_it(bare: Path) -> None:
    log = bare / "clone.log"  # to be read while it works

    run_inside(bare, f"CI_UNDER_LIMIT=1 .ci/run >/{log.name} 2>&1 || true", WHOLE_S)

    said = log.read_text(errors="replace")
    assert "=== all good" in said[-200:], said[-12000:]
    assert ".ci/packages" not in said, said[-12000:]  # no test is skipped for want of a package

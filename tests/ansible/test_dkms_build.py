"""A module that DKMS really builds and signs for a kernel that does not run here, and its judge.

The root directory has Debian's dkms, gcc, kmod and the headers of its kernel, unpacked by
mmdebstrap. Keys that a kernel would have are in a file over /proc/keys, in the kernel's form; the
last test asks that kernel itself, booted under Secure Boot.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import secure_boot
from role_lab import ANSIBLE

PACKAGES = (
    "base-files,bash,busybox-static,dash,dkms,linux-headers-amd64,linux-image-amd64,gcc,make,kmod,"
    "openssl,e2fsprogs,coreutils,grep,sed,mawk,findutils,patch,diffutils,util-linux,perl-base"
)
SOURCE = """\
#include <linux/module.h>
MODULE_LICENSE("GPL");
static int __init tiny_init(void) { return 0; }
static void __exit tiny_exit(void) { }
module_init(tiny_init);
module_exit(tiny_exit);
"""
CONF = """\
PACKAGE_NAME="tiny"
PACKAGE_VERSION="1.0"
BUILT_MODULE_NAME[0]="tiny"
DEST_MODULE_LOCATION[0]="/updates/dkms"
AUTOINSTALL="yes"
"""
# the module's own code, in the root directory: what is imported is imported before it enters
JUDGE = """
import fnmatch, glob, os, select, subprocess, sys, types
from ansible_collections.provisioner.fleet.plugins.module_utils import tools
from ansible_collections.provisioner.fleet.plugins.modules import kernel_modules
subprocess.run(["true"], capture_output=True, text=True)
os.chroot(sys.argv[1])
os.chdir("/")
params = {"modules": ["tiny"], "outside_tree": True, "as_now": False, "rebuild": [],
          "versions": {}, "built_by": {"tiny": "tiny"}}
try:
    module = types.SimpleNamespace(params=params, check_mode=False)
    print(kernel_modules.apply(module)["files"]["tiny"])
except tools.Refused as refused:
    print("refused:", refused)
"""
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
MOUNTS = "mount --bind /proc {root}/proc && mount --bind /dev {root}/dev"
KEY = "0a1b2c3d I------     1 perm 1f030000     0     0 asymmetri {}: {}: X509.rsa 0a850c19 []\n"


@dataclass(frozen=True)
class Machine:
    """A root directory with DKMS and the headers of one kernel."""

    path: Path
    kernel: str

    def run(self, line: str) -> str:
        entered = MOUNTS.format(root=self.path) + ' && exec chroot "$0" bash -c "$1"'
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", entered, str(self.path), line],
            env={"PATH": PATH},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    def judge(self, enrolled: str) -> str:
        """Let the role's module judge `tiny` under Secure Boot, with these rows of /proc/keys."""
        (self.path / "keys").write_text(enrolled)
        entered = (
            f"{MOUNTS.format(root=self.path)} && mount --bind {self.path}/keys"
            f' {self.path}/proc/keys && exec "$@"'
        )
        words = ["unshare", "-m", "sh", "-c", entered, "sh", sys.executable, "-c", JUDGE]
        done = subprocess.run(
            [*words, str(self.path)],
            env={"PATH": PATH, "PYTHONPATH": str(ANSIBLE / "collections")},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    def read_key(self, certificate: str) -> str:
        """Return a row of /proc/keys for a certificate: its name and subject key identifier."""
        read = f"openssl x509 -inform DER -in {certificate} -noout -subject"
        rows = self.run(f"{read} -ext subjectKeyIdentifier").splitlines()
        name = rows[0].partition("CN = ")[2]
        return KEY.format(name, rows[-1].strip().replace(":", "").lower())


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("needs root and mmdebstrap: apt install mmdebstrap")
    root = tmp_path_factory.mktemp("dkms") / "root"
    done = subprocess.run(
        ["mmdebstrap", "--variant=extract", f"--include={PACKAGES}", "bookworm", str(root),
         "http://deb.debian.org/debian"],
        capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("no network to Debian's mirror here")
    (root / "usr/bin/awk").symlink_to("mawk")
    (kernel,) = (folder.name for folder in (root / "lib/modules").iterdir())
    (root / "boot").mkdir(exist_ok=True)
    (root / f"boot/vmlinuz-{kernel}").touch()
    firmware = root / "sys/firmware/efi/efivars"
    firmware.mkdir(parents=True)
    variable = firmware / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    variable.write_bytes(b"\x06\x00\x00\x00\x01")
    source = root / "usr/src/tiny-1.0"
    source.mkdir()
    for name, text in (("tiny.c", SOURCE), ("Makefile", "obj-m += tiny.o\n"), ("dkms.conf", CONF)):
        (source / name).write_text(text)
    made = Machine(root, kernel)
    made.run(f"dkms install tiny/1.0 -k {kernel}")
    yield made
    shutil.rmtree(root)


OWN = "/var/lib/dkms/mok.pub"


@pytest.mark.long
@pytest.mark.slow
def test_a_module_of_dkms_loads_in_the_next_kernel_only_with_its_key_enrolled(machine: Machine):
    key = machine.read_key(OWN)
    file = f"/lib/modules/{machine.kernel}/updates/dkms/tiny.ko"

    assert os.uname().release != machine.kernel
    assert machine.judge(key) == file
    assert "a key that is not enrolled" in machine.judge("")
    assert "a newer 'DKMS module signing key' than the enrolled one" in machine.judge(
        key.replace(key.split(": ")[1], "0123456789abcdef0123456789abcdef01234567")
    )


@pytest.mark.long
@pytest.mark.slow
def test_a_module_that_another_key_signed_is_refused_before_a_restart(machine: Machine):
    own = machine.read_key(OWN)
    machine.run(
        "cd /tmp && openssl req -new -x509 -newkey rsa:2048 -nodes -days 10 -subj '/CN=another/'"
        " -keyout other.key -outform DER -out other.der 2>&1"
    )
    sign = f"/lib/modules/{machine.kernel}/updates/dkms/tiny.ko"
    tool = "$(ls /usr/lib/linux-kbuild-*/scripts/sign-file) sha256"
    machine.run(f"cp {sign} /tmp/tiny.ko && strip -g {sign}")
    unsigned = machine.judge(own)
    machine.run(f"{tool} /tmp/other.key /tmp/other.der {sign}")
    other = machine.judge(own)
    enrolled = machine.judge(own + machine.read_key("/tmp/other.der"))
    machine.run(f"mv /tmp/tiny.ko {sign}")

    assert "Secure Boot would refuse tiny: not signed" in unsigned
    assert "signed by 'another', a key that is not enrolled" in other
    assert enrolled == sign


@pytest.mark.long
@pytest.mark.slow
def test_a_kernel_that_dkms_did_not_build_for_is_refused(machine: Machine):
    newer = machine.path / "boot/vmlinuz-6.1.0-999-amd64"
    newer.touch()
    try:
        assert "DKMS has not built tiny for 6.1.0-999-amd64" in machine.judge(machine.read_key(OWN))
    finally:
        newer.unlink()


def make_server(machine: Machine, folder: Path) -> secure_boot.Machine:
    """Return a virtual machine whose Secure Boot has one key, or skip the test."""
    if missing := secure_boot.list_missing():
        pytest.skip(f"needs Debian's {', '.join(missing)}")
    libraries = machine.run("LD_TRACE_LOADED_OBJECTS=1 /usr/bin/chattr | grep -o '/lib[^ ]*'")
    return secure_boot.Machine(machine.path, machine.kernel, libraries.split(), folder)


@pytest.mark.long
@pytest.mark.slow
def test_the_next_kernel_under_secure_boot_loads_and_refuses_what_the_role_says(
    machine: Machine, tmp_path: Path
):
    """The key of DKMS is enrolled as a site would, between two boots of the kernel it built for."""
    built = machine.path / f"lib/modules/{machine.kernel}/updates/dkms/tiny.ko"
    modules = {n: Path(shutil.copy(built, tmp_path / f"{n}.ko")) for n in ("own", "unsigned")}
    subprocess.run(["strip", "-g", modules["unsigned"]], check=True)
    machine.run(f"openssl x509 -inform DER -in {OWN} -out /tmp/own.pem")
    server = make_server(machine, tmp_path)
    order = secure_boot.write_order(machine.path / "tmp/own.pem", server.signer, tmp_path)

    looks = [server.boot(modules, order), server.boot(modules)]
    verdicts: list[dict[str, str]] = [{}, {}]
    for look, verdict in zip(looks, verdicts, strict=True):
        for name, file in modules.items():
            shutil.copy(file, built)
            verdict[name] = machine.judge(look.keys)
    shutil.copy(modules["own"], built)

    for look, verdict in zip(looks, verdicts, strict=True):
        assert "Secure boot enabled" in look.console, look.console[-3000:]
        assert "[integrity]" in look.console
        assert look.modules["unsigned"] != "loaded"
        assert "not signed" in verdict["unsigned"]
    assert "state ordered" in looks[0].console
    assert looks[0].modules["own"] != "loaded"
    assert "a key that is not enrolled" in verdicts[0]["own"]
    assert looks[1].modules["own"] == "loaded"
    assert verdicts[1]["own"].endswith("tiny.ko")


@pytest.mark.long
@pytest.mark.slow
def test_a_signed_program_with_another_command_line_is_not_started(
    machine: Machine, tmp_path: Path
):
    """As the maintenance image is made: kernel, ramdisk and command line in one signed program."""
    server = make_server(machine, tmp_path)

    started = server.boot({})
    refused = server.boot({}, change=(b"console=ttyS0 panic=-1", b"console=ttyS0 panic=-7"))

    assert "panic=-1" in started.console
    assert "end-of-looks" in started.console
    assert "Access Denied" in refused.console
    assert "Linux version" not in refused.console

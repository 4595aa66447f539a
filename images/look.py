"""`make image-test`: unpacks a built ramdisk and looks whether it is what it must be. Needs root.

    python -m images.look [images/out/NAME.json]

Everything is read from the built files, in a scratch folder that is removed again; programs of the
image run in a chroot, in namespaces of their own, with no network. Exit code 0: all good, 1: one
line for each fault, 2: it cannot be looked at.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from images import manifest, ramdisk
from images.locks import BadInput
from images.manifest import Manifest

TRAILER, ZSTD = b"TRAILER!!!", b"\x28\xb5\x2f\xfd"
GONE = ("etc/pip.conf", "tmp/wheelhouse", "etc/provisioner-debian.lock",
        "root/.ssh/authorized_keys", "etc/apt/apt.conf.d/99provisioner-lock",
        "usr/local/sbin/provisioner-check-debs",
        "etc/apt/sources.list.d/provisioner-site.list", "var/lib/systemd/random-seed")  # fmt: skip
THERE = ("etc/ironic-python-agent.d/10-provisioner.conf", "usr/local/sbin/provisioner-trust",
         "etc/ssh/sshd_config.d/10-provisioner.conf", "etc/provisioner-image",
         "etc/systemd/network/10-provisioner.network")  # fmt: skip
ENABLED = ("ironic-python-agent", "provisioner-trust", "ssh", "systemd-networkd")
MASKED = ("ssh-keygen", "glean", "ironic-agent-resolve-config-drive")
TOOLS = ("nvme", "hdparm", "smartctl", "lsblk", "dmidecode", "ipmitool", "mstflint", "mstconfig",
         "ib_write_bw", "ibv_devinfo", "lldpctl", "ethtool", "fio", "stress-ng", "numactl",
         "tpm2_clear", "lspci", "dmesg", "shred", "qemu-img", "sgdisk", "python3")  # fmt: skip
DRIVERS = ("nvme", "mlx5_core", "mlx5_ib", "ib_uverbs", "vfat", "megaraid_sas", "mpt3sas", "ixgbe")
# in the agent's own environment: the plug-in is found by its entry point and takes the machine
PLUGIN = (
    "from ironic_python_agent import config; from importlib.metadata import entry_points as e;"
    "p = e(group='ironic_python_agent.hardware_managers'); m = {x.name: x for x in p};"
    "print(sorted(s['step'] for s in m['provisioner'].load()().get_clean_steps({}, [])))"
)


def unpack(initramfs: Path, into: Path) -> None:
    """Both archives, if a plain one stands before the compressed one. Raises BadInput."""
    content = initramfs.read_bytes()
    start = 0
    if not content.startswith(ZSTD):
        start = content.find(ZSTD, content.find(TRAILER))
        if start < 0:
            raise BadInput(f"{initramfs.name}: no compressed archive in it")
        _extract(content[:start], ("cpio",), into)
    _extract(content[start:], ("sh", "-c", "zstd -dc | cpio"), into)


def _extract(content: bytes, reader: tuple[str, ...], into: Path) -> None:
    flags = ["--extract", "--make-directories", "--unconditional", "--quiet",
             "--preserve-modification-time", "--no-absolute-filenames"]  # fmt: skip
    command = [*reader, *flags]
    if reader[0] == "sh":
        command = [*reader[:2], f"{reader[2]} {' '.join(flags)}"]
    ended = subprocess.run(  # noqa: S603
        command, input=content, cwd=into, capture_output=True, check=False
    )
    if ended.returncode:
        raise BadInput(f"the archive cannot be unpacked: {ended.stderr.decode()[-300:]}")


def faults(made: Manifest, folder: Path, tree: Path) -> Iterator[str]:
    """Everything that is not as it must be."""
    yield from (f"{name} is left in the image" for name in GONE if (tree / name).exists())
    yield from (f"{name} is not in the image" for name in THERE if not (tree / name).is_file())
    if list((tree / "etc/ssh").glob("ssh_host_*")):
        yield "there are SSH host keys in the image"
    if (tree / "etc/machine-id").read_text().strip():
        yield "there is a machine-id in the image"
    shadow = (tree / "etc/shadow").read_text().splitlines()
    if [line for line in shadow if line.split(":")[1][:1] not in {"*", "!"}]:
        yield "somebody can log in with a password, or with none"
    yield from _programs(tree)
    yield from _drivers(made, tree)
    identity = (tree / "etc/provisioner-image").read_text()
    if not identity.startswith(f"{manifest.NAME} {made.profile} "):
        yield f"the image says that it is {identity.strip()}"


def _programs(tree: Path) -> Iterator[str]:
    for unit in ENABLED:
        if (state := _inside(tree, "systemctl", "is-enabled", unit)) != "enabled":
            yield f"{unit} is {state}, not enabled"
    for unit in MASKED:
        if (state := _inside(tree, "systemctl", "is-enabled", unit)) != "masked":
            yield f"{unit} is {state}, not masked"
    yield from (f"{tool} is missing" for tool in TOOLS if not _inside(tree, "which", tool))
    steps = _inside(tree, "/opt/ironic-python-agent/bin/python", "-B", "-c", PLUGIN)
    if "provisioner_erase_device" not in steps:
        yield f"the agent does not find our hardware manager: {steps[-200:]}"
    for name, minor in (("null", 3), ("urandom", 9)):  # the kernel's own when it boots
        if not (device := tree / "dev" / name).exists():
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    key = "/etc/look_host_key"
    (tree / "run/sshd").mkdir(parents=True, exist_ok=True)  # systemd makes it, RuntimeDirectory=
    _inside(tree, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    settings = _inside(tree, "/usr/sbin/sshd", "-T", "-h", key).splitlines()
    for wanted in ("passwordauthentication no", "permitrootlogin without-password",
                   "authorizedkeysfile /run/provisioner/authorized_keys"):  # fmt: skip
        if wanted not in settings:
            yield f"sshd does not have: {wanted}"


def _drivers(made: Manifest, tree: Path) -> Iterator[str]:
    modules = {p.name.split(".")[0] for p in tree.glob("usr/lib/modules/*/kernel/**/*.ko*")}
    for driver in DRIVERS if made.profile == "production" else ("nvme", "vfat"):
        if driver not in modules:
            yield f"the kernel module {driver} is missing"


def _inside(tree: Path, *command: str) -> str:
    """What a program of the image prints, or its error."""
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    apart = ("unshare", "--net", "--mount", "--pid", "--fork", f"--mount-proc={tree}/proc")
    ended = subprocess.run(  # noqa: S603
        (*apart, "chroot", str(tree), *command),
        capture_output=True, text=True, check=False, timeout=120, env=environment,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return ended.stdout.strip() or ("" if command[0] == "which" else ended.stderr.strip())


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    path = Path(given[0]) if given else ramdisk.OUT / f"{manifest.NAME}-test.json"
    scratch = Path(tempfile.mkdtemp(prefix="look-", dir=path.parent if path.exists() else None))
    try:
        if os.geteuid() != 0:
            raise BadInput("unpacking and entering the ramdisk needs root")
        made = manifest.read(path)
        manifest.check_files(made, path.parent)
        unpack(path.parent / made.files["initramfs"].name, scratch)
        found = list(faults(made, path.parent, scratch))
    except BadInput as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for line in found:
        sys.stderr.write(f"{line}\n")
    packages = f"{len(made.debian)} Debian packages, {len(made.python)} Python packages"
    sys.stdout.write(f"image-test: {made.profile}, {packages}: ")
    sys.stdout.write(f"{len(found)} faults\n" if found else "all good\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

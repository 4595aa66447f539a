"""`make image-test`: unpacks a built ramdisk and verifies its content. Needs root.

    python -m images.built_image [images/out/NAME.json]

Everything is read from the built files, in a scratch folder that is removed again; programs of the
image run in a chroot, in namespaces of their own, with no network. Exit code 0: no fault, 1: one
line for each fault, 2: the image cannot be read.
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
GONE = (
    "etc/pip.conf",
    "tmp/wheelhouse",
    "etc/provisioner-debian.lock",
    "root/.ssh/authorized_keys",
    "etc/apt/apt.conf.d/99provisioner-lock",
    "usr/local/sbin/provisioner-check-debs",
    "etc/apt/sources.list.d/provisioner-site.list",
    "var/lib/systemd/random-seed",
)
THERE = (
    "etc/ironic-python-agent.d/10-provisioner.conf",
    "usr/local/sbin/provisioner-trust",
    "etc/ssh/sshd_config.d/10-provisioner.conf",
    "etc/provisioner-image",
    "etc/systemd/network/10-provisioner.network",
)
ENABLED = ("ironic-python-agent", "provisioner-trust", "ssh", "systemd-networkd")
MASKED = ("ssh-keygen", "glean", "ironic-agent-resolve-config-drive")
TOOLS = (
    "nvme",
    "hdparm",
    "smartctl",
    "lsblk",
    "dmidecode",
    "ipmitool",
    "mstflint",
    "mstconfig",
    "ib_write_bw",
    "ibv_devinfo",
    "lldpctl",
    "ethtool",
    "fio",
    "stress-ng",
    "numactl",
    "tpm2_clear",
    "tpm2_nvread",
    "tpm2_activatecredential",
    "lspci",
    "dmesg",
    "shred",
    "qemu-img",
    "sgdisk",
    "python3",
)
DRIVERS = ("nvme", "mlx5_core", "mlx5_ib", "ib_uverbs", "vfat", "megaraid_sas", "mpt3sas", "ixgbe")
# runs in the agent's own environment: loads the plug-in by its entry point and prints its steps
PLUGIN = (
    "from ironic_python_agent import config; from importlib.metadata import entry_points as e;"
    "p = e(group='ironic_python_agent.hardware_managers'); m = {x.name: x for x in p};"
    "print(sorted(s['step'] for s in m['provisioner'].load()().get_clean_steps({}, [])))"
)


def unpack(initramfs: Path, into: Path) -> None:
    """Extract a ramdisk, and an uncompressed archive that may precede it. Raises BadInput."""
    content = initramfs.read_bytes()
    start = 0
    if not content.startswith(ZSTD):
        start = content.find(ZSTD, content.find(TRAILER))
        if start < 0:
            raise BadInput(f"{initramfs.name}: no compressed archive in it")
        _extract(content[:start], ("cpio",), into)
    _extract(content[start:], ("sh", "-c", "zstd -dc | cpio"), into)


def _extract(content: bytes, reader: tuple[str, ...], into: Path) -> None:
    flags = [
        "--extract",
        "--make-directories",
        "--unconditional",
        "--quiet",
        "--preserve-modification-time",
        "--no-absolute-filenames",
    ]
    command = [*reader, *flags]
    if reader[0] == "sh":
        command = [*reader[:2], f"{reader[2]} {' '.join(flags)}"]
    ended = subprocess.run(  # noqa: S603
        command, input=content, cwd=into, capture_output=True, check=False
    )
    if ended.returncode:
        raise BadInput(f"the archive cannot be unpacked: {ended.stderr.decode()[-300:]}")


def find_faults(built: Manifest, folder: Path, tree: Path) -> Iterator[str]:
    """Yield every fault of the image."""
    yield from (f"{name} was left in the image" for name in GONE if (tree / name).exists())
    yield from (f"{name} is not in the image" for name in THERE if not (tree / name).is_file())
    if list((tree / "etc/ssh").glob("ssh_host_*")):
        yield "there are SSH host keys in the image"
    if (tree / "etc/machine-id").read_text().strip():
        yield "there is a machine-id in the image"
    shadow = (tree / "etc/shadow").read_text().splitlines()
    if [line for line in shadow if line.split(":")[1][:1] not in {"*", "!"}]:
        yield "a user can log in with a password, or without one"
    yield from _check_programs(tree)
    yield from _check_drivers(built, tree)
    identity = (tree / "etc/provisioner-image").read_text()
    if not identity.startswith(f"{manifest.NAME} {built.profile} "):
        yield f"the image's identity is {identity.strip()}"


def _check_programs(tree: Path) -> Iterator[str]:
    for unit in ENABLED:
        if (state := _run_inside(tree, "systemctl", "is-enabled", unit)) != "enabled":
            yield f"{unit} is {state}, not enabled"
    for unit in MASKED:
        if (state := _run_inside(tree, "systemctl", "is-enabled", unit)) != "masked":
            yield f"{unit} is {state}, not masked"
    yield from (f"{tool} is missing" for tool in TOOLS if not _run_inside(tree, "which", tool))
    steps = _run_inside(tree, "/opt/ironic-python-agent/bin/python", "-B", "-c", PLUGIN)
    if "provisioner_erase_device" not in steps:
        yield f"the agent does not find our hardware manager: {steps[-200:]}"
    for name, minor in (("null", 3), ("urandom", 9)):  # the kernel makes these when it boots
        if not (device := tree / "dev" / name).exists():
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    key = "/etc/look_host_key"
    (tree / "run/sshd").mkdir(parents=True, exist_ok=True)  # systemd makes it, RuntimeDirectory=
    _run_inside(tree, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    settings = _run_inside(tree, "/usr/sbin/sshd", "-T", "-h", key).splitlines()
    for setting in (
        "passwordauthentication no",
        "permitrootlogin without-password",
        "authorizedkeysfile /run/provisioner/authorized_keys",
    ):
        if setting not in settings:
            yield f"sshd lacks the setting: {setting}"


def _check_drivers(built: Manifest, tree: Path) -> Iterator[str]:
    modules = {p.name.split(".")[0] for p in tree.glob("usr/lib/modules/*/kernel/**/*.ko*")}
    for driver in DRIVERS if built.profile == "production" else ("nvme", "vfat"):
        if driver not in modules:
            yield f"the kernel module {driver} is missing"


def _run_inside(tree: Path, *command: str) -> str:
    """Return the output of a program of the image, or its error."""
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    apart = ("unshare", "--net", "--mount", "--pid", "--fork", f"--mount-proc={tree}/proc")
    ended = subprocess.run(  # noqa: S603
        (*apart, "chroot", str(tree), *command),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    return ended.stdout.strip() or ("" if command[0] == "which" else ended.stderr.strip())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = sys.argv[1:] if arguments is None else arguments
    path = Path(options[0]) if options else ramdisk.OUT / f"{manifest.NAME}-test.json"
    scratch = Path(tempfile.mkdtemp(prefix="look-", dir=path.parent if path.exists() else None))
    try:
        if os.geteuid() != 0:
            raise BadInput("unpacking and entering the ramdisk needs root")
        built = manifest.read(path)
        manifest.check_files(built, path.parent)
        unpack(path.parent / built.files["initramfs"].name, scratch)
        fault_lines = list(find_faults(built, path.parent, scratch))
    except BadInput as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for line in fault_lines:
        sys.stderr.write(f"{line}\n")
    packages = f"{len(built.debian)} Debian packages, {len(built.python)} Python packages"
    sys.stdout.write(f"image-test: {built.profile}, {packages}: ")
    sys.stdout.write(f"{len(fault_lines)} faults\n" if fault_lines else "all good\n")
    return 1 if fault_lines else 0


if __name__ == "__main__":
    sys.exit(main())

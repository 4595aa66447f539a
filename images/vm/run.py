"""`make vm-test`: one command; prints each stage with its time, and one JSON object at the end.

    python -m images.vm.run [--image images/out/NAME.json] [--install]

Needs root and Debian packages (it names missing ones; `--install` installs them). Exit codes: 0 all
stages succeeded, 1 a stage failed, 2 the test cannot run here.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

from images import iso, manifest, ramdisk
from images.locks import BadInput

_DRIVERS = "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver"
PACKAGES = {
    "libvirtd": "libvirt-daemon-system",
    "virsh": "libvirt-clients",
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "dnsmasq": "dnsmasq-base",
    "ip": "iproute2",
    "unshare": "util-linux",
    "grub-mkstandalone": "grub-common",
    "/usr/lib/grub/x86_64-efi/normal.mod": "grub-efi-amd64-bin",
    f"{_DRIVERS}/libvirt_driver_qemu.so": "libvirt-daemon-driver-qemu",
    "/usr/lib/python3/dist-packages/libvirt.py": "python3-libvirt",
    "/usr/share/OVMF/OVMF_CODE_4M.fd": "ovmf",
    **iso.TOOLS,
    **iso.LOADERS,
}
INSIDE = "PROVISIONER_VM_INSIDE"  # set for the copy of this program in the namespaces


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m images.vm.run", description=__doc__)
    default = ramdisk.OUT / f"{manifest.NAME}-test.json"
    parser.add_argument("--image", type=Path, default=default)
    parser.add_argument("--install", action="store_true", help="apt-get install what is missing")
    options = parser.parse_args(arguments)
    try:
        if os.environ.get(INSIDE):
            return _run_as_first_process(options)
        _require_packages(install=options.install)
        built = manifest.read(options.image)
        manifest.check_files(built, options.image.parent)
    except BadInput as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    # When the first process of a process namespace ends, the kernel ends all others.
    namespaces = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
    command = [*namespaces, sys.executable, "-m", "images.vm.run", *(arguments or sys.argv[1:])]
    return subprocess.run(command, env=os.environ | {INSIDE: "1"}, check=False).returncode  # noqa: S603


def _require_packages(*, install: bool) -> None:
    if os.geteuid() != 0:
        raise BadInput("needs root: namespaces, mounts and libvirt")
    missing = sorted(
        {
            package
            for thing, package in PACKAGES.items()
            if not (Path(thing).exists() if thing.startswith("/") else shutil.which(thing))
        }
    )
    if not missing:
        return
    if not install:
        raise BadInput(f"missing. On Debian: apt-get install {' '.join(missing)} (or --install)")
    command = ["apt-get", "install", "--assume-yes", "--no-install-recommends", *missing]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run(command, env=environment, check=False).returncode:  # noqa: S603
        raise BadInput("apt-get failed")


def _run_as_first_process(options: argparse.Namespace) -> int:
    """Run the test in a child, and reap orphans.

    The first process of a process namespace inherits orphans, and libvirt waits until the processes
    that it has ended are gone. So this process does nothing else.
    """
    child = os.fork()
    if not child:
        return _run_inside(options)
    while True:
        ended, status = os.wait()
        if ended == child:
            return os.waitstatus_to_exitcode(status)


def _run_inside(options: argparse.Namespace) -> int:
    """Run the test inside the namespaces, and print its report."""
    import asyncssh

    from images.vm import journey
    from images.vm.lab import AGENT_PORT, GATEWAY, Lab
    from provisioner.ports import PortError

    built = manifest.read(options.image)
    with tempfile.TemporaryDirectory(prefix="vm-test-", dir=options.image.parent) as scratch:
        folder = Path(scratch)
        lab = Lab(folder)
        times = journey.StageTimes(lab)
        key = asyncssh.generate_private_key("ssh-ed25519")
        site_iso = _make_site_iso(
            options.image,
            built,
            folder,
            journey.read_authority(folder / "data"),
            f"https://{GATEWAY}:{AGENT_PORT}",
            key,
        )
        site = built.model_copy(
            update={"files": built.files | {"iso": manifest.describe_file(site_iso)}}
        )
        failure = ""
        try:
            login = lab.start()
            stages = journey.run(lab, login, site_iso, site, key, folder / "data", times)
            asyncio.run(stages)
        except (journey.StageFailed, BadInput, PortError) as error:
            failure = str(error)
            sys.stderr.write(f"failed: {error}\n")
        finally:
            _keep_logs(folder, options.image.parent)
            lab.stop()
    report = {
        "ok": not failure,
        "image": built.digest(),
        "failure": failure[:300],
        "cpus": os.cpu_count(),
        "stages": times.stages,
    }
    sys.stdout.write(json.dumps(report) + "\n")
    return 1 if failure else 0


def _make_site_iso(
    source: Path, built: manifest.Manifest, folder: Path, ca_pem: str, url: str, key: object
) -> Path:
    """Make the image with this daemon's address, CA and public key on its command line."""
    ca = base64.b64encode(ssl.PEM_cert_to_DER_cert(ca_pem)).decode()
    public = key.export_public_key("openssh").decode().split()[1]  # type: ignore[attr-defined]
    arguments = f"ipa-api-url={url} provisioner-ca={ca} provisioner-ssh-key={public}"
    out = folder / "files" / "site.iso"
    out.parent.mkdir()
    parts = (source.parent / built.files[name].name for name in ("kernel", "initramfs"))
    kernel, initramfs = parts
    iso.make_iso(kernel, initramfs, f"{ramdisk.PROFILES['test'].cmdline} {arguments}", out)
    return out


def _keep_logs(folder: Path, out: Path) -> None:
    """Keep the machine's output for a person who investigates a failure."""
    for name in ("console.log", "sushy.log", "libvirtd.log"):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, out / f"vm-test-{name}")


if __name__ == "__main__":
    sys.exit(main())

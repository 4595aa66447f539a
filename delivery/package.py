"""Builds the Debian package: the program below /opt, its unit, its user and its configuration.

The package is for Debian 12, whose Python the tree uses, and for the architecture of this machine.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path

from delivery.sources import NAME, ROOT, read_version, run_tool
from delivery.tree import build_tree

RECIPE = Path(__file__).with_name("debian")
UNIT = ROOT / "images" / "daemon" / "provisioner.service"
SCRIPTS = ("postinst", "prerm", "postrm")
# openssh-client: keys of hosts; qemu-utils: images of operating systems in qcow2
CONTROL = """\
Package: {name}
Version: {version}
Architecture: {architecture}
Maintainer: The provisioner's operators <root@localhost>
Installed-Size: {size}
Depends: python3.11, ca-certificates, openssh-client, systemd
Recommends: qemu-utils
Section: admin
Priority: optional
Description: provisioner of GPU servers
 Takes racks of GPU servers from cabled to released into a customer's network,
 by Redfish, Ansible and the switches' API. The package has the daemon with its
 Python packages in /opt/provisioner, and a systemd unit that is not enabled.
"""


def build_package(release: Path, epoch: int) -> Path:
    """Build the package from the release's wheel and packages, into the release's folder."""
    version = read_version()
    architecture = run_tool(["dpkg", "--print-architecture"]).strip()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "root"
        build_tree(place, release)
        add_files(place, release, version, epoch)
        sizes = (p.stat().st_size for p in place.rglob("*") if p.is_file())
        control = CONTROL.format(
            name=NAME, version=version, architecture=architecture, size=sum(sizes) // 1024
        )
        add_control(place / "DEBIAN", control)
        package = release / f"{NAME}_{version}_{architecture}.deb"
        pack = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--build"]
        run_tool([*pack, str(place), str(package)], SOURCE_DATE_EPOCH=str(epoch))
    return package


def add_files(place: Path, release: Path, version: str, epoch: int) -> None:
    """Add the unit, the user, the configuration, the link to the program and the papers."""
    papers = f"usr/share/doc/{NAME}"
    for source, target in (
        (UNIT, "usr/lib/systemd/system/provisioner.service"),
        (RECIPE / "sysusers.conf", f"usr/lib/sysusers.d/{NAME}.conf"),
        (RECIPE / "provisioner.env", "etc/provisioner/provisioner.env"),
        (RECIPE / "copyright", f"{papers}/copyright"),
        (release / f"{NAME}-{version}.cdx.json", f"{papers}/{NAME}.cdx.json"),
    ):
        path = place / target
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
        path.chmod(0o644)
    changes = (ROOT / "CHANGELOG.md").read_bytes()
    (place / papers / "changelog.gz").write_bytes(gzip.compress(changes, mtime=epoch))
    link = place / "usr" / "bin" / "provisioner"
    link.parent.mkdir(parents=True)
    link.symlink_to("/opt/provisioner/bin/provisioner")
    for folder in (p for p in (place, *place.rglob("*")) if p.is_dir() and not p.is_symlink()):
        folder.chmod(0o755)


def add_control(folder: Path, control: str) -> None:
    """Write the package's control files and the scripts that dpkg runs."""
    folder.mkdir(mode=0o755)
    (folder / "control").write_text(control, encoding="utf-8")
    (folder / "conffiles").write_text("/etc/provisioner/provisioner.env\n", encoding="utf-8")
    for name in SCRIPTS:
        shutil.copyfile(RECIPE / name, folder / name)
        (folder / name).chmod(0o755)

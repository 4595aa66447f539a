"""A site's own packages in the image: a folder of .deb files, installed by apt behind its door.

A throw-away host stands for the chroot: real apt and dpkg, our own scripts, a small real package.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, hosts, why_not

from images.ramdisk import ELEMENTS

SITE = ELEMENTS / "provisioner-site"
DOOR = ELEMENTS / "provisioner-offline/bin/provisioner-check-debs"
DIGESTS = ELEMENTS / "provisioner-offline/post-install.d/96-provisioner-deb-digests"
MFT = "/tmp/provisioner-site-debs/mft_4.34.1-10_amd64.deb"

# no package is installed, and the mirror has one that nothing asks for
INDEX = "Package: other\\nVersion: 1\\nFilename: ./other.deb\\nSize: 1\\nSHA256: " + "0" * 64
BARE = (
    "rm -rf /etc/apt/sources.list.d/* /var/lib/apt/lists/* /var/lib/dpkg && mkdir -p /srv/mirror"
    " /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers"
    " && touch /var/lib/dpkg/status /var/lib/dpkg/available"
    f" && printf '{INDEX}\\n' >/srv/mirror/Packages"
    " && echo 'deb [trusted=yes] file:/srv/mirror ./' >/etc/apt/sources.list"
    """ && echo 'APT::Sandbox::User "root"; Acquire::GzipIndexes "false";'"""
    " >/etc/apt/apt.conf.d/zz"
    " && apt-get -qq update"
)


def build(folder: Path) -> Path:
    """A package with one program, in the place and under the name of a site's."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/mlxlink").write_text("#!/bin/sh\necho mlxlink of the site\n")
    (tree / "usr/bin/mlxlink").chmod(0o755)
    (tree / "DEBIAN/control").write_text(
        "Package: mft\nVersion: 4.34.1-10\nArchitecture: all\nMaintainer: site <site@example.net>\n"
        "Description: a site's build\n"
    )
    file = folder / "debs" / Path(MFT).name
    file.parent.mkdir()
    line = ["dpkg-deb", "--root-owner-group", "-b", tree, file]
    subprocess.run(line, check=True, capture_output=True)
    return file


@pytest.fixture
def chroot(tmp_path: Path) -> Iterator[Host]:
    if reason := why_not():
        pytest.skip(reason)
    with hosts(1, tmp_path / "host") as made:
        host = made[0]
        host.run(BARE)
        host.put("/usr/local/sbin/provisioner-check-debs", DOOR.read_text(), 0o755)
        door = 'DPkg::Pre-Install-Pkgs {"/usr/local/sbin/provisioner-check-debs";};\n'
        host.put("/etc/apt/apt.conf.d/99provisioner-lock", door)
        host.put("/run/60-provisioner-site", (SITE / "install.d/60-provisioner-site").read_text())
        yield host


def enter(folder: Path, chroot: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the script that copies a site's files into the chroot."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (tools / "sudo").chmod(0o755)
    names = ("DEBS", "MIRROR", "PACKAGES", "KEY", "CA")
    empty = {f"IMAGE_SITE_{name}": "" for name in names}
    return subprocess.run(
        ["bash", SITE / "extra-data.d/20-provisioner-site"],
        env={**empty, **settings, "TMP_MOUNT_PATH": str(chroot),
             "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def install(host: Host) -> subprocess.CompletedProcess[str]:
    return host.run("IMAGE_SITE_PACKAGES= bash /run/60-provisioner-site 2>&1", check=False)


def test_a_sites_package_is_installed_by_its_digest_and_is_in_the_manifest(
    chroot: Host, tmp_path: Path
) -> None:
    deb = build(tmp_path)
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    lock = {"IMAGE_SITE_LOCK": str(tmp_path / "site.lock")}

    entered = enter(tmp_path, tmp_path / "mount", IMAGE_SITE_DEBS=str(deb.parent), **lock)
    copied = tmp_path / "mount/tmp/provisioner-site-debs"
    chroot.copy(copied, str(Path(MFT).parent))
    chroot.put("/etc/provisioner-debian.lock", f"mft 4.34.1-10 {'0' * 64}\n")
    wrong = install(chroot)
    left = chroot.run("command -v mlxlink", check=False).returncode
    chroot.put("/etc/provisioner-debian.lock", f"# the site's\nmft 4.34.1-10 {digest}\n")
    right = install(chroot)
    # the rest of the script needs the agent and a kernel of the image
    digests = DIGESTS.read_text().partition("/opt/ironic-python-agent")[0]
    chroot.put("/run/96-digests", digests)
    chroot.run("mkdir -p /etc/dib-manifests && bash /run/96-digests")

    assert entered.returncode == 0, entered.stderr
    assert wrong.returncode != 0
    assert f"not in the lock: {Path(MFT).name} sha256 {digest}" in wrong.stdout
    assert left != 0
    assert right.returncode == 0, right.stdout
    assert chroot.run("mlxlink").stdout == "mlxlink of the site\n"
    assert chroot.run(f"test -e {MFT}", check=False).returncode != 0
    listed = chroot.get("/etc/dib-manifests/debian-packages").splitlines()
    assert f"mft 4.34.1-10 {digest}" in listed


@pytest.mark.parametrize(
    ("lock", "file", "why"),
    [
        ("", "mft.deb", "needs IMAGE_SITE_LOCK, a file with the digest of each package"),
        ("site.lock", "mft.rpm", "no .deb file in"),
    ],
)
def test_a_folder_without_a_lock_or_without_packages_is_refused(
    tmp_path: Path, lock: str, file: str, why: str
) -> None:
    (tmp_path / file).touch()

    refused = enter(
        tmp_path, tmp_path / "mount", IMAGE_SITE_DEBS=str(tmp_path), IMAGE_SITE_LOCK=lock
    )

    assert refused.returncode == 1
    assert why in refused.stderr


def test_no_folder_is_no_layer(tmp_path: Path) -> None:
    assert enter(tmp_path, tmp_path / "mount").returncode == 0
    assert not (tmp_path / "mount").exists()

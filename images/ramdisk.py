"""Runs ironic-python-agent-builder with our elements; only verified inputs reach the chroot.

What makes it hermetic: no source repository is git, pip in the chroot has a folder and no index,
and apt's packages are looked up in the lock before they are unpacked (`provisioner-offline`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from images import inputs, iso, locks, manifest
from images.locks import BadInput

HERE = Path(__file__).resolve().parent
LOCKS = HERE / "lock"
ELEMENTS = HERE / "elements"
MANAGER = HERE / "hardware_manager"
OUT = HERE / "out"
DISTRIBUTION = "debian-minimal"
RELEASE = "bookworm"
BASE = (
    "provisioner-offline",
    "provisioner-agent",
    "provisioner-trust",
    "provisioner-diagnostics",
    "provisioner-site",
)
# Sources that elements would clone from git, and that `environment` replaces by verified files;
# with install type "package" the element fetches nothing (glean comes from the wheelhouse, and is
# switched off in the image).
SOURCES = frozenset({"ironic_python_agent", "requirements", "glean"})
# no BOOTIF and no configuration drive: provisioner-agent has switched off what would look for them
CONSOLE = "console=tty0 console=ttyS0,115200"
FREE_GIB_MIN = 6  # the chroot, two copies of the ramdisk, the ISO
BUILD_LIMIT_S = 4 * 3600  # three and a half minutes on an idle machine of two cores
# What the build asks of the machine: tool -> Debian package
TOOLS = {
    "debootstrap": "debootstrap", "qemu-img": "qemu-utils", "kpartx": "kpartx", "sudo": "sudo",
    "rsync": "rsync", "cpio": "cpio", "sgdisk": "gdisk", "mkfs.vfat": "dosfstools",
    "zstd": "zstd", "git": "git", "openssl": "openssl",
}  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """What differs between the image for nodes and the one for tests."""

    name: str
    elements: tuple[str, ...]
    compress: str  # reads the archive, writes it compressed
    cmdline: str


# The kernel of Debian 12 unpacks zstd; a strong setting halves what a BMC has to carry over its
# network, a weak one is enough for a test. `no_timer_check`: a starved virtual machine otherwise
# stops with "IO-APIC + timer doesn't work".
PROFILES = {
    p.name: p
    for p in (
        Profile("production", BASE, "zstd -12 -T0 -q", CONSOLE),
        Profile(
            "test",
            (*BASE, "provisioner-test"),
            "zstd -3 -T0 -q",
            f"{CONSOLE} no_timer_check mitigations=off systemd.journald.forward_to_console=1",
        ),
    )
}


def element_path(venv: Path) -> str:
    """Where diskimage-builder finds elements: ours, the builder's, its own."""
    own = next(venv.glob("lib/python3.*/site-packages/diskimage_builder/elements"))
    return f"{ELEMENTS}:{venv / 'share/ironic-python-agent-builder/dib'}:{own}"


def ready(out: Path) -> None:
    """Raises BadInput, with what to install, if this machine cannot build."""
    if os.geteuid() != 0:
        raise BadInput("building needs root: a chroot, its mounts and a package installation")
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    missing += sorted({p for t, p in iso.TOOLS.items() if shutil.which(t) is None})
    missing += sorted({p for f, p in iso.LOADERS.items() if not Path(f).is_file()})
    if missing:
        raise BadInput(
            f"missing tools. On Debian: apt-get install {' '.join(dict.fromkeys(missing))}"
        )
    out.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(out).free >> 30
    if free < FREE_GIB_MIN:
        raise BadInput(f"{out}: {free} GiB free, {FREE_GIB_MIN} are needed")


def digests() -> dict[str, str]:
    """Every input of ours and every lock, by name."""
    files = {f"lock/{p.name}": locks.file_sha256(p) for p in sorted(LOCKS.glob("*.lock"))}
    trees = {f"elements/{p.name}": locks.tree_sha256(p) for p in sorted(ELEMENTS.iterdir())}
    return files | trees | {"hardware_manager": locks.tree_sha256(MANAGER)}


def locked(path: Path) -> dict[str, locks.Package]:
    """A lock file of Debian packages or boot loaders. Raises BadInput if there is none."""
    if not path.is_file():
        raise BadInput(f"{path} is missing; make it with --update-lock")
    return locks.packages(path.read_text(), path.name)


def allowed() -> dict[str, locks.Package]:
    """Every package that may be unpacked: what stays, what is only built with, what a site adds.

    Keyed by digest, since a name may stand in more than one.
    """
    files = (LOCKS / "debian.lock", LOCKS / "debian-build.lock")
    found = [p for file in files for p in locked(file).values()]
    return {p.sha256: p for p in [*found, *site_lock().values()]}


def site_lock() -> dict[str, locks.Package]:
    """The packages that a site adds (element `provisioner-site`)."""
    site = os.environ.get("IMAGE_SITE_LOCK")
    return locked(Path(site)) if site else {}


def mirrors() -> tuple[str, str]:
    """(archive, security archive): as given, else what this machine's apt uses for the release."""
    given = os.environ.get("IMAGE_DEBIAN_MIRROR"), os.environ.get("IMAGE_DEBIAN_SECURITY_MIRROR")
    listing = ""
    if shutil.which("apt-get"):
        command = ("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)")
        listing = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=False
        ).stdout
    own = dict(reversed([line.split() for line in listing.splitlines() if line.count(" ") == 1]))
    archive = given[0] or own.get(RELEASE)
    security = given[1] or own.get(f"{RELEASE}-security")
    if not archive or not security:
        raise BadInput(
            f"this machine's apt has no mirror of {RELEASE} and {RELEASE}-security. "
            "Set IMAGE_DEBIAN_MIRROR and IMAGE_DEBIAN_SECURITY_MIRROR."
        )
    return archive.rstrip("/"), security.rstrip("/")


def environment(
    profile: Profile, out: Path, venv: Path, given: inputs.Inputs, *, update_lock: bool
) -> dict[str, str]:
    """What diskimage-builder and its elements read. Nothing else of ours reaches the chroot."""
    archive, security = mirrors()
    # settings of this machine that name files which the chroot does not have
    host_only = {"PIP_CERT", "PIP_FIND_LINKS", "SSL_CERT_FILE", "SSL_CERT_DIR",
                 "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PYTHONPATH", "VIRTUAL_ENV"}  # fmt: skip
    result = {k: v for k, v in os.environ.items() if k not in host_only}
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    result |= {
        "PATH": f"{venv / 'bin'}:{system}",
        "TMP_DIR": str(out / "scratch"),
        "DIB_IMAGE_CACHE": str(out / "cache"),
        "DIB_NO_TMPFS": "1",
        "DIB_RELEASE": RELEASE,
        "DIB_DISTRIBUTION_MIRROR": archive,
        "DIB_DEBIAN_SECURITY_MIRROR": security,
        # no git: the agent and the constraints are files here, glean is in the wheelhouse
        "DIB_INSTALLTYPE_glean": "package",
        "DIB_REPOTYPE_ironic_python_agent": "tar",
        "DIB_REPOREF_ironic_python_agent": "*",
        "DIB_REPOLOCATION_ironic_python_agent": given.source.as_uri(),
        "DIB_REPOTYPE_requirements": "tar",
        "DIB_REPOREF_requirements": ".",
        "DIB_REPOLOCATION_requirements": given.constraints.as_uri(),
        "DIB_IPA_COMPRESS_CMD": profile.compress,
        "DIB_IPA_ENABLE_RESCUE": "false",  # a password from outside is not ours to offer
        "PROVISIONER_WHEELHOUSE": str(given.wheelhouse),
        "PROVISIONER_IMAGE_ID": f"{manifest.NAME} {profile.name} {identity()}",
    }
    if not update_lock:
        file = out / "inputs/allowed.lock"
        file.write_text("".join(f"{p.line()}\n" for p in sorted(allowed().values())))
        result["PROVISIONER_DEBIAN_LOCK"] = str(file)
    return result


def identity() -> str:
    """Of the inputs; the manifest's digest is known only when the image is there."""
    return hashlib.sha256(repr(sorted(digests().items())).encode()).hexdigest()[:16]


def disk_image_create(
    profile: Profile, out: Path, venv: Path, given: inputs.Inputs, *, update_lock: bool, name: str
) -> None:
    """Make NAME.kernel, NAME.initramfs and NAME.d in `out`. Raises BadInput."""
    for folder in ("scratch", "cache"):
        (out / folder).mkdir(exist_ok=True)
    for old in out.glob(f"{name}.*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    command = [str(venv / "bin/ironic-python-agent-builder"), "--elements-path", str(ELEMENTS)]
    for element in profile.elements:
        command += ["-e", element]
    command += ["-o", str(out / name), "-v", DISTRIBUTION]
    log = out / f"{name}.log"
    with log.open("wb") as file:
        ended = subprocess.run(  # noqa: S603
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=out,
            env=environment(profile, out, venv, given, update_lock=update_lock),
            timeout=BUILD_LIMIT_S,
            check=False,
        )
    if ended.returncode:
        ours = [x for x in log.read_text(errors="replace").splitlines() if "provisioner: " in x]
        raise BadInput(f"diskimage-builder failed, see {log}\n" + "\n".join(ours[-20:]))

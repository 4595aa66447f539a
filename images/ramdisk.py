"""Runs ironic-python-agent-builder with our elements; only verified inputs reach the chroot.

The build is hermetic because no source repository is git, pip in the chroot has a folder and no
index, and apt's packages are looked up in the lock before they are unpacked
(`provisioner-offline`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from delivery.tools import read_last_lines
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
# Sources that elements would clone from git, and that `build_environment` replaces by verified
# files; with install type "package" the element fetches nothing (glean comes from the wheelhouse,
# and is switched off in the image).
SOURCES = frozenset({"ironic_python_agent", "requirements", "glean"})
# no BOOTIF and no configuration drive: provisioner-agent switches off the services that use them
CONSOLE = "console=tty0 console=ttyS0,115200"
FREE_GIB_MIN = 6  # the chroot, two copies of the ramdisk, the ISO
BUILD_LIMIT_S = 4 * 3600  # the build takes three and a half minutes on an idle 2-core machine
# tools that the build needs -> Debian package
TOOLS = {
    "debootstrap": "debootstrap",
    "qemu-img": "qemu-utils",
    "kpartx": "kpartx",
    "sudo": "sudo",
    "rsync": "rsync",
    "cpio": "cpio",
    "sgdisk": "gdisk",
    "mkfs.vfat": "dosfstools",
    "zstd": "zstd",
    "git": "git",
    "openssl": "openssl",
}


@dataclass(frozen=True)
class Profile:
    """The differences between the image for nodes and the one for tests."""

    name: str
    elements: tuple[str, ...]
    compress: str  # command that compresses the archive from input to output
    cmdline: str


# The kernel of Debian 12 unpacks zstd; a strong setting halves the bytes that a BMC has to read
# over its network, a weak one is enough for a test. `no_timer_check`: a starved virtual machine
# otherwise stops with "IO-APIC + timer doesn't work".
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
    """Return where diskimage-builder finds elements: ours, the builder's, its own."""
    own = next(venv.glob("lib/python3.*/site-packages/diskimage_builder/elements"))
    return f"{ELEMENTS}:{venv / 'share/ironic-python-agent-builder/dib'}:{own}"


def require_tools(out: Path) -> None:
    """Raise BadInput, with the packages to install, if this machine cannot build."""
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


def hash_inputs() -> dict[str, str]:
    """Return the digests of all our inputs and locks, by name."""
    files = {f"lock/{p.name}": locks.hash_file(p) for p in sorted(LOCKS.glob("*.lock"))}
    trees = {f"elements/{p.name}": locks.hash_tree(p) for p in sorted(ELEMENTS.iterdir())}
    return files | trees | {"hardware_manager": locks.hash_tree(MANAGER)}


def read_lock(path: Path) -> dict[str, locks.Package]:
    """Return a lock file of Debian packages or boot loaders. Raises BadInput if it is missing."""
    if not path.is_file():
        raise BadInput(f"{path} is missing; make it with --update-lock")
    return locks.parse_packages(path.read_text(), path.name)


def list_allowed() -> dict[str, locks.Package]:
    """Return every package that may be unpacked: those that stay, build tools, the site's own.

    The key is the digest, because a name may occur more than once.
    """
    files = (LOCKS / "debian.lock", LOCKS / "debian-build.lock")
    listed = [p for file in files for p in read_lock(file).values()]
    return {p.sha256: p for p in [*listed, *read_site_lock().values()]}


def read_site_lock() -> dict[str, locks.Package]:
    """Return the packages that a site adds (element `provisioner-site`)."""
    site = os.environ.get("IMAGE_SITE_LOCK")
    return read_lock(Path(site)) if site else {}


def find_mirrors() -> tuple[str, str]:
    """Return (archive, security archive) by the settings, else by this machine's apt sources."""
    configured = (
        os.environ.get("IMAGE_DEBIAN_MIRROR"),
        os.environ.get("IMAGE_DEBIAN_SECURITY_MIRROR"),
    )
    listing = ""
    if shutil.which("apt-get"):
        command = ("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)")
        listing = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=False
        ).stdout
    own = dict(reversed([line.split() for line in listing.splitlines() if line.count(" ") == 1]))
    archive = configured[0] or own.get(RELEASE)
    security = configured[1] or own.get(f"{RELEASE}-security")
    if not archive or not security:
        raise BadInput(
            f"this machine's apt has no mirror of {RELEASE} and {RELEASE}-security. "
            "Set IMAGE_DEBIAN_MIRROR and IMAGE_DEBIAN_SECURITY_MIRROR."
        )
    return archive.rstrip("/"), security.rstrip("/")


def build_environment(
    profile: Profile, out: Path, venv: Path, fetched: inputs.Inputs, *, update_lock: bool
) -> dict[str, str]:
    """Return the variables for diskimage-builder and its elements; no others reach the chroot."""
    archive, security = find_mirrors()
    # settings of this machine for files that the chroot does not have
    host_only = {
        "PIP_CERT",
        "PIP_FIND_LINKS",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "PYTHONPATH",
        "VIRTUAL_ENV",
    }
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
        "DIB_REPOLOCATION_ironic_python_agent": fetched.source.as_uri(),
        "DIB_REPOTYPE_requirements": "tar",
        "DIB_REPOREF_requirements": ".",
        "DIB_REPOLOCATION_requirements": fetched.constraints.as_uri(),
        "DIB_IPA_COMPRESS_CMD": profile.compress,
        "DIB_IPA_ENABLE_RESCUE": "false",  # we offer no password login from outside
        "PROVISIONER_WHEELHOUSE": str(fetched.wheelhouse),
        "PROVISIONER_IMAGE_ID": f"{manifest.NAME} {profile.name} {compute_identity()}",
    }
    if not update_lock:
        file = out / "inputs/allowed.lock"
        file.write_text("".join(f"{p.to_line()}\n" for p in sorted(list_allowed().values())))
        result["PROVISIONER_DEBIAN_LOCK"] = str(file)
    return result


def compute_identity() -> str:
    """Return an identity of the inputs; the manifest's digest exists only after the build."""
    return hashlib.sha256(repr(sorted(hash_inputs().items())).encode()).hexdigest()[:16]


def create_image(
    profile: Profile, out: Path, venv: Path, fetched: inputs.Inputs, *, update_lock: bool, name: str
) -> None:
    """Build NAME.kernel, NAME.initramfs and NAME.d in `out`. Raises BadInput."""
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
            env=build_environment(profile, out, venv, fetched, update_lock=update_lock),
            timeout=BUILD_LIMIT_S,
            check=False,
        )
    if ended.returncode:
        ours = [x for x in log.read_text(errors="replace").splitlines() if "provisioner: " in x]
        told = "".join(f"\n  {line}" for line in ours[-20:])
        raise BadInput(f"diskimage-builder failed{told}{read_last_lines(log)}")

"""A virtual machine of QEMU whose firmware (OVMF) enforces Secure Boot, with Debian's own kernel.

OVMF's `snakeoil` variables have one key in PK, KEK and db, whose private half Debian's package has
too (/usr/share/ovmf, password "snakeoil"): it signs the program that is booted, and the order by
which the booted system adds another key to db. Emulation is in software.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from images import uki

FIRMWARE = Path("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd")
VARIABLES = Path("/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd")
KEY, CERTIFICATE = (Path(f"/usr/share/ovmf/PkKek-1-snakeoil.{kind}") for kind in ("key", "pem"))
QEMU = "qemu-system-x86_64"
OWNER = "8be4df61-93ca-11d2-aa0d-00e098032b8c"  # of the added key; any GUID is right
DB = "db-d719b2cb-3d3a-4596-a3bc-dad00e67656f"  # UEFI 2.10, 32.6.1: EFI_IMAGE_SECURITY_DATABASE
APPEND = (
    b"\x67\0\0\0"  # attributes of an authenticated, appending write (8.2.1), as efivarfs has them
)
LIMIT_S = 900
INIT = f"""\
#!/bin/busybox sh
db={DB}
/bin/busybox mkdir -p /proc /sys /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t securityfs securityfs /sys/kernel/security
/bin/busybox sed 's/^/state lockdown /' /sys/kernel/security/lockdown
/bin/busybox sed 's/^/key /' /proc/keys
for file in /modules/*.ko; do
  said=$(/bin/busybox insmod $file 2>&1) && said=loaded
  echo "module $file $said"
  /bin/busybox rmmod tiny 2>/dev/null
done
if [ -e /order ]; then
  /bin/busybox insmod /efivarfs.ko
  /bin/busybox mount -t efivarfs efivarfs /sys/firmware/efi/efivars
  /usr/bin/chattr -i /sys/firmware/efi/efivars/$db
  /bin/busybox dd if=/order of=/sys/firmware/efi/efivars/$db bs=64k && echo state ordered
fi
echo end-of-looks
/bin/busybox poweroff -f
"""


def list_missing() -> list[str]:
    """Return what a run needs and is not here, as Debian's packages."""
    needs = {
        "ovmf": VARIABLES.is_file(), "qemu-system-x86": shutil.which(QEMU) is not None,
        "cpio": shutil.which("cpio") is not None, "systemd-boot-efi": uki.STUB.is_file(),
        "efitools": shutil.which("sign-efi-sig-list") is not None,
        "sbsigntool, mtools, xorriso, binutils": all(map(shutil.which, uki.TOOLS)),
    }  # fmt: skip
    return [package for package, there in needs.items() if not there]


def make_key(folder: Path) -> uki.SigningKey:
    """Return the enrolled key, without its password."""
    plain = folder / "enrolled.key"
    line = ["openssl", "rsa", "-in", str(KEY), "-passin", "pass:snakeoil", "-out", str(plain)]
    subprocess.run(line, check=True, capture_output=True)
    return uki.SigningKey(plain, CERTIFICATE)


def write_order(certificate: Path, signer: uki.SigningKey, folder: Path) -> Path:
    """Return a file whose bytes, written to db in efivarfs, enrol a certificate (PEM)."""
    listed, order = folder / "db.esl", folder / "db.auth"
    lines = (
        ["cert-to-efi-sig-list", "-g", OWNER, certificate, listed],
        [
            "sign-efi-sig-list",
            "-a",
            "-k",
            signer.key,
            "-c",
            signer.certificate,
            "db",
            listed,
            order,
        ],
    )
    for line in lines:
        subprocess.run(list(map(str, line)), check=True, capture_output=True)
    order.write_bytes(APPEND + order.read_bytes())
    return order


@dataclass(frozen=True)
class Looks:
    """The console of one boot."""

    console: str

    @property
    def keys(self) -> str:
        """The kernel's own /proc/keys."""
        return "".join(
            f"{row}\n" for row in re.findall(r"^key (.+?)\r?$", self.console, re.MULTILINE)
        )

    @property
    def modules(self) -> dict[str, str]:
        """Return module -> "loaded", or the kernel's refusal."""
        rows = re.findall(r"^module /modules/(\S+)\.ko (.+?)\r?$", self.console, re.MULTILINE)
        return dict(rows)


class Machine:
    """One machine with its own variables; a boot tries to load some modules and ends.

    The root directory has the kernel, busybox, and chattr with its shared `libraries`: efivarfs
    has db as a file that nobody changes by mistake.
    """

    def __init__(self, root: Path, release: str, libraries: Iterable[str], folder: Path) -> None:
        self.kernel = root / f"boot/vmlinuz-{release}"
        self.folder = folder
        self.files = {
            "bin/busybox": root / "bin/busybox", "usr/bin/chattr": root / "usr/bin/chattr",
            "efivarfs.ko": root / f"lib/modules/{release}/kernel/fs/efivarfs/efivarfs.ko",
            **{name.strip("/"): root / name.strip("/") for name in libraries},
        }  # fmt: skip
        self.variables = Path(shutil.copy(VARIABLES, folder / "variables.fd"))
        self.signer = make_key(folder)
        self._boots = 0

    def boot(
        self,
        modules: dict[str, Path],
        order: Path | None = None,
        change: tuple[bytes, bytes] | None = None,
    ) -> Looks:
        """Boot one signed program of the kernel; an order enrols a key for the next boot.

        A change (bytes, others of their number) is made in the program after it was signed.
        """
        self._boots += 1
        folder = self.folder / f"boot-{self._boots}"
        tree = folder / "tree"
        given = {f"modules/{name}.ko": file for name, file in modules.items()}
        if order is not None:
            given["order"] = order
        for name, file in (self.files | given).items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, tree / name)
        (tree / "init").write_text(INIT)
        (tree / "init").chmod(0o755)
        with (folder / "initrd").open("wb") as out:
            words = ["sh", "-c", "find . | cpio --quiet -o -H newc"]
            subprocess.run(words, cwd=tree, stdout=out, check=True)
        program = folder / "program.efi"
        cmdline = "console=ttyS0 panic=-1"
        uki.make_program(self.kernel, folder / "initrd", cmdline, self.signer, program)
        if change is not None:
            content = program.read_bytes()
            assert content.count(change[0]) == 1
            program.write_bytes(content.replace(*change))
        uki.make_iso(program, folder / "boot.iso")
        return Looks(run_machine(self.variables, folder))


def run_machine(variables: Path, folder: Path) -> str:
    """Start a machine and return its console, once it ends or its firmware refuses to start."""
    console = folder / "console.log"
    flash = "if=pflash,format=raw,unit={},file={}"
    words = [
        QEMU, "-machine", "q35,smm=on,accel=tcg", "-cpu", "max,la57=off", "-m", "512",
        "-global", "driver=cfi.pflash01,property=secure,value=on",
        "-drive", flash.format(0, FIRMWARE) + ",readonly=on",
        "-drive", flash.format(1, variables),
        "-cdrom", str(folder / "boot.iso"), "-display", "none", "-net", "none", "-no-reboot",
        "-serial", f"file:{console}", "-monitor", "none",
    ]  # fmt: skip
    machine = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    until = time.monotonic() + LIMIT_S
    try:
        while machine.poll() is None and time.monotonic() < until:
            time.sleep(0.5)
            if console.is_file() and b"Access Denied" in console.read_bytes():
                break
    finally:
        machine.kill()
        machine.wait()
    return console.read_text(errors="replace")

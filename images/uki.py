"""Makes one signed program of kernel, ramdisk and command line: a unified kernel image (UKI).

On the plain ISO, Secure Boot verifies shim, GRUB and kernel, but neither the ramdisk nor the
command line, which carries the daemon's CA and SSH key. Here all of it is in one EFI program with
systemd's stub (systemd-stub(7)), signed by the site's own key: a changed byte anywhere means that
the firmware does not start it, and the stub takes no other command line under Secure Boot.

The token of a boot changes with each boot, so it is outside of the signature: a credential in the
EFI system partition, which the stub puts into /.extra/global_credentials of the ramdisk.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from delivery.tools import run_tool
from images.iso import BOOT_SLOT, LABEL, require_cmdline
from images.locks import BadInput, Package, check_digest

STUB = Path("/usr/lib/systemd/boot/efi/linuxx64.efi.stub")
TOOLS = {
    "objcopy": "binutils",
    "objdump": "binutils",
    "sbsign": "sbsigntool",
    "sbverify": "sbsigntool",
    "xorriso": "xorriso",
    "mformat": "mtools",
    "mcopy": "mtools",
    "mmd": "mtools",
}
PAGE = 4096  # sections of a PE program begin at multiples of it (Microsoft, PE format)
CREDENTIAL = "loader/credentials/provisioner-boot-token.cred"
_ESP_SLACK_BYTES = 8 << 20


@dataclass(frozen=True)
class SigningKey:
    """A site's key for Secure Boot: files with the private key and its certificate, PEM."""

    key: Path
    certificate: Path


def require_tools(locked: dict[str, Package]) -> None:
    """Raise BadInput if a tool is missing, or the stub is not the locked one."""
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise BadInput(f"{tool} is missing. On Debian: apt-get install {package}")
    if not STUB.is_file():
        raise BadInput(f"{STUB} is missing. On Debian: apt-get install systemd-boot-efi")
    check_digest(STUB, locked)


def make_program(
    kernel: Path, initramfs: Path, cmdline: str, signer: SigningKey, out: Path
) -> None:
    """Write the signed EFI program, and verify its signature. Raises BadInput."""
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        folder = Path(scratch)
        (folder / "cmdline").write_text(require_cmdline(cmdline))
        (folder / "osrel").write_text('ID=provisioner\nNAME="provisioner maintenance image"\n')
        unsigned = folder / "unsigned.efi"
        sections = {
            ".osrel": folder / "osrel",
            ".cmdline": folder / "cmdline",
            ".linux": kernel,
            ".initrd": initramfs,
        }
        _run_tool("objcopy", *place_sections(sections), str(STUB), str(unsigned))
        pair = ("--key", str(signer.key), "--cert", str(signer.certificate))
        _run_tool("sbsign", *pair, "--output", str(out), str(unsigned))
    _run_tool("sbverify", "--cert", str(signer.certificate), str(out))


def place_sections(files: dict[str, Path]) -> list[str]:
    """Return objcopy's arguments that add the files behind the stub's own sections, in order."""
    address = _find_end(_run_tool("objdump", "--section-headers", "--wide", str(STUB)))
    arguments: list[str] = []
    for name, file in files.items():
        address = -(-address // PAGE) * PAGE
        arguments += ["--add-section", f"{name}={file}"]
        arguments += ["--set-section-flags", f"{name}=data,readonly"]
        arguments += ["--change-section-vma", f"{name}={address:#x}"]
        address += file.stat().st_size
    return arguments


def _find_end(headers: str) -> int:
    """Return the first address behind all sections of `objdump --section-headers`."""
    rows = [line.split() for line in headers.splitlines()]
    ends = [int(r[2], 16) + int(r[3], 16) for r in rows if len(r) > 6 and r[0].isdigit()]
    if not ends:
        raise BadInput(f"{STUB}: objdump lists no sections")
    return max(ends)


def make_iso(program: Path, out: Path) -> None:
    """Write an ISO whose EFI system partition has the program and the slot of the boot's token.

    The partition is larger than the 16-bit field of El Torito can say; the value 1 means "to the
    end of the medium" (UEFI 2.10, 13.3.2.1).
    """
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        tree = Path(scratch) / "tree"
        (tree / "boot").mkdir(parents=True)
        esp = tree / "boot/efi.img"
        token = Path(scratch) / "token"
        token.write_text(BOOT_SLOT)
        with esp.open("wb") as file:
            size = program.stat().st_size + _ESP_SLACK_BYTES
            file.truncate(-(-size // (1 << 20)) * (1 << 20))
        _run_tool("mformat", "-i", str(esp), "-v", "ESP", "::")
        folders = ("::/EFI", "::/EFI/BOOT", "::/loader", "::/loader/credentials")
        _run_tool("mmd", "-i", str(esp), *folders)
        _run_tool("mcopy", "-i", str(esp), str(program), "::/EFI/BOOT/BOOTX64.EFI")
        _run_tool("mcopy", "-i", str(esp), str(token), f"::/{CREDENTIAL}")
        _run_tool(
            "xorriso",
            "-as",
            "mkisofs",
            "-quiet",
            "-R",
            "-V",
            LABEL,
            "-e",
            "boot/efi.img",
            "-no-emul-boot",
            "-boot-load-size",
            "1",
            "-isohybrid-gpt-basdat",
            "-o",
            str(out),
            str(tree),
        )


def _run_tool(*command: str) -> str:
    return run_tool(*command, error=BadInput)

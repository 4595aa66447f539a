"""Makes the ISO that boots kernel and ramdisk: on BIOS by isolinux, on UEFI by Debian's signed shim
and GRUB, so that Secure Boot may stay on.

Only the kernel command line differs between sites, so an ISO is made anew in seconds without
building the ramdisk again. The boot loaders are copied from Debian packages of this machine whose
digests are in `lock/bootloader.lock`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from delivery.tools import run_tool
from images.locks import BadInput, Package, find_differences, hash_file

LABEL = "PROVISIONER"
# COMMAND_LINE_SIZE of x86 (Linux, arch/x86/include/asm/setup.h) is 2048 with the final zero; the
# boot loader adds BOOT_IMAGE and initrd in front
CMDLINE_MAX = 1900
# The daemon puts the token of one boot into this slot while a BMC reads the image; the
# ironic-python-agent takes its token from this argument (config.py, `agent_token`). An image from
# another server keeps the slot, and its agent takes the token of its lookup instead.
BOOT_SLOT = "provisioner-boot-token-slot-000000000000000000000000000000000000"
BOOT_ARGUMENT = f"ipa-agent-token={BOOT_SLOT}"
_CMDLINE = re.compile(r"[A-Za-z0-9_.,:;=/+@%\[\]-]+( [A-Za-z0-9_.,:;=/+@%\[\]-]+)*")
ESP_SLACK_KIB = 1024

# file -> its Debian package
LOADERS = {
    "/usr/lib/ISOLINUX/isolinux.bin": "isolinux",
    "/usr/lib/ISOLINUX/isohdpfx.bin": "isolinux",
    "/usr/lib/syslinux/modules/bios/ldlinux.c32": "syslinux-common",
    "/usr/lib/shim/shimx64.efi.signed": "shim-signed",
    "/usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed": "grub-efi-amd64-signed",
}
TOOLS = {"xorriso": "xorriso", "mformat": "mtools", "mcopy": "mtools", "mmd": "mtools"}


def read_loaders(root: Path = Path("/")) -> dict[str, Package]:
    """Return the boot loaders of this machine by file. Raises BadInput if one is missing."""
    packages = {}
    for file, package in LOADERS.items():
        path = root / file.lstrip("/")
        if not path.is_file():
            raise BadInput(f"{file} is missing. On Debian: apt-get install {package}")
        packages[file] = Package(file, package, hash_file(path))
    return packages


def check_loaders(locked: dict[str, Package], present: dict[str, Package]) -> None:
    """Raise BadInput if a boot loader differs from the lock."""
    if lines := find_differences(locked, present):
        raise BadInput(
            "boot loaders are not those of lock/bootloader.lock:\n  "
            + "\n  ".join(lines)
            + "\nReview them and build with --update-lock."
        )


def require_cmdline(cmdline: str) -> str:
    """Return the command line if boot loaders can carry it. Raises BadInput."""
    if len(cmdline) > CMDLINE_MAX:
        raise BadInput(
            f"kernel command line: {len(cmdline)} characters, at most {CMDLINE_MAX} reach the "
            "kernel. A CA with an elliptic curve key is shorter; or bake it in with IMAGE_CA."
        )
    if not _CMDLINE.fullmatch(cmdline):
        raise BadInput("kernel command line: only words of letters, digits and _.,:;=/+@%[]- ")
    return cmdline


def render_grub_config(cmdline: str) -> str:
    """Return GRUB's configuration for UEFI, on the serial line and the screen."""
    return (
        "set timeout=1\nset default=0\n"
        "serial --unit=0 --speed=115200\n"
        "terminal_input console serial\nterminal_output console serial\n"
        "menuentry provisioner {\n"
        f"  linux /vmlinuz {cmdline}\n"
        "  initrd /initrd\n"
        "}\n"
    )


def render_isolinux_config(cmdline: str) -> str:
    """Return isolinux's configuration for BIOS; TIMEOUT is in tenths of a second."""
    return (
        "SERIAL 0 115200\nDEFAULT provisioner\nTIMEOUT 10\nPROMPT 0\n"
        f"LABEL provisioner\n  KERNEL /vmlinuz\n  INITRD /initrd\n  APPEND {cmdline}\n"
    )


def make_iso(kernel: Path, initramfs: Path, cmdline: str, out: Path) -> None:
    """Write the ISO. Raises BadInput if a tool or boot loader is missing, or a tool fails."""
    cmdline = require_cmdline(f"{cmdline} {BOOT_ARGUMENT}")
    read_loaders()
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise BadInput(f"{tool} is missing. On Debian: apt-get install {package}")
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        tree = Path(scratch) / "tree"
        _lay_out(tree, kernel, initramfs, cmdline)
        _make_esp(tree / "boot/efi.img", tree)
        _run_tool(
            "xorriso",
            "-as",
            "mkisofs",
            "-quiet",
            "-R",
            "-J",
            "-V",
            LABEL,
            "-isohybrid-mbr",
            "/usr/lib/ISOLINUX/isohdpfx.bin",
            "-b",
            "isolinux/isolinux.bin",
            "-c",
            "isolinux/boot.cat",
            "-no-emul-boot",
            "-boot-load-size",
            "4",
            "-boot-info-table",
            "-eltorito-alt-boot",
            "-e",
            "boot/efi.img",
            "-no-emul-boot",
            "-isohybrid-gpt-basdat",
            "-o",
            str(out),
            str(tree),
        )


def _lay_out(tree: Path, kernel: Path, initramfs: Path, cmdline: str) -> None:
    for folder in ("isolinux", "boot/grub/x86_64-efi", ".disk"):
        (tree / folder).mkdir(parents=True)
    shutil.copyfile(kernel, tree / "vmlinuz")
    shutil.copyfile(initramfs, tree / "initrd")
    for file in LOADERS:
        if file.endswith(("isolinux.bin", ".c32")):
            shutil.copyfile(file, tree / "isolinux" / Path(file).name)
    (tree / "isolinux/isolinux.cfg").write_text(render_isolinux_config(cmdline))
    # Debian's GRUB for CDs looks for /.disk/info, then reads boot/grub/x86_64-efi/grub.cfg there
    (tree / ".disk/info").write_text("provisioner maintenance image\n")
    (tree / "boot/grub/x86_64-efi/grub.cfg").write_text("configfile /boot/grub/grub.cfg\n")
    (tree / "boot/grub/grub.cfg").write_text(render_grub_config(cmdline))


def _make_esp(image: Path, tree: Path) -> None:
    """Make a FAT file system with both loaders, as on removable media (UEFI 2.10, 3.5.1.1)."""
    parts = {
        "EFI/BOOT/BOOTX64.EFI": Path("/usr/lib/shim/shimx64.efi.signed"),
        "EFI/BOOT/GRUBX64.EFI": Path("/usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed"),
    }
    pointer = tree.parent / "pointer.cfg"
    pointer.write_text(
        "search --file --set=root /.disk/info\nset prefix=($root)/boot/grub\n"
        "configfile ($root)/boot/grub/grub.cfg\n"
    )
    size_kib = sum(p.stat().st_size for p in parts.values()) // 1024 + ESP_SLACK_KIB
    with image.open("wb") as file:
        file.truncate(size_kib * 1024)
    _run_tool("mformat", "-i", str(image), "-v", "ESP", "::")
    _run_tool("mmd", "-i", str(image), "::/EFI", "::/EFI/BOOT", "::/EFI/debian")
    for name, source in parts.items():
        _run_tool("mcopy", "-i", str(image), str(source), f"::/{name}")
    _run_tool("mcopy", "-i", str(image), str(pointer), "::/EFI/debian/grub.cfg")


def _run_tool(*command: str) -> None:
    run_tool(*command, error=BadInput)

"""A tiny disk image that boots on BIOS and on UEFI and prints a marker on the serial line.

It takes the place of an operating system: `standby.prepare_image` writes it, and it must run after
the machine was set to boot from its disk.
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from delivery.tools import run_tool
from images.locks import BadInput

SECTOR = 512
ESP_START, ESP_SECTORS = 2048, 24576  # 12 MiB: GRUB in one file has some 5
SIZE_BYTES = (ESP_START + ESP_SECTORS + 2048) * SECTOR
GRUB_MODULES = "serial terminal echo halt normal sleep memdisk tar"
SAID = 60  # times that GRUB prints the marker, one second apart

# 16-bit code at 7C00h: writes the text at 7C40h to COM1 (a 16550 at 3F8h) once a second.
_CODE = bytes.fromhex(
    "fa 31c0 8ed8 8ed0 bc007c fb"  # cli; ax = ds = ss = 0; sp = 7C00h; sti
    "be407c"  # next:  mov si, 7C40h
    "ac 84c0 7412"  # char:  lodsb; test al, al; jz wait
    "88c4 bafd03"  #        mov ah, al; mov dx, 3FDh (line status)
    "ec a820 74fb"  # ready: in al, dx; test al, 20h (may send); jz ready
    "88e0 baf803 ee ebe9"  #        mov al, ah; mov dx, 3F8h; out dx, al; jmp char
    "b90f00 ba4042 b486 cd15 ebda"  # wait:  cx:dx = 1,000,000 us; INT 15h, AH=86h; jmp next
)
_TEXT_AT = 0x40


def build_boot_sector(marker: str) -> bytes:
    """Return the first sector: code, text, and a partition table with the EFI system partition."""
    text = f"\r\n{marker}\r\n".encode("ascii") + b"\0"
    assert len(_CODE) <= _TEXT_AT
    assert _TEXT_AT + len(text) <= 440
    code = _CODE.ljust(_TEXT_AT, b"\x90") + text
    chs = b"\xfe\xff\xff"  # "see the sector numbers": nothing reads cylinders any more
    entry = struct.pack("<B3sB3sII", 0x80, chs, 0xEF, chs, ESP_START, ESP_SECTORS)
    return code.ljust(440, b"\0") + b"PRVR\0\0" + entry.ljust(64, b"\0") + b"\x55\xaa"


def make_disk(path: Path, marker: str) -> None:
    """Write the image. Raises BadInput if GRUB's or mtools' programs fail."""
    commands = f"echo {marker}\nsleep 1\n" * SAID  # no loop: that would need more GRUB modules
    grub = f"serial --unit=0 --speed=115200\nterminal_output serial\n{commands}halt\n"
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        config, program = Path(folder) / "grub.cfg", Path(folder) / "BOOTX64.EFI"
        config.write_text(grub)
        _run_tool(
            "grub-mkstandalone",
            "-O",
            "x86_64-efi",
            "--install-modules",
            GRUB_MODULES,
            "--modules",
            GRUB_MODULES,
            "--fonts",
            "",
            "--locales",
            "",
            "--themes",
            "",
            "-o",
            str(program),
            f"boot/grub/grub.cfg={config}",
        )
        esp = Path(folder) / "esp"
        with esp.open("wb") as file:
            file.truncate(ESP_SECTORS * SECTOR)
        _run_tool("mformat", "-i", str(esp), "::")
        _run_tool("mmd", "-i", str(esp), "::/EFI", "::/EFI/BOOT")
        _run_tool("mcopy", "-i", str(esp), str(program), "::/EFI/BOOT/BOOTX64.EFI")
        with path.open("wb") as file:
            file.write(build_boot_sector(marker))
            file.seek(ESP_START * SECTOR)
            file.write(esp.read_bytes())
            file.truncate(SIZE_BYTES)


def _run_tool(*command: str) -> None:
    run_tool(*command, error=BadInput)

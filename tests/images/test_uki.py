"""One signed program of kernel, ramdisk and command line: a changed byte breaks its signature."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from images import locks, ramdisk, uki
from images.locks import BadInput, Package
from provisioner.execution.artifacts.artifacts import find_slots

needs_tools = pytest.mark.skipif(
    not uki.STUB.is_file() or any(shutil.which(tool) is None for tool in uki.TOOLS),
    reason="needs systemd-boot-efi, binutils, sbsigntool, xorriso and mtools",
)
CMDLINE = "console=ttyS0 ipa-api-url=https://192.0.2.1:6385 provisioner-ca=MIIB"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A program with a kernel and a ramdisk of a few bytes, and the key that signed it."""
    folder = tmp_path_factory.mktemp("uki")
    signer = _make_key(folder, "site")
    (folder / "kernel").write_bytes(b"kernel" * 1000)
    (folder / "initrd").write_bytes(b"ramdisk" * 3000)
    out = folder / "image.efi"
    uki.make_program(folder / "kernel", folder / "initrd", CMDLINE, signer, out)
    return out, signer


def _make_key(folder: Path, name: str) -> uki.SigningKey:
    """An RSA key, the only kind that Secure Boot must verify (UEFI 2.10, 32.4.1)."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return uki.SigningKey(key, certificate)


def _verifies(program: Path, signer: uki.SigningKey) -> bool:
    command = ["sbverify", "--cert", signer.certificate, program]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@needs_tools
def test_kernel_ramdisk_and_command_line_are_sections_of_the_program(built, tmp_path):
    program, _ = built
    contents = {}
    for name in (".linux", ".initrd", ".cmdline"):
        piece = tmp_path / name
        command = ["objcopy", "-O", "binary", "--dump-section", f"{name}={piece}"]
        subprocess.run([*command, program, tmp_path / "rest"], check=True)
        contents[name] = piece.read_bytes().rstrip(b"\0")

    assert contents[".linux"] == b"kernel" * 1000
    assert contents[".initrd"] == b"ramdisk" * 3000
    assert contents[".cmdline"].decode() == CMDLINE


@needs_tools
@pytest.mark.parametrize("text", [b"kernelkernel", b"ramdiskramdisk", b"ipa-api-url"])
def test_a_changed_byte_of_any_part_is_noticed(built, tmp_path, text):
    program, signer = built
    changed = bytearray(program.read_bytes())
    changed[changed.index(text)] ^= 1
    copy = tmp_path / "changed.efi"
    copy.write_bytes(changed)

    assert _verifies(program, signer)
    assert not _verifies(copy, signer)


@needs_tools
def test_another_key_does_not_verify_it(built, tmp_path):
    assert not _verifies(built[0], _make_key(tmp_path, "other"))


@needs_tools
def test_the_slot_of_the_token_is_on_the_iso_and_outside_of_what_is_signed(built, tmp_path):
    out = tmp_path / "site.iso"

    uki.make_iso(built[0], out)

    assert find_slots(built[0]) == ()
    assert len(find_slots(out)) == 1


def test_a_stub_that_is_not_the_locked_one_is_refused(tmp_path):
    stub = tmp_path / "stub"
    stub.write_bytes(b"another")
    locked = {str(stub): Package(str(stub), "systemd-boot-efi", "ab" * 32)}

    with pytest.raises(BadInput, match="not the file of its lock"):
        locks.check_digest(stub, locked)
    with pytest.raises(BadInput, match="not the file of its lock"):
        locks.check_digest(stub, {})
    assert str(uki.STUB) in ramdisk.read_lock(ramdisk.LOCKS / "stub.lock")

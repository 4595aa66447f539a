"""What the ISO boots with: a command line that reaches the kernel whole, on BIOS and UEFI."""

from __future__ import annotations

import pytest

from images import iso
from images.locks import BadInput, Package

CMDLINE = "console=ttyS0,115200 ipa-api-url=https://[2001:db8::1]:6385 provisioner-ca=MIIB+/="


def test_both_boot_loaders_give_the_kernel_the_same_words():
    assert f"linux /vmlinuz {CMDLINE}\n" in iso.render_grub_config(CMDLINE)
    assert f"APPEND {CMDLINE}\n" in iso.render_isolinux_config(CMDLINE)


@pytest.mark.parametrize(
    "bad",
    ["a\nLABEL other", "a; reboot $(x)", "a  b", "", "x" * (iso.CMDLINE_MAX + 1), 'a "b"', "a\\b"],
)
def test_a_command_line_that_a_boot_loader_would_read_otherwise_is_refused(bad):
    with pytest.raises(BadInput, match="command line"):
        iso.require_cmdline(bad)


def test_a_boot_loader_that_is_not_installed_is_named_with_its_package(tmp_path):
    with pytest.raises(BadInput, match="apt-get install isolinux"):
        iso.read_loaders(tmp_path)


def test_another_boot_loader_than_the_locked_one_is_refused():
    locked = {"/shim": Package("/shim", "shim-signed", "ab" * 32)}
    there = {"/shim": Package("/shim", "shim-signed", "cd" * 32)}

    iso.check_loaders(locked, locked)
    with pytest.raises(BadInput, match="/shim"):
        iso.check_loaders(locked, there)

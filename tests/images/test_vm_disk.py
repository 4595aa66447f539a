"""The tiny system that the virtual machine boots after its image was written."""

from __future__ import annotations

import struct

import pytest

from images.vm import disk


def test_the_first_sector_has_code_text_and_one_partition_inside_the_image():
    sector = disk.build_boot_sector("MARKER")

    kind, start, count = struct.unpack_from("<4xB3xII", sector, 446)
    assert len(sector) == disk.SECTOR
    assert sector[510:] == b"\x55\xaa"
    assert (kind, start) == (0xEF, disk.ESP_START)
    assert (start + count) * disk.SECTOR <= disk.SIZE_BYTES
    assert b"\r\nMARKER\r\n\0" in sector[:440]


def test_the_code_points_at_its_text():
    sector = disk.build_boot_sector("MARKER")
    at = sector.index(b"\r\nMARKER")

    assert sector[11:14] == b"\xbe" + struct.pack("<H", 0x7C00 + at)  # mov si, text


def test_a_marker_that_does_not_fit_is_our_mistake():
    with pytest.raises(AssertionError):
        disk.build_boot_sector("x" * 440)

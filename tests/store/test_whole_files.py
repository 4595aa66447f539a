"""A file that is replaced is the old one or the new one, and its owner's."""

from __future__ import annotations

import os
import resource
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from provisioner.runtime.whole_files import replace_file


def test_what_a_death_left_beside_the_file_lends_the_new_one_neither_mode_nor_place(
    tmp_path: Path,
) -> None:
    beside = f".kept.{threading.get_native_id()}.new"
    file, beside, elsewhere = (tmp_path / name for name in ("kept", beside, "elsewhere"))
    elsewhere.write_text("of another")
    for leave in (lambda: beside.symlink_to(elsewhere), lambda: beside.touch(0o666)):
        leave()
        replace_file(file, "secret", lasting=True)
        assert stat.S_IMODE(file.lstat().st_mode) == 0o600
        assert (file.read_text(), elsewhere.read_text()) == ("secret", "of another")
        assert stat.S_ISREG(file.lstat().st_mode)


def test_on_a_full_disk_the_old_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    replace_file(file, "old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            replace_file(file, b"n" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_of_two_writers_at_once_one_file_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    texts = [letter * 200_000 for letter in "ab"]

    def write(text: str) -> None:
        for _ in range(50):
            replace_file(file, text)
            assert file.read_text() in texts

    with ThreadPoolExecutor(2) as writers:
        for done in [writers.submit(write, text) for text in texts]:
            done.result()
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_for_others_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "published", "", mode=0o666)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "published").stat().st_mode) == 0o640

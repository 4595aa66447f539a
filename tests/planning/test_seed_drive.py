"""The configuration drive: the same for the same files, and a volume that others can read."""

from __future__ import annotations

import base64
import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from provisioner.planning.erasure.deployment import SECTOR, build_volume, pack_volume

FILES = {
    "user-data": "#cloud-config\n" + "x" * 5000,
    "meta-data": "{}\n",
    "network-config": '{"version": 2}\n',
}


def test_equal_files_make_equal_drives() -> None:
    assert pack_volume(FILES) == pack_volume(dict(reversed(FILES.items())))
    assert pack_volume(FILES) != pack_volume({**FILES, "meta-data": "{ }\n"})
    assert gzip.decompress(base64.b64decode(pack_volume(FILES))) == build_volume(FILES)


def test_the_volume_says_its_own_size_and_label() -> None:
    made = build_volume(FILES)

    assert len(made) == int.from_bytes(made[16 * SECTOR + 80 : 16 * SECTOR + 84], "little") * SECTOR
    assert made[16 * SECTOR + 40 : 16 * SECTOR + 46] == b"cidata"


@pytest.mark.skipif(shutil.which("xorriso") is None, reason="no xorriso: apt-get install xorriso")
def test_another_program_reads_its_files_by_their_true_names(tmp_path: Path) -> None:
    (tmp_path / "drive.iso").write_bytes(build_volume(FILES))
    command = ["xorriso", "-read_fs", "norock", "-osirrox", "on", "-indev", "drive.iso"]
    subprocess.run(
        [*command, "-extract", "/", "out"], cwd=tmp_path, check=True, capture_output=True
    )

    found = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}

    assert found == FILES


@pytest.mark.skipif(shutil.which("blkid") is None, reason="no blkid: apt-get install util-linux")
def test_it_is_found_by_the_label_that_cloud_init_looks_for(tmp_path: Path) -> None:
    (tmp_path / "drive.iso").write_bytes(build_volume(FILES))
    command = ["blkid", "-p", "-o", "export", "drive.iso"]
    told = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)

    assert {"LABEL=cidata", "TYPE=iso9660"} <= set(told.stdout.split())
